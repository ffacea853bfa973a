"""Polling for three weeks: the script, and how long the journal gets."""

from __future__ import annotations

import pytest

from examples import watch_shipment as example
from examples.watch_shipment import LOOKS, notify, watch_shipment
from tenure.testing import TestEngine, assert_survives
from tests.examples.stage import Stage


def test_the_script_lets_three_weeks_pass(stage: Stage) -> None:
    assert stage.run("watch_shipment.py") == [
        "parcel 7 is packed",
        "parcel 7 is on its way",
        "parcel 7 is delivered",
        "delivered after 4 new beginnings",
    ]


async def test_the_journal_stays_short(engine: TestEngine) -> None:
    async with engine.worker([watch_shipment, notify]):
        run = await engine.start(watch_shipment, "parcel 7")
        for _ in range(3):
            await engine.advance("6d")
            assert ((await run.describe()).entry_count or 0) <= 2 * LOOKS + 2
        assert (await run.describe()).generation >= 3


async def test_it_survives_a_crash_at_every_point(
    engine: TestEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(example, "LOOKS", 3)
    monkeypatch.setattr(example, "NEWS", {"parcel 7": ((1, "packed"), (7, "delivered"))})
    ended = await assert_survives(watch_shipment, "parcel 7", engine=engine, code=[notify])
    assert ended == "delivered after 2 new beginnings"
