"""One queue of a worker: register, serve, and register again after the lease was lost."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Final, Protocol

import msgspec

import tenure
from tenure.core.duration import duration_text
from tenure.core.limits import LABELS_MAX
from tenure.errors import (
    NotFound,
    PermissionDenied,
    TenureError,
    Unauthenticated,
    Unavailable,
    WorkerInactive,
    WrongState,
)
from tenure.sdk.failure import WorkerEvicted, WorkerSuperseded
from tenure.sdk.transport import refusal
from tenure.sdk.transport.channel import Channel
from tenure.sdk.worker.connection import method
from tenure.sdk.worker.connection.drain import FLUSH_S, WorkerDrain
from tenure.sdk.worker.connection.health_state import HealthState
from tenure.sdk.worker.connection.inbox import WorkerInbox
from tenure.sdk.worker.connection.incarnation import Incarnation, Setup
from tenure.sdk.worker.connection.outage import Outage
from tenure.sdk.worker.connection.passing import is_denied, is_passing, reason_of
from tenure.sdk.worker.connection.shared_slots import QueueSlots, SharedSlots, SlotShare
from tenure.sdk.worker.connection.task_race import forever, run_together
from tenure.sdk.worker.connection.timed_event import TimedEvent
from tenure.sdk.worker.connection.worker_heartbeat import WorkerHeartbeat
from tenure.sdk.worker.executor_protocol import (
    ChildReport,
    Executor,
    NumberedEntry,
    Reporter,
    WantedPage,
)
from tenure.sdk.worker.mode.poll import PollMode
from tenure.sdk.worker.mode.session import SessionMode
from tenure.v1 import task_pb2
from tenure.v1 import workflow_service_pb2 as workflow_pb
from tenure.v1.worker_pb2 import WORKER_MODE_POLL, WORKER_MODE_SESSION, WorkerMode

log = logging.getLogger("tenure.worker")

# How often the progress of a drain is checked.
ATTEND_S: Final = 0.25
# The time for a last try to report and deregister.
FAREWELL_S: Final = 2.0
_KEY_BITS: Final = 128
SDK_LABEL: Final = "tenure.sdk"
"""The label with the language and the version of the SDK."""
_WIRE_MODES: Final[dict[str, WorkerMode.ValueType]] = {
    "session": WORKER_MODE_SESSION,
    "poll": WORKER_MODE_POLL,
}
_NOT_WANTED: Final[dict[str, type[Exception]]] = {
    "superseded": WorkerSuperseded,
    "evicted": WorkerEvicted,
}


class Mode(Protocol):
    """How an incarnation works."""

    async def serve(self) -> None:
        """Return when a drain is done; ``WorkerInactive`` says that the incarnation is over."""
        ...


_MODES: Final[dict[str, Callable[[Incarnation, Outage], Mode]]] = {
    "session": SessionMode,
    "poll": PollMode,
}


class Common(msgspec.Struct, kw_only=True):
    """What all registrations of a worker share."""

    channel: Channel
    clock: Callable[[], float]
    chance: random.Random
    begin_drain: Callable[[float | None], None]
    outage: Outage
    # Only if there are several queues.
    slots: SharedSlots | None = None
    drain: WorkerDrain | None = None


class Registration:
    """A worker at one queue, in all its incarnations; on the connection's loop."""

    def __init__(
        self, setup: Setup, common: Common, make_executor: Callable[[Reporter], Executor]
    ) -> None:
        """Prepare; ``live`` registers."""
        self.setup = setup
        self.me: Incarnation | None = None
        self.health_state = HealthState()
        self.changed = TimedEvent()
        self._common = common
        self._inbox = WorkerInbox(asyncio.get_running_loop(), self)
        self.executor = make_executor(self._inbox)
        self._slots = None if common.slots is None else self._share(common.slots)
        self._settling: set[asyncio.Task[None]] = set()
        self._was_registered = False

    @property
    def worker_id(self) -> str:
        """The id that the server gave; empty while it is not registered."""
        return "" if self.me is None else self.me.worker_id

    def _share(self, slots: SharedSlots) -> SlotShare:
        mine = QueueSlots(count_used=self._count_used, on_change=self._slots_changed)
        return SlotShare(slots, slots.add(mine))

    def _count_used(self) -> int:
        """Return how many slots are in use, also by code that has not stopped yet."""
        if self.me is None:
            return self.executor.active_count
        held = self.me.held_attempts
        # The server counts an attempt until it has its end, so a poll before that gets nothing.
        count = held.open_count if self.setup.mode == "session" else len(held)
        count += self.health_state.stuck_count + self.executor.extra_count
        return max(count, self.executor.active_count)

    def _slots_changed(self) -> None:
        if self.me is not None:
            self.me.changed.notify()
            self.me.room.notify()

    async def live(self) -> None:
        """Register, serve and register again, until a drain is done."""
        while self._common.drain is None:
            me = await self._register()
            if me is None:
                break
            try:
                await self._serve(me)
            except WorkerInactive as over:
                self._unshare()
                self._inbox.deliver()
                await self._lose(me, reason_of(over))
            else:
                self._unshare()
                await self._leave(me)
                break
        await self._finish_settling()

    def _unshare(self) -> None:
        if self._slots is not None:
            self._slots.all.close(self._slots.mine)

    # -- Registration

    async def _register(self) -> Incarnation | None:
        """Register, and repeat it until a server answers; None if the worker must stop before."""
        request = self._registration()
        first_at_s: float | None = None
        while self._common.drain is None:
            if first_at_s is None:
                first_at_s = self._common.clock()
            try:
                answer = await self._common.channel.ask(
                    method.REGISTER, request, timeout_s=method.CALL_S
                )
            except WorkerInactive:
                # An earlier answer was lost, and the lease that it granted is over.
                request.instance_key, first_at_s = self._new_key(), None
            except TenureError as error:
                # A worker that never registered fails at once. Otherwise it keeps trying, also
                # while its namespace is disabled.
                is_barred = is_denied(error) or isinstance(error, WrongState)
                is_kept = is_barred and self._was_registered
                if not (is_passing(error) or is_kept):
                    raise
                if error.fields.get("reason") == refusal.UNREACHABLE:
                    first_at_s = None
                await self.changed.wait(self._common.outage.pause_s(error))
            else:
                self._common.outage.over()
                self._was_registered = True
                return self._begin(request, answer, first_at_s)
        return None

    def _registration(self) -> workflow_pb.RegisterWorkerRequest:
        setup = self.setup
        request = workflow_pb.RegisterWorkerRequest(
            namespace_id=setup.namespace,
            task_queue=setup.queue,
            workflow_types=setup.types,
            hostname=socket.gethostname(),
            pid=os.getpid(),
            version=setup.version,
            max_concurrent=setup.max_concurrent,
            labels=_labels(setup),
            instance_key=self._new_key(),
            name=setup.name,
            mode=_WIRE_MODES[setup.mode],
        )
        if setup.lease_ms:
            request.lease_duration.CopyFrom(method.duration(setup.lease_ms))
        return request

    def _new_key(self) -> str:
        return f"{self._common.chance.getrandbits(_KEY_BITS):032x}"

    def _begin(
        self,
        request: workflow_pb.RegisterWorkerRequest,
        answer: workflow_pb.RegisterWorkerResponse,
        sent_at_s: float,
    ) -> Incarnation:
        executor = self.executor
        heartbeat = WorkerHeartbeat(self._common.clock, self._common.chance)
        lease_ms = answer.lease_duration.ToMilliseconds()
        if self.setup.lease_ms and lease_ms != self.setup.lease_ms:
            log.warning(
                "This worker asked for a lease of %s, but the server granted %s.",
                duration_text(self.setup.lease_ms),
                duration_text(lease_ms),
            )
        heartbeat.begin(
            answer.token,
            lease_ms=lease_ms,
            interval_ms=answer.heartbeat_interval_ms,
            sent_at_s=sent_at_s,
        )
        executor.worker_id = answer.worker_id
        executor.is_fenced = lambda: heartbeat.is_fenced
        me = self.me = Incarnation(
            answer.worker_id,
            self.setup,
            self._common.channel,
            executor,
            heartbeat,
            self.health_state,
        )
        me.registration = request
        me.drain_changed = self.changed
        if self._slots is not None:
            me.slots = self._slots
            self._slots.all.open(self._slots.mine)
        log.info(
            "Registered as worker %s at %s for queue %s with %d slots.",
            answer.worker_id,
            self._common.channel.target,
            self.setup.queue,
            self.setup.max_concurrent,
        )
        return me

    # -- An incarnation

    async def _serve(self, me: Incarnation) -> None:
        """Serve until a drain is done; ``WorkerInactive`` when the server has ended it."""
        mode = _MODES[self.setup.mode](me, self._common.outage)
        await run_together(mode.serve, me.watch, lambda: self._attend(me))

    async def _attend(self, me: Incarnation) -> None:
        """Wait for a drain and carry it out; return if it cannot end in order."""
        while self._common.drain is None and not me.is_draining:
            await self.changed.wait()
        if self._common.drain is None:
            log.info("The server asked worker %s to drain.", me.worker_id)
            deadline_at_s = me.drain_deadline_at_s
            self._common.begin_drain(
                None if deadline_at_s is None else deadline_at_s - self._common.clock()
            )
        drain = self._common.drain
        assert drain is not None
        await run_together(
            lambda: self._ask_for_drain(me, drain), lambda: self._see_through(me, drain)
        )

    async def _see_through(self, me: Incarnation, drain: WorkerDrain) -> None:
        while not self._advance(me, drain):
            await self.changed.wait(ATTEND_S)

    def _advance(self, me: Incarnation, drain: WorkerDrain) -> bool:
        """Do what is due in a drain; return whether it cannot end in order."""
        now_s = self._common.clock()
        if me.drain_deadline_at_s is not None:
            drain.shorten(me.drain_deadline_at_s)
        is_known = me.is_draining or not me.is_connected
        if not me.is_handed_back and drain.is_due(now_s, is_known=is_known):
            log.info(
                "Worker %s hands back %d unfinished task(s).", me.worker_id, len(me.held_attempts)
            )
            me.hand_back()
        # A server that refuses the key takes no reports. Running attempts may still end.
        held_count = me.active_count if me.is_denied else len(me.held_attempts)
        return drain.is_hopeless(
            now_s, held_count=held_count, is_connected=me.is_connected, is_denied=me.is_denied
        )

    async def _ask_for_drain(self, me: Incarnation, drain: WorkerDrain) -> None:
        if not me.is_draining:
            left_s = drain.deadline_at_s - self._common.clock()
            try:
                await me.deregister(drain_ms=max(1, round(left_s * 1_000)))
            except (NotFound, WrongState) as error:
                # It is offline; the session or the next heartbeat says why.
                log.debug("The drain was refused: %s", error)
            except (Unauthenticated, PermissionDenied):
                me.is_denied = True
                self.changed.notify()
            else:
                me.begin_drain()
        await forever()

    # -- Ends

    async def _leave(self, me: Incarnation) -> None:
        """Report what is left, and deregister."""
        flush_s = FLUSH_S
        stuck_count = 0
        if not me.is_drained:
            flush_s = FAREWELL_S
            stuck_count = me.exclusive_count
            me.abandon()
        try:
            async with asyncio.timeout(flush_s):
                await me.settle()
                if stuck_count:
                    # Deregistering would say that they have stopped.
                    log.error(
                        "Worker %s ends although %d exclusive task(s) do not stop. Other workers "
                        "run them when the lease of this worker is over.",
                        me.worker_id,
                        stuck_count,
                    )
                    return
                await me.deregister()
        except (TenureError, TimeoutError) as error:
            is_refused = isinstance(error, TenureError) and is_denied(error)
            why = "its API key is refused" if is_refused else "no server answers"
            if me.held_attempts:
                # The caller must know that these results are lost.
                message = (
                    f"{len(me.held_attempts)} finished task(s) could not be reported before the "
                    f"drain ended: {why}. They are run again when the lease is over."
                )
                if is_refused:
                    raise Unauthenticated(message) from error
                raise Unavailable(message, reason=refusal.UNREACHABLE) from error
            log.warning(
                "Worker %s ends without deregistering: %s. Its lease will expire.",
                me.worker_id,
                why,
            )

    async def _lose(self, me: Incarnation, reason: str) -> None:
        """Stop all attempts of an incarnation that is over. Reported ends may still count."""
        self.me = None
        me.abandon()
        settling = asyncio.ensure_future(_settle(me))
        self._settling.add(settling)
        settling.add_done_callback(self._settling.discard)
        not_wanted = _NOT_WANTED.get(reason)
        if not_wanted is None:
            log.warning(
                "The server took worker %s offline (%s). Its running tasks are stopped.",
                me.worker_id,
                reason,
            )
            return
        await self._finish_settling()
        name = f" {self.setup.name!r}" if self.setup.name else ""
        what = " ".join((not_wanted.__doc__ or "").split())
        of_queue = f" of queue {self.setup.queue}" if self._slots is not None else ""
        raise not_wanted(f"Worker{name} {me.worker_id}{of_queue} was {reason}. {what}")

    async def _finish_settling(self) -> None:
        settling = set(self._settling)
        if settling:
            _, late = await asyncio.wait(settling, timeout=FLUSH_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*settling, return_exceptions=True)

    # -- What execution says

    def take_finish(self, finish: task_pb2.TaskFinish) -> None:
        """Keep the end of an attempt."""
        if self.me is not None:
            self.me.held_attempts.finish(finish)

    def take_beat(self, beat: task_pb2.TaskBeat) -> None:
        """Keep the heartbeat of an attempt."""
        if self.me is not None and not self.me.held_attempts.beat(beat, self._common.clock()):
            log.warning("A heartbeat of task %s is too large. It was not sent.", beat.task_id)

    def take_entries(self, entries: Sequence[NumberedEntry]) -> None:
        """Keep entries for the journals of runs."""
        if self.me is not None:
            self.me.held_attempts.record(entries)

    def take_children(self, reports: Sequence[ChildReport]) -> None:
        """Keep what runs report of their children."""
        if self.me is not None:
            self.me.held_attempts.report_children(reports)

    def take_fetch(self, wanted: WantedPage) -> None:
        """Keep a request of a run for a page."""
        if self.me is not None:
            self.me.held_attempts.fetch(wanted)

    def take_signal(self, run_id: str, signal: workflow_pb.NewSignal, answer: Future[None]) -> None:
        """Send a signal to a run; it has an id, so that it can be sent again."""
        if answer.set_running_or_notify_cancel():
            sending = asyncio.ensure_future(self._signal(run_id, signal, answer))
            self._settling.add(sending)
            sending.add_done_callback(self._settling.discard)

    async def _signal(
        self, run_id: str, signal: workflow_pb.NewSignal, answer: Future[None]
    ) -> None:
        request = workflow_pb.SignalWorkflowRunRequest(
            namespace_id=self.setup.namespace, run_id=run_id, signal=signal
        )
        try:
            await self._common.channel.call(method.SIGNAL_RUN, request, timeout_s=method.SIGNAL_S)
        except TenureError as error:
            answer.set_exception(error)
        except asyncio.CancelledError:
            answer.set_exception(Unavailable("The worker has ended before the signal was sent."))
            raise
        else:
            answer.set_result(None)

    def take_stuck(self, count: int) -> None:
        """Record how many abandoned threads there are."""
        self.health_state.stuck_count = count

    def take_lag(self, milliseconds: int) -> None:
        """Record the lag of the user's event loop."""
        self.health_state.set_lag(milliseconds)

    def look_up(self) -> None:
        """Wake the writer."""
        if self.me is not None:
            self.me.changed.notify()


async def _settle(me: Incarnation) -> None:
    try:
        await me.settle()
    except TenureError as error:
        log.debug("The server accepts no more reports of worker %s: %s", me.worker_id, error)


def _labels(setup: Setup) -> dict[str, str]:
    """Add the version of the SDK for ``tenure doctor``, unless the user has set all labels."""
    if len(setup.labels) >= LABELS_MAX:
        return setup.labels
    return {**setup.labels, SDK_LABEL: f"python/{tenure.__version__}"}
