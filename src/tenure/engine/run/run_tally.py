"""What batches did to runs, in numbers that only increase."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from tenure.core.limits import METRIC_TYPES_MAX
from tenure.core.task.record import Task
from tenure.engine.batch.working_set import WorkingSet
from tenure.engine.latencies import Latencies
from tenure.store.table.journal import JournalRows
from tenure.store.table.task import TaskKey

OTHER: Final = "other"
# From a short run to one at the limit of its journal.
LENGTH_BOUNDS: Final = (0, 1, 2, 5, 10, 25, 50, 100, 250, 1_000, 5_000, 10_000, 50_000)
_StepLabels = tuple[str, str, str]
"""(type of the run, kind, outcome)"""


class Lengths:
    """How many journals had so many entries at their end."""

    def __init__(self) -> None:
        """Start with none."""
        self.counts = [0] * (len(LENGTH_BOUNDS) + 1)
        self.total = 0

    def add(self, length: int) -> None:
        """Count one; a value on a bound counts below it."""
        self.counts[bisect_left(LENGTH_BOUNDS, length)] += 1
        self.total += length


class RunTally:
    """Steps, ends, hand-outs. Beyond a number of types the others are added up."""

    def __init__(self) -> None:
        """Start with zeros."""
        self.steps: dict[_StepLabels, int] = {}
        self.lengths = Lengths()
        self.wake = Latencies()
        self.rerun_entry_count = 0
        self._types: set[str] = set()

    def add_steps(self, ws: WorkingSet) -> None:
        """Add what workers recorded."""
        journals = ws.journals
        for place in journals.holders:
            entry = journals.new[place]
            task_type = self._type(ws.tasks[journals.run_of[place]].type)
            outcome = "succeeded" if entry.content.error is None else "failed"
            labels = (task_type, entry.kind.name.lower(), outcome)
            self.steps[labels] = self.steps.get(labels, 0) + 1

    def _type(self, name: str) -> str:
        if name not in self._types:
            if len(self._types) >= METRIC_TYPES_MAX:
                return OTHER
            self._types.add(name)
        return name

    def add_end(self, journals: JournalRows, key: TaskKey) -> None:
        """Add the journal of a run that has ended, if its length is known here."""
        end = journals.ends.get(key) or journals.remembered.get(key)
        if end is not None:
            self.lengths.add(end.pos)

    def add_hand_outs(self, given: list[Task]) -> None:
        """Add woken runs: all but the first attempt go through what was recorded, or its rest."""
        again = [task for task in given if task.progress.run is not None and task.attempt > 1]
        self.wake.add([task.handed_at_ms - task.progress.ready_at_ms for task in again])
        for task in again:
            page = task.link.page if task.link is not None else None
            if page is not None:
                self.rerun_entry_count += page.end - page.after
