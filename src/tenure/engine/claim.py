"""Claims: which offers a batch may serve, from which lines, and the dealing of what was found.

The plan is made before the transaction, from memory. Inside, the workers are looked at under their
lock, the heads of the lines are taken, and rows and fresh tasks are dealt together: a task that is
enqueued while an offer waits for it is stored as dispatched (direct hand-out).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from tenure.core import deal as dealing
from tenure.core import queue as queue_rules
from tenure.core import worker as worker_rules
from tenure.core.deal import Hand
from tenure.core.limits import WORK_BATCH_MAX
from tenure.core.task import Decision
from tenure.core.task_event import HandedOut
from tenure.core.task_record import ATTEMPT_HELD, Line, Task
from tenure.engine import command as c
from tenure.engine.mark import LineKey, Marks
from tenure.engine.offer import Group, Offer, OfferBook
from tenure.engine.working_set import WorkingSet
from tenure.errors import InvalidArgument, TenureError
from tenure.store import table
from tenure.store.table import Demand, TaskKey
from tenure.store.transaction import Tx


class Seat(msgspec.Struct, frozen=True):
    """An offer as it stood when the batch was planned."""

    offer_id: int
    worker_id: str
    group: Group
    types: frozenset[str]
    credit: int
    session_no: int
    is_new: bool


class ClaimPlan(msgspec.Struct, frozen=True):
    """Which offers may be served, and the probes that look for work for them."""

    seats: tuple[Seat, ...] = ()
    demands: tuple[Demand, ...] = ()
    is_direct: bool = True

    @property
    def receivers(self) -> set[str]:
        """Return the workers that may be handed work."""
        return {seat.worker_id for seat in self.seats}


class Dealt(msgspec.Struct, frozen=True):
    """A task that was handed out to an offer."""

    offer_id: int
    key: TaskKey


class ClaimResult(msgspec.Struct):
    """What a claim did: who gets what, who was refused, which rows were seen."""

    dealt: list[Dealt] = msgspec.field(default_factory=list)
    refused: dict[int, TenureError] = msgspec.field(default_factory=dict)
    seen: list[Task] = msgspec.field(default_factory=list)
    undealt: list[Task] = msgspec.field(default_factory=list)
    took_ms: int = 0


class ClaimPlanner:
    """Chooses offers and probes for a batch."""

    def __init__(self, book: OfferBook, marks: Marks, *, is_direct: bool) -> None:
        """Plan from the offers and the marks of this server."""
        self._book = book
        self._marks = marks
        self._is_direct = is_direct
        self.dirty: set[Group] = set()

    def plan(
        self,
        commands: Sequence[c.WorkCommand],
        new_offers: set[int],
        mono_ms: int,
    ) -> ClaimPlan:
        """Return what this batch may hand out, and to whom."""
        fresh: Counter[LineKey] = Counter()
        ending: dict[str, int] = {}
        groups = self.dirty
        self.dirty = set()
        for offer_id in new_offers:
            offer = self._book.get(offer_id)
            if offer is not None:
                groups.add(offer.group)
        for command in commands:
            if type(command) is c.EnqueueTasks:
                for new in command.tasks:
                    fresh[command.namespace, new.queue, new.type] += 1
            elif type(command) is c.FinishTasks and command.worker_id is not None:
                self._note_refill(command, ending, groups)
        groups.update((namespace, queue) for namespace, queue, _ in fresh)
        if not groups:
            return ClaimPlan()
        seats: list[Seat] = []
        demands: list[Demand] = []
        for group in sorted(groups):
            self._plan_group(group, fresh, ending, new_offers, mono_ms, seats, demands)
        return ClaimPlan(tuple(seats), tuple(demands), self._is_direct)

    def _note_refill(
        self,
        command: c.FinishTasks,
        ending: dict[str, int],
        groups: set[Group],
    ) -> None:
        """Accepted completions free slots of a session, which this batch refills."""
        worker_id = command.worker_id
        assert worker_id is not None
        for offer in self._book.of_worker(worker_id):
            if offer.is_session:
                over = {c.TaskRef(item.task_id, item.attempt) for item in command.items}
                ending[worker_id] = ending.get(worker_id, 0) + len(over & offer.held)
                groups.add(offer.group)

    def _plan_group(  # noqa: PLR0913 (the state of one plan)
        self,
        group: Group,
        fresh: Counter[LineKey],
        ending: dict[str, int],
        new_offers: set[int],
        mono_ms: int,
        seats: list[Seat],
        demands: list[Demand],
    ) -> None:
        """Seat the longest-waiting offers until there are enough for what may be handed out."""
        wanted: dict[str, int] = {}
        backlog: dict[str, bool] = {}
        for offer in self._book.in_group(group):
            is_new = offer.id in new_offers
            credit = min(offer.credit(ending.get(offer.worker_id, 0)), WORK_BATCH_MAX)
            if credit <= 0 and not is_new:
                continue
            useful = [
                task_type
                for task_type in sorted(offer.types)
                if self._may_have(group, task_type, fresh, backlog, mono_ms)
                and wanted.get(task_type, 0) < self._most(group, task_type, fresh, backlog)
            ]
            if not useful and not is_new:
                continue
            for task_type in useful:
                wanted[task_type] = wanted.get(task_type, 0) + credit
            seats.append(_seat(offer, credit, is_new=is_new))
        for task_type, amount in wanted.items():
            key = (*group, task_type)
            demands.extend(self._marks.demands(key, min(amount, WORK_BATCH_MAX), mono_ms))

    def _may_have(
        self,
        group: Group,
        task_type: str,
        fresh: Counter[LineKey],
        backlog: dict[str, bool],
        mono_ms: int,
    ) -> bool:
        if task_type not in backlog:
            backlog[task_type] = self._marks.has_backlog((*group, task_type), mono_ms)
        return backlog[task_type] or fresh[*group, task_type] > 0

    def _most(
        self,
        group: Group,
        task_type: str,
        fresh: Counter[LineKey],
        backlog: dict[str, bool],
    ) -> int:
        """Return how many tasks of a type this batch may hand out at the most."""
        return WORK_BATCH_MAX if backlog[task_type] else fresh[*group, task_type]


def _seat(offer: Offer, credit: int, *, is_new: bool) -> Seat:
    return Seat(
        offer.id,
        offer.worker_id,
        offer.group,
        offer.types,
        credit,
        offer.session_no,
        is_new,
    )


async def hand_out(tx: Tx, ws: WorkingSet, plan: ClaimPlan) -> ClaimResult:
    """Phase 5: take the heads of the lines and deal them with what this batch made ready."""
    result = ClaimResult()
    seats = [seat for seat in plan.seats if _may_receive(ws, seat, result)]
    if not seats:
        return result
    began_ms = ws.clock.monotonic_ms()
    if plan.demands:
        result.seen = await table.claim_tasks(tx, plan.demands)
    result.took_ms = ws.clock.monotonic_ms() - began_ms
    ready = _ready_tasks(ws, plan, result.seen)
    if not ready:
        return result
    groups: dict[Group, list[Task]] = {}
    for task in ready:
        groups.setdefault((task.namespace, task.queue), []).append(task)
    guarded = await _guarded_holders(tx, ready, seats)
    free = await _free_slots(tx, ws, groups)
    for group, tasks in groups.items():
        _deal_group(ws, tasks, free[group], [s for s in seats if s.group == group], guarded, result)
    dealt = {each.key for each in result.dealt}
    result.undealt = [task for task in result.seen if (task.namespace, task.id) not in dealt]
    return result


def _may_receive(ws: WorkingSet, seat: Seat, result: ClaimResult) -> bool:
    """Look at the worker under its lock: a drain or an expiry comes before, or finds the task."""
    worker = ws.workers.get(seat.worker_id)
    if worker is not None and worker.namespace != seat.group[0]:
        worker = None
    refusal = worker_rules.hand_out_refusal(worker, seat.worker_id)
    if refusal is not None:
        result.refused[seat.offer_id] = refusal.to_error()
        return False
    assert worker is not None
    if seat.is_new and (worker.queue != seat.group[1] or not seat.types <= set(worker.types)):
        message = f"Worker {worker.id} is not registered for this queue and these types."
        result.refused[seat.offer_id] = InvalidArgument(message, field="types")
        return False
    return True


def _ready_tasks(ws: WorkingSet, plan: ClaimPlan, seen: Iterable[Task]) -> list[Task]:
    """Return what may be dealt: claimed rows that this batch left alone, and its fresh tasks."""
    ready = []
    for task in seen:
        key = (task.namespace, task.id)
        if key not in ws.tasks:
            ws.tasks[key] = task
        if ws.tasks[key].line is not Line.NONE:
            ready.append(ws.tasks[key])
    if plan.is_direct:
        groups = {seat.group for seat in plan.seats}
        ready.extend(
            task
            for task in ws.new_tasks.values()
            if task.line is not Line.NONE and (task.namespace, task.queue) in groups
        )
    return ready


async def _guarded_holders(tx: Tx, ready: Iterable[Task], seats: Sequence[Seat]) -> set[str]:
    if not any(task.is_guarded for task in ready):
        return set()
    return await table.load_guarded_holders(tx, {seat.worker_id for seat in seats})


async def _free_slots(
    tx: Tx,
    ws: WorkingSet,
    groups: dict[Group, list[Task]],
) -> dict[Group, int]:
    """Return how many tasks each queue lets out; only one with a limit is locked and counted."""
    queues = {(each.namespace, each.name): each for each in await table.read_queues(tx, groups)}
    queues.update((key, ws.queues[key]) for key in groups if key in ws.changed_queues)
    limited = [key for key, queue in queues.items() if queue.concurrency_max]
    held: dict[Group, int] = {}
    if limited:
        for locked in await table.lock_queues(tx, limited):
            queues[locked.namespace, locked.name] = locked
        queues.update((key, ws.queues[key]) for key in groups if key in ws.changed_queues)
        held = await table.count_held(tx, limited)
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
        ws.rows.tasks[key].state in ATTEMPT_HELD and task.state not in ATTEMPT_HELD
        for key, task in ws.changed_tasks.items()
        if (task.namespace, task.queue) == group and key in ws.rows.tasks
    )


def _deal_group(
    ws: WorkingSet,
    tasks: list[Task],
    free: int,
    seats: Sequence[Seat],
    guarded: set[str],
    result: ClaimResult,
) -> None:
    if free < len(tasks):
        tasks = sorted(tasks, key=dealing.order)[:free]
    sessions = {seat.offer_id: seat.session_no for seat in seats}
    hands = [
        Hand(
            offer_id=seat.offer_id,
            worker_id=seat.worker_id,
            types=seat.types,
            credit=seat.credit,
            turn=turn,
            holds_guarded=seat.worker_id in guarded,
        )
        for turn, seat in enumerate(seats)
    ]
    for each in dealing.deal(tasks, hands):
        key = (each.task.namespace, each.task.id)
        event = HandedOut(worker_id=each.worker_id, session_no=sessions[each.offer_id])
        decision = ws.apply(key, event)
        assert isinstance(decision, Decision)
        result.dealt.append(Dealt(each.offer_id, key))
