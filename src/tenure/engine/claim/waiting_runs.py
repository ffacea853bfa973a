"""Runs that wait, as far as this server has put them there: whom to plan for when one is woken.

A signal names a run and not its queue, the end of a child only the child, and a timer nothing at
all. A batch that wakes a run can hand it out at once only if the offers of its queue are part of
its plan. A run that is not known here is handed out by the next batch.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

import msgspec

from tenure.core.limits import WAITING_RUNS_MAX
from tenure.core.task.record import Task, TaskState
from tenure.engine.claim.offer import Group
from tenure.engine.clock import Clock
from tenure.engine.command import AnyCommand
from tenure.engine.run.command import CancelRun, ResumeRun, SignalRun
from tenure.engine.task.command import FinishTasks, ProcessDue
from tenure.store.table.task import TaskKey

_WAITING = TaskState.WAITING


class WaitingRun(msgspec.Struct, frozen=True, gc=False):
    """Where a run will be in line when it is woken, who had it last, and when its timer fires."""

    group: Group
    type: str
    home_worker_id: str | None
    due_at_ms: int | None


class WaitingRuns:
    """Bounded, and never needed: whatever is missing costs one more batch."""

    def __init__(self, clock: Clock) -> None:
        """Start without any."""
        self._clock = clock
        self._runs: dict[TaskKey, WaitingRun] = {}
        self._dues: list[tuple[int, TaskKey]] = []
        # Of children that workers hold, their runs.
        self._parents: dict[TaskKey, TaskKey] = {}

    def __len__(self) -> int:
        """Return how many are known."""
        return len(self._runs)

    def note(self, task: Task) -> None:
        """Take in a run or a child as it was committed."""
        key = (task.namespace, task.id)
        if task.link is not None and task.link.parent_id is not None:
            self._note_child(key, task)
        run = task.progress.run
        if task.state is not _WAITING or run is None:
            self._runs.pop(key, None)
            return
        group = (task.namespace, task.queue)
        self._runs[key] = WaitingRun(group, task.type, run.home_worker_id, task.due_at_ms)
        if task.due_at_ms is not None:
            heapq.heappush(self._dues, (task.due_at_ms, key))
        while len(self._runs) > WAITING_RUNS_MAX:
            # The oldest: dictionaries keep the order of insertion.
            del self._runs[next(iter(self._runs))]
        if len(self._dues) > 2 * WAITING_RUNS_MAX:
            self._dues = [each for each in self._dues if self._is_due_then(*each)]
            heapq.heapify(self._dues)

    def _note_child(self, key: TaskKey, task: Task) -> None:
        """Remember whose child somebody is about to end."""
        if task.worker_id is None or task.finished_at_ms is not None:
            self._parents.pop(key, None)
            return
        if key not in self._parents:
            assert task.link is not None
            self._parents[key] = (task.namespace, task.link.place.run_id)
        while len(self._parents) > WAITING_RUNS_MAX:
            del self._parents[next(iter(self._parents))]

    def woken_by(self, commands: Iterable[AnyCommand]) -> Iterator[WaitingRun]:
        """Return the known runs that commands may wake, each once."""
        named: dict[TaskKey, None] = {}
        for command in commands:
            if isinstance(command, SignalRun | CancelRun | ResumeRun):
                named[command.namespace, command.run_id] = None
            elif type(command) is FinishTasks and self._parents:
                for item in command.items:
                    parent = self._parents.get((command.namespace, item.task_id))
                    if parent is not None:
                        named[parent] = None
            elif type(command) is ProcessDue:
                named.update(dict.fromkeys(self._take_due(command.amount)))
        return (self._runs[key] for key in named if key in self._runs)

    def _take_due(self, amount: int) -> Iterator[TaskKey]:
        now_ms = self._clock.now_ms()
        while amount and self._dues and self._dues[0][0] <= now_ms:
            due_at_ms, key = heapq.heappop(self._dues)
            if self._is_due_then(due_at_ms, key):
                amount -= 1
                yield key

    def _is_due_then(self, due_at_ms: int, key: TaskKey) -> bool:
        run = self._runs.get(key)
        return run is not None and run.due_at_ms == due_at_ms
