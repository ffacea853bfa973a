"""Claims: which offers a batch may serve, from which lines, and the dealing of what was found.

The plan is made before the transaction, from memory. Inside, the workers are looked at under their
lock, the heads of the lines are taken, and rows and fresh tasks are dealt together: a task that is
enqueued while an offer waits for it is stored as dispatched (direct hand-out).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

import msgspec
from msgspec.structs import replace

from tenure.core import assignment as dealing
from tenure.core import queue as queue_rules
from tenure.core.assignment import Hand
from tenure.core.limits import BATCH_BYTES_MAX, PAYLOAD_BYTES_MAX, WORK_BATCH_MAX
from tenure.core.task.crash_guard import Suspects
from tenure.core.task.damage import DamagedPart
from tenure.core.task.effect import Decision, WakeQueue
from tenure.core.task.event import HandedOut
from tenure.core.task.record import ATTEMPT_HELD, Task
from tenure.core.worker import decide as worker_rules
from tenure.core.worker import lease as lease_rules
from tenure.core.worker.record import Worker
from tenure.engine.batch.working_set import WorkingSet
from tenure.engine.claim.offer import Group, Offer, OfferBook
from tenure.engine.claim.position import ClaimPositions, LineKey
from tenure.engine.command import AnyCommand
from tenure.engine.task import command as c
from tenure.errors import InvalidArgument, Rejection, TenureError
from tenure.store.table import queue as queue_table
from tenure.store.table import task as task_table
from tenure.store.table.task import Demand
from tenure.store.transaction import Tx


class ClaimPlan(msgspec.Struct, frozen=True):
    """Which offers may be served, and the probes that look for work for them.

    ``sole`` is what the probes would find, as far as this server knows.
    """

    hands: tuple[Hand, ...] = ()
    demands: tuple[Demand, ...] = ()
    is_direct: bool = True
    sole: Task | None = None

    @property
    def receivers(self) -> set[str]:
        """Return the workers that may be handed work."""
        return {hand.worker_id for hand in self.hands}


class ClaimResult(msgspec.Struct):
    """What a claim did: who gets what, who is late or refused, which probes saw which rows.

    Probes that were planned and not made, because nobody may receive, teach nothing.
    """

    dealt: list[tuple[Task, int]] = msgspec.field(default_factory=list)
    late: set[str] = msgspec.field(default_factory=set)
    refused: dict[int, TenureError] = msgspec.field(default_factory=dict)
    asked: tuple[Demand, ...] = ()
    seen: list[Task] = msgspec.field(default_factory=list)
    undealt: list[Task] = msgspec.field(default_factory=list)
    took_ms: int = 0
    room_bytes: int = BATCH_BYTES_MAX


class ClaimPlanner:
    """Chooses offers and probes for a batch."""

    def __init__(self, book: OfferBook, positions: ClaimPositions, *, is_direct: bool) -> None:
        """Plan from the offers and the marks of this server."""
        self._book = book
        self._positions = positions
        self._is_direct = is_direct
        self.dirty: set[Group] = set()

    def plan(
        self,
        commands: Sequence[AnyCommand],
        polls: Mapping[int, Offer],
        mono_ms: int,
    ) -> ClaimPlan:
        """Return what this batch may hand out, and to whom; ``polls`` are new ones."""
        groups: dict[Group, list[Offer]] = {group: [] for group in sorted(self.dirty)}
        self.dirty = set()
        for offer in polls.values():
            groups.setdefault(offer.group, []).append(offer)
        fresh, ending = self._expect(commands, groups)
        hands: list[Hand] = []
        demands: list[Demand] = []
        for group, new_offers in groups.items():
            choice = _Choice(self._positions, group, fresh, mono_ms)
            for offer in chain(self._book.in_group(group), new_offers):
                over = len(ending.get(offer.worker_id, ()))
                choice.consider(offer, over)
            hands += choice.hands
            for task_type, amount in choice.wanted.items():
                key = (*group, task_type)
                demands += self._positions.demands(key, min(amount, WORK_BATCH_MAX), mono_ms)
        sole = self._positions.sole(demands)
        return ClaimPlan(tuple(hands), tuple(demands), self._is_direct, sole)

    def _expect(
        self,
        commands: Sequence[AnyCommand],
        groups: dict[Group, list[Offer]],
    ) -> tuple[dict[LineKey, int], dict[str, set[str]]]:
        """Return how many tasks a batch enqueues, and what it ends of each session's."""
        fresh: dict[LineKey, int] = {}
        ending: dict[str, set[str]] = {}
        for command in commands:
            if type(command) is c.EnqueueTasks:
                for new in command.tasks:
                    key = (command.namespace, new.queue, new.type)
                    fresh[key] = fresh.get(key, 0) + 1
            elif type(command) is c.FinishTasks:
                self._note_refill(command, ending, groups)
        for namespace, queue, _ in fresh:
            groups.setdefault((namespace, queue), [])
        return fresh, ending

    def _note_refill(
        self,
        command: c.FinishTasks,
        ending: dict[str, set[str]],
        groups: dict[Group, list[Offer]],
    ) -> None:
        """Accepted completions free slots of a session, which this batch refills."""
        offer = self._book.session_of(command.worker_id or "")
        if offer is not None:
            held = offer.held
            # A set, because a completion that is sent twice frees its slot once.
            over = ending.setdefault(offer.worker_id, set())
            over.update(x.task_id for x in command.items if held.get(x.task_id) == x.attempt)
            groups.setdefault(offer.group, [])


class _Choice:
    """The longest-waiting offers of a queue, as many as what may be handed out needs."""

    def __init__(
        self,
        positions: ClaimPositions,
        group: Group,
        fresh: Mapping[LineKey, int],
        mono_ms: int,
    ) -> None:
        self._positions = positions
        self._group = group
        self._fresh = fresh
        self._mono_ms = mono_ms
        self._most: dict[str, int] = {}
        self.wanted: dict[str, int] = {}
        self.hands: list[Hand] = []

    def consider(self, offer: Offer, ending: int) -> None:
        is_new = not offer.is_checked
        credit = offer.credit(ending)
        room_bytes = offer.sink.room_bytes
        if (credit <= 0 or room_bytes < PAYLOAD_BYTES_MAX) and not is_new:
            # With less room it could not take the next task, whichever it is.
            return
        is_useful = False
        for task_type in offer.types:
            most = self._most.get(task_type)
            if most is None:
                most = self._find_most(task_type)
            wanted = self.wanted.get(task_type, 0)
            if wanted < most:
                self.wanted[task_type] = wanted + credit
                is_useful = True
        if is_useful or is_new:
            self.hands.append(
                Hand(
                    offer_id=offer.id,
                    worker_id=offer.worker_id,
                    namespace=offer.group[0],
                    queue=offer.group[1],
                    types=offer.types,
                    credit=credit,
                    session_no=offer.session_no,
                    is_new=is_new,
                    speaker=offer.speaker if is_new else None,
                    room_bytes=room_bytes,
                ),
            )

    def _find_most(self, task_type: str) -> int:
        """Return how many tasks of a type this batch may hand out at the most."""
        key = (*self._group, task_type)
        has_backlog = self._positions.has_backlog(key, self._mono_ms)
        most = self._most[task_type] = WORK_BATCH_MAX if has_backlog else self._fresh.get(key, 0)
        return most


async def hand_out(tx: Tx, ws: WorkingSet, plan: ClaimPlan) -> ClaimResult:
    """Phase 5: take the heads of the lines and deal them with what this batch made ready."""
    result = ClaimResult()
    result.late = _late_workers(ws)
    hands = [_within_slots(ws, hand) for hand in plan.hands if _may_receive(ws, hand, result)]
    if not hands:
        return result
    began_ms = ws.clock.monotonic_ms()
    result.asked = _enabled_demands(ws, plan)
    if result.asked:
        result.seen = await task_table.claim_tasks(tx, result.asked)
    result.took_ms = ws.clock.monotonic_ms() - began_ms
    ready = _ready_tasks(ws, plan, result.seen)
    if ready:
        suspects = await _suspects_held(tx, result.seen, hands)
        free = await _free_slots(tx, ws, ready)
        for group, tasks in ready.items():
            mine = [hand for hand in hands if (hand.namespace, hand.queue) == group]
            given = dealing.assign(
                tasks, mine, suspects, most=free[group], room_bytes=result.room_bytes
            )
            if len(ready) > 1:
                result.room_bytes -= sum(dealing.counted_bytes(task) for task, _ in given)
            await _hand_over(tx, ws, given, result)
    if result.seen:
        dealt = {(task.namespace, task.id) for task, _ in result.dealt}
        result.undealt = [task for task in result.seen if (task.namespace, task.id) not in dealt]
    return result


def _enabled_demands(ws: WorkingSet, plan: ClaimPlan) -> tuple[Demand, ...]:
    if not ws.disabled:
        return plan.demands
    return tuple(each for each in plan.demands if each.namespace not in ws.disabled)


async def _suspects_held(
    tx: Tx,
    seen: Iterable[Task],
    hands: Sequence[Hand],
) -> dict[str, Suspects]:
    """Return who holds suspects, if one is to be dealt; a fresh task never is."""
    if not any(task.is_guarded for task in seen):
        return {}
    holders = {(hand.namespace, hand.queue, hand.worker_id) for hand in hands}
    held: dict[str, Suspects] = {}
    for worker_id, progress in await task_table.load_suspects(tx, holders):
        held[worker_id] = held.get(worker_id, Suspects()).with_one_more(progress)
    return held


async def _hand_over(
    tx: Tx,
    ws: WorkingSet,
    dealt: Sequence[tuple[Task, Hand]],
    result: ClaimResult,
) -> None:
    """Decide the hand-outs, each with its input, of which large ones are read only now."""
    unread = [(task.namespace, task.id) for task, _ in dealt if task.unread_bytes]
    inputs = await task_table.load_inputs(tx, unread) if unread else {}
    events: dict[int, HandedOut] = {}
    for task, hand in dealt:
        key = (task.namespace, task.id)
        if task.unread_bytes and key not in inputs:
            ws.tasks[key] = replace(task, damaged=(DamagedPart.INPUT,))
            _refuse_damaged(ws, task)
            continue
        event = events.get(hand.offer_id)
        if event is None:
            event = HandedOut(worker_id=hand.worker_id, session_no=hand.session_no)
            events[hand.offer_id] = event
        decision = ws.apply(key, event)
        assert isinstance(decision, Decision)
        given = decision.task
        if given.unread_bytes:
            given = replace(given, input=inputs[key], unread_bytes=0)
        result.dealt.append((given, hand.offer_id))


def _may_receive(ws: WorkingSet, hand: Hand, result: ClaimResult) -> bool:
    """Look at the worker under its lock: a drain or an expiry comes before, or finds the task."""
    worker = ws.workers.get(hand.worker_id)
    if worker is not None and worker.namespace != hand.namespace:
        worker = None
    refusal = _refusal(worker, hand)
    if refusal is not None:
        result.refused[hand.offer_id] = refusal.to_error()
        return False
    assert worker is not None
    if hand.session_no and hand.session_no != worker.session_no:
        # Another server holds its present session; what is given to this one would be lost.
        result.refused[hand.offer_id] = worker_rules.inactive(worker.id, None).to_error()
        return False
    if hand.namespace in ws.disabled:
        _refuse_disabled(hand, result)
        return False
    return worker.id not in result.late and _is_registered_for(worker, hand, result)


def _refusal(worker: Worker | None, hand: Hand) -> Rejection | None:
    refusal = None
    if worker is not None and hand.speaker is not None:
        refusal = worker_rules.speaker_refusal(worker, hand.speaker)
    return refusal or worker_rules.hand_out_refusal(worker, hand.worker_id)


def _within_slots(ws: WorkingSet, hand: Hand) -> Hand:
    """Give a poll no more than its worker said that it can run, whatever it asks for."""
    slots = ws.workers[hand.worker_id].slots
    return hand if hand.credit <= slots else replace(hand, credit=slots)


def _refuse_disabled(hand: Hand, result: ClaimResult) -> None:
    """End a poll in a disabled namespace; a session stays for the sake of what it holds."""
    if not hand.session_no:
        error = queue_rules.namespace_disabled(hand.namespace).to_error()
        result.refused[hand.offer_id] = error


def _is_registered_for(worker: Worker, hand: Hand, result: ClaimResult) -> bool:
    if hand.is_new and (worker.queue != hand.queue or not hand.types.issubset(worker.types)):
        message = f"Worker {worker.id} is not registered for this queue and these types."
        result.refused[hand.offer_id] = InvalidArgument(message, field="types")
        return False
    return True


def _late_workers(ws: WorkingSet) -> set[str]:
    """Return who missed a heartbeat; their offers wait until they are heard again."""
    late = set()
    for worker_id, receiver in ws.rows.receivers.items():
        beat_at_ms, lease_ms = receiver.beat_at_ms, receiver.lease_ms
        if beat_at_ms is None or lease_ms is None:
            continue
        if lease_rules.is_late(beat_at_ms=beat_at_ms, lease_ms=lease_ms, now_ms=ws.now_ms):
            late.add(worker_id)
    return late


def _ready_tasks(
    ws: WorkingSet,
    plan: ClaimPlan,
    seen: Iterable[Task],
) -> dict[Group, list[Task]]:
    """Return what may be dealt: claimed rows that this batch left alone, and its fresh tasks."""
    ready: dict[Group, list[Task]] = {}
    for task in seen:
        if task.damaged:
            ws.tasks.setdefault((task.namespace, task.id), task)
            _refuse_damaged(ws, task)
            continue
        found = _met(ws, task)
        if found.line:
            ready.setdefault((task.namespace, task.queue), []).append(found)
    if plan.is_direct and ws.new_tasks:
        groups = {(hand.namespace, hand.queue) for hand in plan.hands}
        for task in ws.new_tasks.values():
            group = (task.namespace, task.queue)
            if task.line and group in groups:
                ready.setdefault(group, []).append(task)
    return ready


def _refuse_damaged(ws: WorkingSet, task: Task) -> None:
    """End a task that nobody may get; whoever might have got it looks for the next one."""
    key = (task.namespace, task.id)
    if key not in ws.changed_tasks:
        ws.fail_damaged(key)
        ws.effects.append(WakeQueue(task.namespace, task.queue))


def _met(ws: WorkingSet, seen: Task) -> Task:
    """Return a claimed row as this batch knows it; what a command has loaded has no input."""
    key = (seen.namespace, seen.id)
    known = ws.tasks.get(key, seen)
    if known is not seen and known.line:
        known = replace(known, input=seen.input, unread_bytes=seen.unread_bytes)
    ws.tasks[key] = known
    return known


async def _free_slots(
    tx: Tx,
    ws: WorkingSet,
    groups: dict[Group, list[Task]],
) -> dict[Group, int]:
    """Return how many tasks each queue lets out; only one with a limit is locked and counted."""
    queues = {key: ws.rows.brakes[key] for key in groups if key in ws.rows.brakes}
    queues.update((key, ws.queues[key]) for key in groups if key in ws.changed_queues)
    limited = [key for key, queue in queues.items() if queue.concurrency_max]
    held: dict[Group, int] = {}
    if limited:
        for locked in await queue_table.lock_queues(tx, limited):
            queues[locked.namespace, locked.name] = locked
        queues.update((key, ws.queues[key]) for key in groups if key in ws.changed_queues)
        held = await task_table.count_held(tx, limited)
        for key in limited:
            held[key] -= _freed(ws, key)
    free = {}
    for group, tasks in groups.items():
        queue = queues.get(group)
        free[group] = len(tasks)
        if queue is not None:
            free[group] = queue_rules.free_slots(
                queue,
                held_count=held.get(group, 0),
                wanted=len(tasks),
            )
    return free


def _freed(ws: WorkingSet, group: Group) -> int:
    """Count the attempts of a queue that this batch has ended and not saved yet."""
    return sum(
        _is_held(ws.rows.tasks[key]) and not _is_held(task)
        for key, task in ws.changed_tasks.items()
        if (task.namespace, task.queue) == group and key in ws.rows.tasks
    )


def _is_held(task: Task) -> bool:
    """Tell whether a worker holds the task; one that is completed from elsewhere is nobody's."""
    return task.worker_id is not None and task.state in ATTEMPT_HELD
