"""Counts what each batch did, by queue and type: after its commit, when nobody waits for it."""

from __future__ import annotations

from collections.abc import Iterable

from tenure.core.limits import (
    STATISTICS_QUEUES_MAX,
    STATISTICS_SAMPLED,
    STATISTICS_TYPES_MAX,
    STATISTICS_WHOLE_MAX,
)
from tenure.core.task.attempt import CHARGES, Charge
from tenure.core.task.record import Task, TaskState
from tenure.engine.batch.run import Committed
from tenure.engine.batch.working_set import WorkingSet
from tenure.engine.claim.offer import Group
from tenure.engine.clock import Clock
from tenure.engine.statistics.figures import OTHER, Figures, note
from tenure.store.table.task import AttemptRows

Lines = dict[Group, dict[str, Figures]]


class Counter:
    """The present step. Beyond a number of tasks it counts samples of the batches, with weights."""

    def __init__(self, clock: Clock) -> None:
        """Start with an empty step."""
        self._clock = clock
        self._lines: Lines = {}
        self._whole_left = STATISTICS_WHOLE_MAX

    @property
    def lines(self) -> Lines:
        """Return what was counted since the last ``take``."""
        return self._lines

    def take(self) -> Lines:
        """End the step, and return it."""
        lines, self._lines = self._lines, {}
        self._whole_left = STATISTICS_WHOLE_MAX
        return lines

    def add(self, committed: Committed) -> None:
        """Count what a batch did."""
        tasks = committed.ws.tasks
        assigned = committed.claims.assigned
        count = len(tasks.new) + len(tasks.changed) + len(assigned)
        if not count:
            return
        weight = 1
        if count > self._whole_left:
            if self._clock.jitter() * STATISTICS_SAMPLED >= 1:
                return
            weight = STATISTICS_SAMPLED
        self._whole_left -= min(count, self._whole_left)
        for task in tasks.new.values():
            self._of(task).enqueued += weight
        if assigned:
            self._add_started(assigned, weight)
        if tasks.changed:
            self._add_finished(tasks.changed.values(), weight)
        if AttemptRows in committed.ws.rows.made:
            self._add_lost(committed.ws, weight)

    def _add_lost(self, ws: WorkingSet, weight: int) -> None:
        for attempt in ws.attempts.new.values():
            if CHARGES[attempt.outcome] is Charge.INTERRUPTIONS:
                self._of(ws.tasks[attempt.namespace, attempt.task_id]).lost += weight

    def _add_started(self, assigned: Iterable[tuple[Task, object]], weight: int) -> None:
        for task, _ in assigned:
            figures = self._of(task)
            figures.started += weight
            ready_at_ms = max(task.progress.ready_at_ms, task.run_at_ms)
            note(figures.wait, task.handed_at_ms - ready_at_ms, weight)

    def _add_finished(self, tasks: Iterable[Task], weight: int) -> None:
        for task in tasks:
            if task.finished_at_ms is None:
                continue
            figures = self._of(task)
            if task.state is TaskState.SUCCEEDED:
                figures.succeeded += weight
            elif task.state is TaskState.FAILED:
                figures.failed += weight
            else:
                figures.cancelled += weight
            if task.worker_id is not None:
                note(figures.run, task.finished_at_ms - task.handed_at_ms, weight)

    def _of(self, task: Task) -> Figures:
        """Return the figures of a task's line; beyond some lines those of all others."""
        group = (task.namespace, task.queue)
        types = self._lines.get(group)
        if types is None:
            if len(self._lines) >= STATISTICS_QUEUES_MAX:
                group = (task.namespace, OTHER)
            types = self._lines.setdefault(group, {})
        figures = types.get(task.type)
        if figures is None:
            name = task.type if len(types) < STATISTICS_TYPES_MAX else OTHER
            figures = types.setdefault(name, Figures())
        return figures
