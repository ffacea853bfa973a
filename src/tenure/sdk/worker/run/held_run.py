"""One run that this worker holds: the port of its body."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from tenure.core.limits import ATTEMPT_MAX, STEP_WAIT_HERE_MS
from tenure.core.task import retry
from tenure.sdk import failure
from tenure.sdk.activity.context import StopReason
from tenure.sdk.instant import datetime_of
from tenure.sdk.payload import Payload
from tenure.sdk.worker.execution.task_heartbeat import TaskHeartbeat
from tenure.sdk.worker.executor_protocol import WantedPage
from tenure.sdk.worker.run import wire
from tenure.sdk.worker.run.local_step import AsyncStep, LocalStep, ThreadStep
from tenure.sdk.workflow.body import start_body
from tenure.sdk.workflow.context import RunInfo
from tenure.sdk.workflow.definition import Workflow
from tenure.sdk.workflow.ending import Ending
from tenure.sdk.workflow.journal import Entry, Kind
from tenure.sdk.workflow.port import RunIdentity
from tenure.sdk.workflow.run import Run
from tenure.sdk.workflow.step import Step
from tenure.sdk.workflow.sync.body_thread import BodyThread
from tenure.v1 import journal_pb2, task_pb2
from tenure.v1 import workflow_service_pb2 as workflow_pb

if TYPE_CHECKING:
    from tenure.sdk.worker.run.host import RunHost

_log = logging.getLogger("tenure.worker")
# A body that runs for longer without waiting for anything blocks its worker.
_RESTLESS_S_MAX: Final = 1.0
# Behind every entry: a page that was asked for with it has nothing but open children. Pages that
# the server sends unasked say nothing of these, also when they begin at the start.
_BEHIND_ALL: Final = ATTEMPT_MAX
# So long the loop waits for a plain body; one that computes for longer goes on beside it.
_PATIENCE_S: Final = 0.005
# Published state is watched by people.
_PUBLISH_S: Final = 1.0
# A run that hears nothing for so long asks: a worker that polls is not told of signals and of
# children that end, and between servers hints may be lost.
_SILENCE_S: Final = 2.0


class HeldRun:
    """A run from its first hand-out here until it ends, or is put aside."""

    def __init__(
        self,
        host: RunHost,
        task: task_pb2.AssignedTask,
        workflow: Workflow[..., Any],
        arguments: dict[str, Any],
    ) -> None:
        """Prepare the body; ``begin`` lets it run."""
        self._host = host
        self.task = task
        self.namespace = host.settings.namespace
        self.converter = host.converter
        self.run = Run(
            self,
            host.converter,
            RunIdentity(
                run_id=task.task_id,
                type=task.type,
                generation=task.generation,
                first_run_id=task.first_run_id,
                begun_at_ms=task.begun_at_ms,
            ),
            changes=workflow.changes,
            guard=host.settings.guard,
        )
        info = _info(task, self.namespace)
        # Of a body that is a plain function.
        self.thread = start_body(self.run, self, workflow, info, arguments, host.context.copy())
        self._steps: dict[str, LocalStep] = {}
        # Steps that have begun, and those that wait for a slot.
        self._begun_count = 0
        self._queued: deque[LocalStep] = deque()
        self._alarm: asyncio.TimerHandle | None = None
        self._turn: Callable[[], None] | None = None
        self._fetching_after: int | None = None
        self._heartbeat: TaskHeartbeat | None = None
        # How long the body has run without coming to rest.
        self._restless_s = 0.0
        # Up to where its journal is here, and when it asks if nothing more comes.
        self._heard_to = 0
        self._ask_at_s = 0.0
        # Whether it was said that its body computes.
        self._has_warned = False

    @property
    def worker_id(self) -> str:
        """The worker that its steps run for."""
        return self._host.worker_id

    # -- What the host asks

    def begin(self, task: task_pb2.AssignedTask) -> None:
        """Begin an attempt."""
        self.task = task
        self._fetching_after = None
        self._heartbeat = None
        self._ask_at_s = time.monotonic() + _SILENCE_S
        page = task.journal
        is_whole = not page.after
        self.run.hand_out(
            task.attempt,
            [wire.from_wire(each) for each in page.entries],
            page.end,
            wire.open_calls(page),
            page.open_next if is_whole else None,
        )

    def take_page(self, page: task_pb2.JournalPage) -> None:
        """Take what the server has."""
        entries = [wire.from_wire(each) for each in page.entries]
        if page.group_key:
            self.run.take_group_page(page.group_key, page.after, entries)
            return
        if page.after == _BEHIND_ALL or (not page.after and self._fetching_after == 0):
            self.run.take_open(wire.open_calls(page), page.open_next)
        if self._fetching_after is not None and page.after <= self._fetching_after:
            self._fetching_after = None
        self.run.take_page(entries, page.end)

    def ask_for_tail(self) -> None:
        """Ask for what the server has appended without telling."""
        self._fetching_after = None
        self.fetch(self.run.journal.received_to)

    def drain(self) -> None:
        """Let no step wait here for its next attempt."""
        for local in list(self._steps.values()):
            if local.alarm is not None:
                local.alarm.cancel()
                left_s = local.alarm.when() - self._host.loop_time()
                at_ms = self._host.clock.now_ms + max(0, round(left_s * 1_000))
                self._put_off(local, at_ms, None)
        self.run.wake()

    def tick(self, now_s: float) -> None:
        """Publish what has waited long enough, and ask after a silence."""
        if self._heartbeat is not None:
            self._heartbeat.tick()
        received_to = self.run.journal.received_to
        if received_to != self._heard_to:
            self._heard_to, self._ask_at_s = received_to, now_s + _SILENCE_S
        elif now_s >= self._ask_at_s and self._fetching_after is None:
            self._ask_at_s = now_s + _SILENCE_S
            self.ask_for_tail()
        if self.thread is not None and self.thread.away_s > _RESTLESS_S_MAX:
            self._warn_of_computing(self.thread)

    def flush(self) -> None:
        """Publish what waits, because the attempt ends."""
        if self._heartbeat is not None:
            self._heartbeat.flush()

    def put_aside(self) -> None:
        """End the body; nothing it does counts any more."""
        if not self.run.put_aside():
            self._host.keep_stuck(self)
        elif self.thread is not None and self.thread.is_alive:
            self._host.watch_unwinding(self)

    @property
    def has_thread(self) -> bool:
        """Whether it keeps a thread while it waits."""
        return self.thread is not None

    # -- What the body asks

    def send(self, entry: Entry) -> None:
        """Have an entry recorded."""
        self._host.send(self.task, entry, self.run.journal.seen)

    def publish(self, state: Payload | None, percent: float | None, message: str | None) -> None:
        """Show what the run says of itself."""
        if self._heartbeat is None:
            self._heartbeat = TaskHeartbeat(
                self.task, self._host.reporter.beat, self._host.settings.clock, _PUBLISH_S
            )
        self._heartbeat.beat(None if state is None else state.data, percent, message)
        self._host.sweep_soon()

    def fetch(self, after: int) -> None:
        """Ask for the entries after a position, once."""
        if self._fetching_after != after:
            self._fetching_after = after
            self._ask(after=after)

    def fetch_open(self, open_after: str) -> None:
        """Ask for the open children behind an id."""
        self._ask(after=_BEHIND_ALL, open_after=open_after)

    def fetch_group(self, group_key: str, after: int) -> None:
        """Ask for results of a group behind a position."""
        self._ask(group_key=group_key, after=after)

    def _ask(self, *, after: int = 0, group_key: str = "", open_after: str = "") -> None:
        task = self.task
        wanted = WantedPage(task.task_id, task.attempt, after, group_key, open_after)
        self._host.reporter.fetch(wanted)

    def spawn(self, report: journal_pb2.SpawnReport) -> None:
        """Have children stored."""
        self._host.report_children(self.task, report)

    def cancel_children(self, request: journal_pb2.ChildCancel) -> None:
        """Ask children to end."""
        self._host.report_children(self.task, request)

    async def signal(self, run_id: str, name: str, payload: Payload, signal_id: str) -> None:
        """Send a signal to another run."""
        sent = workflow_pb.NewSignal(
            name=name,
            payload=payload.data,
            encoding=payload.encoding,
            # The key of a call may be longer than an id, and has characters that no id has.
            signal_id=blake2b(signal_id.encode(), digest_size=16).hexdigest(),
        )
        await asyncio.wrap_future(self._host.reporter.signal(run_id, sent))

    def post(self, callback: Callable[[], None]) -> None:
        """Call on the user's loop; from any thread."""
        self._host.post(callback)

    @property
    def may_linger(self) -> bool:
        """Whether the run may stay for a moment although it waits."""
        return self._host.may_linger(self)

    def wake_at(self, at_ms: int | None) -> None:
        """Go on at an instant of the server."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if at_ms is not None:
            self._alarm = self._host.call_later(self._host.clock.in_s(at_ms), self.run.wake)

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call back from the user's loop, outside of any task."""
        self._turn = callback
        self._host.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        turn, self._turn = self._turn, None
        assert turn is not None
        began_s = time.monotonic()
        seen = self.run.journal.seen
        self._host.in_turn = self
        try:
            turn()
        except Exception:
            # Execution reports failures of bodies. This is a bug of the SDK.
            _log.exception("Run %s cannot go on here. It is handed back.", self.task.task_id)
            self._host.give_back(self)
        finally:
            self._host.in_turn = None
        if self.is_woken and self.run.journal.seen == seen:
            self._go_on_without_rest(time.monotonic() - began_s)
        elif not self.run.loop.is_away:
            self._came_to_rest()

    @property
    def is_woken(self) -> bool:
        """Whether the run goes on soon."""
        return self._turn is not None

    def _go_on_without_rest(self, took_s: float) -> None:
        """Count how long the body has run without waiting for anything."""
        before_s = self._restless_s
        self._restless_s += took_s
        if self._restless_s > _RESTLESS_S_MAX:
            self._host.reporter.loop_lag(round(self._restless_s * 1_000))
            if before_s <= _RESTLESS_S_MAX:
                _log.warning(
                    "The body of run %s (%s) does not come to rest: it waits for nothing, at %s. "
                    "Other code of this worker is slow meanwhile.",
                    *(self.task.task_id, self.task.type, self.run.line),
                )

    def _warn_of_computing(self, thread: BodyThread) -> None:
        if not self._has_warned:
            self._has_warned = True
            _log.warning(
                "The body of run %s (%s) computes for over %g s, at %s. It keeps its slot.",
                *(self.task.task_id, self.task.type, _RESTLESS_S_MAX, thread.line),
            )

    def _came_to_rest(self) -> None:
        if self._restless_s > _RESTLESS_S_MAX:
            self._host.reporter.loop_lag(0)
        self._restless_s = 0.0

    @property
    def patience_s(self) -> float | None:
        """How long the loop waits for a plain body."""
        return _PATIENCE_S

    def end(self, ending: Ending) -> None:
        """Report that this attempt has nothing more to do."""
        self._host.ended(self, ending)

    @property
    def server_now_ms(self) -> int:
        """The time of the server, as far as it is known here."""
        return self._host.clock.now_ms

    @property
    def is_certain(self) -> bool:
        """Whether the lease is certain."""
        return self._host.is_certain

    @property
    def is_draining(self) -> bool:
        """Whether the worker ends."""
        return self._host.is_draining

    # -- Local steps

    def start_step(self, step: Step[Any], retries: Entry | None) -> None:
        """Run a local step, as soon as there is a slot for it."""
        self._begin_or_wait(self._attempt(step, 1 if retries is None else retries.attempts + 1))

    def _attempt(self, step: Step[Any], number: int) -> LocalStep:
        assert step.function is not None
        local: LocalStep
        if step.function.is_async:
            local = AsyncStep(self, step, number)
        else:
            local = ThreadStep(self, step, number, self._host.submit, self._host.post)
        self._steps[step.key] = local
        return local

    def _begin_or_wait(self, local: LocalStep) -> None:
        """Begin; the first step of a run uses the slot of the run, others need one of their own."""
        if not self._begun_count or self._host.take_slot():
            self._begun_count += 1
            self._host.begin_step(local)
        else:
            self._queued.append(local)
            self._host.wait_for_slot(self)

    @property
    def wants_slot(self) -> bool:
        """Whether a step waits for a slot."""
        return bool(self._queued)

    def use_slot(self) -> None:
        """Begin the next step that waits; there is a slot for it."""
        if self._queued and self._host.is_certain:
            self._begin_or_wait(self._queued.popleft())

    def _free_slot(self) -> None:
        self._begun_count -= 1
        if self._begun_count:
            self._host.free_slot()
        else:
            self.use_slot()

    def stop_step(self, step: Step[Any]) -> None:
        """Stop a local step that nobody waits for."""
        local = self._steps.get(step.key)
        if local is None:
            return
        if local.alarm is not None:
            local.alarm.cancel()
        elif local in self._queued:
            self._queued.remove(local)
        else:
            local.stop(StopReason.CANCELLED)
            return
        del self._steps[step.key]
        self.run.step_ended(step, Entry(Kind.STEP, step.key))

    def step_begun(self, local: LocalStep) -> None:
        """Show a step that takes long."""
        entry = Entry(
            Kind.BEGUN,
            local.step.key,
            local.step.call_key.index,
            attempts=local.number,
            started_at_ms=local.started_at_ms,
        )
        self.run.step_begun(local.step, entry)

    def step_done(self, local: LocalStep, entry: Entry) -> None:
        """Record how a step ended, or try it again."""
        self._host.step_over(local)
        self._free_slot()
        if self._steps.get(local.step.key) is local:
            del self._steps[local.step.key]
        delay_ms = self._delay_ms(local, entry)
        if delay_ms is None:
            self.run.step_ended(local.step, entry)
        elif delay_ms > STEP_WAIT_HERE_MS or self.is_draining:
            self._put_off(local, self._host.clock.now_ms + delay_ms, entry)
        else:
            self._try_again(local, delay_ms)

    def step_freed(self, _local: LocalStep) -> None:
        """Use the slot of an abandoned step again."""
        self._host.abandoned_freed()

    def _delay_ms(self, local: LocalStep, entry: Entry) -> int | None:
        """Return how long a failed step waits for its next attempt; None if it has none."""
        if entry.error is None or local.step.done() or self.run.is_put_aside:
            return None
        delay_ms = retry.next_delay_ms(
            local.function.retry,
            failure_count=local.number,
            error=failure.info_of(entry.error),
            jitter=random.random(),  # noqa: S311 (jitter is no secret)
        )
        _log_failure(self.task, local, entry.error, is_last=delay_ms is None)
        return delay_ms

    def _try_again(self, local: LocalStep, delay_ms: int) -> None:
        following = self._attempt(local.step, local.number + 1)
        following.alarm = self._host.call_later(
            delay_ms / 1_000, lambda: self._host.begin_when_certain(self, following)
        )

    def begin_again(self, local: LocalStep) -> None:
        """Begin another attempt of a step, unless nobody waits for it any more."""
        if self._steps.get(local.step.key) is local:
            local.alarm = None
            self._begin_or_wait(local)

    def _put_off(self, local: LocalStep, at_ms: int, failed: Entry | None) -> None:
        """Let a timer wait for the next attempt of a step."""
        self._steps.pop(local.step.key, None)
        entry = Entry(
            Kind.RETRY,
            local.step.key,
            local.step.call_key.index,
            # An attempt that has not begun does not count.
            attempts=local.number - (failed is None),
            error=None if failed is None else failed.error,
            next_at_ms=at_ms,
            line=local.step.line,
        )
        self.run.step_put_off(local.step, entry)


def _info(task: task_pb2.AssignedTask, namespace: str) -> RunInfo:
    return RunInfo(
        run_id=task.task_id,
        type=task.type,
        queue=task.task_queue,
        namespace=namespace,
        external_id=task.external_id,
        generation=task.generation,
        labels=dict(task.labels),
        begun_at=datetime.fromtimestamp(task.begun_at_ms / 1_000, UTC),
        schedule_id=task.schedule_id,
        fire_at=datetime_of(task.fire_at_ms),
    )


def _log_failure(
    task: task_pb2.AssignedTask, local: LocalStep, error: task_pb2.TaskError, *, is_last: bool
) -> None:
    trace = error.stack_trace.rstrip()
    _log.warning(
        "Step %s of run %s (%s) failed in attempt %d%s: %s: %s%s",
        *(local.step.key, task.task_id, task.type, local.number),
        *(", its last" if is_last else " and is retried", error.type, error.message),
        f"\n{trace}" if trace else "",
        extra={"task_id": task.task_id, "task_type": task.type, "step": local.step.key},
    )
