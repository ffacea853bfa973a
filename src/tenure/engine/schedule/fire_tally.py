"""What batches did with schedules, in numbers that only increase."""

from __future__ import annotations

from typing import Final

from tenure.core.schedule.record import FireKind
from tenure.engine.latencies import Latencies
from tenure.store.table.schedule import ScheduleRows

# Until Python 3.12 members of an enum are found by a Python function.
_TICK: Final = FireKind.TICK


class FireTally:
    """Ticks by what became of them, and how late those were that fired."""

    def __init__(self) -> None:
        """Start with zeros."""
        self.results: dict[str, int] = {}
        self.lateness = Latencies()

    def add(self, schedules: ScheduleRows) -> None:
        """Add the fires of a batch; a skipped range counts as many as it has."""
        fires = schedules.work.appended
        for fire in fires:
            result = (fire.reason or fire.kind).value
            self.results[result] = self.results.get(result, 0) + fire.count
        self.lateness.add([each.lateness_ms for each in fires if each.kind is _TICK])
