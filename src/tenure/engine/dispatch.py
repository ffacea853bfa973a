"""How handed-out tasks reach their consumers: polls and sessions, before and after a batch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog

from tenure.core.task_effect import TellCancel, TellStop, WakeQueue
from tenure.core.task_record import Task
from tenure.core.worker import ReleaseHeld, TellDrain, TellEnded
from tenure.engine import command as c
from tenure.engine.batch import Committed
from tenure.engine.claim import ClaimPlan, ClaimPlanner
from tenure.engine.clock import Clock
from tenure.engine.mark import LineKey, Marks
from tenure.engine.offer import Group, Offer, OfferBook
from tenure.engine.poll import Poll
from tenure.engine.settings import Settings
from tenure.engine.working_set import AnyEffect
from tenure.errors import TenureError

log = structlog.get_logger("tenure.engine")
Submit = Callable[[c.WorkCommand], "asyncio.Future[object]"]


class Dispatch:
    """The offers of this server, what it knows about the lines, and the way to the workers."""

    def __init__(
        self,
        clock: Clock,
        settings: Settings,
        *,
        submit: Submit,
        kick: Callable[[], None],
        tell: Callable[[Group], None],
    ) -> None:
        """Start without offers. ``kick`` runs a batch, ``tell`` tells other replicas of work."""
        self._clock = clock
        self._settings = settings
        self._submit = submit
        self._kick = kick
        self._tell = tell
        self._book = OfferBook()
        self._marks = Marks(is_on=settings.low_water_marks)
        self._planner = ClaimPlanner(self._book, self._marks, is_direct=settings.direct_hand_out)
        self._polls: dict[int, Offer] = {}
        self._freed: dict[int, Offer] = {}
        self._left: set[LineKey] = set()

    @property
    def has_work(self) -> bool:
        """Tell whether a queue is to be looked at even if no command waits."""
        return bool(self._planner.dirty)

    @property
    def offer_count(self) -> int:
        """Return how many offers stand."""
        return len(self._book)

    # -- Before a batch

    def plan(
        self,
        entries: Sequence[tuple[c.WorkCommand, asyncio.Future[object]]],
    ) -> ClaimPlan:
        """Return what a batch may hand out; its polls are offers from now on."""
        self._polls = {}
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
                self._polls[offer.id] = offer
        commands = [command for command, _ in entries]
        return self._planner.plan(commands, self._polls, self._clock.monotonic_ms())

    def plan_again(self, plan: ClaimPlan) -> None:
        """Let the next batch do what this one could not."""
        for hand in plan.hands:
            self._planner.dirty.add((hand.namespace, hand.queue))

    def let_polls_wait(self) -> None:
        """Let the polls that got nothing stand in the book until their deadline."""
        for offer in self._polls.values():
            if offer.sink.is_open and isinstance(offer.sink, Poll):
                self._book.add(offer)
                offer.sink.wait(lambda offer=offer: self._end_poll(offer))  # type: ignore[misc]  # the default binds this offer

    def _end_poll(self, offer: Offer) -> None:
        if isinstance(offer.sink, Poll):
            self._book.remove(offer.id)
            offer.sink.give(())

    def end_polls(self) -> None:
        """Answer every waiting poll: the server stops."""
        for group in list(self._book.groups()):
            for offer in list(self._book.in_group(group)):
                self._end_poll(offer)

    # -- After its commit

    def learn(self, committed: Committed) -> None:
        """Take in what a committed batch left in the lines and in the hands of sessions."""
        claims = committed.claims
        self._marks.learn(
            claims.asked,
            claims.seen,
            mono_ms=self._clock.monotonic_ms(),
            took_ms=claims.took_ms,
        )
        ws = committed.ws
        for tasks in (ws.new_tasks, ws.changed_tasks):
            for task in tasks.values():
                if task.line:
                    self._marks.left(task)
                    self._left.add((task.namespace, task.queue, task.type))
        for key, task in ws.changed_tasks.items():
            self._note_held(ws.rows.tasks.get(key), task)
        for task in claims.undealt:
            self._marks.left(task)

    def _serve_or_tell(self, line: LineKey) -> None:
        """Serve claimable tasks that stayed in the store, or tell others if nobody here can.

        Asked after the deliveries: a slot that this batch has filled is no credit any more.
        """
        group = line[:2]
        for offer in self._book.in_group(group):
            if line[2] in offer.types and offer.credit() > 0:
                self.touch(group)
                return
        self._tell(group)

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

    def deliver(self, committed: Committed) -> None:
        """Give dealt tasks to their offers; what nobody is there to take goes back at once."""
        by_offer: dict[int, list[Task]] = {}
        tasks = committed.ws.tasks
        for key, offer_id in committed.claims.dealt:
            by_offer.setdefault(offer_id, []).append(tasks[key])
        served: set[Group] = set()
        for offer_id, given in by_offer.items():
            offer = self._find(offer_id)
            if offer is None or not offer.sink.is_open:
                self._return(given)
            else:
                self._give(offer, given)
                served.add(offer.group)
        for offer_id, error in committed.claims.refused.items():
            self._refuse(offer_id, error)
        for hand in committed.plan.hands:
            checked = self._find(hand.offer_id)
            if checked is not None:
                checked.is_checked = True
        self._go_on(served)
        left, self._left = self._left, set()
        for line in left:
            self._serve_or_tell(line)

    def _find(self, offer_id: int) -> Offer | None:
        return self._polls.get(offer_id) or self._book.get(offer_id)

    def _give(self, offer: Offer, given: Sequence[Task]) -> None:
        if offer.is_session:
            for task in given:
                offer.held[task.id] = task.attempt
            self._book.served(offer)
        else:
            self._book.remove(offer.id)
        offer.sink.give(given)

    def _refuse(self, offer_id: int, error: TenureError) -> None:
        offer = self._find(offer_id)
        self._book.remove(offer_id)
        if offer is not None and isinstance(offer.sink, Poll):
            offer.sink.fail(error)

    def _return(self, tasks: Sequence[Task]) -> None:
        first = tasks[0]
        assert first.worker_id is not None
        refs = tuple(c.TaskRef(task.id, task.attempt) for task in tasks)
        self.post(
            c.ReturnUndelivered(
                namespace=first.namespace,
                worker_id=first.worker_id,
                items=refs,
            ),
        )

    def _go_on(self, served: set[Group]) -> None:
        """Go on handing out while a queue has more and somebody still has credit."""
        mono_ms = self._clock.monotonic_ms()
        freed, self._freed = self._freed, {}
        for group in served:
            for offer in self._book.in_group(group):
                if self._could_use(offer, mono_ms):
                    self.touch(group)
                    break
        for session in freed.values():
            if self._could_use(session, mono_ms):
                self.touch(session.group)

    def _could_use(self, offer: Offer, mono_ms: int) -> bool:
        if offer.credit() <= 0:
            return False
        return any(self._marks.has_backlog((*offer.group, each), mono_ms) for each in offer.types)

    def touch(self, group: Group) -> None:
        """Look at a queue with the next batch."""
        self._planner.dirty.add(group)
        self._kick()

    def look_for_work(self) -> None:
        """Look at every queue for which somebody waits: the fallback poll."""
        for group in list(self._book.groups()):
            self.touch(group)

    def hear(self, groups: Sequence[Group]) -> None:
        """Look at queues from their head, of which another replica has told."""
        for namespace, queue in groups:
            self._marks.look_again(namespace, queue)
            self.touch((namespace, queue))

    # -- Sessions and effects

    def seat_session(self, command: c.OpenSession, answer: c.SessionAnswer) -> None:
        """Let a new session stand as an offer; an earlier one of the worker is over."""
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
                is_checked=True,
                session_no=worker.session_no,
                held={ref.task_id: ref.attempt for ref in answer.held},
            ),
        )
        self.touch(group)

    def set_window(self, worker_id: str, window: int) -> None:
        """Change how many attempts a session is willing to hold."""
        session = self._book.session_of(worker_id)
        if session is not None:
            session.window = window
            self.touch(session.group)

    def session_above(self, worker_id: str, active_count: int) -> Offer | None:
        """Return the session of a worker that holds more here than its worker says."""
        session = self._book.session_of(worker_id)
        return session if session is not None and len(session.held) > active_count else None

    def forget_held(self, session: Offer, refs: Sequence[c.TaskRef]) -> None:
        """Free the slots of attempts that were ended elsewhere, and tell the worker."""
        for ref in refs:
            if session.held.get(ref.task_id) == ref.attempt:
                del session.held[ref.task_id]
        if refs:
            session.sink.stop(refs)
            self.touch(session.group)

    def end_session(self, worker_id: str, session_no: int) -> None:
        """Remove the offer of a session that is over; a later one stays."""
        session = self._book.session_of(worker_id)
        if session is not None and session.session_no == session_no:
            self._book.remove(session.id)

    def perform(self, effect: AnyEffect) -> None:
        """Do what a committed decision wants done; doing it twice does no harm."""
        match effect:
            case WakeQueue(namespace=namespace, queue=queue):
                self.touch((namespace, queue))
            case TellCancel():
                self._tell_cancel(effect)
            case TellStop(worker_id=worker_id):
                session = self._book.session_of(worker_id)
                if session is not None:
                    session.sink.stop([c.TaskRef(effect.task_id, effect.attempt)])
            case TellDrain(worker_id=worker_id):
                for offer in self._take_offers(worker_id):
                    offer.sink.drain()
            case TellEnded(worker_id=worker_id, reason=reason):
                log.info("worker.ended", worker_id=worker_id, reason=reason.value)
                for offer in self._take_offers(worker_id):
                    offer.sink.end(reason)
            case ReleaseHeld(worker_id=worker_id):
                self._release(worker_id)

    def _take_offers(self, worker_id: str) -> list[Offer]:
        offers = self._book.of_worker(worker_id)
        for offer in offers:
            self._book.remove(offer.id)
        return offers

    def _tell_cancel(self, effect: TellCancel) -> None:
        session = self._book.session_of(effect.worker_id)
        if session is not None:
            ref = c.TaskRef(effect.task_id, effect.attempt)
            session.sink.cancel([ref])
            self.post(c.SignalCancels(namespace=session.group[0], items=(ref,)))

    def _release(self, worker_id: str) -> None:
        """Put back what an offline worker held; the service does it if this is lost."""
        amount = self._settings.work_batch_max
        future = self.post(c.ReleaseHeldTasks(worker_id=worker_id, amount=amount))
        if future is not None:
            future.add_done_callback(lambda done: self._released(worker_id, done))

    def _released(self, worker_id: str, done: asyncio.Future[object]) -> None:
        if done.cancelled() or done.exception() is not None:
            return
        answer = done.result()
        if isinstance(answer, c.WorkDone) and answer.has_more:
            self._release(worker_id)

    def post(self, command: c.WorkCommand) -> asyncio.Future[object] | None:
        """Submit a command of our own; refused ones are made up for by timers and services."""
        try:
            future = self._submit(command)
        except TenureError as error:
            log.info("effect.refused", command=type(command).__name__, error=error.code)
            return None
        future.add_done_callback(_look_at)
        return future


def _look_at(done: asyncio.Future[object]) -> None:
    """Note the failure of a command that nobody waits for."""
    if not done.cancelled() and done.exception() is not None:
        log.info("effect.failed", error=str(done.exception()))
