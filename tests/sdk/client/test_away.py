"""A server that is away: how long a call is tried, and what its end says."""

from __future__ import annotations

import re
import time

import pytest

from tenure import Client
from tenure.errors import Unavailable
from tests.sdk.client.stage import double


async def test_a_call_is_tried_for_its_whole_timeout_whatever_its_pauses_were() -> None:
    async with Client("127.0.0.1:1", timeout="400ms") as client:
        for _ in range(8):
            began_s = time.monotonic()
            with pytest.raises(Unavailable, match=r"Connection refused.*It was tried for \d"):
                await client.enqueue(double, 1)
            assert time.monotonic() - began_s > 0.3


async def test_the_end_of_an_enqueue_says_how_long_it_was_tried() -> None:
    async with Client("127.0.0.1:1", timeout="1200ms") as client:
        began_s = time.monotonic()
        with pytest.raises(Unavailable) as caught:
            await client.enqueue(double, 1)
    took_s = time.monotonic() - began_s
    said = re.search(r"It was tried for ([\d.]+) s", caught.value.message)
    assert said is not None
    # It said 1 s, whatever the timeout was.
    assert 1.1 < float(said[1]) < took_s + 0.1
