"""The durable timers of a run that are armed."""

from __future__ import annotations

from collections.abc import Iterator

from tenure.sdk.workflow.ending import Wait
from tenure.sdk.workflow.journal import Entry, Kind
from tenure.sdk.workflow.loop import DurableTimer


class Timers:
    """Timers by their key; one that was reported waits until its entry is delivered."""

    def __init__(self) -> None:
        """Begin with none."""
        self._armed: dict[str, DurableTimer] = {}
        self._reported: set[str] = set()

    def add(self, timer: DurableTimer) -> None:
        """Keep a timer."""
        self._armed[timer.key] = timer

    def remove(self, timer: DurableTimer) -> None:
        """Forget a timer that was cancelled."""
        self._armed.pop(timer.key, None)

    def fired(self, key: str) -> DurableTimer | None:
        """Return the timer whose entry is delivered, if it is armed."""
        self._reported.discard(key)
        return self._armed.pop(key, None)

    def due(self, now_ms: int) -> Iterator[Entry]:
        """Yield what is to be recorded of timers whose time has come."""
        for key, timer in self._armed.items():
            if timer.fire_at_ms <= now_ms and key not in self._reported:
                self._reported.add(key)
                yield Entry(Kind.TIMER, key, timer.index, fire_at_ms=timer.fire_at_ms)

    def instants(self) -> Iterator[int]:
        """Yield when timers are due that were not reported."""
        return (timer.fire_at_ms for key, timer in self._armed.items() if key not in self._reported)

    def wakes(self) -> list[tuple[int, str, int]]:
        """Return what wakes the run: when, with which key, and its index."""
        return [(timer.fire_at_ms, key, timer.index) for key, timer in self._armed.items()]

    def waits(self) -> list[Wait]:
        """Return what the run waits for in its timers."""
        return [
            Wait("timer", key, str(timer.fire_at_ms), timer.line, timer.armed_at_ms)
            for key, timer in self._armed.items()
        ]
