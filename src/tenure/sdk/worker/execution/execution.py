"""An attempt that is executed here: one object from its delivery to its end.

One caller takes it out of the table of live executions and reports its end: the runner with a
result, or the executor when the grace period of a stop is over.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from tenure.core.limits import CANCEL_GRACE_MS
from tenure.sdk.activity.context import ActivityContext, Info, StopReason
from tenure.sdk.activity.definition import Activity
from tenure.sdk.payload import Converter
from tenure.sdk.worker.execution import attempt
from tenure.sdk.worker.execution.attempt import Ending
from tenure.sdk.worker.execution.task_heartbeat import TaskHeartbeat, check_beat
from tenure.sdk.worker.execution.timeout_log import log_timeout
from tenure.sdk.worker.executor_protocol import Reporter
from tenure.v1 import task_pb2

Ref = tuple[str, int]
"""(task id, attempt)"""

# The server checks the same timeout. Ours is for the time without a connection.
_DEADLINE_MARGIN_S: Final = 0.25
_GRACE_MARGIN_SHARE: Final = 0.25
_WITHOUT_DETAILS: Final = frozenset({attempt.SUCCEEDED, attempt.CANCELLED})


class Site(msgspec.Struct, kw_only=True):
    """What all executions of a worker share. ``live`` belongs to no thread: see ``take``."""

    converter: Converter
    reporter: Reporter
    on_late: Callable[[Execution], None]
    namespace: str = ""
    worker_id: str = ""
    clock: Callable[[], float] = time.monotonic
    is_fenced: Callable[[], bool] = bool
    live: dict[Ref, Execution] = {}


class Execution(ActivityContext):
    """One attempt that is executed here; the runners subclass it for where they run."""

    grace_margin_s = 0.0

    def __init__(
        self, site: Site, task: task_pb2.AssignedTask, activity: Activity[..., Any]
    ) -> None:
        """Prepare; a runner takes it from here."""
        super().__init__(None, site.converter, attempt.details_of(task))
        self.site = site
        self.task = task
        self.activity = activity
        self.ref: Ref = (task.task_id, task.attempt)
        self.started_at_s = site.clock()
        limit_ms = task.deadline_at_ms - task.handed_at_ms
        if not task.deadline_at_ms:
            limit_ms = task.start_to_close_ms
        self.deadline_at_s = (
            self.started_at_s + limit_ms / 1_000 + _DEADLINE_MARGIN_S if limit_ms > 0 else None
        )
        self.grace_ends_at_s: float | None = None
        self.is_over = False
        self.is_exclusive = activity.traits.is_exclusive
        # For abandoned code: whether its end was reported, and how it ended later.
        self.is_reported = False
        self.late_ending: Ending = None
        self._heartbeats: TaskHeartbeat | None = None

    # What the activity asks.

    def make_info(self) -> Info:
        """Return the attempt as its activity sees it."""
        return attempt.info_of(self.task, self.site.namespace, self.site.worker_id)

    def send_beat(
        self, details: bytes | None, percent: float | None = None, message: str | None = None
    ) -> None:
        """Report progress; called by the activity."""
        check_beat(details, percent, message)
        self.heartbeats.beat(details, percent, message)

    @property
    def heartbeats(self) -> TaskHeartbeat:
        """The heartbeats, from the first one on."""
        if self._heartbeats is None:
            self._heartbeats = TaskHeartbeat(self.task, self.site.reporter.beat, self.site.clock)
        return self._heartbeats

    # What the executor asks, on the connection's loop.

    def stop(self, reason: StopReason, *, grace_s: float | None = None) -> None:
        """Ask user code to stop. The first reason and the shortest grace period count."""
        own_s = (self.task.cancel_grace_period_ms or CANCEL_GRACE_MS) / 1_000
        own_s -= min(self.grace_margin_s, own_s * _GRACE_MARGIN_SHARE)
        ends_at_s = self.site.clock() + (own_s if grace_s is None else min(own_s, grace_s))
        self.grace_ends_at_s = min(self.grace_ends_at_s or ends_at_s, ends_at_s)
        if self.stop_reason is not None:
            return
        if reason is StopReason.TIMED_OUT:
            log_timeout(self.task, self.site.clock() - self.started_at_s)
        # Set before it is raised: code that starts or leaves a shield checks it afterwards.
        self.stop_reason = reason
        self.interrupt()

    def interrupt(self) -> None:
        """Raise the stop in user code, as soon as possible."""
        raise NotImplementedError

    def force(self) -> bool:
        """End user code that does not stop; return whether that is possible."""
        return False

    def forsake(self) -> None:
        """Let the process end although user code still runs."""

    def tick(self) -> None:
        """Send a heartbeat that has waited long enough."""
        if self._heartbeats is not None:
            self._heartbeats.tick()

    # How it ends.

    def take(self) -> bool:
        """Take the right to report the end; True for exactly one caller."""
        return self.site.live.pop(self.ref, None) is self

    def end(self, ending: Ending) -> None:
        """Report how user code ended, unless its end was reported without it; from any thread."""
        if not self.take():
            self.late_ending = ending
            self.site.on_late(self)
            return
        self.report(ending)

    def report(self, ending: Ending) -> None:
        """Report to the server; only after a successful ``take``."""
        if self.stop_reason is not None:
            ending = attempt.report_of(self.task, ending, self.stop_reason, is_over=self.is_over)
        if ending is None:
            return
        if self._heartbeats is not None:
            if ending.kind in _WITHOUT_DETAILS:
                self._heartbeats.flush_progress()
            else:
                self._heartbeats.flush()
        self.site.reporter.finish(ending)
