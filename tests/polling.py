"""Wait for something that nobody tells of: look again and again, for a limited time."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from tests.bounds import WAIT_S

T = TypeVar("T")
EVERY_S: Final = 0.01
# For a look that does not return: it began in time and gets so much more.
LAST_LOOK_S: Final = 5.0
_VALUE_CHARS_MAX: Final = 500


async def eventually(
    look: Callable[[], object],
    what: str = "",
    *,
    within_s: float = WAIT_S,
    every_s: float = EVERY_S,
) -> Any:
    """Wait until a look finds something, and return it.

    ``look`` may be a coroutine function. What it raises is a failure, not something to wait out. It
    looks once more after the time is over: the time may have passed while the machine slept.

    >>> await eventually(lambda: journal.lines, "a line in the journal")
    """
    waiting = _Waiting(look, what, within_s, asyncio.get_running_loop().time)
    limit = asyncio.timeout(within_s + LAST_LOOK_S)
    try:
        async with limit:
            while True:
                waiting.begin_look()
                found = look()
                if inspect.isawaitable(found):
                    found = await found
                if waiting.is_found(found):
                    return found
                await asyncio.sleep(every_s)
    except TimeoutError as error:
        if limit.expired():
            raise AssertionError(waiting.complaint("; the last look did not return")) from error
        raise


def eventually_sync(
    look: Callable[[], T], what: str = "", *, within_s: float = WAIT_S, every_s: float = EVERY_S
) -> T:
    """Do the same without an event loop."""
    waiting = _Waiting(look, what, within_s, time.monotonic)
    while True:
        waiting.begin_look()
        value = look()
        if waiting.is_found(value):
            return value
        time.sleep(every_s)


class _Waiting:
    """What is waited for, until when, and what was seen last."""

    def __init__(
        self, look: Callable[[], object], what: str, within_s: float, clock: Callable[[], float]
    ) -> None:
        self._what = what or _place(look)
        self._within_s = within_s
        self._clock = clock
        self._ends_s = clock() + within_s
        self._is_last = False
        self._seen = "nothing"

    def begin_look(self) -> None:
        self._is_last = self._clock() >= self._ends_s

    def is_found(self, value: object) -> bool:
        """Return whether that was it; the last look must find it."""
        if value:
            return True
        self._seen = repr(value)[:_VALUE_CHARS_MAX]
        assert not self._is_last, self.complaint()
        return False

    def complaint(self, more: str = "") -> str:
        return f"waited {self._within_s:g} s for {self._what}, last seen: {self._seen}{more}"


def _place(look: Callable[[], object]) -> str:
    """Say where a look is written, for who gave it no name."""
    code = getattr(look, "__code__", None)
    name = getattr(look, "__qualname__", repr(look))
    return name if code is None else f"{name} ({code.co_filename}:{code.co_firstlineno})"
