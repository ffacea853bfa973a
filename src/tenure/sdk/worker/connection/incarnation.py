"""One registered worker: what it holds, its heartbeats, and what it lets the executor do."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

import msgspec

from tenure.core.worker.decide import OTHER_KEY
from tenure.errors import TenureError, WorkerInactive
from tenure.sdk.activity.context import StopReason
from tenure.sdk.transport.channel import Backoff, Channel, Method
from tenure.sdk.worker.connection import method
from tenure.sdk.worker.connection.failure_log import log_failure
from tenure.sdk.worker.connection.health_state import HealthState
from tenure.sdk.worker.connection.held_attempts import (
    HeldAttempt,
    HeldAttempts,
    Ref,
    Reports,
    is_refused_for_good,
)
from tenure.sdk.worker.connection.passing import is_passing, reason_of
from tenure.sdk.worker.connection.report_calls import ReportCalls
from tenure.sdk.worker.connection.shared_slots import SlotShare
from tenure.sdk.worker.connection.timed_event import TimedEvent
from tenure.sdk.worker.connection.worker_heartbeat import WorkerHeartbeat
from tenure.sdk.worker.executor_protocol import AnsweredReport, Executor, RecordedEntries
from tenure.v1 import journal_pb2, task_pb2
from tenure.v1 import workflow_service_pb2 as workflow_pb
from tenure.v1.error_pb2 import ErrorDetail

log = logging.getLogger("tenure.worker")

Request = TypeVar("Request")
Response = TypeVar("Response")

# Timers are late after the machine was suspended, so the lease is checked this often.
WATCH_S: Final = 1.0
# While exclusive work runs, only this shows that the machine was suspended. While an attempt waits,
# only this shows that a lower one has ended.
WATCH_CLOSELY_S: Final = 0.1
# How long an attempt waits for a lower one that was told to stop. Less than the time within which
# the server wants to hear of a delivery.
BLOCKED_S: Final = 10.0
# Its own timeouts run while it waits: it is handed back when so much of the shortest has passed.
_BLOCKED_SHARE: Final = 0.25
_LEAST_S: Final = 0.005


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker registers with; ``Worker`` has checked it."""

    namespace: str
    queue: str
    types: tuple[str, ...]
    max_concurrent: int = 100
    mode: str = "session"
    version: str = ""
    labels: dict[str, str] = {}
    name: str = ""
    lease_ms: int = 0
    drain_deadline_ms: int = 300_000
    wants_tokens: bool = False


class Incarnation:
    """A worker from its registration to its end, on the connection's loop."""

    def __init__(
        self,
        worker_id: str,
        setup: Setup,
        channel: Channel,
        executor: Executor,
        heartbeat: WorkerHeartbeat,
        health_state: HealthState,
    ) -> None:
        self.worker_id = worker_id
        # The registration, to repeat it with another API key.
        self.registration = workflow_pb.RegisterWorkerRequest()
        self.setup = setup
        self.channel = channel
        self.heartbeat = heartbeat
        self.health_state = health_state
        self.held_attempts = HeldAttempts()
        self.changed = TimedEvent()
        self.clock = heartbeat.clock
        # The server knows that it drains. Tasks that still arrive are handed back.
        self.is_draining = False
        self.drain_deadline_at_s: float | None = None
        self.drain_changed = TimedEvent()
        self.is_connected = False
        # The server answers whether an exclusive attempt may start. One in poll mode always does.
        self.holds_exclusive = True
        self._watch_bell = TimedEvent()
        # The server has refused its API key since a drain was asked for.
        self.is_denied = False
        self._executor = executor
        self._is_fenced = False
        self.is_handed_back = False
        # Only a worker of several queues shares its slots.
        self.slots: SlotShare | None = None
        # Wakes a worker that polls when there may be a slot for a task.
        self.room = TimedEvent()
        # Attempts of an earlier incarnation may still be stopping.
        self._leftover_count = executor.active_count
        self._wakes_at_s = -math.inf
        self._has_warned = False
        self._calls = ReportCalls(self)

    # -- Delivery

    def deliver(self, tasks: Sequence[task_pb2.AssignedTask]) -> None:
        """Start delivered tasks.

        A task waits while the lease may be over, and while an earlier attempt of it still runs
        here. After a hand-back it waits until the server knows of the drain: released earlier, it
        would come back at once.
        """
        now_s = self.clock()
        if self.slots is not None:
            tasks = self._take_what_fits(self.slots, tasks, now_s)
        if self.heartbeat.is_fenced or self.is_draining or self.is_handed_back:
            self._keep(tasks, now_s)
        else:
            self._begin(tasks, now_s)
        # The writer does not know yet when these must be confirmed.
        if self.is_draining or self.held_attempts.next_at_s() < self._wakes_at_s:
            self.changed.notify()

    def _take_what_fits(
        self, slots: SlotShare, tasks: Sequence[task_pb2.AssignedTask], now_s: float
    ) -> Sequence[task_pb2.AssignedTask]:
        """Hand back tasks without a slot. Another queue got it while they were on their way."""
        room = max(0, slots.all.room)
        for task in tasks[room:]:
            held = self.held_attempts.deliver(task, now_s)
            if held is not None:
                self.held_attempts.release(held.ref)
        slots.all.delivered(slots.mine, len(tasks), now_s)
        self.changed.notify()
        return tasks[:room]

    def _begin(self, tasks: Iterable[task_pb2.AssignedTask], now_s: float) -> None:
        begin = self.held_attempts.begin
        exclusive_types = self._executor.exclusive_types
        for task in tasks:
            if task.attempt > 1 and self._has_lower(task):
                self._keep([task], now_s)
            elif exclusive_types and task.type in exclusive_types:
                self._deliver_exclusive(task, now_s)
            elif begin(task, now_s):
                self._start(task)

    def _has_lower(self, task: task_pb2.AssignedTask) -> bool:
        """Return whether an earlier attempt of a task runs here, or waits to be started."""
        if self._executor.runs_task(task.task_id):
            return True
        return self.held_attempts.has_waiting and bool(self.held_attempts.lower(task))

    async def wait_for_news(self, seconds: float = math.inf) -> None:
        """Wait until there is something to send, at most for some seconds."""
        self._wakes_at_s = min(self.clock() + seconds, self.held_attempts.next_at_s())
        await self.changed.wait(self._wakes_at_s - self.clock())
        self._wakes_at_s = -math.inf

    def _keep(self, tasks: Iterable[task_pb2.AssignedTask], now_s: float) -> None:
        for task in tasks:
            held = self.held_attempts.deliver(task, now_s)
            if held is None:
                continue
            # The server would refuse their reports.
            for ref in self.held_attempts.lower(task):
                self._stop(ref, self.held_attempts.stop(ref, now_s))
            if self.is_draining:
                self.held_attempts.release(held.ref)
            else:
                self.held_attempts.wait(held)
                self._watch_bell.notify()

    def _deliver_exclusive(self, task: task_pb2.AssignedTask, now_s: float) -> None:
        held = self.held_attempts.deliver(task, now_s)
        if held is not None:
            self._ask(held)

    def _ask(self, held: HeldAttempt) -> None:
        """Start an exclusive attempt when the server knows that it is one."""
        if self.holds_exclusive:
            self.held_attempts.ask(held)
            self.changed.notify()
        else:
            self._warn_of_old_server()
            self._start(self.held_attempts.start(held, self.clock()))

    def start_asked(self) -> None:
        """Start the attempts that wait for a permission that an old server does not give."""
        for held in self.held_attempts.take_asked():
            self._ask(held)

    def accepted(self, ref: Ref, *, is_exclusive: bool) -> None:
        """Start an exclusive attempt that the server has accepted."""
        now_s = self.clock()
        held = self.held_attempts.accept(ref, now_s)
        self.changed.notify()
        if held is None:
            return
        if not is_exclusive:
            self._warn_of_old_server()
        if self.heartbeat.is_fenced or self.is_handed_back:
            self.held_attempts.exclusives.drop(ref)
            self.held_attempts.wait(held)
            return
        self._start(self.held_attempts.start(held, now_s))
        self._watch_bell.notify()

    def _warn_of_old_server(self) -> None:
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "The server at %s is too old for exclusive activities. If this worker is cut "
                "off, another one may run the same task for some seconds. Update the server.",
                self.channel.target,
            )

    def _start(self, task: task_pb2.AssignedTask) -> None:
        try:
            self._executor.start(task)
        except Exception:
            # Execution reports failures of activities. This is a bug of the SDK.
            log.exception("Task %s could not be started. It is handed back.", task.task_id)
            self.held_attempts.release((task.task_id, task.attempt))
            self.changed.notify()

    def cancel(self, refs: Iterable[Ref]) -> None:
        """Cancel attempts as a user asked."""
        for ref in refs:
            if self.held_attempts.cancel(ref):
                self._executor.stop(*ref, StopReason.CANCELLED)
        self.changed.notify()

    def stop(self, refs: Iterable[task_pb2.TaskRef]) -> None:
        """Stop attempts that this worker has lost."""
        now_s = self.clock()
        for each in refs:
            ref = (each.task_id, each.attempt)
            self._stop(ref, self.held_attempts.stop(ref, now_s, each.stop_reason))
        self.changed.notify()

    def _stop(self, ref: Ref, reason: StopReason | None) -> None:
        if reason is not None:
            self._executor.stop(*ref, reason)

    # -- Answers to reports

    def answered(self, ref: Ref, error: ErrorDetail | None, state: int = 0) -> None:
        """Handle the answer to the end of an attempt; ``state`` is the state of its task now."""
        failure = self.held_attempts.failure_of(ref)
        if error is None:
            self.held_attempts.acknowledge(ref)
        else:
            self.held_attempts.answered(ref, error, self.clock())
        if failure is not None and ref not in self.held_attempts:
            log_failure(*failure, state)

    def refused(self, ref: Ref, error: ErrorDetail) -> None:
        """Handle the refusal of a confirmation or a heartbeat."""
        reason = self.held_attempts.refused(ref, error, self.clock())
        self._stop(ref, reason)
        if reason is None and error.code in {"invalid_argument", "payload_too_large"}:
            log.warning("A heartbeat of task %s was refused: %s", ref[0], error.message)

    # -- Runs

    def take_entries(
        self,
        acks: Iterable[journal_pb2.StepAck],
        pages: Iterable[task_pb2.JournalPage],
        child_acks: Iterable[journal_pb2.ChildAck] = (),
    ) -> None:
        """Tell runs what stands in their journals, and what was done of their children."""
        runs = self.held_attempts.runs
        recorded = [each for ack in acks if (each := self._take_step_ack(ack)) is not None]
        found = [each for each in pages if self._take_page(each)]
        if recorded or found:
            self._executor.take_entries(recorded, found)
        answers = map(self._take_child_ack, child_acks)
        answered = [each for each in answers if each is not None]
        if answered:
            self._executor.take_answers(answered)
        if runs.has_news:
            self.changed.notify()

    def _take_step_ack(self, ack: journal_pb2.StepAck) -> RecordedEntries | None:
        """Return what is to be told to a run."""
        if ack.HasField("error"):
            self.steps_refused((ack.task_id, ack.attempt), ack.error)
            return None
        return self.held_attempts.runs.entries.acknowledge(ack)

    def _take_page(self, page: task_pb2.JournalPage) -> bool:
        """Return whether a page is to be told to its run."""
        if page.HasField("error"):
            self.page_refused(page)
            return False
        runs = self.held_attempts.runs
        runs.pages.answered(page)
        runs.entries.take_page(page)
        return True

    def _take_child_ack(self, ack: journal_pb2.ChildAck) -> AnsweredReport | None:
        """Return what is to be told to a run: also a refusal that is for good."""
        if ack.HasField("error") and not is_refused_for_good(ack.error):
            ref = (ack.task_id, ack.attempt)
            self._stop(ref, self.held_attempts.children_refused(ack, self.clock()))
            self.changed.notify()
            return None
        return self.held_attempts.runs.children.acknowledge(ack)

    def session_opened(self) -> None:
        """Let runs ask for what they may have missed without a session."""
        self._executor.session_opened()

    def steps_refused(self, ref: Ref, error: ErrorDetail) -> None:
        """Handle the refusal of what a run has recorded."""
        if error.code != "out_of_order":
            self._refuse(ref, error)
        self._stop(ref, self.held_attempts.steps_refused(ref, error, self.clock()))
        self.changed.notify()

    def page_refused(self, page: task_pb2.JournalPage) -> None:
        """Handle the refusal of a request of a run."""
        ref = (page.task_id, page.attempt)
        self._refuse(ref, page.error)
        self._stop(ref, self.held_attempts.page_refused(page, self.clock()))
        self.changed.notify()

    def _refuse(self, ref: Ref, error: ErrorDetail) -> None:
        """Park a run if the server never takes what it reports."""
        if ref in self.held_attempts and is_refused_for_good(error):
            self._executor.refuse_entries(*ref, error)

    # -- The lease

    def renewed(self) -> None:
        """Start waiting attempts, because the lease was renewed."""
        self._executor.renewed()
        if self._is_fenced:
            self._is_fenced = False
            log.info("Worker %s renewed its lease. It starts tasks again.", self.worker_id)
        self._start_waiting()

    def _start_waiting(self) -> None:
        """Start waiting attempts, unless they still have to wait."""
        is_held_up = self.is_handed_back or self.heartbeat.is_fenced
        if is_held_up or not self.held_attempts.has_waiting:
            return
        now_s = self.clock()
        for held in self.held_attempts.take_waiting():
            assert held.task is not None
            if self._executor.runs_task(held.task.task_id):
                self._wait_longer(held, now_s)
            elif held.task.type in self._executor.exclusive_types:
                self._ask(held)
            else:
                self._start(self.held_attempts.start(held, now_s))
        self.changed.notify()

    def _wait_longer(self, held: HeldAttempt, now_s: float) -> None:
        """Wait for a lower attempt to end. After a while, hand back: another worker can run it."""
        assert held.task is not None
        if now_s - held.delivered_at_s < _blocked_max_s(held.task):
            self.held_attempts.wait(held)
        else:
            # The lower attempt gets a warning of its own when it is abandoned.
            log.info("An attempt of task %s does not stop. The next is handed back.", held.ref[0])
            self.held_attempts.release(held.ref)

    async def watch(self) -> None:
        """Check the lease. As soon as it may be over, stop exclusive attempts."""
        while True:
            await self._watch_bell.wait(self._watch_again_in_s())
            self._count_leftovers()
            self._start_waiting()
            for ref in self.held_attempts.exclusives.overdue(self.clock()):
                self.held_attempts.exclusives.drop(ref)
                self._executor.time_out(*ref)
            if self.heartbeat.is_fenced and not self._is_fenced:
                self._is_fenced = True
                log.warning(
                    "No server has answered worker %s for so long that its lease may be over. It "
                    "starts no new tasks and stops exclusive activities.",
                    self.worker_id,
                )
                self._executor.stop_exclusive()

    @property
    def exclusive_count(self) -> int:
        """How many exclusive attempts still run."""
        return self._executor.exclusive_count

    def _watch_again_in_s(self) -> float:
        in_s = self.heartbeat.fenced_in_s or WATCH_S
        exclusives = self.held_attempts.exclusives
        if exclusives.is_any_running:
            in_s = min(in_s, exclusives.fence_at_s() - self.clock(), WATCH_CLOSELY_S)
        if self.held_attempts.has_waiting:
            in_s = min(in_s, WATCH_CLOSELY_S)
        return min(WATCH_S, max(in_s, _LEAST_S))

    @property
    def active_count(self) -> int:
        """How many slots are taken."""
        return self._executor.active_count

    def _count_leftovers(self) -> None:
        if self._leftover_count:
            others = max(0, self._executor.active_count - len(self.held_attempts))
            self._leftover_count = min(self._leftover_count, others)
            self.changed.notify()

    @property
    def is_full(self) -> bool:
        """Whether the queues that share its slots have left none free."""
        return self.slots is not None and self.slots.all.room <= 0

    @property
    def window(self) -> int:
        """How many attempts it can hold. A slot that old code still uses does not count."""
        if self.slots is not None:
            self.slots.all.settle(self.clock())
            return self.held_attempts.open_count + self.slots.mine.credit
        taken = max(self.health_state.stuck_count, self._leftover_count)
        return max(0, self.setup.max_concurrent - taken - self._executor.extra_count)

    # -- Calls

    async def ask(
        self, which: Method[Request, Response], request: Request, *, timeout_s: float
    ) -> Response:
        """Call a method. If the API key is new, register with it first."""
        try:
            return await self.channel.ask(which, request, timeout_s=timeout_s)
        except WorkerInactive as over:
            await self.register_again(over)
        return await self.channel.ask(which, request, timeout_s=timeout_s)

    async def register_again(self, over: WorkerInactive | None = None) -> None:
        """Register again with the current API key; running tasks are not affected.

        ``over`` is the refusal. It is raised if it has another reason than a new key.
        """
        if over is not None and reason_of(over) != OTHER_KEY:
            raise over
        await self.channel.ask(method.REGISTER, self.registration, timeout_s=method.CALL_S)
        log.info("Worker %s now uses a new API key.", self.worker_id)

    # -- The end

    def begin_drain(self, deadline_in_s: float | None = None) -> None:
        """Record that the server gives this worker no more tasks."""
        if deadline_in_s is not None:
            self.drain_deadline_at_s = self.clock() + deadline_in_s
        if not self.is_draining:
            self.is_draining = True
            self.held_attempts.hand_back_waiting()
            self._executor.begin_drain()
            self.changed.notify()
        self.drain_changed.notify()

    @property
    def is_drained(self) -> bool:
        """Return whether a drain is complete."""
        return self.is_draining and not self.held_attempts

    def hand_back(self) -> None:
        """Hand back everything that has not ended."""
        self.is_handed_back = True
        self.held_attempts.hand_back_waiting()
        self._executor.hand_back()
        self.changed.notify()

    def abandon(self) -> None:
        """Stop the attempts that have not ended. The ends of the others may still count."""
        for ref in self.held_attempts.abandon():
            self._executor.stop(*ref, StopReason.LOST_LEASE)

    async def deregister(self, *, drain_ms: int = 0) -> None:
        """Begin a drain, or deregister. Repeated until a server answers."""
        request = workflow_pb.DeregisterWorkerRequest(
            namespace_id=self.setup.namespace, worker_id=self.worker_id, drain=bool(drain_ms)
        )
        if drain_ms:
            request.drain_deadline.CopyFrom(method.duration(drain_ms))
        backoff = Backoff()
        while True:
            try:
                await self.ask(method.DEREGISTER, request, timeout_s=method.CALL_S)
            except TenureError as error:
                if not is_passing(error):
                    raise
                await asyncio.sleep(backoff.next_s(error))
            else:
                return

    async def settle(self) -> None:
        """Report the ends that are not acknowledged, until all are answered."""
        backoff = Backoff()
        self.held_attempts.send_again()
        while self.held_attempts:
            reports = self.held_attempts.take(self.clock())
            if reports is None:
                await self.wait_for_news()
                continue
            try:
                await self.report(reports)
            except TenureError as error:
                self.held_attempts.restart(reports)
                if not is_passing(error):
                    raise
                await asyncio.sleep(backoff.next_s(error))

    async def report(self, reports: Reports) -> None:
        """Report by calls."""
        await self._calls.report(reports)


def _blocked_max_s(task: task_pb2.AssignedTask) -> float:
    """Return how long an attempt may wait for a lower one."""
    has_deadline = task.deadline_at_ms > 0
    limit_ms = task.deadline_at_ms - task.handed_at_ms if has_deadline else task.start_to_close_ms
    limits_ms = [each for each in (limit_ms, task.heartbeat_timeout_ms) if each > 0]
    return min([BLOCKED_S, *(each / 1_000 * _BLOCKED_SHARE for each in limits_ms)])
