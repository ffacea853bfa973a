"""Executes attempts: passes each to its runner, checks timeouts, ends code that does not stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from tenure.core.limits import EXCLUSIVE_KILL_MS
from tenure.sdk.activity.context import StopReason
from tenure.sdk.activity.registry import Registry
from tenure.sdk.payload import Converter
from tenure.sdk.worker.execution import attempt
from tenure.sdk.worker.execution.execution import Execution, Site
from tenure.sdk.worker.execution.runners import Runners
from tenure.sdk.worker.execution.settings import ExecutionSettings
from tenure.sdk.worker.executor_protocol import AnsweredReport, RecordedEntries, Reporter
from tenure.sdk.worker.run.host import RunHost
from tenure.sdk.workflow.registry import WorkflowRegistry
from tenure.v1 import task_pb2
from tenure.v1.error_pb2 import ErrorDetail

# Timeouts are in seconds. A sweep over 1,000 executions takes half a millisecond.
_SWEEP_S: Final = 0.1
# Exclusive code that does not stop is killed after this. The server relies on it.
_EXCLUSIVE_GRACE_S: Final = EXCLUSIVE_KILL_MS / 1_000 - _SWEEP_S
# For these reasons the server has ended the attempt itself and needs no report.
_OVER: Final = frozenset(StopReason) - {StopReason.CANCELLED, StopReason.WORKER_SHUTDOWN}
_log = logging.getLogger("tenure.worker")


class TaskExecutor:
    """The executor of one queue of a worker; lives on the loop of the connection."""

    def __init__(
        self,
        registry: Registry,
        converter: Converter,
        reporter: Reporter,
        runners: Runners,
        settings: ExecutionSettings = ExecutionSettings(),  # noqa: B008 (immutable)
        workflows: WorkflowRegistry | None = None,
    ) -> None:
        """Execute where ``runners`` say; report to ``reporter``."""
        self._workflows = workflows or WorkflowRegistry()
        self._runs = RunHost(self._workflows, converter, reporter, runners, settings)
        self._registry = registry
        self._reporter = reporter
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._site = Site(
            converter=converter,
            reporter=reporter,
            on_late=self._on_late,
            namespace=settings.namespace,
            clock=settings.clock,
        )
        self._live = self._site.live
        # No longer live, but still using a slot.
        self._abandoned: set[Execution] = set()
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._is_handing_back = False
        self.exclusive_types = frozenset(
            each for each in registry.types if registry.get(each).traits.is_exclusive
        )
        self._runners = runners
        runners.watch(self)

    @property
    def active_count(self) -> int:
        """How many slots are in use. Abandoned threads use one each."""
        return len(self._live) + len(self._abandoned) + self._runs.active_count

    @property
    def extra_count(self) -> int:
        """How many slots runs take in addition to their own."""
        return self._runs.extra_count

    def runs_task(self, task_id: str) -> bool:
        """Return whether an attempt of this task still runs.

        An abandoned one may never end, so it counts only if it is exclusive.
        """
        if self._runs.holds(task_id):
            return True
        exclusive = [each.ref for each in self._abandoned if each.is_exclusive]
        return any(ref[0] == task_id for ref in (*self._live, *exclusive))

    @property
    def exclusive_count(self) -> int:
        """How many exclusive attempts still run, abandoned ones too."""
        return sum(each.is_exclusive for each in (*self._live.values(), *self._abandoned))

    @property
    def worker_id(self) -> str:
        """The id of the worker that the activities run for."""
        return self._site.worker_id

    @worker_id.setter
    def worker_id(self, worker_id: str) -> None:
        self._site.worker_id = self._runs.worker_id = worker_id

    @property
    def is_fenced(self) -> Callable[[], bool]:
        """A function that returns whether the lease may be over."""
        return self._site.is_fenced

    @is_fenced.setter
    def is_fenced(self, is_fenced: Callable[[], bool]) -> None:
        self._site.is_fenced = self._runs.is_fenced = is_fenced

    def start(self, task: task_pb2.AssignedTask) -> None:
        """Run an attempt; its end is reported whatever happens."""
        if task.kind == task_pb2.TASK_KIND_WORKFLOW:
            self._runs.start(task)
            self._runners.slot_taken()
            return
        activity = self._registry.find(task.type)
        if activity is None and self._workflows.find(task.type) is not None:
            message = f"{task.type} is a workflow here, not an activity: use client.start(…)"
            error = attempt.error_of(attempt.BadSetupError(message), self._site.converter)
            self._reporter.finish(attempt.failed(task, error))
            return
        if activity is None or self._is_handing_back:
            if activity is None:
                _log.error(
                    "Task %s has the unknown type %s. It is handed back.", task.task_id, task.type
                )
            self._reporter.finish(attempt.ended_as(task, attempt.RELEASED))
            return
        runner = self._runners.of(activity)
        execution: Execution = runner.execution(self._site, task, activity)
        if self._live.setdefault(execution.ref, execution) is not execution:
            # The same delivery again.
            return
        runner.submit(execution)
        self._runners.slot_taken()
        if self._sweep_timer is None:
            self._sweep_timer = self._loop.call_later(_SWEEP_S, self._sweep)

    def stop(self, task_id: str, attempt: int, reason: StopReason) -> None:
        """Ask an attempt to stop. If it does not within its grace period, it is abandoned."""
        execution = self._live.get((task_id, attempt))
        if execution is None:
            self._runs.stop(task_id, attempt, reason)
        else:
            is_over = reason in _OVER
            execution.is_over = execution.is_over or is_over
            is_urgent = is_over and execution.is_exclusive
            execution.stop(reason, grace_s=_EXCLUSIVE_GRACE_S if is_urgent else None)

    def stop_exclusive(self) -> None:
        """Stop exclusive attempts, because the lease may be over.

        They are released: if the lease still holds, another worker starts them again.
        """
        for execution in list(self._live.values()):
            if execution.is_exclusive:
                execution.stop(StopReason.LOST_LEASE, grace_s=_EXCLUSIVE_GRACE_S)

    def time_out(self, task_id: str, attempt: int) -> None:
        """Stop an exclusive attempt that has timed out by the clock of this worker."""
        execution = self._live.get((task_id, attempt))
        if execution is not None:
            execution.stop(StopReason.TIMED_OUT, grace_s=_EXCLUSIVE_GRACE_S)

    def hand_back(self) -> None:
        """Stop all attempts because the worker ends, and release those that have not ended."""
        self._is_handing_back = True
        self._runs.hand_back()
        grace_s = self._settings.hand_back_grace_ms / 1_000
        for execution in list(self._live.values()):
            execution.stop(StopReason.WORKER_SHUTDOWN, grace_s=grace_s)

    async def close(self) -> None:
        """End threads and processes, without waiting for running code or reporting it."""
        self._is_handing_back = True
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None
        for execution in list(self._live.values()):
            execution.take()
            execution.stop(StopReason.WORKER_SHUTDOWN)
        for execution in self._abandoned:
            execution.forsake()
        self._runs.close()
        await self._runners.close()

    # -- Runs

    def take_entries(
        self, recorded: Sequence[RecordedEntries], pages: Sequence[task_pb2.JournalPage]
    ) -> None:
        """Tell runs what stands in their journals."""
        self._runs.take_entries(recorded, pages)

    def take_answers(self, answered: Sequence[AnsweredReport]) -> None:
        """Tell runs what was done of what they reported of their children."""
        self._runs.take_answers(answered)

    def refuse_entries(self, task_id: str, attempt: int, error: ErrorDetail) -> None:
        """Tell a run that the server does not take what it reports."""
        self._runs.refuse_entries(task_id, attempt, error)

    def session_opened(self) -> None:
        """Let runs ask for what they may have missed."""
        self._runs.session_opened()

    def renewed(self) -> None:
        """Let runs go on that waited for a certain lease."""
        self._runs.renewed()

    def begin_drain(self) -> None:
        """Begin nothing more in runs."""
        self._runs.begin_drain()

    def slot_taken(self) -> None:
        """Let runs that linger make room."""
        self._runs.slot_taken()

    # -- Inside

    def _sweep(self) -> None:
        """Check every execution: a heartbeat may be due, or its timeout or grace period over."""
        now_s = self._site.clock()
        for execution in list(self._live.values()):
            execution.tick()
            if execution.grace_ends_at_s is not None:
                if now_s >= execution.grace_ends_at_s:
                    self._abandon(execution)
            elif execution.deadline_at_s is not None and now_s >= execution.deadline_at_s:
                execution.stop(StopReason.TIMED_OUT)
        self._sweep_timer = self._loop.call_later(_SWEEP_S, self._sweep) if self._live else None

    def _abandon(self, execution: Execution) -> None:
        """End an attempt whose code did not stop within its grace period."""
        if execution.force() or not execution.take():
            return
        self._abandoned.add(execution)
        _log.warning(
            "Activity %s of task %s does not stop (%s). It is abandoned and still uses a slot.",
            execution.activity.name,
            execution.ref[0],
            execution.stop_reason,
        )
        # After a cancel the server ends the attempt itself, with CANCEL_TIMEOUT, but not while the
        # worker ends. Exclusive work is handed back when it has really ended, or with the lease.
        is_cancel = execution.stop_reason is StopReason.CANCELLED
        if self._is_handing_back if is_cancel else not execution.is_exclusive:
            execution.report(None)
            execution.is_reported = True
        self._reporter.stuck(len(self._abandoned))

    def _on_late(self, execution: Execution) -> None:
        """Handle the late end of abandoned code; from any thread."""
        try:
            self._loop.call_soon_threadsafe(self._free, execution)
        except RuntimeError:
            # The connection is closed, so the slot does not matter any more.
            return

    def _free(self, execution: Execution) -> None:
        if execution in self._abandoned:
            self._abandoned.discard(execution)
            if execution.is_exclusive and not execution.is_reported:
                execution.report(execution.late_ending)
            self._reporter.stuck(len(self._abandoned))

    def loop_lag(self, milliseconds: int) -> None:
        """Handle a report of the lag of the user's event loop."""
        self._reporter.loop_lag(milliseconds)

    def async_names(self) -> list[str]:
        """Return which async activities and steps run, and whose body has the loop now."""
        live = list(self._live.values())
        names = {each.activity.name for each in live if each.activity.traits.where == "loop"}
        return sorted(names.union(self._runs.names()))
