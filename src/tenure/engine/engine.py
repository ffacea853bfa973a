"""The engine: runs commands, returns answers, and runs the services.

``submit`` is the only entry. Memory here is only what can be read again from the store.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import structlog

from tenure.core.task.record import Task
from tenure.core.worker import judge_readiness as readiness_rules
from tenure.core.worker.judge_readiness import JudgeReadiness
from tenure.engine.acceptance import Acceptance
from tenure.engine.access.access_cache import AccessCache
from tenure.engine.access.secret import Secrets, load_secrets
from tenure.engine.access.token_signer import TokenSigner
from tenure.engine.batch import run as batch
from tenure.engine.batch.damage_log import note_damage
from tenure.engine.batch.memory import BatchMemory
from tenure.engine.batch.runner import BatchRunner, Pause, WorkEntry
from tenure.engine.batch.working_set import WorkingSet
from tenure.engine.claim.dispatch import SEATING, Dispatch
from tenure.engine.claim.plan import ClaimPlan
from tenure.engine.claim.worker_activity import WorkerActivity
from tenure.engine.clock import Clock
from tenure.engine.command import Answer, AnyCommand, Command, TaskRef
from tenure.engine.command_table import SPECS, payload_bytes, weigh
from tenure.engine.lane import Entry, Lane, resolve
from tenure.engine.meter import NULL_METER, Meter, Occupancy
from tenure.engine.replica.event_feed import EventFeed
from tenure.engine.replica.replica_hints import HintKind, ReplicaHints, heard
from tenure.engine.replica.result_watch import ResultWatch
from tenure.engine.replica.run_news import RunNews
from tenure.engine.replica.session_news import SessionNews
from tenure.engine.run.command import RecordSteps
from tenure.engine.schedule.news import ScheduleNews
from tenure.engine.seat.seats import Seats
from tenure.engine.service import Alarm, Job, Service
from tenure.engine.services import all_services
from tenure.engine.services.child_closing import ChildClosing
from tenure.engine.services.key_use import write_last
from tenure.engine.services.schedule_firing import ScheduleFiring
from tenure.engine.settings import Settings
from tenure.engine.statistics.memory import Statistics
from tenure.engine.store_outage import StoreOutage
from tenure.engine.task.command import ClaimTasks, SignalCancels
from tenure.engine.worker import command as c
from tenure.engine.worker.heartbeat_lane import HeartbeatRun
from tenure.engine.worker.worker_key import WorkerKeys
from tenure.errors import Unavailable
from tenure.store.failure import Lost
from tenure.store.table.closing import ClosingRows
from tenure.store.table.lease import LeaseRows
from tenure.store.table.task import TaskKey
from tenure.store.transaction import LaneName, Store

log = structlog.get_logger("tenure.engine")
RETRY_AFTER_MS = 500
# A grace is checked when it has ended by the store's clock too.
GRACE_MARGIN_MS = 10
C = TypeVar("C")
K = TypeVar("K", bound=AnyCommand)
# A member of an enum costs more than a global name, and each command needs its lane.
_HEARTBEAT: Final = LaneName.HEARTBEAT


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
        """Prepare; ``start`` opens the store. ``pause`` is where a simulation adds delays.

        A test that runs the rounds of services itself names the services (often none) with a timer.
        """
        self.store = store
        self.clock = clock
        self.settings = settings or Settings()
        self.server_id = server_id or clock.new_id()
        self.meter: Meter = NULL_METER
        self.statistics = Statistics(clock)
        self.alarm, self.grace_alarm = Alarm(), Alarm()
        self.alarms, self.schedule_news = _by_service(self.alarm, self.grace_alarm), ScheduleNews()
        self.finished_count, self._is_leaving = 0, False
        self.deaf: frozenset[str] = frozenset()
        self._pause = pause
        self._listeners: list[Callable[[Task], None]] = []
        self._secrets: Secrets | None = None
        self.acceptance = Acceptance()
        self.outage = StoreOutage(clock, self.acceptance)
        self.access_cache = AccessCache(store, self.outage, clock=clock, settings=self.settings)
        self._memory = BatchMemory(store, clock, self.settings, self.server_id, self.access_cache)
        self._lanes: list[asyncio.Task[None]] = []
        self._loops: list[asyncio.Task[None]] = []
        self._heartbeats = HeartbeatRun(
            store, clock, self.settings, meter=lambda: self.meter, lose=self._lose, pause=pause
        )
        self.beat_log = self._heartbeats.beat_log
        work = self._work = self._lane(self._run_work, weigh, payload_bytes)
        self._beats = self._lane(self._heartbeats.run, lambda _: 1, lambda _: 0)
        self._replicas = ReplicaHints(store, self.outage)
        is_held = self._memory.rows.rows.__contains__
        self.results = ResultWatch(
            store, self._replicas, self.outage, clock=clock, settings=self.settings, is_held=is_held
        )
        self.events = EventFeed(store, self._replicas, clock, self.settings, self.server_id)
        self._dispatch = Dispatch(
            clock, self.settings, submit=work.submit, kick=work.kick, replicas=self._replicas
        )
        self._news = SessionNews(store, self._dispatch.notifier, self.settings, self.outage)
        self._run_news = RunNews(
            store, self._dispatch.notifier, self._replicas, self._memory.journals, self.outage
        )
        self._runner = BatchRunner(
            store,
            self._memory,
            self._dispatch,
            lose=self._lose,
            after_commit=self._after_commit,
            pause=pause,
        )
        self.access_cache.on_change(lambda: self._dispatch.obey(self.access_cache.disabled))
        work.has_extra_work = lambda: self._dispatch.has_work
        self.seats = Seats(self)
        self._services = [Service(each, self) for each in _jobs(services)]

    def _lane(
        self,
        run: Callable[[list[Entry[C]]], Awaitable[None]],
        weigh: Callable[[C], int],
        measure: Callable[[C], int],
    ) -> Lane[C]:
        return Lane(
            run,
            batch_max=self.settings.work_batch_max,
            queue_max=self.settings.lane_queue_max,
            weigh=weigh,
            measure=measure,
            mono_ms=self.clock.monotonic_ms,
        )

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
        try:
            self._secrets = await load_secrets(self.store, self.clock)
            self.store.listen(self._hear)
            await self.access_cache.load()
        except BaseException:
            await self.store.close()
            raise
        if self.store.is_shared:
            # There may be subscribers at another server, which says so within a second.
            self._replicas.hear_event_want()
        self._heartbeats.on_commit = self.outage.committed
        create = asyncio.get_running_loop().create_task
        self._lanes = [
            create(self._work.serve(), name="work lane"),
            create(self._beats.serve(), name="heartbeat lane"),
        ]
        self._loops = [
            create(self.results.serve(), name="result watch"),
            create(self._news.serve(), name="session news"),
            create(self._run_news.serve(), name="run news"),
            create(self.access_cache.serve(), name="access cache"),
            create(self.seats.serve(), name="seats"),
            *(create(each.serve(), name=each.name) for each in self._services),
        ]

    async def stop(self) -> None:
        """Finish the accepted commands, then close the store."""
        # Before anything else can run: no batch hands out to a poll that is about to end.
        self._dispatch.end_polls()
        await self.seats.leave()
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        self._work.close()
        self._beats.close()
        await asyncio.gather(*self._lanes)
        self.results.close()
        self.events.close()
        self.access_cache.close()
        await write_last(self)
        # Accepted polls that got nothing have begun to wait meanwhile.
        self._dispatch.end_polls()
        await self._replicas.close()
        await self.store.close()

    def kill(self) -> None:
        """Stop at once, like a process that dies: for simulations of a crash."""
        self._replicas.kill()
        self.access_cache.close()
        self.results.close()
        self.events.close()
        for task in (*self._lanes, *self._loops):
            task.cancel()

    # -- Commands ------------------------------------------------------------------------------

    def check(self, command: K) -> K:
        """Return a command, or raise the typed error if it is malformed."""
        SPECS[type(command)].check(command)
        return command

    def submit(self, command: Command[Answer]) -> asyncio.Future[Answer]:
        """Check a command, queue it, and return the future of its answer.

        Raises the typed error at once when the command is malformed or the lane is full.
        """
        spec = SPECS[type(command)]
        spec.check(command)
        if spec.lane is _HEARTBEAT:
            return self._beats.submit(command)
        return self._work.submit(command, is_new_work=spec.is_new_work)

    async def heartbeat(
        self,
        command: c.Heartbeat,
        *,
        bound: tuple[TaskRef, ...] = (),
        unbound: tuple[TaskRef, ...] = (),
        held: tuple[TaskRef, ...] | None = None,
    ) -> tuple[c.Renewed, c.HeldAnswer]:
        """Renew a lease, then apply what the heartbeat reports about attempts; wait for both."""
        renewed = await self.submit(command)
        self._news.recount(command.worker_id, command.beat.active_count)
        if command.is_full:
            self.worker_activity.note(command.worker_id, self.clock.monotonic_ms())
        if renewed.cancel:
            refs = renewed.cancel
            self._dispatch.post(SignalCancels(namespace=command.namespace, items=refs))
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
        return renewed, await self.submit(report)

    def batch_context(self, plan: ClaimPlan) -> batch.Context:
        """Return what a batch that is only rehearsed needs in addition to its commands."""
        return self._memory.context(plan, None)

    def set_window(self, worker_id: str, window: int) -> None:
        """Change how many attempts a session accepts."""
        self._dispatch.set_window(worker_id, window)

    def held_count(self, worker_id: str) -> int:
        """Return how many attempts a session here holds, as far as this server knows."""
        return self._dispatch.held_count(worker_id)

    def session_holds(self, worker_id: str, session_no: int, ref: TaskRef) -> bool:
        """Return whether a session here holds an attempt, as far as this server knows."""
        return self._dispatch.holds(worker_id, session_no, ref)

    def has_room(self, worker_id: str) -> None:
        """Continue with a session that had no room for payloads."""
        self._dispatch.has_room(worker_id)

    def end_session(self, worker_id: str, session_no: int) -> None:
        """Remove the offer of a session that has ended; a later one stays."""
        self._dispatch.end_session(worker_id, session_no)

    def lose_session(self, namespace: str, worker_id: str, session_no: int) -> None:
        """Note that the worker closed a session without a goodbye."""
        self.end_session(worker_id, session_no)
        lost_at_ms = self.clock.monotonic_ms()
        spared = self._heartbeats.sessions.closed(
            worker_id, mono_ms=lost_at_ms, open_count=self._dispatch.offer_count
        )
        if spared:
            self._dispatch.post(c.SpareWorkers(worker_ids=spared))
            return
        close = c.CloseSession(
            namespace=namespace,
            worker_id=worker_id,
            session_no=session_no,
            lost_at_mono_ms=lost_at_ms,
        )
        # A heartbeat from before the end does not show that the worker lives: it is handled first.
        self._beats.follow(lambda: self._dispatch.post(self._heartbeats.sessions.with_token(close)))

    def give_back(self, tasks: Sequence[Task]) -> None:
        """Put back tasks that were handed out and never left this server."""
        self._dispatch.give_back(tasks)

    def end_polls(self) -> None:
        """Answer every waiting poll with nothing: the server is about to stop.

        From here on it judges no worker: it refuses calls and sessions of workers that are alive.
        """
        self._is_leaving = True
        self._dispatch.end_polls()

    def on_finished(self, listener: Callable[[Task], None]) -> None:
        """Notify an edge of finished tasks, after they were committed."""
        self._listeners.append(listener)

    def _hear(self, payload: str) -> None:
        """Take in a message of another server."""
        news = heard(payload)
        if news.is_result_wanted:
            self._replicas.hear_want()
        if news.is_event_wanted:
            self._replicas.hear_event_want()
        if news.events or news.missed_events:
            self.events.hear(news.events, news.missed_events)
        if news.is_access_changed:
            self.access_cache.hear()
        if news.is_schedule_earlier:
            self.alarms[ScheduleFiring.name].set(0, self.clock.monotonic_ms())
        self._dispatch.hear(news.queues, is_all=HintKind.QUEUE in news.everything)
        self._news.hear(news.workers, is_all=HintKind.WORKER in news.everything)
        self._run_news.hear(news.runs)
        self.results.hear(news.results, is_all=HintKind.RESULT in news.everything)

    @property
    def secrets(self) -> Secrets:
        """Return the keys that all servers of this database share; available after the start."""
        assert self._secrets is not None
        return self._secrets

    @property
    def worker_keys(self) -> WorkerKeys:
        """Return to which API keys workers belong, as far as this server knows."""
        return self._heartbeats.worker_keys

    @functools.cached_property
    def tokens(self) -> TokenSigner:
        """Return what signs and verifies task tokens."""
        return TokenSigner(self.access_cache)

    @property
    def judge_readiness(self) -> JudgeReadiness | None:
        """Return since when this server can receive heartbeats."""
        return self._heartbeats.judge_readiness

    @property
    def sighted_ms(self) -> int:
        """Return for how long this server has been able to receive heartbeats."""
        if self.judge_readiness is None or self._is_leaving:
            return 0
        return readiness_rules.sighted_ms(self.judge_readiness, mono_ms=self.clock.monotonic_ms())

    @property
    def worker_activity(self) -> WorkerActivity:
        """Return when workers could last get work from this server."""
        return self._dispatch.worker_activity

    def has_credit(self, worker_id: str) -> bool:
        """Return whether a worker has an open poll or credit at this server."""
        return self._dispatch.has_credit(worker_id)

    @property
    def occupancy(self) -> Occupancy:
        """Return what waits in this engine now."""
        return Occupancy(
            work_command_count=len(self._work),
            heartbeat_command_count=len(self._beats),
            session_count=self._dispatch.session_count,
            poll_count=self._dispatch.offer_count - self._dispatch.session_count,
        )

    @property
    def waiting_count(self) -> int:
        """Return how many commands wait for a batch."""
        return len(self._work) + len(self._beats)

    def look_for_work(self) -> None:
        """Let offers claim even without a hint about work: the fallback poll."""
        self._dispatch.look_for_work()

    # -- The work lane -------------------------------------------------------------------------

    async def _run_work(self, entries: list[WorkEntry]) -> None:
        await self._slow("before batch")
        entries = [entry for entry in entries if not entry[1].done()]
        plan = self._dispatch.plan(entries)
        if entries or plan.hands:
            began = self.meter.now()
            since_ms = self._work.waiting_since_mono_ms
            await self._runner.run(entries, plan, waiting_since_mono_ms=since_ms)
            self.meter.ran(LaneName.WORK, len(entries), began)
        self._dispatch.let_polls_wait()

    def _lose(self, entries: Sequence[Entry[Any]], lost: Lost) -> None:
        """Answer ``unavailable``: the result of the commit is unknown, and repeating is safe."""
        self._memory.doubt()
        if not self.outage.failed(lost):
            log.warning("store.lost", reason=lost.reason, size=len(entries), error=str(lost))
        self.meter.lost(lost.reason)
        self.acceptance.lost(lost.reason)
        for _, future in entries:
            if not future.done():
                future.set_exception(_unavailable(lost))

    async def _after_commit(self, entries: Sequence[WorkEntry], committed: batch.Committed) -> None:
        """Phase 6, only after the commit: deliveries, answers, effects."""
        note_damage(committed.ws.damaged)
        self._remember(committed)
        self._dispatch.learn(committed)
        if committed.ws.rows.has_reports:
            _answer_steps(entries, committed.answers)
        # Then workers: the enqueuing caller waits for them.
        self._dispatch.deliver(committed)
        if self._is_idle_after(entries):
            # Deliveries are written before the rest is done.
            await asyncio.sleep(0)
        for (command, future), answer in zip(entries, committed.answers, strict=True):
            if type(command) is ClaimTasks:
                # Its offer has the answer.
                continue
            if type(command) in SEATING:
                self._dispatch.seat_session(command, answer)
            resolve(future, answer)
        if committed.ws.effects:
            for effect in committed.ws.effects:
                self._dispatch.perform(effect)
            self._run_news.tell(committed.ws)
        self._wake_services(committed.ws)
        if self.events.is_wanted:
            self.events.committed(committed.ws)
        self.statistics.committed(committed)
        self.meter.committed(committed)

    def _is_idle_after(self, entries: Sequence[WorkEntry]) -> bool:
        """Return whether nobody waits for this lane, and a caller for the only command."""
        return len(entries) == 1 and SPECS[type(entries[0][0])].is_awaited and not len(self._work)

    def _wake_services(self, ws: WorkingSet) -> None:
        """Set the alarms of services for what a batch leaves to them."""
        made = ws.rows.made
        if LeaseRows in made and ws.leases.suspected:
            in_ms = self.settings.suspect_grace_ms + GRACE_MARGIN_MS
            self.grace_alarm.set(in_ms, self.clock.monotonic_ms())
        if ClosingRows in made and ws.closings.opened_count:
            self.alarms[ChildClosing.name].set(0, self.clock.monotonic_ms())
        if self.schedule_news.committed(ws):
            self.alarms[ScheduleFiring.name].set(0, self.clock.monotonic_ms())
        if ws.rows.has_schedules:
            self._plan_schedules(ws)

    def _plan_schedules(self, ws: WorkingSet) -> None:
        """Set the alarm for the next look at a schedule; others hear of one that comes earlier."""
        dues, loaded = [], ws.schedules.loaded
        for key, each in (*ws.schedules.new.items(), *ws.schedules.changed.items()):
            if each.due_at_ms is not None:
                dues.append(each.due_at_ms)
                before = loaded[key].due_at_ms if key in loaded else None
                if before is None or each.due_at_ms < before:
                    self._replicas.tell_schedules()
        if dues:
            in_ms = min(dues) - ws.now_ms
            self.alarms[ScheduleFiring.name].set(in_ms, self.clock.monotonic_ms())

    def _remember(self, committed: batch.Committed) -> None:
        """Keep copies of written rows, and set the alarm for the earliest timer."""
        ws = committed.ws
        self.acceptance.committed(ws)
        self._memory.learn(committed)
        if committed.store_ahead_ms is not None:
            self.worker_keys.learn(ws.workers.values())
        self._memory.saved(ws)
        dues = []
        for tasks, are_new in ((ws.tasks.new, True), (ws.tasks.changed, False)):
            finished = []
            for key, task in tasks.items():
                if task.due_at_ms is not None:
                    dues.append(task.due_at_ms)
                elif task.finished_at_ms is not None:
                    finished.append((key, task))
            if finished:
                self._tell_finished(finished, are_new=are_new)
        if dues:
            self.alarm.set(min(dues) - ws.now_ms, self.clock.monotonic_ms())
        if self.access_cache.committed(ws):
            self._replicas.tell_access()

    def _tell_finished(self, finished: Sequence[tuple[TaskKey, Task]], *, are_new: bool) -> None:
        """Tell those who wait for tasks that these have ended."""
        self.finished_count += len(finished)
        if self.results.is_wanted:
            for key, task in finished:
                self.results.finished(key, task, is_new=are_new)
        for listener in self._listeners:
            for _, task in finished:
                listener(task)

    async def _slow(self, point: str) -> None:
        if self._pause is not None:
            await self._pause(point)


def _jobs(services: Sequence[Job] | None) -> Sequence[Job]:
    return all_services() if services is None else services


def _by_service(due: Alarm, grace: Alarm) -> dict[str, Alarm]:
    """Return the alarms by the names of the services that they wake."""
    return {
        "due_tasks": due,
        "lease_judgement": grace,
        ChildClosing.name: Alarm(),
        ScheduleFiring.name: Alarm(),
    }


def _answer_steps(entries: Sequence[WorkEntry], answers: Sequence[object]) -> None:
    """Answer step reports before everything else: the code of their runs waits."""
    for (command, future), answer in zip(entries, answers, strict=True):
        if type(command) is RecordSteps:
            resolve(future, answer)


def _unavailable(lost: Lost) -> Unavailable:
    message = f"The store is not available ({lost.reason}). Try again."
    return Unavailable(message, reason=lost.reason, retry_after_ms=RETRY_AFTER_MS)
