"""The connection of a worker: a thread with an event loop of its own, from start to end.

It serves each queue of the worker by a registration of its own. Nothing of it runs on the user's
loop, so a blocked loop or a busy thread costs no heartbeat.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import msgspec

from tenure.sdk.transport.channel import Channel
from tenure.sdk.transport.event_loop import new_event_loop
from tenure.sdk.worker.connection.drain import WorkerDrain
from tenure.sdk.worker.connection.health_state import HEALTHY
from tenure.sdk.worker.connection.incarnation import Incarnation, Setup
from tenure.sdk.worker.connection.outage import Outage
from tenure.sdk.worker.connection.probe import Probe
from tenure.sdk.worker.connection.registration import Common, Registration
from tenure.sdk.worker.connection.shared_slots import TURN_S, SharedSlots
from tenure.sdk.worker.connection.worker_heartbeat import boot_time_s
from tenure.sdk.worker.executor_protocol import Executor, Reporter

log = logging.getLogger("tenure.worker")


class ConnectionStatus(msgspec.Struct, frozen=True):
    """The state of the worker, for its own process.

    ``worker_ids`` has the id for each queue, empty while it is not registered there; ``worker_id``
    has all of them, with commas between.
    """

    worker_id: str
    status: str
    active_count: int
    health: str
    is_ready: bool
    worker_ids: dict[str, str]


class WorkerConnection:
    """One worker from start to end. Its public methods may be called in any thread."""

    def __init__(
        self,
        setups: Sequence[Setup],
        channel: Channel,
        make_executor: Callable[[Reporter], Executor],
        *,
        health: tuple[str, int] | None = None,
        clock: Callable[[], float] = boot_time_s,
        chance: random.Random | None = None,
    ) -> None:
        """Prepare one registration for each of ``setups``; ``start`` makes the thread."""
        self._setups = setups
        self._make_executor = make_executor
        self._health = health
        self._common = Common(
            channel=channel,
            clock=clock,
            chance=chance or random.SystemRandom(),
            begin_drain=self._begin_drain,
            outage=Outage(),
            slots=SharedSlots(setups[0].max_concurrent) if len(setups) > 1 else None,
        )
        self._registrations: list[Registration] = []
        self._ended: Future[None] = Future()
        # For requests before the loop runs. A signal handler may interrupt its own thread.
        self._lock = threading.RLock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asked: list[Callable[[], None]] = []
        self._is_asked = False
        self.probe: Probe | None = None

    # -- For other threads

    def start(self) -> Future[None]:
        """Start the thread. The future ends with the worker, and has its error if there is one."""
        threading.Thread(target=self._run, name="tenure-connection", daemon=True).start()
        return self._ended

    def shut_down(self, deadline_s: float | None = None) -> None:
        """Begin a drain. A second call can only shorten it."""
        self._ask(lambda: self._begin_drain(deadline_s))

    def hand_back(self) -> None:
        """End a drain now: what has not ended is handed back."""
        self._ask(lambda: self._begin_drain(0.0))

    def request_stop(self) -> None:
        """Drain. A second call hands back at once. Safe in a signal handler."""
        deadline_s = 0.0 if self._is_asked else None
        self._is_asked = True
        self._ask(lambda: self._begin_drain(deadline_s))

    def abort(self) -> None:
        """End without telling the server, like a killed process; for tests."""
        self._ask(self._cancel)

    def status(self) -> ConnectionStatus:
        """Return the state of the worker."""
        found = self._registrations
        known = [each.me for each in found if each.me is not None and each.me.worker_id]
        word = self._word(known)
        healths = [each.health_state.health for each in found]
        return ConnectionStatus(
            ",".join(each.worker_id for each in known),
            word,
            sum(each.executor.active_count for each in found),
            next((each for each in healths if each != HEALTHY), HEALTHY),
            is_ready=word == "online" and not any(each.heartbeat.is_fenced for each in known),
            worker_ids={each.setup.queue: each.worker_id for each in found},
        )

    def _word(self, known: list[Incarnation]) -> str:
        """Return the status word, from what the server knows of the worker."""
        is_leaving = self._common.drain is not None
        if not known:
            return "offline" if is_leaving else "starting"
        if is_leaving or any(each.is_draining for each in known):
            return "draining"
        return "online" if len(known) == len(self._registrations) else "starting"

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
        found = self._registrations = [
            Registration(setup, self._common, self._make_executor) for setup in self._setups
        ]
        with self._lock:
            self._loop = loop
            asked, self._asked = self._asked, []
        for ask in asked:
            ask()
        try:
            if self._health is not None:
                self.probe = await Probe.start(self._health, self.status)
            await self._live()
        finally:
            for each in found:
                each.me = None
            if self.probe is not None:
                await self.probe.close()
            for each in found:
                await each.executor.close()
            await self._common.channel.close()

    async def _live(self) -> None:
        """Serve all queues. If one fails, the others are drained at once."""
        serving = [asyncio.ensure_future(each.live()) for each in self._registrations]
        sharing = asyncio.ensure_future(self._share_slots())
        try:
            done, others = await asyncio.wait(serving, return_when=asyncio.FIRST_EXCEPTION)
            if others:
                self._begin_drain(0.0)
                await asyncio.wait(others)
        finally:
            for each in (*serving, sharing):
                each.cancel()
            await asyncio.gather(*serving, sharing, return_exceptions=True)
        for each in (*done, *others):
            each.result()
        log.info("The worker has ended.")

    async def _share_slots(self) -> None:
        """Move slots between queues as time passes."""
        slots = self._common.slots
        while slots is not None:
            await asyncio.sleep(TURN_S)
            slots.settle(self._common.clock())

    def _begin_drain(self, deadline_s: float | None) -> None:
        now_s = self._common.clock()
        if deadline_s is None:
            deadline_s = self._setups[0].drain_deadline_ms / 1_000
        if self._common.drain is None:
            self._common.drain = WorkerDrain(now_s, deadline_s)
            log.info("Draining: %s have %.0f s to finish.", self._held_text(), deadline_s)
        else:
            self._common.drain.shorten(now_s + deadline_s)
        for each in self._registrations:
            each.changed.notify()

    def _held_text(self) -> str:
        counts = {
            each.setup.queue: 0 if each.me is None else len(each.me.held_attempts)
            for each in self._registrations
        }
        text = f"{sum(counts.values())} task(s)"
        if len(counts) == 1:
            return text
        return f"{text} ({', '.join(f'{queue}: {count}' for queue, count in counts.items())})"


def _handle_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Drop a harmless error of gRPC, which wakes every loop for the events of all loops."""
    is_poller = "PollerCompletionQueue._handle_events" in repr(context.get("handle"))
    if not (is_poller and isinstance(context.get("exception"), BlockingIOError)):
        loop.default_exception_handler(context)
