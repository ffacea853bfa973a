"""How handed-out tasks reach their consumers: polls and sessions, before and after a batch."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Final, assert_never

import structlog

from tenure.core.assignment import Count, Hand
from tenure.core.limits import PAYLOAD_BYTES_MAX
from tenure.core.queue import namespace_disabled
from tenure.core.task.effect import TellCancel, TellFreed, TellRun, TellStop, WakeQueue
from tenure.core.task.record import Line, Task
from tenure.core.worker.decide import ReleaseHeld, TellDrain, TellEnded
from tenure.core.worker.record import EndReason, WorkerStatus
from tenure.engine.batch.run import Committed
from tenure.engine.batch.working_set import AnyEffect, WorkingSet
from tenure.engine.claim.hand_out import ClaimResult
from tenure.engine.claim.offer import Group, Offer, OfferBook, Wish
from tenure.engine.claim.plan import ClaimPlan, ClaimPlanner
from tenure.engine.claim.poll import Poll
from tenure.engine.claim.position import ClaimPositions, LineKey
from tenure.engine.claim.waiting_runs import WaitingRuns
from tenure.engine.claim.worker_activity import WorkerActivity
from tenure.engine.claim.worker_notifier import WorkerNotifier
from tenure.engine.clock import Clock
from tenure.engine.command import Answer, AnyCommand, Command, TaskRef, WorkDone
from tenure.engine.endpoint.command import EndpointTaken, TakeEndpoint
from tenure.engine.lane import Entry
from tenure.engine.replica.replica_hints import ReplicaHints
from tenure.engine.seat.command import SeatTaken, TakeSeat
from tenure.engine.settings import Settings
from tenure.engine.store_outage import is_outage
from tenure.engine.task.command import ClaimTasks, ReturnUndelivered
from tenure.engine.worker.command import OpenSession, ReleaseHeldTasks, SessionAnswer
from tenure.errors import TenureError, WorkerDraining

log = structlog.get_logger("tenure.engine")
Submit = Callable[[AnyCommand], "asyncio.Future[Any]"]
_END_REASONS = frozenset(each.value for each in EndReason)

# Commands whose answers are offers.
SEATING: Final = frozenset({OpenSession, TakeSeat, TakeEndpoint})


class Dispatch:
    """The offers of this server, what it knows about the lines, and the delivery to workers."""

    def __init__(
        self,
        clock: Clock,
        settings: Settings,
        *,
        submit: Submit,
        kick: Callable[[], None],
        replicas: ReplicaHints,
    ) -> None:
        """Start without offers. ``kick`` runs a batch, ``replicas`` get hints about other work."""
        self._clock = clock
        self._settings = settings
        self._submit = submit
        self._kick = kick
        self._replicas = replicas
        self._book = OfferBook()
        self.notifier = WorkerNotifier(self._book, post=self.post, touch=self.touch)
        self._positions = ClaimPositions(is_on=settings.low_water_marks)
        self._waiting_runs = WaitingRuns(clock)
        self._planner = ClaimPlanner(
            self._book, self._positions, self._waiting_runs, is_direct=settings.direct_hand_out
        )
        self._polls: dict[int, Offer] = {}
        self._counts: Mapping[str, Count] = {}
        self._to_look_at: set[Group] = set()
        self._left: set[LineKey] = set()
        self._disabled: frozenset[str] = frozenset()
        self.worker_activity = WorkerActivity()

    @property
    def has_work(self) -> bool:
        """Return whether a queue has to be read even if no command waits."""
        return bool(self._planner.dirty)

    @property
    def offer_count(self) -> int:
        """Return the number of offers."""
        return len(self._book)

    @property
    def session_count(self) -> int:
        """Return how many of the offers are sessions; the others are waiting polls."""
        return self._book.session_count

    def has_credit(self, worker_id: str) -> bool:
        """Tell whether a worker could be given something by this server now."""
        mine = self._book.of_worker(worker_id)
        return any(not offer.is_session or offer.credit() > 0 for offer in mine)

    # -- Before a batch

    def plan(self, entries: Sequence[Entry[AnyCommand]]) -> ClaimPlan:
        """Return what a batch may hand out; its polls are offers from now on."""
        self._polls, self._counts = {}, {}
        for command, future in entries:
            if type(command) is ClaimTasks:
                offer = Offer(
                    id=self._book.next_id(),
                    receiver_id=command.worker_id,
                    group=(command.namespace, command.queue),
                    types=command.types,
                    window=command.max_tasks,
                    sink=Poll(future, command.wait_ms),
                    speaker=command.speaker,
                )
                self._polls[offer.id] = offer
        commands = [command for command, _ in entries]
        mono_ms = self._clock.monotonic_ms()
        # Many polls come from few workers, and for the same types.
        for worker_id in {offer.receiver_id for offer in self._polls.values()}:
            self.worker_activity.note(worker_id, mono_ms)
        for group, types in {(offer.group, offer.types) for offer in self._polls.values()}:
            self._positions.worker_came(group, types)
        return self._planner.plan(commands, self._polls, mono_ms)

    def plan_again(self, plan: ClaimPlan) -> None:
        """Let the next batch do what this one could not."""
        for hand in plan.hands:
            self._planner.dirty.add((hand.namespace, hand.queue))

    def let_polls_wait(self) -> None:
        """Keep the polls that got nothing as offers until their deadline."""
        for offer in self._polls.values():
            if offer.sink.is_open and isinstance(offer.sink, Poll):
                if offer.group[0] in self._disabled:
                    # Another server has disabled the namespace while the batch ran.
                    offer.sink.fail(namespace_disabled(offer.group[0]).to_error())
                    continue
                self._book.add(offer)
                if offer.receiver_id in self._counts:
                    self._book.counted(offer.receiver_id, self._counts[offer.receiver_id])
                offer.sink.wait(lambda offer=offer: self._end_poll(offer))  # type: ignore[misc]  # the default binds this offer

    def _end_poll(self, offer: Offer) -> None:
        if isinstance(offer.sink, Poll):
            self._book.remove(offer.id)
            offer.sink.give(())

    def end_polls(self) -> None:
        """Answer every waiting poll: the server stops."""
        for group in list(self._book.groups()):
            for offer in self._book.in_group(group):
                self._end_poll(offer)

    # -- After its commit

    def learn(self, committed: Committed) -> None:
        """Take in what a committed batch left in the lines and what sessions hold now."""
        claims = committed.claims
        self._positions.learn(
            claims.asked,
            claims.seen,
            mono_ms=self._clock.monotonic_ms(),
            took_ms=claims.took_ms,
            is_told=self._replicas.is_told,
        )
        ws = committed.ws
        for tasks, are_new in ((ws.tasks.new, True), (ws.tasks.changed, False)):
            for task in tasks.values():
                if task.link is not None:
                    self._waiting_runs.note(task)
                if task.line:
                    self._positions.left(task, is_new=are_new)
                    self._left.add((task.namespace, task.queue, task.type))
        self._note_changed(ws)
        for task in claims.unassigned:
            if task.line is not Line.SUSPECT:
                self._positions.left(task)

    def _serve_or_tell(self, line: LineKey) -> None:
        """Serve claimable tasks that stayed in the store, or send hints if no offer here fits.

        Called after the deliveries: a slot that this batch has filled is no longer free.
        """
        group = line[:2]
        if any(line[2] in types for types, _ in self._book.wishes(group)):
            self.touch(group)
        else:
            self._replicas.tell(group)

    def _note_changed(self, ws: WorkingSet) -> None:
        """Keep what workers hold here what it is in the store.

        The suspects of a line are read again when one of them was assigned or has ended.
        """
        loaded = ws.tasks.loaded
        ended: defaultdict[str, list[str]] = defaultdict(list)
        for key, task in ws.tasks.changed.items():
            old = loaded.get(key)
            if task.is_guarded or (old is not None and old.is_guarded):
                self._positions.suspect_moved((task.namespace, task.queue, task.type))
            if old is None or old.worker_id is None:
                continue
            if task.finished_at_ms is not None or not _goes_on(task, old):
                ended[old.worker_id].append(task.id)
        for worker_id, task_ids in ended.items():
            self._to_look_at |= self._book.ended(worker_id, task_ids)

    def deliver(self, committed: Committed) -> None:
        """Deliver assigned tasks to their offers; tasks without a receiver go back at once."""
        by_offer: defaultdict[int, list[Task]] = defaultdict(list)
        for task, offer_id in committed.claims.assigned:
            by_offer[offer_id].append(task)
        for offer_id, given in by_offer.items():
            offer = self._find(offer_id)
            if offer is None or not offer.sink.is_open:
                # An offer that is gone gets no second hand-out; its edge knows what its end means.
                self._book.remove(offer_id)
                self.give_back(given)
            else:
                self._give(offer, given)
                self._to_look_at.add(offer.group)
        for offer_id, error in committed.claims.refused.items():
            self._refuse(offer_id, error)
        self._note_checked(committed.plan, by_offer)
        self._note_unable(committed)
        self._go_on()
        left, self._left = self._left, set()
        for line in left:
            self._serve_or_tell(line)

    def _note_checked(self, plan: ClaimPlan, served: Container[int]) -> None:
        """Note whose worker the batch has looked at; a poll that was served is gone."""
        for hand in plan.hands:
            if hand.is_new and hand.offer_id not in served:
                checked = self._find(hand.offer_id)
                if checked is not None:
                    checked.is_checked = True

    def _note_unable(self, committed: Committed) -> None:
        """Let those rest that can be given nothing now, so that others come before them."""
        claims = committed.claims
        for hand in committed.plan.hands if claims.late or claims.outdated else ():
            self._note_state(hand, claims)
        if committed.store_ahead_ms is not None:
            # Nothing is counted for a single write.
            self._counts = claims.counts
            for worker_id, count in claims.counts.items():
                self._to_look_at.update(self._book.counted(worker_id, count))

    def _note_state(self, hand: Hand, claims: ClaimResult) -> None:
        offer = self._book.get(hand.offer_id)
        if offer is None:
            return
        if hand.receiver_id in claims.late:
            self._book.found_late(offer)
            self._to_look_at.add(offer.group)
        elif offer.id in claims.outdated:
            offer.is_counted = True

    def _find(self, offer_id: int) -> Offer | None:
        return self._polls.get(offer_id) or self._book.get(offer_id)

    def _give(self, offer: Offer, given: Sequence[Task]) -> None:
        if offer.is_session:
            self._book.gave(offer, given)
            self.worker_activity.note(offer.receiver_id, self._clock.monotonic_ms())
        else:
            self._book.remove(offer.id)
        offer.sink.give(given)

    def _refuse(self, offer_id: int, error: TenureError) -> None:
        """End an offer that may get nothing; a session gets the reason unless it is old."""
        offer = self._find(offer_id)
        if offer is None:
            return
        if offer.is_session and isinstance(error, WorkerDraining):
            self.notifier.drain(offer.receiver_id)
            return
        reason = error.fields.get("reason")
        if offer.is_session and reason in _END_REASONS:
            self.notifier.end(offer.receiver_id, EndReason(reason))
            return
        self._book.remove(offer_id)
        if isinstance(offer.sink, Poll):
            offer.sink.fail(error)

    def give_back(self, tasks: Sequence[Task]) -> None:
        """Put back tasks that no worker received: pending again at once, without counting."""
        first = tasks[0]
        assert first.worker_id is not None
        refs = tuple(TaskRef(task.id, task.attempt) for task in tasks)
        self.post(
            ReturnUndelivered(namespace=first.namespace, worker_id=first.worker_id, items=refs)
        )

    def _go_on(self) -> None:
        """Go on handing out while a queue has more and somebody waits for it."""
        mono_ms = self._clock.monotonic_ms()
        groups, self._to_look_at = self._to_look_at, set()
        for group in groups:
            for wish in self._book.wishes(group):
                if self._has_backlog(group, wish, mono_ms) and self._has_room(group, wish):
                    self.touch(group)
                    break

    def _has_backlog(self, group: Group, wish: Wish, mono_ms: int) -> bool:
        types, takes_runs = wish
        positions, keys = self._positions, [(*group, each) for each in types]
        if any(positions.has_backlog(key, mono_ms) for key in keys):
            return True
        return takes_runs and any(map(positions.may_have_runs, keys))

    def _has_room(self, group: Group, wish: Wish) -> bool:
        return any(
            offer.sink.room_bytes >= PAYLOAD_BYTES_MAX and offer.wish[1] == wish[1]
            for offer in self._book.waiting(group, wish[0])
        )

    def touch(self, group: Group) -> None:
        """Read a queue with the next batch."""
        self._planner.dirty.add(group)
        self._kick()

    def look_for_work(self) -> None:
        """Look at every queue for which somebody waits: the fallback poll."""
        self._book.look_again()
        for group in list(self._book.groups()):
            self.touch(group)

    def hear(self, groups: Sequence[Group], *, is_all: bool = False) -> None:
        """Read queues from their head after a hint of another server."""
        for namespace, queue in list(self._book.groups()) if is_all else groups:
            self._positions.look_again(namespace, queue)
            self.touch((namespace, queue))

    def obey(self, disabled: frozenset[str]) -> None:
        """End the polls of namespaces that are disabled now; read the queues of the others.

        Their sessions stay: what they hold goes on.
        """
        ended, begun = disabled - self._disabled, self._disabled - disabled
        self._disabled = disabled
        if not ended and not begun:
            return
        for group in list(self._book.groups()):
            if group[0] in begun:
                self.hear([group])
            elif group[0] in ended:
                for offer in [each for each in self._book.in_group(group) if not each.is_session]:
                    self._refuse(offer.id, namespace_disabled(group[0]).to_error())

    # -- Sessions and effects

    def seat_session(self, command: AnyCommand, answer: object) -> None:
        """Add the offer of a command that has opened a session or taken a seat.

        An earlier session of the worker ends.
        """
        assert isinstance(command, OpenSession | TakeSeat | TakeEndpoint)
        if not isinstance(answer, SessionAnswer | SeatTaken | EndpointTaken):
            return
        earlier = self._book.session_of(command.worker_id)
        if earlier is not None:
            self._book.remove(earlier.id)
        worker = answer.worker
        group = (worker.namespace, worker.queue)
        is_draining = worker.status is WorkerStatus.DRAINING
        session = Offer(
            id=self._book.next_id(),
            receiver_id=worker.id,
            group=group,
            types=frozenset(worker.types),
            window=0 if is_draining else min(command.window, worker.slots),
            sink=command.sink,
            is_session=True,
            is_driven=not isinstance(command, OpenSession),
            times=answer.endpoint.spec.times if isinstance(answer, EndpointTaken) else None,
            is_checked=True,
            is_draining=is_draining,
            is_counted=False,
            session_no=worker.session_no,
            # Opening it was a write, which has raised the version.
            worker_version=worker.version + 1,
            slots=worker.slots,
            held={ref.task_id: ref.attempt for ref in answer.held},
        )
        self._book.add(session)
        self._positions.worker_came(group, session.types)
        if answer.cancel and not session.is_driven:
            self.notifier.signalled(session, answer.cancel)
        self.touch(group)

    def set_window(self, worker_id: str, window: int) -> None:
        """Change how many attempts a session accepts."""
        session = self._book.session_of(worker_id)
        if session is not None and not session.is_draining:
            self._book.set_window(session, window)
            self.touch(session.group)

    def held_count(self, worker_id: str) -> int:
        """Return how many attempts a session here holds, as far as this server knows."""
        session = self._book.session_of(worker_id)
        return 0 if session is None else len(session.held)

    def holds(self, worker_id: str, session_no: int, ref: TaskRef) -> bool:
        """Return whether a session here holds an attempt, as far as this server knows."""
        session = self._book.session_of(worker_id)
        if session is None or session.session_no != session_no:
            return False
        return session.held.get(ref.task_id) == ref.attempt

    def has_room(self, worker_id: str) -> None:
        """Continue with a session that had no room for payloads."""
        session = self._book.session_of(worker_id)
        if session is not None:
            self.touch(session.group)

    def end_session(self, worker_id: str, session_no: int) -> None:
        """Remove the offer of a session that has ended; a later one stays."""
        session = self._book.session_of(worker_id)
        if session is not None and session.session_no == session_no:
            self._book.remove(session.id)

    def perform(self, effect: AnyEffect) -> None:
        """Perform the effects of a committed decision; doing it twice does no harm."""
        match effect:
            case WakeQueue(namespace=namespace, queue=queue):
                self.touch((namespace, queue))
            case TellCancel(worker_id=worker_id):
                ref = TaskRef(effect.task_id, effect.attempt)
                self._or_tell(worker_id, is_told=self.notifier.cancel(worker_id, ref))
            case TellStop(worker_id=worker_id):
                self._or_tell(worker_id, is_told=self.notifier.stop(effect))
            case TellDrain(worker_id=worker_id):
                self._or_tell(worker_id, is_told=self.notifier.drain(worker_id))
            case TellEnded(worker_id=worker_id, reason=reason):
                log.info("worker.ended", worker_id=worker_id, reason=reason.value)
                self._or_tell(worker_id, is_told=self.notifier.end(worker_id, reason))
            case ReleaseHeld(worker_id=worker_id):
                self._release(worker_id)
            case TellFreed(worker_id=worker_id):
                is_here = self._book.session_of(worker_id) is not None
                self._or_tell(worker_id, is_told=is_here)
            case TellRun():
                # Not here: it goes with what was appended.
                pass
            case _:
                assert_never(effect)

    def _or_tell(self, worker_id: str, *, is_told: bool) -> None:
        """Send a hint to the server that has the session of a worker, if it is not this one."""
        if not is_told:
            self._replicas.tell_worker(worker_id)

    def _release(self, worker_id: str, kept_count: int = 0) -> None:
        """Put back the tasks of an offline worker; the service does it if this is lost."""
        amount = self._settings.work_batch_max + kept_count
        future = self.post(ReleaseHeldTasks(worker_id=worker_id, amount=amount))
        if future is not None:
            future.add_done_callback(lambda done: self._released(worker_id, done))

    def _released(self, worker_id: str, done: asyncio.Future[WorkDone]) -> None:
        if done.cancelled() or done.exception() is not None:
            return
        answer = done.result()
        if answer.has_more:
            self._release(worker_id, answer.kept_count)

    def post(self, command: Command[Answer]) -> asyncio.Future[Answer] | None:
        """Submit an internal command; timers and services make up for a refused one."""
        try:
            future = self._submit(command)
        except TenureError as error:
            log.info("effect.refused", command=type(command).__name__, error=error.code)
            return None
        future.add_done_callback(_look_at)
        return future


def _goes_on(task: Task, old: Task) -> bool:
    """Return whether the attempt that was held is held as before."""
    is_same = task.worker_id == old.worker_id and task.attempt == old.attempt
    return is_same and task.is_attempt_live


def _look_at(done: asyncio.Future[Any]) -> None:
    """Log the failure of a command that nobody waits for."""
    error = None if done.cancelled() else done.exception()
    # What a batch lost in an outage is counted already.
    if error is not None and not is_outage(error):
        log.info("effect.failed", error=str(error))
