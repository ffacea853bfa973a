"""The hand-outs of a batch: receivers under their lock, heads of lines, and the assignment.

Rows that were claimed and fresh tasks are assigned together: a task that is enqueued while an offer
waits for it is stored as dispatched (direct hand-out).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from tenure.core import assignment
from tenure.core import queue as queue_rules
from tenure.core.assignment import Count, Hand
from tenure.core.limits import BATCH_BYTES_MAX
from tenure.core.task.crash_guard import Suspects
from tenure.core.task.damage import DamagedPart
from tenure.core.task.effect import Decision, WakeQueue
from tenure.core.task.event import HandedOut
from tenure.core.task.record import ATTEMPT_HELD, Task
from tenure.core.worker import decide as worker_rules
from tenure.core.worker.record import Worker
from tenure.engine.batch.working_set import WorkingSet
from tenure.engine.claim.offer import Group
from tenure.engine.claim.plan import ClaimPlan
from tenure.engine.run.hand_out_page import has_journal, with_pages
from tenure.errors import InvalidArgument, Rejection, TenureError
from tenure.store.table import listing
from tenure.store.table import queue as queue_table
from tenure.store.table import task as task_table
from tenure.store.table.queue import QueueRows
from tenure.store.table.task import Demand, TaskKey
from tenure.store.transaction import Tx


class ClaimResult(msgspec.Struct):
    """What a claim did: assignments, late and refused offers, which probes saw which rows.

    Probes that were planned and not made, because nobody may receive, teach nothing. ``counts`` is
    what workers have free after it. Of ``outdated`` sessions this server does not know all that
    they hold: they are counted from now on.
    """

    assigned: list[tuple[Task, int]] = msgspec.field(default_factory=list)
    late: set[str] = msgspec.field(default_factory=set)
    outdated: set[int] = msgspec.field(default_factory=set)
    counts: dict[str, Count] = msgspec.field(default_factory=dict)
    refused: dict[int, TenureError] = msgspec.field(default_factory=dict)
    asked: tuple[Demand, ...] = ()
    seen: list[Task] = msgspec.field(default_factory=list)
    unassigned: list[Task] = msgspec.field(default_factory=list)
    took_ms: int = 0
    room_bytes: int = BATCH_BYTES_MAX
    has_runs: bool = False


async def hand_out(tx: Tx, ws: WorkingSet, plan: ClaimPlan) -> ClaimResult:
    """Phase 5: take the heads of the lines and assign them with the tasks of this batch."""
    result = ClaimResult()
    if not plan.hands:
        return result
    result.late = _late_receivers(ws)
    hands = _receiving(ws, plan, result)
    if not hands:
        return result
    result.counts = await _count(tx, ws, hands, result)
    began_ms = ws.clock.monotonic_ms()
    result.asked = _enabled_demands(ws, plan)
    if result.asked:
        result.seen = await task_table.claim_tasks(tx, result.asked)
    result.took_ms = ws.clock.monotonic_ms() - began_ms
    ready = _ready_tasks(ws, plan, hands, result.seen)
    woken = _woken(ws, plan, hands, result.seen)
    if woken:
        await _add_woken(tx, ws, woken, ready)
    if ready:
        await _assign(tx, ws, ready, hands, result)
    if result.has_runs:
        result.assigned = await with_pages(tx, ws, result.assigned)
    if woken:
        _drop_wakes(ws, woken)
    if result.seen:
        result.unassigned = _unassigned(result)
    return result


def _unassigned(result: ClaimResult) -> list[Task]:
    taken = {(task.namespace, task.id) for task, _ in result.assigned}
    return [each for each in result.seen if (each.namespace, each.id) not in taken]


async def _assign(
    tx: Tx,
    ws: WorkingSet,
    ready: dict[Group, list[Task]],
    hands: Mapping[Group, Sequence[Hand]],
    result: ClaimResult,
) -> None:
    """Assign the tasks of each queue to the offers that wait for them."""
    suspects = await _suspects_held(tx, result.seen, hands)
    free = await _free_slots(tx, ws, ready)
    for group, tasks in ready.items():
        given = assignment.assign(
            tasks,
            hands.get(group, ()),
            suspects,
            counts=result.counts,
            most=free[group],
            room_bytes=result.room_bytes,
        )
        if len(ready) > 1:
            result.room_bytes -= sum(assignment.counted_bytes(task) for task, _ in given)
        await _hand_over(tx, ws, given, result)
        _note_given(ws, given, result)


def _note_given(ws: WorkingSet, given: Sequence[tuple[Task, Hand]], result: ClaimResult) -> None:
    """Note what counted workers have left; who has a session elsewhere has to hear of it.

    The server of that session knows only of its own hand-outs. The raised version of the worker
    tells it that there are others.
    """
    counts = result.counts
    if not counts:
        return
    given_counts = Counter([(hand.receiver_id, hand.session_no) for _, hand in given])
    for (worker_id, session_no), given_count in given_counts.items():
        if worker_id in counts:
            counts[worker_id].free -= given_count
            if not session_no and ws.workers[worker_id].session_no:
                ws.workers.put(ws.workers[worker_id])


def _enabled_demands(ws: WorkingSet, plan: ClaimPlan) -> tuple[Demand, ...]:
    if not ws.namespaces.disabled:
        return plan.demands
    return tuple(each for each in plan.demands if each.namespace not in ws.namespaces.disabled)


async def _suspects_held(
    tx: Tx, seen: Iterable[Task], hands: Mapping[Group, Sequence[Hand]]
) -> dict[str, Suspects]:
    """Return which receivers hold suspects, if one is to be assigned; a fresh task never is."""
    if not any(task.is_guarded for task in seen):
        return {}
    holders = {(*group, hand.receiver_id) for group, mine in hands.items() for hand in mine}
    held: dict[str, Suspects] = {}
    for worker_id, progress in await task_table.load_suspects(tx, holders):
        held[worker_id] = held.get(worker_id, Suspects()).with_one_more(progress)
    return held


async def _hand_over(
    tx: Tx, ws: WorkingSet, assigned: Sequence[tuple[Task, Hand]], result: ClaimResult
) -> None:
    """Decide the hand-outs, each with its input; large inputs are read only now."""
    unread = [(task.namespace, task.id) for task, _ in assigned if task.unread_bytes]
    inputs: dict[TaskKey, bytes] = {}
    if unread:
        inputs = await task_table.load_inputs(tx, unread)
        assigned = _readable(ws, assigned, inputs)
    ends = await _journal_ends(tx, ws, assigned)
    events: dict[int, HandedOut] = {}
    for task, hand in assigned:
        key = (task.namespace, task.id)
        event = events.get(hand.offer_id)
        if event is None:
            event = HandedOut(
                worker_id=hand.receiver_id, session_no=hand.session_no, times=hand.times
            )
            events[hand.offer_id] = event
        if ends and key in ends:
            event = replace(event, journal_end=ends[key])
            result.has_runs = True
        decision = ws.apply(key, event)
        assert isinstance(decision, Decision)
        given = decision.task
        if given.unread_bytes:
            given = replace(given, input=inputs[key], unread_bytes=0)
        result.assigned.append((given, hand.offer_id))


def _readable(
    ws: WorkingSet, assigned: Iterable[tuple[Task, Hand]], inputs: Mapping[TaskKey, bytes]
) -> list[tuple[Task, Hand]]:
    """Return what may be handed out; a task whose large input is damaged ends."""
    found = []
    for task, hand in assigned:
        key = (task.namespace, task.id)
        if not task.unread_bytes or key in inputs:
            found.append((task, hand))
        else:
            ws.tasks[key] = replace(task, damaged=(DamagedPart.INPUT,))
            _refuse_damaged(ws, task)
    return found


async def _journal_ends(
    tx: Tx, ws: WorkingSet, assigned: Sequence[tuple[Task, Hand]]
) -> dict[TaskKey, int]:
    """Return where the journals of runs end that are handed out."""
    runs = [task for task, _ in assigned if task.link is not None and has_journal(task)]
    if not runs:
        return {}
    await ws.journals.learn_ends(tx, runs)
    keys = [(task.namespace, task.id) for task in runs]
    return {key: ws.journals.ends[key].pos for key in keys}


def _receiving(ws: WorkingSet, plan: ClaimPlan, result: ClaimResult) -> dict[Group, list[Hand]]:
    """Return who may be handed work, by queue; of polls that are alike one is looked at."""
    found: dict[Group, list[Hand]] = {}
    accepted: dict[tuple[object, ...], list[Hand]] = {}
    for hand in plan.hands:
        kind = (
            hand.receiver_id,
            hand.namespace,
            hand.queue,
            hand.types,
            hand.session_no,
            hand.speaker,
            hand.is_new,
        )
        mine = accepted.get(kind)
        if mine is None:
            if not _may_receive(ws, hand, result):
                continue
            mine = found.setdefault((hand.namespace, hand.queue), [])
            accepted[kind] = mine
        mine.append(hand)
    return found


def _may_receive(ws: WorkingSet, hand: Hand, result: ClaimResult) -> bool:
    """Check the receiver under its lock: a drain or expiry comes before, or finds the task."""
    worker = ws.workers.get(hand.receiver_id)
    if worker is not None and worker.namespace != hand.namespace:
        worker = None
    refusal = _refusal(worker, hand)
    if refusal is not None:
        result.refused[hand.offer_id] = refusal.to_error()
        return False
    assert worker is not None
    if hand.session_no and hand.session_no != worker.session_no:
        # Another server has its present session; a task for this one would be lost.
        result.refused[hand.offer_id] = worker_rules.inactive(worker.id, None).to_error()
        return False
    if hand.namespace in ws.namespaces.disabled:
        _refuse_disabled(hand, result)
        return False
    if hand.session_no and not hand.is_counted and hand.worker_version != worker.version:
        result.outdated.add(hand.offer_id)
    return worker.id not in result.late and _is_registered_for(worker, hand, result)


def _refusal(worker: Worker | None, hand: Hand) -> Rejection | None:
    refusal = None
    if worker is not None and hand.speaker is not None:
        refusal = worker_rules.speaker_refusal(worker, hand.speaker)
    if worker is not None and not hand.session_no:
        refusal = refusal or worker_rules.served_refusal(worker)
    return refusal or worker_rules.hand_out_refusal(worker, hand.receiver_id)


async def _count(
    tx: Tx, ws: WorkingSet, hands: Mapping[Group, Sequence[Hand]], result: ClaimResult
) -> dict[str, Count]:
    """Return what the workers have free whose attempts are counted under their lock."""
    held = {
        worker_id: each.held_count
        for worker_id, each in ws.rows.receivers.items()
        if each.held_count is not None
    }
    if result.outdated:
        places = [
            (*group, hand.receiver_id)
            for group, mine in hands.items()
            for hand in mine
            if hand.offer_id in result.outdated
        ]
        for worker_id, each in (await listing.count_worker_held(tx, places)).items():
            held[worker_id] = each.count
    if not held:
        return {}
    slots = {worker_id: ws.workers[worker_id].slots for worker_id in held}
    freed = _freed_of(ws, held)
    return {key: Count(slots[key] - held[key] + freed[key], slots[key]) for key in held}


def _freed_of(ws: WorkingSet, workers: Container[str]) -> Counter[str]:
    """Count the attempts of workers that this batch has ended and not saved yet."""
    freed: Counter[str] = Counter()
    loaded = ws.tasks.loaded
    for key, task in ws.tasks.changed.items():
        old = loaded.get(key)
        if old is None or old.worker_id not in workers or old.state not in ATTEMPT_HELD:
            continue
        is_same = task.worker_id == old.worker_id and task.attempt == old.attempt
        if not is_same or task.state not in ATTEMPT_HELD:
            assert old.worker_id is not None
            freed[old.worker_id] += 1
    return freed


def _refuse_disabled(hand: Hand, result: ClaimResult) -> None:
    """End a poll in a disabled namespace; a session stays because of the tasks it holds."""
    if not hand.session_no:
        error = queue_rules.namespace_disabled(hand.namespace).to_error()
        result.refused[hand.offer_id] = error


def _is_registered_for(worker: Worker, hand: Hand, result: ClaimResult) -> bool:
    if not hand.is_new:
        return True
    if worker.queue != hand.queue:
        message = f"queue must be that of worker {worker.id}: {worker.queue}"
        result.refused[hand.offer_id] = InvalidArgument(message, field="queue")
    elif not hand.types.issubset(worker.types):
        message = f"types must be among those that worker {worker.id} was registered with"
        result.refused[hand.offer_id] = InvalidArgument(message, field="types")
    return hand.offer_id not in result.refused


def _late_receivers(ws: WorkingSet) -> set[str]:
    """Return the late workers; their offers wait until the next heartbeat."""
    return {key for key, each in ws.rows.receivers.items() if each.is_late(ws.now_ms)}


def _ready_tasks(
    ws: WorkingSet, plan: ClaimPlan, groups: Container[Group], seen: Iterable[Task]
) -> dict[Group, list[Task]]:
    """Return what may be assigned: claimed rows that did not change, and fresh tasks."""
    ready: dict[Group, list[Task]] = {}
    for task in seen:
        if task.damaged:
            ws.tasks.setdefault((task.namespace, task.id), task)
            _refuse_damaged(ws, task)
            continue
        found = _met(ws, task)
        if found.line:
            ready.setdefault((task.namespace, task.queue), []).append(found)
    if plan.is_direct and ws.tasks.new:
        for task in ws.tasks.new.values():
            group = (task.namespace, task.queue)
            if task.line and group in groups:
                ready.setdefault(group, []).append(task)
    return ready


def _woken(
    ws: WorkingSet, plan: ClaimPlan, groups: Container[Group], seen: Iterable[Task]
) -> list[Task]:
    """Return runs that this batch has made pending; a suspect of the crash guard waits."""
    if not plan.is_direct or not ws.tasks.changed:
        return []
    known = {(task.namespace, task.id) for task in seen}
    return [
        task
        for key, task in ws.tasks.changed.items()
        if task.line
        and task.link is not None
        and task.link.journal_id is not None
        and not task.is_guarded
        and (task.namespace, task.queue) in groups
        and key not in known
    ]


async def _add_woken(
    tx: Tx, ws: WorkingSet, woken: Sequence[Task], ready: dict[Group, list[Task]]
) -> None:
    """Let woken runs be assigned with the others; their rows were loaded without inputs."""
    # One that begins anew has its next input, which is not stored yet.
    stored = [(task.namespace, task.id) for task in woken]
    stored = [key for key in stored if key not in ws.tasks.reinput]
    inputs = await task_table.look_inputs(tx, stored) if stored else {}
    for task in woken:
        key = (task.namespace, task.id)
        if key in inputs or key in ws.tasks.reinput:
            content, size = inputs.get(key, (task.input, 0))
            given = replace(task, input=content, unread_bytes=size)
            ws.tasks[key] = given
            ready.setdefault((task.namespace, task.queue), []).append(given)


def _drop_wakes(ws: WorkingSet, woken: Iterable[Task]) -> None:
    """Forget that woken runs are in line, if this batch has handed them out."""
    given = Counter(
        (task.namespace, task.queue) for task in woken if not ws.tasks[task.namespace, task.id].line
    )
    effects, ws.effects = ws.effects, []
    for effect in effects:
        group = (effect.namespace, effect.queue) if isinstance(effect, WakeQueue) else None
        if group is not None and given[group] > 0:
            given[group] -= 1
        else:
            ws.effects.append(effect)


def _refuse_damaged(ws: WorkingSet, task: Task) -> None:
    """End a task that nobody may get; the offers then look for the next one."""
    key = (task.namespace, task.id)
    if key not in ws.tasks.changed:
        ws.fail_damaged(key)
        ws.effects.append(WakeQueue(task.namespace, task.queue))


def _met(ws: WorkingSet, seen: Task) -> Task:
    """Return a claimed row as this batch knows it; a row that a command loaded has no input."""
    key = (seen.namespace, seen.id)
    known = ws.tasks.get(key, seen)
    if known is not seen and known.line:
        known = replace(known, input=seen.input, unread_bytes=seen.unread_bytes)
    ws.tasks[key] = known
    return known


async def _free_slots(tx: Tx, ws: WorkingSet, groups: dict[Group, list[Task]]) -> dict[Group, int]:
    """Return how many tasks each queue may hand out; only limited queues are locked and counted."""
    free = {group: len(tasks) for group, tasks in groups.items()}
    if ws.rows.receivers.brakes or QueueRows in ws.rows.made:
        free |= await _braked_slots(tx, ws, groups)
    return free


async def _braked_slots(
    tx: Tx, ws: WorkingSet, groups: dict[Group, list[Task]]
) -> dict[Group, int]:
    """Return the same for the queues that are paused or limited."""
    brakes, changed = ws.rows.receivers.brakes, ws.queues.changed
    queues = {key: brakes[key] for key in groups if key in brakes}
    queues.update((key, changed[key]) for key in groups if key in changed)
    limited = [key for key, queue in queues.items() if queue.concurrency_max]
    held: dict[Group, int] = {}
    if limited:
        for locked in await queue_table.lock_queues(tx, limited):
            queues[locked.namespace, locked.name] = locked
        queues.update((key, changed[key]) for key in groups if key in changed)
        held = await task_table.count_held(tx, limited)
        for key in limited:
            held[key] -= _freed(ws, key)
    return {
        group: queue_rules.free_slots(
            queue, held_count=held.get(group, 0), wanted=len(groups[group])
        )
        for group, queue in queues.items()
    }


def _freed(ws: WorkingSet, group: Group) -> int:
    """Count the attempts of a queue that this batch has ended and not saved yet."""
    return sum(
        _is_held(ws.tasks.loaded[key]) and not _is_held(task)
        for key, task in ws.tasks.changed.items()
        if (task.namespace, task.queue) == group and key in ws.tasks.loaded
    )


def _is_held(task: Task) -> bool:
    """Return whether a worker holds the task; a task that is completed from outside has none."""
    return task.worker_id is not None and task.state in ATTEMPT_HELD
