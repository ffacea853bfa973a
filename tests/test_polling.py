from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from tests import polling
from tests.polling import eventually, eventually_sync


class Looks:
    """Finds nothing for a while, then something, and counts how often it was asked."""

    def __init__(self, *values: object) -> None:
        self._values = list(values)
        self.count = 0

    def __call__(self) -> object:
        self.count += 1
        return self._values.pop(0) if len(self._values) > 1 else self._values[0]

    async def later(self) -> object:
        await asyncio.sleep(0)
        return self()


async def poll(look: Callable[[], object], within_s: float, *, is_async: bool) -> object:
    """Wait in one of the two ways."""
    if is_async:
        return await eventually(look, what="the thing", within_s=within_s)
    return eventually_sync(look, what="the thing", within_s=within_s)


BOTH = pytest.mark.parametrize("is_async", [True, False])


@BOTH
async def test_it_looks_until_something_is_found_and_returns_that(is_async: bool) -> None:
    looks = Looks(None, 0, "", "found", "more")
    assert await poll(looks, 30, is_async=is_async) == "found"
    assert looks.count == 4


async def test_a_look_may_be_a_coroutine() -> None:
    looks = Looks(None, "found")
    assert await eventually(looks.later) == "found"
    assert looks.count == 2


@BOTH
async def test_the_failure_says_what_was_waited_for_and_what_was_seen_last(is_async: bool) -> None:
    with pytest.raises(AssertionError) as failure:
        await poll(Looks(None, []), 0.03, is_async=is_async)
    assert str(failure.value) == "waited 0.03 s for the thing, last seen: []"


@BOTH
async def test_what_a_look_raises_is_a_failure_at_once(is_async: bool) -> None:
    def look() -> object:
        raise TimeoutError("of its own")

    with pytest.raises(TimeoutError, match="of its own"):
        await poll(look, 30, is_async=is_async)


@BOTH
async def test_it_looks_once_more_when_the_time_passed_in_one_go(is_async: bool) -> None:
    looks = Looks(None, "found")

    def look() -> object:
        found = looks()
        if not found:
            time.sleep(0.05)  # the machine sleeps: the time is over when it wakes
        return found

    assert await poll(look, 0.01, is_async=is_async) == "found"


async def test_a_look_that_does_not_return_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "LAST_LOOK_S", 0.0)
    with pytest.raises(AssertionError, match="the last look did not return"):
        await eventually(asyncio.Event().wait, what="the thing", within_s=0.02)


def test_without_a_name_the_place_is_said() -> None:
    with pytest.raises(AssertionError, match=r"<lambda> \(.*test_polling.py:\d+"):
        eventually_sync(lambda: False, within_s=0.0)
