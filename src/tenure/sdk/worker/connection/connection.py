"""The connection of a worker: a thread with an event loop of its own, from start to end.

It registers, serves an incarnation, and registers again when one was judged lost. Nothing of it
runs on the user's loop, so a blocked loop or a busy thread costs no heartbeat.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, Protocol

import msgspec

import tenure
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
from tenure.sdk.transport.event_loop import new_event_loop
from tenure.sdk.worker.connection import method
from tenure.sdk.worker.connection.drain import FLUSH_S, WorkerDrain
from tenure.sdk.worker.connection.health_state import HealthState
from tenure.sdk.worker.connection.inbox import WorkerInbox
from tenure.sdk.worker.connection.incarnation import (
    Incarnation,
    Setup,
    is_denied,
    is_passing,
    reason_of,
)
from tenure.sdk.worker.connection.outage import Outage
from tenure.sdk.worker.connection.probe import Probe
from tenure.sdk.worker.connection.task_race import forever, run_together
from tenure.sdk.worker.connection.timed_event import TimedEvent
from tenure.sdk.worker.connection.worker_heartbeat import WorkerHeartbeat, boot_time_s
from tenure.sdk.worker.executor_protocol import Executor, Reporter
from tenure.sdk.worker.mode.poll import PollMode
from tenure.sdk.worker.mode.session import SessionMode
from tenure.v1 import task_pb2
from tenure.v1 import workflow_service_pb2 as workflow_pb
from tenure.v1.worker_pb2 import WORKER_MODE_POLL, WORKER_MODE_SESSION, WorkerMode

log = logging.getLogger("tenure.worker")

# How often a drain is looked at while it lasts.
ATTEND_S: Final = 0.25
# A last try after all waiting was in vain.
FAREWELL_S: Final = 2.0
_KEY_BITS: Final = 128
SDK_LABEL: Final = "tenure.sdk"
"""The label by which a worker says what it was made with: a language and a version."""
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


class ConnectionStatus(msgspec.Struct, frozen=True):
    """How the worker stands, for its own process."""

    worker_id: str
    status: str
    active_count: int
    health: str
    is_ready: bool


_MODES: Final[dict[str, Callable[[Incarnation, Outage], Mode]]] = {
    "session": SessionMode,
    "poll": PollMode,
}


class WorkerConnection:
    """One worker through all of its incarnations; its public methods may be called anywhere."""

    def __init__(
        self,
        setup: Setup,
        channel: Channel,
        make_executor: Callable[[Reporter], Executor],
        *,
        health: tuple[str, int] | None = None,
        clock: Callable[[], float] = boot_time_s,
        chance: random.Random | None = None,
    ) -> None:
        """Prepare; ``start`` makes the thread."""
        self._setup = setup
        self._channel = channel
        self._make_executor = make_executor
        self._health = health
        self._clock = clock
        self._chance = chance or random.SystemRandom()
        self._health_state = HealthState()
        self._outage = Outage()
        self._drain: WorkerDrain | None = None
        self._me: Incarnation | None = None
        self._executor: Executor | None = None
        self._settling: set[asyncio.Task[None]] = set()
        self._ended: Future[None] = Future()
        # Before the loop runs a request is kept here. A signal may come while its own thread asks.
        self._lock = threading.RLock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asked: list[Callable[[], None]] = []
        self._is_asked = False
        self._was_registered = False
        self.probe: Probe | None = None

    # -- For other threads

    def start(self) -> Future[None]:
        """Start the thread; the future has its end, and the error if there was one."""
        threading.Thread(target=self._run, name="tenure-connection", daemon=True).start()
        return self._ended

    def shut_down(self, deadline_s: float | None = None) -> None:
        """Begin a drain; asked again, it can only be shortened."""
        self._ask(lambda: self._begin_drain(deadline_s))

    def hand_back(self) -> None:
        """End a drain now: what has not ended is handed back."""
        self._ask(lambda: self._begin_drain(0.0))

    def request_stop(self) -> None:
        """Drain; asked a second time, hand back now. Safe in a signal handler."""
        deadline_s = 0.0 if self._is_asked else None
        self._is_asked = True
        self._ask(lambda: self._begin_drain(deadline_s))

    def abort(self) -> None:
        """End without a word to the server, as a process does that is killed: for tests."""
        self._ask(self._cancel)

    def status(self) -> ConnectionStatus:
        """Return how the worker stands."""
        me, executor = self._me, self._executor
        active_count = 0 if executor is None else executor.active_count
        health = self._health_state.health
        if me is None:
            word = "starting" if self._drain is None else "offline"
            return ConnectionStatus("", word, active_count, health, is_ready=False)
        is_draining = me.is_draining or self._drain is not None
        return ConnectionStatus(
            me.worker_id,
            "draining" if is_draining else "online",
            active_count,
            health,
            is_ready=not is_draining and not me.heartbeat.is_fenced,
        )

    def _ask(self, what: Callable[[], None]) -> None:
        with self._lock:
            if self._loop is None:
                self._asked.append(what)
                return
            loop = self._loop
        try:
            loop.call_soon_threadsafe(what)
        except RuntimeError:
            log.debug("The worker has ended already.")

    # -- The thread

    def _run(self) -> None:
        failure: BaseException | None = None
        try:
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                runner.get_loop().set_exception_handler(_handle_exception)
                runner.run(self._main())
        except BaseException as error:  # noqa: BLE001 (it is handed to whoever waits)
            failure = error
        if failure is None:
            self._ended.set_result(None)
        else:
            self._ended.set_exception(failure)

    def _cancel(self) -> None:
        assert self._task is not None
        self._task.cancel()

    async def _main(self) -> None:
        loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        inbox = WorkerInbox(loop, self)
        executor = self._executor = self._make_executor(inbox)
        self._changed = TimedEvent()
        with self._lock:
            self._loop = loop
            asked, self._asked = self._asked, []
        for each in asked:
            each()
        try:
            if self._health is not None:
                self.probe = await Probe.start(self._health, self.status)
            await self._live(executor, inbox)
        finally:
            self._me = None
            if self.probe is not None:
                await self.probe.close()
            await executor.close()
            await self._channel.close()

    async def _live(self, executor: Executor, inbox: WorkerInbox) -> None:
        while self._drain is None:
            me = await self._register(executor)
            if me is None:
                break
            try:
                await self._serve(me)
            except WorkerInactive as over:
                inbox.deliver()
                await self._lose(me, reason_of(over))
            else:
                await self._leave(me)
                break
        await self._finish_settling()
        log.info("The worker has ended.")

    # -- Registration

    async def _register(self, executor: Executor) -> Incarnation | None:
        """Register until somebody answers; None when the worker is to stop before."""
        request = self._registration()
        first_at_s: float | None = None
        while self._drain is None:
            if first_at_s is None:
                first_at_s = self._clock()
            try:
                answer = await self._channel.ask(method.REGISTER, request, timeout_s=method.CALL_S)
            except WorkerInactive:
                # An earlier answer was lost, and the lease that it gave is over.
                request.instance_key, first_at_s = self._new_key(), None
            except TenureError as error:
                # Who was never let in is told so at once; who was keeps trying, also while its
                # namespace is disabled.
                is_barred = is_denied(error) or isinstance(error, WrongState)
                is_kept = is_barred and self._was_registered
                if not (is_passing(error) or is_kept):
                    raise
                if error.fields.get("reason") == refusal.UNREACHABLE:
                    first_at_s = None
                await self._changed.wait(self._outage.pause_s(error))
            else:
                self._outage.over()
                self._was_registered = True
                return self._begin(request, answer, first_at_s, executor)
        return None

    def _registration(self) -> workflow_pb.RegisterWorkerRequest:
        setup = self._setup
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
        return f"{self._chance.getrandbits(_KEY_BITS):032x}"

    def _begin(
        self,
        request: workflow_pb.RegisterWorkerRequest,
        answer: workflow_pb.RegisterWorkerResponse,
        sent_at_s: float,
        executor: Executor,
    ) -> Incarnation:
        heartbeat = WorkerHeartbeat(self._clock, self._chance)
        heartbeat.begin(
            answer.token,
            lease_ms=answer.lease_duration.ToMilliseconds(),
            interval_ms=answer.heartbeat_interval_ms,
            sent_at_s=sent_at_s,
        )
        executor.worker_id = answer.worker_id
        executor.is_fenced = lambda: heartbeat.is_fenced
        self._me = Incarnation(
            answer.worker_id, self._setup, self._channel, executor, heartbeat, self._health_state
        )
        self._me.registration = request
        self._me.drain_changed = self._changed
        log.info(
            "Registered as worker %s at %s for queue %s with %d slots.",
            answer.worker_id,
            self._channel.target,
            self._setup.queue,
            self._setup.max_concurrent,
        )
        return self._me

    # -- An incarnation

    async def _serve(self, me: Incarnation) -> None:
        """Serve until a drain is done; ``WorkerInactive`` when the server has ended it."""
        mode = _MODES[self._setup.mode](me, self._outage)
        await run_together(mode.serve, me.watch, lambda: self._attend(me))

    async def _attend(self, me: Incarnation) -> None:
        """Wait for a drain and see it through; return when there is no hope of an orderly end."""
        while self._drain is None and not me.is_draining:
            await self._changed.wait()
        if self._drain is None:
            log.info("The server drains worker %s.", me.worker_id)
            deadline_at_s = me.drain_deadline_at_s
            self._begin_drain(None if deadline_at_s is None else deadline_at_s - self._clock())
        drain = self._drain
        assert drain is not None
        await run_together(
            lambda: self._ask_for_drain(me, drain), lambda: self._see_through(me, drain)
        )

    async def _see_through(self, me: Incarnation, drain: WorkerDrain) -> None:
        while not self._advance(me, drain):
            await self._changed.wait(ATTEND_S)

    def _advance(self, me: Incarnation, drain: WorkerDrain) -> bool:
        """Do what is due in a drain; tell whether there is no hope of an orderly end."""
        now_s = self._clock()
        if me.drain_deadline_at_s is not None:
            drain.shorten(me.drain_deadline_at_s)
        if drain.is_due(now_s, is_known=me.is_draining or not me.is_connected):
            drain.is_handed_back = True
            log.info(
                "Worker %s hands back what it holds (%d).", me.worker_id, len(me.held_attempts)
            )
            me.hand_back()
        # What has ended cannot be reported to a server that refuses the key; what runs may end.
        held_count = me.active_count if me.is_denied else len(me.held_attempts)
        return drain.is_hopeless(
            now_s, held_count=held_count, is_connected=me.is_connected, is_denied=me.is_denied
        )

    async def _ask_for_drain(self, me: Incarnation, drain: WorkerDrain) -> None:
        if not me.is_draining:
            left_s = drain.deadline_at_s - self._clock()
            try:
                await me.deregister(drain_ms=max(1, round(left_s * 1_000)))
            except (NotFound, WrongState) as error:
                # It is offline; the session or the next heartbeat says why.
                log.debug("The drain was refused: %s", error)
            except (Unauthenticated, PermissionDenied):
                me.is_denied = True
                self._changed.notify()
            else:
                me.begin_drain()
        await forever()

    def _begin_drain(self, deadline_s: float | None) -> None:
        now_s = self._clock()
        if deadline_s is None:
            deadline_s = self._setup.drain_deadline_ms / 1_000
        if self._drain is None:
            self._drain = WorkerDrain(now_s, deadline_s)
            held_count = 0 if self._me is None else len(self._me.held_attempts)
            log.info("Draining: %d task(s) have %.0f s to end.", held_count, deadline_s)
        else:
            self._drain.shorten(now_s + deadline_s)
        self._changed.notify()

    # -- Ends

    async def _leave(self, me: Incarnation) -> None:
        """End for good: report what is left, and deregister."""
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
                    # Who says goodbye has stopped for sure.
                    log.error(
                        "Worker %s ends while %d exclusive task(s) do not stop: others run them "
                        "when its lease is over.",
                        me.worker_id,
                        stuck_count,
                    )
                    return
                await me.deregister()
        except (TenureError, TimeoutError) as error:
            is_refused = isinstance(error, TenureError) and is_denied(error)
            why = "its API key is refused" if is_refused else "no server answers"
            if me.held_attempts:
                # Somebody has to know that these are lost.
                message = (
                    f"{len(me.held_attempts)} finished task(s) could not be reported before the "
                    f"drain ended: {why}. They are run again when the lease is over."
                )
                if is_refused:
                    raise Unauthenticated(message) from error
                raise Unavailable(message, reason=refusal.UNREACHABLE) from error
            log.warning(
                "Worker %s ends without a goodbye, its lease runs out: %s.", me.worker_id, why
            )

    async def _lose(self, me: Incarnation, reason: str) -> None:
        """Stop everything of an incarnation that is over; what has ended may still count."""
        self._me = None
        me.abandon()
        settling = asyncio.ensure_future(_settle(me))
        self._settling.add(settling)
        settling.add_done_callback(self._settling.discard)
        not_wanted = _NOT_WANTED.get(reason)
        if not_wanted is None:
            log.warning(
                "Worker %s is offline for the server (%s); its tasks were stopped here.",
                me.worker_id,
                reason,
            )
            return
        await self._finish_settling()
        name = f" {self._setup.name!r}" if self._setup.name else ""
        what = " ".join((not_wanted.__doc__ or "").split())
        raise not_wanted(f"Worker{name} {me.worker_id} was {reason}. {what}")

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
        if self._me is not None:
            self._me.held_attempts.finish(finish)

    def take_beat(self, beat: task_pb2.TaskBeat) -> None:
        """Keep the heartbeat of an attempt."""
        if self._me is not None and not self._me.held_attempts.beat(beat, self._clock()):
            log.warning("A heartbeat of task %s is too large and was not sent.", beat.task_id)

    def take_stuck(self, count: int) -> None:
        """Note how many abandoned threads there are."""
        self._health_state.stuck_count = count

    def take_lag(self, milliseconds: int) -> None:
        """Note how far the user's loop is behind."""
        self._health_state.set_lag(milliseconds)

    def look_up(self) -> None:
        """Let the writer see what has come."""
        if self._me is not None:
            self._me.changed.notify()


async def _settle(me: Incarnation) -> None:
    try:
        await me.settle()
    except TenureError as error:
        log.debug("The server takes no more reports of worker %s: %s", me.worker_id, error)


def _handle_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Leave out one line of gRPC: with several loops each is woken for the news of all."""
    is_poller = "PollerCompletionQueue._handle_events" in repr(context.get("handle"))
    if not (is_poller and isinstance(context.get("exception"), BlockingIOError)):
        loop.default_exception_handler(context)


def _labels(setup: Setup) -> dict[str, str]:
    """Add what ``tenure doctor`` compares with the server, unless the user has used up the room."""
    if len(setup.labels) >= LABELS_MAX:
        return setup.labels
    return {**setup.labels, SDK_LABEL: f"python/{tenure.__version__}"}
