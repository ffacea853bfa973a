"""The engine: takes commands, gives answers, and keeps the services running.

``submit`` is the one way in. Memory here is only what can be had again from the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Self, cast

import structlog

from tenure.core import sight as sight_rules
from tenure.core.limits import NOTIFY_MS
from tenure.core.sight import Sight
from tenure.core.task_effect import TellCancel, TellStop, WakeQueue
from tenure.core.task_record import Task
from tenure.core.worker import ReleaseHeld, TellDrain, TellEnded
from tenure.engine import batch, heartbeat
from tenure.engine import command as c
from tenure.engine.cache import RowCache
from tenure.engine.check import check
from tenure.engine.claim import ClaimPlan, ClaimPlanner
from tenure.engine.clock import Clock
from tenure.engine.lane import Entry, Lane
from tenure.engine.mark import LineKey, Marks
from tenure.engine.offer import Group, Offer, OfferBook
from tenure.engine.poll import Poll
from tenure.engine.service import Alarm, Job, Service
from tenure.engine.services import all_services
from tenure.engine.session_watch import SessionWatch
from tenure.engine.settings import Settings
from tenure.engine.working_set import AnyEffect
from tenure.errors import AlreadyExists, InvalidArgument, TenureError, Unavailable
from tenure.store.failure import Conflict, FenceLost, Lost, Refused
from tenure.store.transaction import LaneName, Store, Tx

log = structlog.get_logger("tenure.engine")
RUNS_MAX = 4
RETRY_AFTER_MS = 500
WorkEntry = Entry[c.WorkCommand]
BeatEntry = Entry[c.HeartbeatCommand]
Pause = Callable[[str], Awaitable[None]]


class Engine:
    """One server's engine on one store."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        settings: Settings | None = None,
        server_id: str | None = None,
        pause: Pause | None = None,
        services: Sequence[Job] | None = None,
    ) -> None:
        """Prepare; ``start`` opens the store. ``pause`` is where a simulation slows things.

        A test that runs the rounds of services itself names those (often none) that run by pace.
        """
        self.store = store
        self.clock = clock
        self.settings = settings or Settings()
        self.server_id = server_id or clock.new_id()
        self.alarm = Alarm()
        self.finished_count = 0
        self._pause = pause
        self._book = OfferBook()
        self._marks = Marks(is_on=self.settings.low_water_marks)
        self._planner = ClaimPlanner(
            self._book,
            self._marks,
            is_direct=self.settings.direct_hand_out,
        )
        self._polls: dict[int, Offer] = {}
        self._freed: dict[int, Offer] = {}
        self._cache = RowCache(is_on=self.settings.cached_rows)
        self._namespaces: frozenset[str] = frozenset()
        self._sessions = SessionWatch()
        self._listeners: list[Callable[[Task], None]] = []
        self._sight: Sight | None = None
        self._told: set[Group] = set()
        self._tell_soon: asyncio.TimerHandle | None = None
        self._telling: set[asyncio.Task[None]] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._work: Lane[c.WorkCommand] = Lane(
            self._run_work,
            batch_max=self.settings.work_batch_max,
            queue_max=self.settings.lane_queue_max,
            weigh=_weight,
        )
        self._work.has_extra_work = lambda: bool(self._planner.dirty)
        self._beats: Lane[c.HeartbeatCommand] = Lane(
            self._run_beats,
            batch_max=self.settings.work_batch_max,
            queue_max=self.settings.lane_queue_max,
            weigh=lambda _: 1,
        )
        jobs = all_services() if services is None else services
        self._services = [Service(each, self) for each in jobs]

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        await self.stop()

    async def start(self) -> None:
        """Open the store and run lanes and services."""
        await self.store.open()
        self.store.listen(self._hear)
        create = asyncio.get_running_loop().create_task
        self._tasks = [
            create(self._work.serve(), name="work lane"),
            create(self._beats.serve(), name="heartbeat lane"),
            *(create(each.serve(), name=each.name) for each in self._services),
        ]

    async def stop(self) -> None:
        """Finish what was accepted, then close the store."""
        lanes, services = self._tasks[:2], self._tasks[2:]
        for service in services:
            service.cancel()
        await asyncio.gather(*services, return_exceptions=True)
        for offer in [each for group in list(self._book.groups()) for each in self._all_in(group)]:
            self._end_poll(offer)
        self._work.close()
        self._beats.close()
        await asyncio.gather(*lanes)
        if self._tell_soon is not None:
            self._tell_soon.cancel()
        await asyncio.gather(*self._telling, return_exceptions=True)
        await self.store.close()

    def kill(self) -> None:
        """Stop at once, like a process that dies: for simulations of a crash."""
        for task in (*self._tasks, *self._telling):
            task.cancel()

    # -- Commands ------------------------------------------------------------------------------

    def submit(self, command: c.Command) -> asyncio.Future[Any]:
        """Check a command, queue it, and return the future of its answer.

        Raises the typed error at once when the command is malformed or the lane is full.
        """
        check(command)
        kind = type(command)
        if kind in _HEARTBEATS:
            return self._beats.submit(cast("c.HeartbeatCommand", command))
        return self._work.submit(cast("c.WorkCommand", command), is_new_work=kind in _NEW_WORK)

    async def heartbeat(
        self,
        command: c.Heartbeat,
        *,
        bound: tuple[c.TaskRef, ...] = (),
        unbound: tuple[c.TaskRef, ...] = (),
        held: tuple[c.TaskRef, ...] | None = None,
    ) -> tuple[c.Renewed, c.HeldAnswer]:
        """Renew a lease, then apply what the heartbeat says of attempts; wait for both."""
        renewed = cast("c.Renewed", await self.submit(command))
        if renewed.cancel:
            refs = renewed.cancel
            self.submit(c.SignalCancels(namespace=command.namespace, items=refs))
        if not bound and not unbound and held is None:
            return renewed, c.HeldAnswer()
        report = c.ReportHeld(
            namespace=command.namespace,
            worker_id=command.worker_id,
            bound=bound,
            unbound=unbound,
            held=held,
            previous_beat_at_ms=renewed.lease.previous_beat_at_ms,
        )
        return renewed, cast("c.HeldAnswer", await self.submit(report))

    def set_window(self, worker_id: str, window: int) -> None:
        """Change how many attempts a session is willing to hold."""
        session = self._book.session_of(worker_id)
        if session is not None:
            session.window = window
            self._touch(session.group)

    def end_session(self, worker_id: str, session_no: int) -> None:
        """Remove the offer of a session that is over; a later one stays."""
        session = self._book.session_of(worker_id)
        if session is not None and session.session_no == session_no:
            self._book.remove(session.id)

    def lose_session(self, namespace: str, worker_id: str, session_no: int) -> None:
        """Note that the peer closed a session without a goodbye."""
        self.end_session(worker_id, session_no)
        spared = self._sessions.closed(
            worker_id,
            mono_ms=self.clock.monotonic_ms(),
            open_count=len(self._book),
        )
        if spared:
            self.submit(c.SpareWorkers(worker_ids=spared))
            return
        self.submit(
            c.CloseSession(namespace=namespace, worker_id=worker_id, session_no=session_no),
        )

    def on_finished(self, listener: Callable[[Task], None]) -> None:
        """Let an edge hear of finished tasks, after they were committed."""
        self._listeners.append(listener)

    @property
    def sighted_ms(self) -> int:
        """Return for how long this server has been able to hear its workers."""
        if self._sight is None:
            return 0
        return sight_rules.sighted_ms(self._sight, mono_ms=self.clock.monotonic_ms())

    @property
    def waiting_count(self) -> int:
        """Return how many commands wait for a batch."""
        return len(self._work) + len(self._beats)

    def look_for_work(self) -> None:
        """Let offers claim even if nobody told of work: the fallback poll."""
        for group in self._book.groups():
            self._planner.dirty.add(group)
        if self._planner.dirty:
            self._work.kick()

    # -- The work lane -------------------------------------------------------------------------

    async def _run_work(self, entries: list[WorkEntry]) -> None:
        await self._slow("before batch")
        entries = [entry for entry in entries if not entry[1].done()]
        polls = self._polls = self._open_polls(entries)
        commands = [command for command, _ in entries]
        plan = self._planner.plan(commands, polls, self.clock.monotonic_ms())
        if entries or plan.hands:
            await self._execute(entries, plan)
        for offer in polls.values():
            self._let_wait(offer)

    def _open_polls(self, entries: Sequence[WorkEntry]) -> dict[int, Offer]:
        polls = {}
        for command, future in entries:
            if type(command) is c.ClaimTasks:
                offer = Offer(
                    id=self._book.next_id(),
                    worker_id=command.worker_id,
                    group=(command.namespace, command.queue),
                    types=command.types,
                    window=command.max_tasks,
                    sink=Poll(future, command.wait_ms),
                )
                polls[offer.id] = offer
        return polls

    def _let_wait(self, offer: Offer) -> None:
        """Let a poll that got nothing stand in the book until its deadline."""
        if offer.sink.is_open and isinstance(offer.sink, Poll):
            self._book.add(offer)
            offer.sink.wait(lambda: self._end_poll(offer))

    def _end_poll(self, offer: Offer) -> None:
        if isinstance(offer.sink, Poll):
            self._book.remove(offer.id)
            offer.sink.give(())

    async def _execute(self, entries: list[WorkEntry], plan: ClaimPlan) -> None:
        """Run a batch; again after a conflict or a lost fence, in halves after a refusal."""
        commands = [command for command, _ in entries]
        for _ in range(RUNS_MAX):
            context = batch.Context(
                self.clock,
                self.server_id,
                self.settings,
                dict(self._cache.rows) if self._pause else self._cache.rows,
                self._namespaces,
                plan,
            )

            async def body(tx: Tx, context: batch.Context = context) -> batch.Committed:
                return await batch.run(tx, commands, context)

            try:
                committed = await self.store.transaction(body)
            except FenceLost as lost:
                self._cache.forget(lost.ids)
            except Conflict as conflict:
                log.warning("batch.conflict", size=len(entries), error=str(conflict))
            except Refused as refused:
                await self._divide(entries, plan, refused)
                return
            except Lost as lost:
                self._lose(entries, lost)
                return
            except Exception:
                log.exception("batch.failed", size=len(entries))
                self._lose(entries, Lost("The batch failed.", reason="internal"))
                return
            else:
                await self._slow("after commit")
                self._after_commit(entries, committed)
                return
        self._lose(entries, Lost("The batch met conflicts again and again.", reason="conflict"))

    async def _divide(self, entries: list[WorkEntry], plan: ClaimPlan, refused: Refused) -> None:
        """Find the command that the database refuses; the others are not disturbed."""
        for hand in plan.hands:
            self._planner.dirty.add((hand.namespace, hand.queue))
        others = [entry for entry in entries if type(entry[0]) is not c.ClaimTasks]
        if len(others) > 1:
            middle = len(others) // 2
            await self._execute(others[:middle], ClaimPlan())
            await self._execute(others[middle:], ClaimPlan())
        elif others:
            await self._refuse(others[0], refused)

    async def _refuse(self, entry: WorkEntry, refused: Refused) -> None:
        """Run a refused command alone once more: another server may have won a race for a key."""
        command, future = entry
        try:
            context = batch.Context(
                self.clock,
                self.server_id,
                self.settings,
                {},
                self._namespaces,
                ClaimPlan(),
            )
            committed = await self.store.transaction(
                lambda tx: batch.run(tx, [command], context),
            )
        except Refused:
            log.warning("command.refused", command=type(command).__name__, error=str(refused))
            if not future.done():
                future.set_exception(_refusal(command))
        except Lost as lost:
            self._lose([entry], lost)
        else:
            self._after_commit([entry], committed)

    def _lose(self, entries: Sequence[Entry[Any]], lost: Lost) -> None:
        """Answer ``unavailable``: nobody knows what was committed, and repeating is safe."""
        self._cache.clear()
        log.warning("store.lost", reason=lost.reason, size=len(entries), error=str(lost))
        for _, future in entries:
            if not future.done():
                future.set_exception(_unavailable(lost))

    def _after_commit(self, entries: Sequence[WorkEntry], committed: batch.Committed) -> None:
        """Phase 6, and only now: answers, deliveries, effects."""
        self._remember(committed)
        for (command, future), answer in zip(entries, committed.answers, strict=True):
            if type(command) is c.OpenSession and isinstance(answer, c.SessionAnswer):
                self._seat_session(command, answer)
            if type(command) is c.ClaimTasks or future.done():
                continue
            if isinstance(answer, TenureError):
                future.set_exception(answer)
            else:
                future.set_result(answer)
        self._deliver(committed)
        self._use_freed()
        for effect in committed.ws.effects:
            self._perform(effect)

    def _remember(self, committed: batch.Committed) -> None:
        ws = committed.ws
        alarm_ms: int | None = None
        left: set[LineKey] = set()
        self._marks.learn(
            committed.demands if committed.claims.seen or committed.demands else (),
            committed.claims.seen,
            mono_ms=self.clock.monotonic_ms(),
            took_ms=committed.claims.took_ms,
        )
        for tasks, is_new in ((ws.new_tasks, True), (ws.changed_tasks, False)):
            for key, task in tasks.items():
                self._cache.saved(key, task, is_new=is_new)
                if task.line:
                    self._marks.left(task)
                    left.add((task.namespace, task.queue, task.type))
                due_at_ms = task.due_at_ms
                if due_at_ms is not None and (alarm_ms is None or due_at_ms < alarm_ms):
                    alarm_ms = due_at_ms
                if task.finished_at_ms is not None:
                    self.finished_count += 1
                    for listener in self._listeners:
                        listener(task)
        for key, task in ws.changed_tasks.items():
            self._note_held(ws.rows.tasks.get(key), task)
        for task in committed.claims.undealt:
            self._marks.left(task)
        for line in left:
            self._leave(line)
        if alarm_ms is not None:
            self.alarm.set(alarm_ms - ws.now_ms, self.clock.monotonic_ms())
        if ws.rows.namespaces or ws.new_namespaces:
            self._namespaces |= ws.rows.namespaces | ws.new_namespaces.keys()

    def _leave(self, line: LineKey) -> None:
        """Serve claimable tasks that stayed in the store, or tell others if nobody here can."""
        group = line[:2]
        for offer in self._book.in_group(group):
            if line[2] in offer.types and offer.credit() > 0:
                self._touch(group)
                return
        self._tell(group)

    def _all_in(self, group: Group) -> list[Offer]:
        return list(self._book.in_group(group))

    def _note_held(self, old: Task | None, task: Task) -> None:
        """Keep the held set of a session what it is in the store."""
        if old is None or old.worker_id is None:
            return
        session = self._book.session_of(old.worker_id)
        if session is None:
            return
        is_held = task.worker_id == old.worker_id and task.attempt == old.attempt
        if not (is_held and task.is_attempt_live):
            session.held.pop(task.id, None)
            self._freed[session.id] = session

    def _use_freed(self) -> None:
        """Let slots be used that a batch freed and did not refill."""
        freed, self._freed = self._freed, {}
        mono_ms = self.clock.monotonic_ms()
        for session in freed.values():
            group = session.group
            if session.credit() > 0 and any(
                self._marks.has_backlog((*group, each), mono_ms) for each in session.types
            ):
                self._touch(group)

    def _seat_session(self, command: c.OpenSession, answer: c.SessionAnswer) -> None:
        earlier = self._book.session_of(command.worker_id)
        if earlier is not None:
            self._book.remove(earlier.id)
        worker = answer.worker
        group = (worker.namespace, worker.queue)
        self._book.add(
            Offer(
                id=self._book.next_id(),
                worker_id=worker.id,
                group=group,
                types=frozenset(worker.types),
                window=min(command.window, worker.slots),
                sink=command.sink,
                is_session=True,
                session_no=worker.session_no,
                held={ref.task_id: ref.attempt for ref in answer.held},
            ),
        )
        self._touch(group)

    def _deliver(self, committed: batch.Committed) -> None:
        """Give dealt tasks to their offers; what nobody is there to take goes back at once."""
        by_offer: dict[int, list[Task]] = {}
        tasks = committed.ws.tasks
        for key, offer_id in committed.claims.dealt:
            by_offer.setdefault(offer_id, []).append(tasks[key])
        groups = set()
        for offer_id, given in by_offer.items():
            offer = self._polls.get(offer_id) or self._book.get(offer_id)
            if offer is None or not offer.sink.is_open:
                self._return(given)
                continue
            groups.add(offer.group)
            if offer.is_session:
                for task in given:
                    offer.held[task.id] = task.attempt
                self._book.served(offer)
            else:
                self._book.remove(offer_id)
            offer.sink.give(given)
        for offer_id, error in committed.claims.refused.items():
            offer = self._polls.get(offer_id) or self._book.remove(offer_id)
            if offer is not None and isinstance(offer.sink, Poll):
                offer.sink.fail(error)
        for group in groups:
            self._touch_if_backlog(group)

    def _touch_if_backlog(self, group: Group) -> None:
        """Go on handing out while a queue has more and somebody still has credit."""
        mono_ms = self.clock.monotonic_ms()
        for offer in self._book.in_group(group):
            if offer.credit() > 0 and any(
                self._marks.has_backlog((*group, each), mono_ms) for each in offer.types
            ):
                self._touch(group)
                return

    def _return(self, tasks: Sequence[Task]) -> None:
        first = tasks[0]
        assert first.worker_id is not None
        refs = tuple(c.TaskRef(task.id, task.attempt) for task in tasks)
        self._work.submit(
            c.ReturnUndelivered(
                namespace=first.namespace,
                worker_id=first.worker_id,
                items=refs,
            ),
        )

    def _touch(self, group: Group) -> None:
        self._planner.dirty.add(group)
        self._work.kick()

    # -- Effects -------------------------------------------------------------------------------

    def _perform(self, effect: AnyEffect) -> None:
        match effect:
            case WakeQueue(namespace=namespace, queue=queue):
                self._touch((namespace, queue))
            case TellCancel():
                self._tell_cancel(effect)
            case TellStop(worker_id=worker_id):
                session = self._book.session_of(worker_id)
                if session is not None:
                    session.sink.stop([c.TaskRef(effect.task_id, effect.attempt)])
            case TellDrain(worker_id=worker_id):
                for offer in self._book.of_worker(worker_id):
                    self._book.remove(offer.id)
                    offer.sink.drain()
            case TellEnded(worker_id=worker_id, reason=reason):
                log.info("worker.ended", worker_id=worker_id, reason=reason.value)
                for offer in self._book.of_worker(worker_id):
                    self._book.remove(offer.id)
                    offer.sink.end(reason)
            case ReleaseHeld(worker_id=worker_id):
                self.release_soon(worker_id)

    def _tell_cancel(self, effect: TellCancel) -> None:
        session = self._book.session_of(effect.worker_id)
        if session is not None:
            ref = c.TaskRef(effect.task_id, effect.attempt)
            session.sink.cancel([ref])
            self._work.submit(c.SignalCancels(namespace=session.group[0], items=(ref,)))

    def release_soon(self, worker_id: str) -> None:
        """Put back what an offline worker held; the service does it if this is lost."""
        amount = self.settings.work_batch_max
        future = self._work.submit(c.ReleaseHeldTasks(worker_id=worker_id, amount=amount))
        future.add_done_callback(lambda done: self._released(worker_id, done))

    def _released(self, worker_id: str, done: asyncio.Future[object]) -> None:
        if done.cancelled() or done.exception() is not None:
            return
        answer = done.result()
        if isinstance(answer, c.WorkDone) and answer.has_more and not self._is_stopping:
            self.release_soon(worker_id)

    @property
    def _is_stopping(self) -> bool:
        return self._work.is_closed

    # -- Replicas ------------------------------------------------------------------------------

    def _tell(self, group: Group) -> None:
        """Tell the other replicas of work, coalesced."""
        self._told.add(group)
        if self._tell_soon is None:
            loop = asyncio.get_running_loop()
            self._tell_soon = loop.call_later(NOTIFY_MS / 1000, self._send_told)

    def _send_told(self) -> None:
        self._tell_soon = None
        told, self._told = self._told, set()
        payload = "\n".join(f"{namespace} {queue}" for namespace, queue in sorted(told))
        task = asyncio.get_running_loop().create_task(self._notify(payload))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _notify(self, payload: str) -> None:
        try:
            await self.store.notify(payload)
        except Exception as error:  # noqa: BLE001 (a lost hint costs a second, never work)
            log.warning("notify.failed", error=str(error))

    def _hear(self, payload: str) -> None:
        for line in payload.splitlines():
            namespace, _, queue = line.partition(" ")
            self._marks.look_again(namespace, queue)
            self._touch((namespace, queue))

    # -- The heartbeat lane --------------------------------------------------------------------

    async def _run_beats(self, entries: list[BeatEntry]) -> None:
        await self._slow("before batch")
        commands = [command for command, _ in entries]
        try:
            beaten = await self.store.transaction(
                lambda tx: heartbeat.run(tx, commands, self.settings),
                LaneName.HEARTBEAT,
            )
        except Lost as lost:
            self._lose(entries, lost)
            return
        except Conflict as conflict:
            self._lose(entries, Lost(str(conflict), reason="conflict"))
            return
        except Exception:
            log.exception("heartbeats.failed", size=len(entries))
            self._lose(entries, Lost("The batch failed.", reason="internal"))
            return
        self._see(beaten.now_ms)
        await self._slow("after commit")
        for (_, future), answer in zip(entries, beaten.answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, TenureError):
                future.set_exception(answer)
            else:
                future.set_result(answer)

    def _see(self, now_ms: int) -> None:
        mono_ms = self.clock.monotonic_ms()
        if self._sight is None:
            self._sight = sight_rules.begin(mono_ms=mono_ms, store_now_ms=now_ms)
        else:
            self._sight = sight_rules.commit(self._sight, mono_ms=mono_ms, store_now_ms=now_ms)

    async def _slow(self, point: str) -> None:
        if self._pause is not None:
            await self._pause(point)


_HEARTBEATS = frozenset({c.Heartbeat, c.TouchServer})
_NEW_WORK = frozenset({c.EnqueueTasks, c.ClaimTasks, c.RegisterWorker})


_WEIGHTS: dict[type, Callable[[Any], int]] = {
    c.EnqueueTasks: lambda command: len(command.tasks),
    c.FinishTasks: lambda command: len(command.items),
    c.ConfirmTasks: lambda command: len(command.items),
    c.HeartbeatTasks: lambda command: len(command.items),
    c.ProcessDue: lambda command: command.amount,
    c.ReleaseHeldTasks: lambda command: command.amount,
    c.JudgeLeases: lambda command: command.amount,
}


def _weight(command: c.WorkCommand) -> int:
    """Return how much of a batch a command takes."""
    weigh = _WEIGHTS.get(type(command))
    return 1 if weigh is None else weigh(command)


def _refusal(command: c.WorkCommand) -> TenureError:
    if isinstance(command, c.EnqueueTasks | c.RetryTask):
        return AlreadyExists("A task with this id or key exists.")
    return InvalidArgument("The database refused the request.", field="request")


def _unavailable(lost: Lost) -> Unavailable:
    message = f"The store is not available ({lost.reason}). Try again."
    return Unavailable(message, reason=lost.reason, retry_after_ms=RETRY_AFTER_MS)
