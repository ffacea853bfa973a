"""Messages between parties and servers: late, lost, twice, out of order, or cut off."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tenure.core.journal.entry import JournalPage
from tenure.core.limits import STREAM_BYTES_MAX
from tenure.core.task.effect import Stop
from tenure.core.task.record import Task
from tenure.core.worker.record import EndReason
from tenure.engine.command import TaskRef
from tenure.engine.engine import Engine
from tenure.engine.run.command import SignalRun, StartRun
from tenure.engine.task.command import EnqueueTasks
from tenure.engine.worker.command import SessionAnswer
from tenure.errors import TenureError
from tests.sim.trace import short

if TYPE_CHECKING:
    from tests.sim.server import Server
    from tests.sim.worker import WorkerProcess
    from tests.sim.world import World

Ask = Callable[[Engine], "asyncio.Future[Any]"]
Request = Any  # a command, or what a heartbeat carries


class NoAnswer(Exception):
    """No answer came in time, or nobody is there: nobody knows what happened."""


class Network:
    """Carries requests to servers and answers back."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.random("network")
        self._cut_until_ms: dict[tuple[str, int], float] = {}
        self.sent_count = 0

    def delay_ms(self) -> float:
        """Draw how long a message takes."""
        faults = self._world.faults
        if self._random.random() < faults.slow_share and not self._world.is_healed:
            return self._random.random() * faults.slow_ms
        return 0.5 + 4 * self._random.random()

    def _happens(self, share: float) -> bool:
        return self._random.random() < share and not self._world.is_healed

    def cut(self, party: str, server: Server, ms: float) -> None:
        """Let nothing through between a party and a server for a while."""
        self._world.note(f"cut between {party} and server {server.number} for {ms:.0f}")
        self._cut_until_ms[party, server.number] = self._world.now_ms + ms

    def heal(self) -> None:
        """Let everything through from now on."""
        self._cut_until_ms.clear()

    def cut_ms(self, party: str, server: Server) -> float:
        """Return for how long nothing gets through."""
        until_ms = self._cut_until_ms.get((party, server.number), 0)
        return max(0.0, until_ms - self._world.now_ms)

    def call(
        self,
        party: str,
        server: Server,
        request: Request,
        *,
        ask: Ask | None = None,
        timeout_ms: float = 600,
        is_single: bool = False,
    ) -> asyncio.Future[Any]:
        """Send a request and return the future of its answer, an error, or `NoAnswer`."""
        loop = self._world.loop
        self.sent_count += 1
        reply: asyncio.Future[Any] = loop.create_future()
        loop.call_later(timeout_ms / 1000, _give_up, reply)
        if self._happens(self._world.faults.request_lost):
            return reply
        # What arrives twice is sent twice, and an enqueue that is sent again is marked.
        is_single = is_single or _is_sent_once(request)
        copies = 1 + (not is_single and self._happens(self._world.faults.duplicated))
        for copy in range(copies):
            answer_to = reply if copy == 0 else None
            at_ms = self._world.now_ms + self.delay_ms() + self._stuck_ms(request)
            at_s = self._bunched_ms(at_ms) / 1000
            loop.call_at(at_s, self._arrive, party, server, request, ask, answer_to)
        return reply

    def _bunched_ms(self, at_ms: float) -> float:
        """Return when a message arrives with others."""
        bunch_ms = self._world.faults.bunch_ms
        if not bunch_ms or self._world.is_healed:
            return at_ms
        return math.ceil(at_ms / bunch_ms) * bunch_ms

    def _stuck_ms(self, request: Request) -> float:
        faults = self._world.faults
        is_new = isinstance(request, EnqueueTasks | StartRun)
        if not is_new or not self._happens(faults.stuck_share):
            return 0
        return self._random.random() * faults.stuck_ms

    def hint(self, server: Server, payload: str) -> None:
        """Carry what a server tells to all others; some of it is lost."""
        world = self._world
        if not world.has_hints or not server.is_up:
            return
        for other in world.servers:
            if other is not server and not self._happens(world.faults.request_lost):
                world.loop.call_later(self.delay_ms() / 1000, other.hear, payload)

    def _arrive(
        self,
        party: str,
        server: Server,
        request: Request,
        ask: Ask | None,
        reply: asyncio.Future[Any] | None,
    ) -> None:
        if self.cut_ms(party, server):
            return
        engine = server.engine
        if engine is None:
            self._send_back(party, server, reply, NoAnswer("refused"))
            return
        self._world.request_log.arrived(request)
        try:
            answer = ask(engine) if ask is not None else engine.submit(request)
        except TenureError as error:
            self._world.request_log.answered(request, error)
            self._send_back(party, server, reply, error)
            return
        answer.add_done_callback(
            lambda done: self._answered(party, server, engine, request, reply, done)
        )

    def _answered(
        self,
        party: str,
        server: Server,
        engine: Engine,
        request: Request,
        reply: asyncio.Future[Any] | None,
        done: asyncio.Future[Any],
    ) -> None:
        if done.cancelled() or isinstance(done.exception(), asyncio.CancelledError):
            return
        answer = done.exception() or done.result()
        if isinstance(answer, BaseException) and not isinstance(answer, TenureError):
            if isinstance(answer, Exception):
                self._world.crashed(answer)
            return
        if server.engine is not engine:
            return
        self._world.request_log.answered(request, answer)
        if isinstance(answer, SessionAnswer):
            request.sink.opened(answer.worker.session_no)
        if not self._happens(self._world.faults.reply_lost):
            self._send_back(party, server, reply, answer)

    def _send_back(
        self, party: str, server: Server, reply: asyncio.Future[Any] | None, answer: object
    ) -> None:
        if reply is None or self.cut_ms(party, server):
            return
        self._world.loop.call_later(self.delay_ms() / 1000, _resolve, reply, answer)


def _is_sent_once(request: Request) -> bool:
    """Tell whether nobody would send a request twice: it is not marked, or has no id."""
    if isinstance(request, EnqueueTasks | StartRun):
        return not request.is_resend
    return isinstance(request, SignalRun) and not request.signal.signal_id


def _give_up(reply: asyncio.Future[Any]) -> None:
    if not reply.done():
        reply.set_exception(NoAnswer("timeout"))


def _resolve(reply: asyncio.Future[Any], answer: object) -> None:
    if reply.done():
        return
    if isinstance(answer, Exception):
        reply.set_exception(answer)
    else:
        reply.set_result(answer)


class Session:
    """A stream from a server to a worker: what it carries keeps its order and comes once.

    Either side may lose it before the other one knows.
    """

    room_bytes = STREAM_BYTES_MAX

    def __init__(self, world: World, worker: WorkerProcess, server: Server) -> None:
        self._world = world
        self._worker = worker
        self.server = server
        self._engine = server.engine
        self.worker_id = worker.worker_id or ""
        self.namespace = worker.namespace
        self.session_no: int | None = None
        self.is_open = True
        self.is_client_open = True
        self._last_ms = 0.0

    def opened(self, session_no: int) -> None:
        """Note the number that the server gave; a client that is gone hangs up at once."""
        self.session_no = session_no
        if not self.is_client_open:
            self._hang_up()

    def close(self) -> None:
        """Close from the client's side; the server hears of it later."""
        if self.is_client_open:
            self.is_client_open = False
            if self.session_no is not None:
                self._hang_up()

    def _hang_up(self) -> None:
        network = self._world.network
        cut_ms = network.cut_ms(self._worker.name, self.server)
        self._world.loop.call_later((cut_ms + network.delay_ms()) / 1000, self._end)

    def _end(self) -> None:
        if not self.is_open:
            return
        self.is_open = False
        engine = self.server.engine
        if engine is not None and engine is self._engine and self.session_no is not None:
            self._world.note(f"session of worker {short(self.worker_id)} ends at its server")
            self._world.request_log.session_lost(self.worker_id)
            engine.lose_session(self.namespace, self.worker_id, self.session_no)

    def server_died(self) -> None:
        """Let the client know, sooner or later, that nobody is there."""
        self.is_open = False
        after = self._world.network.delay_ms() / 1000
        self._world.loop.call_later(after, self._worker.session_broke, self)

    def give(self, tasks: Sequence[Task]) -> None:
        """Deliver handed-out tasks."""
        self._down("give", tuple(tasks))

    def cancel(self, refs: Sequence[TaskRef]) -> None:
        """Tell that tasks are to be cancelled."""
        self._down("cancel", tuple(refs))

    def stop(self, stops: Sequence[Stop]) -> None:
        """Tell that attempts are over."""
        self._down("stop", tuple(stops))

    def page(self, ref: TaskRef, page: JournalPage) -> None:
        """Tell what others have appended to the journal of a run."""
        self._down("page", (ref, page))

    def drain(self) -> None:
        """Tell that the worker drains."""
        self._down("drain", None)

    def end(self, reason: EndReason) -> None:
        """Tell that the worker is offline."""
        self._down("end", reason.value)

    def _down(self, kind: str, what: object) -> None:
        if self.is_open:
            network = self._world.network
            at_ms = self._world.now_ms + network.delay_ms()
            self._last_ms = max(self._last_ms, at_ms)
            self._world.loop.call_at(self._last_ms / 1000, self._arrive, kind, what)

    def _arrive(self, kind: str, what: object) -> None:
        cut_ms = self._world.network.cut_ms(self._worker.name, self.server)
        if cut_ms:
            self._last_ms = max(self._last_ms, self._world.now_ms + cut_ms + 1)
            self._world.loop.call_at(self._last_ms / 1000, self._arrive, kind, what)
        elif self.is_client_open:
            self._worker.receive(self, kind, what)
