"""A simulated worker process that follows the worker's side of the design, section 5."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from tenure.core.journal.entry import JournalPage
from tenure.core.task.effect import Stop
from tenure.core.task.record import Task, TaskKind
from tenure.core.task.retry import ErrorCategory, ErrorInfo
from tenure.core.worker.record import NewWorker, WorkerMode
from tenure.engine.command import AnyCommand, TaskRef
from tenure.engine.engine import Engine
from tenure.engine.task.command import (
    ClaimTasks,
    ConfirmTasks,
    Finish,
    FinishKind,
    FinishTasks,
    HeartbeatTasks,
    ItemAnswer,
    Reported,
    TaskBeat,
)
from tenure.engine.worker.command import (
    DeregisterWorker,
    DrainWorker,
    OpenSession,
    RegisterWorker,
    Registration,
    SessionAnswer,
)
from tenure.errors import TenureError, TokenMismatch, WorkerDraining, WorkerInactive
from tests.sim import exclusive, family
from tests.sim.family_holder import FamilyHolder
from tests.sim.heartbeat_state import HeartbeatState
from tests.sim.network import NoAnswer, Session
from tests.sim.request_log import HeartbeatCall
from tests.sim.run_holder import RunHolder
from tests.sim.trace import short

if TYPE_CHECKING:
    from tests.sim.server import Server
    from tests.sim.world import World

CONFIRM_AFTER_MS = 150
DRAIN_MS = 1_500
FINAL = ("superseded", "evicted")
PARK_SHARE = 0.05
RELEASE_SHARE = 0.08


class Held:
    """An attempt that the process has, from its delivery to the acknowledgement of its end."""

    def __init__(self, task: Task, worker_id: str) -> None:
        self.task = task
        self.worker_id = worker_id
        self.is_exclusive = task.type == exclusive.TYPE
        self.is_asking = False
        # Of exclusive work: when the accepted question, and the last accepted report, was sent.
        self.asked_at_ms = self.heard_at_ms = 0.0
        self.fenced_at_ms: float | None = None
        self.ref = TaskRef(task.id, task.attempt)
        self.is_started = False
        self.is_long = False
        self.is_bound = False
        self.is_over = False
        self.is_cancelled = False
        self.holder: RunHolder | FamilyHolder | None = None

    @property
    def is_run(self) -> bool:
        """Whether it is a run, which has a body."""
        return self.task.kind is TaskKind.WORKFLOW

    def put_aside(self) -> None:
        """Forget the body of a run."""
        if self.holder is not None:
            self.holder.put_aside()
            self.holder = None


class WorkerProcess:
    """One process: registers, works, beats, drains, crashes; a crash forgets everything."""

    def __init__(self, world: World, name: str, new: NewWorker, namespace: str) -> None:
        self._world = world
        self.name = name
        self.namespace = namespace
        self.new = new
        self._random = world.random(f"worker {name}")
        drift = 1 + world.faults.drift * (2 * self._random.random() - 1)
        self.worker_id: str | None = None
        self.held: dict[TaskRef, Held] = {}
        self.outbox: dict[TaskRef, tuple[str, Finish]] = {}
        self._seen: set[TaskRef] = set()
        self._warm: dict[str, RunHolder] = {}
        self.heartbeat_state = HeartbeatState(uses_deltas=self._random.random() < 0.4, drift=drift)
        self.is_draining = self.is_over = self.is_paused = False
        self._paused_at_ms = 0.0
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
            command = RegisterWorker(namespace=self.namespace, new=self.new)
            try:
                answer: Registration = await self.call(command)
            except WorkerInactive:
                self.new = self._world.renewed(self.new)
            except (NoAnswer, TenureError):
                self._server = self._pick_server()
                await self.sleep(100 + 200 * self._random.random())
            else:
                self.worker_id = answer.worker.id
                self.is_draining = answer.worker.status == "draining"
                self.heartbeat_state.begin(answer, sent_at_ms)
                self._world.registered(self, answer.worker.id)
                return

    def inactive(self, reason: str) -> None:
        """Abort what runs; register again unless somebody wants this process gone."""
        self._world.note(f"worker {short(self.worker_id or '')} is told inactive: {reason}")
        for ref in [ref for ref, held in self.held.items() if not held.is_over]:
            self.held.pop(ref).put_aside()
        self.worker_id = None
        self.is_over = self.is_over or reason in FINAL or reason == "deregistered"
        self._ended.set()

    def crash(self) -> None:
        """Die and forget everything; the kernel closes the sockets."""
        self._world.note(f"worker {short(self.worker_id or '')} crashes")
        self.is_over = True
        self._main.cancel()
        self._stop_parts()
        self.put_bodies_aside()
        self.held, self.outbox = {}, {}
        self.worker_id = None

    def put_bodies_aside(self) -> None:
        """End the bodies of all runs."""
        for held in self.held.values():
            held.put_aside()
        for holder in self._warm.values():
            holder.put_aside()
        self._warm = {}

    def pause(self) -> None:
        """Stand still, like a process that got SIGSTOP."""
        self._world.note(f"worker {short(self.worker_id or '')} stands still")
        self.is_paused = True
        self._paused_at_ms = self._world.now_ms
        self._go.clear()

    def go_on(self) -> None:
        """Go on; what should have happened meanwhile happens now."""
        if self.is_paused:
            self.is_paused = False
            self._go.set()
            for held in [each for each in self.held.values() if each.is_exclusive]:
                if self.is_running(held) and self._world.now_ms >= self._stops_at_ms(held):
                    self._stop_in_time(held)
                    # Since then it has done nothing.
                    held.fenced_at_ms = self._paused_at_ms
                elif self.is_running(held):
                    self._world.exclusive.went_on(self, held)
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
        command = DrainWorker(namespace=self.namespace, worker_id=worker_id, deadline_ms=DRAIN_MS)
        try:
            await self._repeat(command)
        except TenureError:
            return
        until_ms = self._world.now_ms + DRAIN_MS
        while self.held and self._world.now_ms < until_ms and self.worker_id == worker_id:
            await self.sleep(100)
        for held in list(self.held.values()):
            if not held.is_over:
                self._finish(held, FinishKind.RELEASED)
        while self.held and self.worker_id == worker_id:
            await self.sleep(50)
        if self.worker_id != worker_id:
            return
        try:
            await self._repeat(DeregisterWorker(namespace=self.namespace, worker_id=worker_id))
        except TenureError:
            return
        if self.worker_id == worker_id:
            self.inactive("deregistered")

    # -- Talking -------------------------------------------------------------------------------

    def _pick_server(self) -> Server:
        return self._random.choice(self._world.servers)

    async def sleep(self, ms: float) -> None:
        """Wait, and for as long as the process stands still."""
        await asyncio.sleep(ms / 1000)
        if self.is_paused:
            await self._go.wait()

    async def call(self, request: Any, **options: Any) -> Any:
        """Send a request to the server of the session, or to the one that was tried last."""
        session = self._session
        server = session.server if session is not None else self._server
        try:
            answer = await self._world.network.call(self.name, server, request, **options)
        finally:
            if self.is_paused:
                await self._go.wait()
        return answer

    async def _repeat(self, command: AnyCommand) -> object:
        while True:
            try:
                return await self.call(command)
            except NoAnswer:
                self._server = self._pick_server()
                await self.sleep(50)

    def soon(self, ms: float, action: Callable[..., None], *args: object) -> None:
        """Do something later."""
        self._world.loop.call_later(ms / 1000, self.do, lambda: action(*args))

    def do(self, action: Callable[[], None]) -> None:
        """Do something now, or when the process goes on."""
        if self.is_paused:
            self._stash.append(action)
        else:
            action()

    # -- Heartbeats ----------------------------------------------------------------------------

    @property
    def is_fenced(self) -> bool:
        """Tell whether its own estimate of its lease has lapsed."""
        return self._world.now_ms >= self.heartbeat_state.fence_at_ms

    async def _beat(self) -> None:
        wait_ms: float = self.heartbeat_state.interval_ms
        while True:
            await self.sleep(wait_ms * (0.85 + 0.15 * self._random.random()))
            wait_ms = await self._beat_once()

    async def _beat_once(self) -> float:
        """Send one heartbeat; return how long to wait for the next."""
        worker_id, heartbeat_state = self.worker_id, self.heartbeat_state
        if worker_id is None or (self.new.mode is WorkerMode.SESSION and self._session is None):
            return 40
        fresh = [held.ref for held in self.held.values() if held.is_long and not held.is_bound]
        request, counts = heartbeat_state.request(
            self.namespace, worker_id, held=self.held, fresh=fresh
        )
        sent_at_ms = self._world.now_ms
        try:
            renewed, answer = await self.call(
                request,
                ask=lambda engine: _ask_heartbeat(self._world, engine, request),
                timeout_ms=max(200, heartbeat_state.interval_ms),
            )
        except TokenMismatch as mismatch:
            heartbeat_state.mismatched(int(mismatch.fields["current_token"]), counts)
            return 1
        except WorkerInactive as error:
            if self.worker_id == worker_id:
                self.inactive(str(error.fields["reason"]))
            return 1
        except (NoAnswer, TenureError):
            heartbeat_state.unanswered(counts)
            self._lose_server()
            return heartbeat_state.interval_ms / 4
        heartbeat_state.accepted(request, counts, renewed.lease, sent_at_ms)
        self._bound((*request.bound, *(request.held or ())))
        self._start_waiting()
        self._obey((*renewed.stop, *answer.stop), renewed.cancel, should_drain=renewed.should_drain)
        return heartbeat_state.interval_ms

    def _bound(self, refs: Iterable[TaskRef]) -> None:
        for ref in refs:
            if ref in self.held:
                self.held[ref].is_bound = True

    def _start_waiting(self) -> None:
        """Start what came while the lease seemed to lapse."""
        for held in list(self.held.values()):
            if not held.is_started and not held.is_over and not self.is_fenced:
                self._begin(held)
            elif held.holder is not None:
                held.holder.go_on()

    def _obey(
        self,
        stops: tuple[Stop | TaskRef, ...],
        cancel: tuple[TaskRef, ...],
        *,
        should_drain: bool = False,
    ) -> None:
        for stop in stops:
            ref = TaskRef(stop.task_id, stop.attempt)
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
                await self.sleep(60)
                continue
            wait_ms = self._random.choice([0, 300, 1_500])
            command = ClaimTasks(
                namespace=self.namespace,
                worker_id=self.worker_id or "",
                queue=self.new.queue,
                types=frozenset(self.new.types),
                max_tasks=free,
                wait_ms=wait_ms,
            )
            try:
                tasks = await self.call(command, timeout_ms=wait_ms + 500)
            except WorkerDraining:
                self.drain()
                return
            except WorkerInactive as error:
                self.inactive(str(error.fields["reason"]))
                return
            except (NoAnswer, TenureError):
                self._server = self._pick_server()
                await self.sleep(80)
            else:
                for task in tasks:
                    self._take(task)
                if not tasks and not wait_ms:
                    await self.sleep(80)

    async def _keep_session(self) -> None:
        while True:
            self._wake_intake.clear()
            if self._session is None and not await self._open_session():
                await self.sleep(60 + 100 * self._random.random())
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
        command = OpenSession(
            namespace=self.namespace,
            worker_id=self.worker_id or "",
            held=tuple(self.held),
            window=self.new.slots,
            sink=session,
            session_no=self._session_count,
        )
        self._world.sessions.append(session)
        try:
            answer: SessionAnswer = await self._world.network.call(
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
        self._bound(command.held)
        self._obey(answer.stop, answer.cancel, should_drain=answer.worker.status == "draining")
        return True

    def receive(self, session: Session, kind: str, what: Any) -> None:
        """Take what a session brings."""
        self.do(lambda: self._receive(session, kind, what))

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
        elif kind == "page":
            self._take_page(*what)
        elif kind == "drain":
            self.drain()
        else:
            self.inactive(what)

    def session_broke(self, session: Session) -> None:
        """Notice that the server of a session is gone."""
        session.is_client_open = False
        if self._session is session:
            self.do(self._lose_server)

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
        ref = TaskRef(task.id, task.attempt)
        if ref in self._seen or self.worker_id is None:
            return
        self._seen.add(ref)
        held = self.held[ref] = Held(task, self.worker_id)
        self._world.note(f"worker {short(self.worker_id)} got task {short(task.id)}#{task.attempt}")
        if self.is_draining:
            self._finish(held, FinishKind.RELEASED)
        elif not self.is_fenced:
            self._begin(held)

    def _begin(self, held: Held) -> None:
        if not held.is_exclusive:
            self._start(held)
        elif not held.is_asking:
            held.is_asking = True
            self._world.spawn(self._ask(held))

    async def _ask(self, held: Held) -> None:
        """Start exclusive work once the server knows that it is exclusive."""
        refs = (held.ref,)
        while self._is_current(held):
            sent_at_ms = self._world.now_ms
            command = ConfirmTasks(
                namespace=self.namespace,
                worker_id=held.worker_id,
                items=refs,
                exclusive=frozenset(refs),
            )
            try:
                answers: tuple[ItemAnswer, ...] = await self.call(command)
            except (NoAnswer, TenureError):
                await self.sleep(60)
                continue
            if not self._is_current(held):
                break
            if not isinstance(answers[0], Reported):
                self._obey(refs, ())
                break
            held.asked_at_ms = held.heard_at_ms = sent_at_ms
            if self._world.now_ms < self._stops_at_ms(held):
                self._start(held)
                self._world.exclusive.begun(self, held)
                self._world.spawn(self._guard(held))
                break
            await self.sleep(60)
        held.is_asking = False

    def _stops_at_ms(self, held: Held) -> float:
        """Return when exclusive work has to stop if nobody is heard, by the own clock."""
        spec, drift = held.task.spec, self.heartbeat_state.drift
        stops_at_ms = min(
            self.heartbeat_state.fence_at_ms, held.asked_at_ms + spec.start_to_close_ms / drift
        )
        if spec.heartbeat_timeout_ms:
            stops_at_ms = min(stops_at_ms, held.heard_at_ms + spec.heartbeat_timeout_ms / drift)
        return stops_at_ms

    async def _guard(self, held: Held) -> None:
        while self.is_running(held):
            left_ms = self._stops_at_ms(held) - self._world.now_ms
            if left_ms > 0:
                await self.sleep(left_ms)
            else:
                self._stop_in_time(held)

    def _stop_in_time(self, held: Held) -> None:
        self._world.note(f"worker {short(held.worker_id)} stops exclusive {short(held.task.id)}")
        held.fenced_at_ms = self._world.now_ms
        self._finish(held, FinishKind.RELEASED)

    def is_running(self, held: Held) -> bool:
        """Tell whether the code of an attempt runs here."""
        return held.is_started and self._is_current(held)

    def _start(self, held: Held) -> None:
        held.is_started = True
        faults, random = self._world.faults, self._random
        self.soon(CONFIRM_AFTER_MS, self._ran_long, held)
        if random.random() < faults.forget_share and not self._world.is_healed:
            self.soon(random.random() * 900, self._forget, held)
            if not held.is_run:
                return
        if held.is_run:
            self._start_run(held)
            return
        # It knows its own time limit; nobody may be there to tell it.
        self.soon(held.task.spec.start_to_close_ms, self._abort, held)
        if random.random() < 0.02 and not self._world.is_healed:
            return  # It hangs.
        run_ms = random.choice([5, 30, 120, 400, 1_200]) * (0.5 + random.random())
        self.soon(run_ms, self._end_run, held)
        beat_ms = held.task.spec.heartbeat_timeout_ms
        if beat_ms:
            self.soon(beat_ms / 3, self._beat_task, held)

    def _start_run(self, held: Held) -> None:
        """Let a body go on that is warm, or begin it; or park, like a worker with other code."""
        task, random = held.task, self._random
        self._world.check(self._world.checker.journals.check_page, task)
        if random.random() < PARK_SHARE and not self._world.is_healed:
            error = ErrorInfo(ErrorCategory.CONFIGURATION, f"{task.attempt} does not fit")
            finish = Finish(
                task_id=task.id, attempt=task.attempt, kind=FinishKind.PARKED, error=error
            )
            self._put_finish(held, finish)
            return
        holder = self._warm.pop(task.id, None)
        is_kept = holder is not None and random.random() < 0.9
        if holder is not None and not (is_kept and holder.is_of(task)):
            holder.put_aside()
            holder = None
        kind = FamilyHolder if task.type == family.TYPE else RunHolder
        held.holder = holder or kind(self._world, self, task)
        held.holder.begin(held)
        if random.random() < RELEASE_SHARE and not self._world.is_healed:
            self.soon(300 * random.random(), self._release_run, held)

    def _release_run(self, held: Held) -> None:
        """Hand a run back whatever it has sent and not heard of."""
        if self._is_current(held):
            self._finish(held, FinishKind.RELEASED)

    def _take_page(self, ref: TaskRef, page: JournalPage) -> None:
        held = self.held.get(ref)
        if held is not None and held.holder is not None:
            held.holder.take(page)

    def lose_run(self, held: Held) -> None:
        """Drop a run that somebody else has, or that is over."""
        if self._is_current(held):
            self._drop(held.ref)

    def end_run(self, held: Held, finish: Finish, warm: RunHolder | None) -> None:
        """Report how an attempt of a run ended; its body may stay here."""
        held.holder = None
        if warm is not None:
            self._warm[held.task.id] = warm
        if self._is_current(held):
            self._put_finish(held, finish)

    def _is_current(self, held: Held) -> bool:
        return self.held.get(held.ref) is held and not held.is_over

    def _ran_long(self, held: Held) -> None:
        if not self._is_current(held):
            return
        held.is_long = True
        if self._session is not None and self.worker_id is not None:
            command = ConfirmTasks(
                namespace=self.namespace, worker_id=self.worker_id, items=(held.ref,)
            )
            self._world.spawn(self._confirm(command))

    async def _confirm(self, command: ConfirmTasks) -> None:
        try:
            answers: tuple[ItemAnswer, ...] = await self.call(command)
        except (NoAnswer, TenureError):
            return
        for item, answer in zip(command.items, answers, strict=True):
            if not isinstance(answer, Reported):
                self._obey((item,), ())
                continue
            if item in self.held:
                self.held[item].is_bound = True
            if answer.should_cancel:
                self._cancel(item)

    def _beat_task(self, held: Held) -> None:
        if self._is_current(held) and self.worker_id is not None:
            beat = TaskBeat(task_id=held.ref.task_id, attempt=held.ref.attempt, details=b"d")
            command = HeartbeatTasks(
                namespace=self.namespace, worker_id=self.worker_id, items=(beat,)
            )
            self._world.spawn(self._send_beat(held, command))
            self.soon(held.task.spec.heartbeat_timeout_ms / 3, self._beat_task, held)

    async def _send_beat(self, held: Held, command: HeartbeatTasks) -> None:
        sent_at_ms = self._world.now_ms
        try:
            answers: tuple[ItemAnswer, ...] = await self.call(command)
        except (NoAnswer, TenureError):
            return
        if isinstance(answers[0], Reported):
            held.heard_at_ms = max(held.heard_at_ms, sent_at_ms)
            if answers[0].should_cancel:
                self._cancel(held.ref)
        else:
            self._obey((held.ref,), ())

    def _end_run(self, held: Held) -> None:
        if not self._is_current(held):
            return
        share = self._random.random()
        if self._world.is_healed or share < 0.78:
            self._finish(held, FinishKind.SUCCEEDED)
        elif share < 0.9:
            self._finish(held, FinishKind.FAILED)
        elif share < 0.95:
            self._finish(held, FinishKind.RELEASED)
        else:
            self._finish(held, FinishKind.DEFERRED)

    def _cancel(self, ref: TaskRef) -> None:
        held = self.held.get(ref)
        if held is None or held.is_over or held.is_cancelled:
            return
        if held.is_run:
            # It stands in the journal, where the body meets it.
            if held.holder is not None:
                held.holder.hear()
            return
        held.is_cancelled = True
        if self._random.random() < 0.8:
            self.soon(200 * self._random.random(), self._end_cancelled, held)

    def _end_cancelled(self, held: Held) -> None:
        if self._is_current(held):
            self._finish(held, FinishKind.CANCELLED)

    def _forget(self, held: Held) -> None:
        if self._is_current(held):
            self._world.note(f"worker {short(self.worker_id or '')} forgets {short(held.task.id)}")
            self._drop(held.ref)

    def _abort(self, held: Held) -> None:
        if self._is_current(held):
            self._drop(held.ref)

    def _drop(self, ref: TaskRef) -> None:
        held = self.held.pop(ref, None)
        if held is not None:
            held.put_aside()
            self.heartbeat_state.unbound.append(ref)
            self._wake_intake.set()

    def _finish(self, held: Held, kind: FinishKind) -> None:
        """End an attempt as chance says."""
        assert self.worker_id is not None
        ref = held.ref
        is_success = kind is FinishKind.SUCCEEDED
        is_failure = kind is FinishKind.FAILED
        output = f"{ref.task_id}:{ref.attempt}:{self.worker_id}".encode() if is_success else None
        error = None
        if is_failure:
            is_final = self._random.random() < 0.15
            category = ErrorCategory.DATA_QUALITY if is_final else ErrorCategory.USER_CODE
            error = ErrorInfo(category, f"{ref.attempt} on {short(self.worker_id)}")
        finish = Finish(
            task_id=ref.task_id, attempt=ref.attempt, kind=kind, output=output, error=error
        )
        self._put_finish(held, finish)

    def _put_finish(self, held: Held, finish: Finish) -> None:
        """Report the end of an attempt until somebody has answered."""
        held.is_over = True
        held.put_aside()
        self.heartbeat_state.completed += finish.kind is FinishKind.SUCCEEDED
        self.heartbeat_state.failed += finish.kind is FinishKind.FAILED
        self.outbox[held.ref] = (held.worker_id, finish)
        self._wake_reports.set()

    async def _report(self) -> None:
        while True:
            if not self.outbox:
                self._wake_reports.clear()
                await self._wake_reports.wait()
            if self.is_paused:
                await self._go.wait()
            if self._session is None and self.new.mode is WorkerMode.SESSION and not self.is_over:
                await self.sleep(40)
                continue
            worker_id = next(iter(self.outbox.values()))[0]
            items = tuple(finish for owner, finish in self.outbox.values() if owner == worker_id)
            command = FinishTasks(namespace=self.namespace, worker_id=worker_id, items=items)
            try:
                await self.call(command)
            except (NoAnswer, TenureError):
                self._server = self._pick_server()
                await self.sleep(60)
                continue
            for item in items:
                ref = TaskRef(item.task_id, item.attempt)
                self.outbox.pop(ref, None)
                self._drop(ref)


def _ask_heartbeat(world: World, engine: Engine, call: HeartbeatCall) -> asyncio.Future[Any]:
    return world.loop.create_task(call.send(engine))
