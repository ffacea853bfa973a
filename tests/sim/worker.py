"""A simulated worker process that follows the worker's side of the design, section 5."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tenure.core.lease import Beat
from tenure.core.retry import ErrorCategory, ErrorInfo
from tenure.core.task_record import Task
from tenure.core.worker import NewWorker, WorkerMode
from tenure.engine import command as c
from tenure.engine.engine import Engine
from tenure.errors import TenureError, TokenMismatch, WorkerDraining, WorkerInactive
from tests.sim.ledger import HeartbeatCall
from tests.sim.network import NoAnswer, Session
from tests.sim.trace import short

if TYPE_CHECKING:
    from tests.sim.server import Server
    from tests.sim.world import World

CONFIRM_AFTER_MS = 150
FENCE_MARGIN_MS = 150
DRAIN_MS = 1_500
FINAL = ("superseded", "evicted")


class Held:
    """An attempt that the process has, from its delivery to the acknowledgement of its end."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.ref = c.TaskRef(task.id, task.attempt)
        self.is_started = False
        self.is_long = False
        self.is_bound = False
        self.is_over = False
        self.is_cancelled = False


class WorkerProcess:
    """One process: registers, works, beats, drains, crashes; a crash forgets everything."""

    def __init__(self, world: World, name: str, new: NewWorker, namespace: str) -> None:
        self._world = world
        self.name = name
        self.namespace = namespace
        self.new = new
        self._random = world.random(f"worker {name}")
        self._drift = 1 + world.faults.drift * (2 * self._random.random() - 1)
        self.worker_id: str | None = None
        self.held: dict[c.TaskRef, Held] = {}
        self.outbox: dict[c.TaskRef, tuple[str, c.Finish]] = {}
        self._seen: set[c.TaskRef] = set()
        self._unbound: list[c.TaskRef] = []
        self._token = 0
        self._is_full = False
        self._interval_ms = 500
        self._fence_at_ms = 0.0
        self.total_completed = self.total_failed = 0
        self._told_completed = self._told_failed = 0
        self._unsure: tuple[int, int, int] | None = None
        self._uses_deltas = self._random.random() < 0.4
        self.is_draining = self.is_over = self.is_paused = False
        self._stash: list[Callable[[], None]] = []
        self._session: Session | None = None
        self._session_count = 0
        self._server = self._pick_server()
        self._ended = asyncio.Event()
        self._wake_intake = asyncio.Event()
        self._wake_reports = asyncio.Event()
        self._go = asyncio.Event()
        self._go.set()
        self._main = world.spawn(self._live())
        self._parts: list[asyncio.Task[None]] = []

    # -- Life ----------------------------------------------------------------------------------

    async def _live(self) -> None:
        while not self.is_over:
            await self._register()
            self._ended.clear()
            intake = self._poll if self.new.mode is WorkerMode.POLL else self._keep_session
            loops = (self._beat, intake, self._report)
            self._parts = [self._world.spawn(each()) for each in loops]
            await self._ended.wait()
            self._stop_parts()
        if self.outbox:
            self._parts = [self._world.spawn(self._report())]

    def _stop_parts(self) -> None:
        for part in self._parts:
            part.cancel()
        self._parts = []
        self._close_session()

    async def _register(self) -> None:
        if self._random.random() < 0.7:
            self.new = self._world.renewed(self.new)
        # Else it says the old key again: an incarnation that is over must stay so.
        while True:
            sent_at_ms = self._world.now_ms
            command = c.RegisterWorker(namespace=self.namespace, new=self.new)
            try:
                answer: c.Registration = await self._call(command)
            except WorkerInactive:
                self.new = self._world.renewed(self.new)
            except (NoAnswer, TenureError):
                self._server = self._pick_server()
                await self._sleep(100 + 200 * self._random.random())
            else:
                self.worker_id = answer.worker.id
                self.is_draining = answer.worker.status == "draining"
                self._token = answer.lease.token
                # A repeated registration may meet the token that an earlier one left.
                self._is_full = True
                self._interval_ms = answer.interval_ms
                self._renew(sent_at_ms, answer.lease.lease_ms)
                self.total_completed = self.total_failed = 0
                self._told_completed = self._told_failed = 0
                self._unsure = None
                self._world.registered(self, answer.worker.id)
                return

    def inactive(self, reason: str) -> None:
        """Abort what runs; register again unless somebody wants this process gone."""
        self._world.note(f"worker {short(self.worker_id or '')} is told inactive: {reason}")
        for ref in [ref for ref, held in self.held.items() if not held.is_over]:
            del self.held[ref]
        self.worker_id = None
        self._unbound = []
        self.is_over = self.is_over or reason in FINAL or reason == "deregistered"
        self._ended.set()

    def crash(self) -> None:
        """Die and forget everything; the kernel closes the sockets."""
        self._world.note(f"worker {short(self.worker_id or '')} crashes")
        self.is_over = True
        self._main.cancel()
        self._stop_parts()
        self.held, self.outbox = {}, {}
        self.worker_id = None

    def pause(self) -> None:
        """Stand still, like a process that got SIGSTOP."""
        self._world.note(f"worker {short(self.worker_id or '')} stands still")
        self.is_paused = True
        self._go.clear()

    def go_on(self) -> None:
        """Go on; what should have happened meanwhile happens now."""
        if self.is_paused:
            self.is_paused = False
            self._go.set()
            stash, self._stash = self._stash, []
            for action in stash:
                action()

    def drain(self) -> None:
        """Begin to drain, as after the first SIGTERM."""
        if not self.is_draining and self.worker_id is not None:
            self._world.spawn(self._drain())

    async def _drain(self) -> None:
        worker_id = self.worker_id
        if worker_id is None:
            return
        self._world.note(f"worker {short(worker_id)} drains")
        self.is_draining = True
        command = c.DrainWorker(namespace=self.namespace, worker_id=worker_id, deadline_ms=DRAIN_MS)
        try:
            await self._repeat(command)
        except TenureError:
            return
        until_ms = self._world.now_ms + DRAIN_MS
        while self.held and self._world.now_ms < until_ms and self.worker_id == worker_id:
            await self._sleep(100)
        for held in list(self.held.values()):
            if not held.is_over:
                self._finish(held, c.FinishKind.RELEASED)
        while self.held and self.worker_id == worker_id:
            await self._sleep(50)
        if self.worker_id != worker_id:
            return
        try:
            await self._repeat(c.DeregisterWorker(namespace=self.namespace, worker_id=worker_id))
        except TenureError:
            return
        if self.worker_id == worker_id:
            self.inactive("deregistered")

    # -- Talking -------------------------------------------------------------------------------

    def _pick_server(self) -> Server:
        return self._random.choice(self._world.servers)

    async def _sleep(self, ms: float) -> None:
        await asyncio.sleep(ms / 1000)
        if self.is_paused:
            await self._go.wait()

    async def _call(self, request: Any, **options: Any) -> Any:
        session = self._session
        server = session.server if session is not None else self._server
        try:
            answer = await self._world.network.call(self.name, server, request, **options)
        finally:
            if self.is_paused:
                await self._go.wait()
        return answer

    async def _repeat(self, command: c.Command) -> object:
        while True:
            try:
                return await self._call(command)
            except NoAnswer:
                self._server = self._pick_server()
                await self._sleep(50)

    def _soon(self, ms: float, action: Callable[..., None], *args: object) -> None:
        self._world.loop.call_later(ms / 1000, self._do, lambda: action(*args))

    def _do(self, action: Callable[[], None]) -> None:
        if self.is_paused:
            self._stash.append(action)
        else:
            action()

    # -- Heartbeats ----------------------------------------------------------------------------

    def _renew(self, sent_at_ms: float, lease_ms: int) -> None:
        self._fence_at_ms = sent_at_ms + (lease_ms - FENCE_MARGIN_MS) / self._drift
        for held in list(self.held.values()):
            if not held.is_started and not held.is_over:
                self._start(held)

    @property
    def is_fenced(self) -> bool:
        """Tell whether its own estimate of its lease has lapsed."""
        return self._world.now_ms >= self._fence_at_ms

    async def _beat(self) -> None:
        wait_ms: float = self._interval_ms
        while True:
            await self._sleep(wait_ms * (0.85 + 0.15 * self._random.random()))
            wait_ms = await self._beat_once()

    async def _beat_once(self) -> float:
        if self.new.mode is WorkerMode.SESSION and self._session is None:
            return 40
        worker_id, full = self.worker_id, self._is_full
        request, counts = self._heartbeat()
        sent_at_ms = self._world.now_ms
        try:
            renewed, answer = await self._call(
                request,
                ask=lambda engine: _ask_heartbeat(self._world, engine, request),
                timeout_ms=max(200, self._interval_ms),
            )
        except TokenMismatch as mismatch:
            self._mismatched(int(mismatch.fields["current_token"]), counts)
            return 1
        except WorkerInactive as error:
            if self.worker_id == worker_id:
                self.inactive(str(error.fields["reason"]))
            return 1
        except (NoAnswer, TenureError):
            self._unsure = counts
            self._lose_server()
            return self._interval_ms / 4
        self._accepted(request, renewed, sent_at_ms, counts)
        if full and request.held is not None:
            self._is_full = False
        self._obey(answer.stop, renewed.cancel, should_drain=renewed.should_drain)
        return self._interval_ms

    def _heartbeat(self) -> tuple[HeartbeatCall, tuple[int, int, int]]:
        """Return what to send, and (token, deltas) in case that no answer comes."""
        assert self.worker_id is not None
        live = [held for held in self.held.values() if held.is_bound or held.is_long]
        unsaid = (
            self.total_completed - self._told_completed,
            self.total_failed - self._told_failed,
        )
        if self._unsure is not None and self._unsure[0] == self._token:
            unsaid = self._unsure[1:]
        beat = Beat(
            token=self._token,
            server_id="",
            total_completed=-1 if self._uses_deltas else self.total_completed,
            total_failed=-1 if self._uses_deltas else self.total_failed,
            completed_delta=unsaid[0] if self._uses_deltas else 0,
            failed_delta=unsaid[1] if self._uses_deltas else 0,
            active_count=len(self.held),
        )
        is_full = self._is_full
        request = HeartbeatCall(
            namespace=self.namespace,
            worker_id=self.worker_id,
            beat=beat,
            bound=() if is_full else tuple(held.ref for held in live if not held.is_bound),
            unbound=() if is_full else tuple(self._unbound),
            held=tuple(self.held) if is_full else None,
        )
        return request, (self._token, *unsaid)

    def _accepted(
        self,
        request: HeartbeatCall,
        renewed: c.Renewed,
        sent_at_ms: float,
        counts: tuple[int, int, int],
    ) -> None:
        self._token = renewed.lease.token
        self._told_completed += counts[1]
        self._told_failed += counts[2]
        self._unsure = None
        for ref in (*request.bound, *(request.held or ())):
            if ref in self.held:
                self.held[ref].is_bound = True
        said = set(request.unbound)
        self._unbound = [ref for ref in self._unbound if ref not in said]
        self._renew(sent_at_ms, renewed.lease.lease_ms)

    def _mismatched(self, token: int, counts: tuple[int, int, int]) -> None:
        if token > counts[0]:
            # All heartbeats with one token say the same, and one of them was accepted.
            self._told_completed += counts[1]
            self._told_failed += counts[2]
        self._unsure = None
        self._token, self._is_full = token, True

    def _obey(
        self,
        stop: tuple[c.TaskRef, ...],
        cancel: tuple[c.TaskRef, ...],
        *,
        should_drain: bool = False,
    ) -> None:
        for ref in stop:
            held = self.held.get(ref)
            if held is not None and not held.is_over:
                self._drop(ref)
        for ref in cancel:
            self._cancel(ref)
        if should_drain:
            self.drain()

    def _lose_server(self) -> None:
        if self._session is not None:
            self._close_session()
            self._wake_intake.set()
        self._server = self._pick_server()

    # -- Intake --------------------------------------------------------------------------------

    async def _poll(self) -> None:
        while not self.is_draining:
            free = self.new.slots - len(self.held)
            if free <= 0 or self.is_fenced:
                self._wake_intake.clear()
                await self._sleep(60)
                continue
            wait_ms = self._random.choice([0, 300, 1_500])
            command = c.ClaimTasks(
                namespace=self.namespace,
                worker_id=self.worker_id or "",
                queue=self.new.queue,
                types=frozenset(self.new.types),
                max_tasks=free,
                wait_ms=wait_ms,
            )
            try:
                tasks = await self._call(command, timeout_ms=wait_ms + 500)
            except WorkerDraining:
                self.drain()
                return
            except WorkerInactive as error:
                self.inactive(str(error.fields["reason"]))
                return
            except (NoAnswer, TenureError):
                self._server = self._pick_server()
                await self._sleep(80)
            else:
                for task in tasks:
                    self._take(task)
                if not tasks and not wait_ms:
                    await self._sleep(80)

    async def _keep_session(self) -> None:
        while True:
            self._wake_intake.clear()
            if self._session is None and not await self._open_session():
                await self._sleep(60 + 100 * self._random.random())
                continue
            await self._wake_intake.wait()
            if self.is_paused:
                await self._go.wait()

    async def _open_session(self) -> bool:
        server = self._server
        if not server.is_up:
            self._server = self._pick_server()
            return False
        self._session_count += 1
        session = Session(self._world, self, server)
        command = c.OpenSession(
            namespace=self.namespace,
            worker_id=self.worker_id or "",
            held=tuple(self.held),
            window=self.new.slots,
            sink=session,
            session_no=self._session_count,
        )
        self._world.sessions.append(session)
        sent_for = set(self.held)
        try:
            answer: c.SessionAnswer = await self._world.network.call(
                self.name, server, command, is_single=True
            )
        except WorkerInactive as error:
            session.close()
            self.inactive(str(error.fields["reason"]))
            return False
        except (NoAnswer, TenureError):
            session.close()
            self._server = self._pick_server()
            return False
        if not session.is_client_open:
            return False
        self._session = session
        for ref in sent_for & self.held.keys():
            self.held[ref].is_bound = True
        self._obey(answer.stop, answer.cancel, should_drain=answer.worker.status == "draining")
        return True

    def receive(self, session: Session, kind: str, what: Any) -> None:
        """Take what a session brings."""
        self._do(lambda: self._receive(session, kind, what))

    def _receive(self, session: Session, kind: str, what: Any) -> None:
        if not session.is_client_open or session.worker_id != self.worker_id:
            return
        if kind == "give":
            for task in what:
                self._take(task)
        elif kind == "cancel":
            self._obey((), what)
        elif kind == "stop":
            self._obey(what, ())
        elif kind == "drain":
            self.drain()
        else:
            self.inactive(what)

    def session_broke(self, session: Session) -> None:
        """Notice that the server of a session is gone."""
        session.is_client_open = False
        if self._session is session:
            self._do(self._lose_server)

    def break_session(self) -> None:
        """Lose the connection and look for another server."""
        if self._session is not None:
            self._world.note(f"worker {short(self.worker_id or '')} loses its session")
            self._lose_server()

    def _close_session(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    # -- Work ----------------------------------------------------------------------------------

    def _take(self, task: Task) -> None:
        ref = c.TaskRef(task.id, task.attempt)
        if ref in self._seen or self.worker_id is None:
            return
        self._seen.add(ref)
        held = self.held[ref] = Held(task)
        self._world.note(f"worker {short(self.worker_id)} got task {short(task.id)}#{task.attempt}")
        if self.is_draining:
            self._finish(held, c.FinishKind.RELEASED)
        elif not self.is_fenced:
            self._start(held)

    def _start(self, held: Held) -> None:
        held.is_started = True
        faults, random = self._world.faults, self._random
        self._soon(CONFIRM_AFTER_MS, self._ran_long, held)
        if random.random() < faults.forget_share and not self._world.is_healed:
            self._soon(random.random() * 900, self._forget, held)
            return
        # It knows its own time limit; nobody may be there to tell it.
        self._soon(held.task.spec.start_to_close_ms, self._abort, held)
        if random.random() < 0.02 and not self._world.is_healed:
            return  # It hangs.
        run_ms = random.choice([5, 30, 120, 400, 1_200]) * (0.5 + random.random())
        self._soon(run_ms, self._end_run, held)
        beat_ms = held.task.spec.heartbeat_timeout_ms
        if beat_ms:
            self._soon(beat_ms / 3, self._beat_task, held)

    def _is_current(self, held: Held) -> bool:
        return self.held.get(held.ref) is held and not held.is_over

    def _ran_long(self, held: Held) -> None:
        if not self._is_current(held):
            return
        held.is_long = True
        if self._session is not None and self.worker_id is not None:
            command = c.ConfirmTasks(
                namespace=self.namespace, worker_id=self.worker_id, items=(held.ref,)
            )
            self._world.spawn(self._confirm(command))

    async def _confirm(self, command: c.ConfirmTasks) -> None:
        try:
            answers: tuple[c.ItemAnswer, ...] = await self._call(command)
        except (NoAnswer, TenureError):
            return
        for item, answer in zip(command.items, answers, strict=True):
            if not isinstance(answer, c.Reported):
                self._obey((item,), ())
                continue
            if item in self.held:
                self.held[item].is_bound = True
            if answer.should_cancel:
                self._cancel(item)

    def _beat_task(self, held: Held) -> None:
        if self._is_current(held) and self.worker_id is not None:
            beat = c.TaskBeat(task_id=held.ref.task_id, attempt=held.ref.attempt, details=b"d")
            command = c.HeartbeatTasks(
                namespace=self.namespace, worker_id=self.worker_id, items=(beat,)
            )
            self._world.spawn(self._send_beat(held, command))
            self._soon(held.task.spec.heartbeat_timeout_ms / 3, self._beat_task, held)

    async def _send_beat(self, held: Held, command: c.HeartbeatTasks) -> None:
        try:
            answers: tuple[c.ItemAnswer, ...] = await self._call(command)
        except (NoAnswer, TenureError):
            return
        if isinstance(answers[0], c.Reported):
            if answers[0].should_cancel:
                self._cancel(held.ref)
        else:
            self._obey((held.ref,), ())

    def _end_run(self, held: Held) -> None:
        if not self._is_current(held):
            return
        share = self._random.random()
        if self._world.is_healed or share < 0.78:
            self._finish(held, c.FinishKind.SUCCEEDED)
        elif share < 0.9:
            self._finish(held, c.FinishKind.FAILED)
        elif share < 0.95:
            self._finish(held, c.FinishKind.RELEASED)
        else:
            self._finish(held, c.FinishKind.DEFERRED)

    def _cancel(self, ref: c.TaskRef) -> None:
        held = self.held.get(ref)
        if held is None or held.is_over or held.is_cancelled:
            return
        held.is_cancelled = True
        if self._random.random() < 0.8:
            self._soon(200 * self._random.random(), self._end_cancelled, held)

    def _end_cancelled(self, held: Held) -> None:
        if self._is_current(held):
            self._finish(held, c.FinishKind.CANCELLED)

    def _forget(self, held: Held) -> None:
        if self._is_current(held):
            self._world.note(f"worker {short(self.worker_id or '')} forgets {short(held.task.id)}")
            self._drop(held.ref)

    def _abort(self, held: Held) -> None:
        if self._is_current(held):
            self._drop(held.ref)

    def _drop(self, ref: c.TaskRef) -> None:
        held = self.held.pop(ref, None)
        if held is not None:
            self._unbound.append(ref)
            self._wake_intake.set()

    def _finish(self, held: Held, kind: c.FinishKind) -> None:
        """Report the end of an attempt until somebody has answered."""
        assert self.worker_id is not None
        held.is_over = True
        ref = held.ref
        is_success = kind is c.FinishKind.SUCCEEDED
        is_failure = kind is c.FinishKind.FAILED
        output = f"{ref.task_id}:{ref.attempt}:{self.worker_id}".encode() if is_success else None
        error = None
        if is_failure:
            is_final = self._random.random() < 0.15
            category = ErrorCategory.DATA_QUALITY if is_final else ErrorCategory.USER_CODE
            error = ErrorInfo(category, f"{ref.attempt} on {short(self.worker_id)}")
        self.total_completed += is_success
        self.total_failed += is_failure
        finish = c.Finish(
            task_id=ref.task_id, attempt=ref.attempt, kind=kind, output=output, error=error
        )
        self.outbox[ref] = (self.worker_id, finish)
        self._wake_reports.set()

    async def _report(self) -> None:
        while True:
            if not self.outbox:
                self._wake_reports.clear()
                await self._wake_reports.wait()
            if self.is_paused:
                await self._go.wait()
            if self._session is None and self.new.mode is WorkerMode.SESSION and not self.is_over:
                await self._sleep(40)
                continue
            worker_id = next(iter(self.outbox.values()))[0]
            items = tuple(finish for owner, finish in self.outbox.values() if owner == worker_id)
            command = c.FinishTasks(namespace=self.namespace, worker_id=worker_id, items=items)
            try:
                await self._call(command)
            except (NoAnswer, TenureError):
                self._server = self._pick_server()
                await self._sleep(60)
                continue
            for item in items:
                ref = c.TaskRef(item.task_id, item.attempt)
                self.outbox.pop(ref, None)
                self._drop(ref)


def _ask_heartbeat(world: World, engine: Engine, call: HeartbeatCall) -> asyncio.Future[Any]:
    return world.loop.create_task(call.send(engine))
