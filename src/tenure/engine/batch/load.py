"""Phase 1 of a batch: load the union of what its commands need, in one lock order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from tenure.core.access.api_key import ApiKey
from tenure.core.limits import CONTROL_SEEN_MAX, CONTROL_WINDOW_MS, SIGHT_STALL_MS
from tenure.core.queue import Namespace, Queue
from tenure.core.task import crash_guard
from tenure.core.task.attempt import Attempt
from tenure.core.task.crash_guard import ControlGroup
from tenure.core.task.record import Task
from tenure.core.worker import judge as judge_rules
from tenure.core.worker import judge_readiness as readiness_rules
from tenure.core.worker.judge import StaleServer
from tenure.core.worker.lease import Lease
from tenure.core.worker.record import EndReason, Worker
from tenure.engine import command as c
from tenure.engine.batch.row_needs import Needs
from tenure.store.table import access as access_table
from tenure.store.table import idempotency as idempotency_table
from tenure.store.table import lease as lease_table
from tenure.store.table import queue as queue_table
from tenure.store.table import task as task_table
from tenure.store.table import worker as worker_table
from tenure.store.table.idempotency import Key
from tenure.store.table.lease import Lapsed
from tenure.store.table.task import TaskKey
from tenure.store.table.worker import Receiver
from tenure.store.transaction import Tx


class Rows(msgspec.Struct):
    """What was loaded. ``cached`` names the tasks that were not read, only remembered.

    ``namespaces`` are those that exist, ``disabled`` some of them. ``access_version`` is there if
    this transaction may change access.
    """

    now_ms: int = 0
    shared_at_ms: int | None = None
    receivers: dict[str, Receiver] = msgspec.field(default_factory=dict)
    brakes: dict[tuple[str, str], Queue] = msgspec.field(default_factory=dict)
    tasks: dict[TaskKey, Task] = msgspec.field(default_factory=dict)
    cached: set[TaskKey] = msgspec.field(default_factory=set)
    ended: dict[tuple[str, str, int], Attempt] = msgspec.field(default_factory=dict)
    workers: dict[str, Worker] = msgspec.field(default_factory=dict)
    leases: dict[str, Lease] = msgspec.field(default_factory=dict)
    ended_leases: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)
    keys: dict[tuple[str, str], Key] = msgspec.field(default_factory=dict)
    queues: dict[tuple[str, str], Queue] = msgspec.field(default_factory=dict)
    namespaces: set[str] = msgspec.field(default_factory=set)
    disabled: set[str] = msgspec.field(default_factory=set)
    administered: dict[str, Namespace] = msgspec.field(default_factory=dict)
    api_keys: dict[str, ApiKey] = msgspec.field(default_factory=dict)
    live_key_count: int = 0
    access_version: int | None = None
    held: dict[str, list[TaskKey]] = msgspec.field(default_factory=dict)
    control: dict[str, ControlGroup] = msgspec.field(default_factory=dict)
    due: list[TaskKey] = msgspec.field(default_factory=list)
    judged: dict[str, EndReason] = msgspec.field(default_factory=dict)


async def load(
    tx: Tx,
    needs: Needs,
    *,
    cache: Mapping[TaskKey, Task],
    receivers: set[str],
    mono_ms: int,
    known: Sequence[Receiver] = (),
) -> Rows:
    """Load and lock rows: access, queue, worker, key, task. ``receivers`` may be handed work.

    Those that are ``known`` are not read.
    """
    rows = Rows()
    if needs.locks_access:
        await _load_access(tx, needs, rows)
    if needs.queues:
        found = await queue_table.lock_queues(tx, needs.queues)
        rows.queues = {(each.namespace, each.name): each for each in found}
    await _load_workers(tx, needs, rows, mono_ms)
    if receivers:
        await _load_receivers(tx, rows, receivers, known)
    await _load_leases(tx, needs, rows)
    if needs.keys:
        keys = await idempotency_table.lock_keys(tx, needs.keys)
        rows.keys = {(each.namespace, each.key): each for each in keys}
        # The answer to a repeated enqueue tells the present state of the first task.
        needs.tasks.update((each.namespace, each.task_id) for each in keys)
    await _load_tasks(tx, needs, rows, cache)
    is_shared_last = len(rows.cached) == len(rows.tasks) and not needs.keys
    if needs.namespaces:
        await _load_namespaces(tx, needs, rows)
    if rows.shared_at_ms is not None and is_shared_last:
        # Nothing was locked after the workers, whose statement has read the time.
        rows.now_ms = rows.shared_at_ms
    else:
        rows.now_ms = await tx.now_ms()
    return rows


async def _load_access(tx: Tx, needs: Needs, rows: Rows) -> None:
    """Keep everybody else from changing access, and load the keys that are asked for."""
    rows.access_version = await access_table.lock_version(tx)
    keys = await access_table.lock_keys(tx, needs.api_keys)
    rows.api_keys = {each.id: each for each in keys}
    if needs.counts_api_keys:
        rows.live_key_count = await access_table.count_live_keys(tx, await tx.now_ms())


async def _load_namespaces(tx: Tx, needs: Needs, rows: Rows) -> None:
    found = await queue_table.read_namespaces(tx, needs.namespaces)
    rows.namespaces = {each.name for each in found}
    rows.disabled = {each.name for each in found if each.is_disabled}
    if needs.administered:
        rows.administered = {each.name: each for each in found if each.name in needs.administered}


async def _load_workers(tx: Tx, needs: Needs, rows: Rows, mono_ms: int) -> None:
    for namespace, instance_key, name in sorted(needs.registrations):
        found = await worker_table.find_workers(
            tx,
            namespace=namespace,
            instance_key=instance_key,
            name=name,
        )
        rows.workers.update((each.id, each) for each in found)
        needs.leases.update(each.id for each in found)
    if needs.workers:
        locked = await worker_table.lock_workers(tx, needs.workers)
        rows.workers.update((each.id, each) for each in locked)
    if needs.spoken_for:
        for worker in await worker_table.read_workers(tx, needs.spoken_for):
            rows.workers.setdefault(worker.id, worker)
    if needs.judge is not None:
        await _judge(tx, needs, rows, mono_ms)


async def _load_receivers(
    tx: Tx,
    rows: Rows,
    receivers: set[str],
    known: Sequence[Receiver],
) -> None:
    for receiver in known or await worker_table.share_workers(tx, receivers):
        worker = receiver.worker
        rows.workers[worker.id] = worker
        rows.shared_at_ms = receiver.now_ms
        rows.receivers[worker.id] = receiver
        if receiver.queue is not None:
            rows.brakes[worker.namespace, worker.queue] = receiver.queue


async def _load_leases(tx: Tx, needs: Needs, rows: Rows) -> None:
    if needs.leases:
        leases = await lease_table.read_leases(tx, needs.leases)
        rows.leases = {each.worker_id: each for each in leases}
    if needs.ended_leases:
        rows.ended_leases = await lease_table.read_ended_leases(tx, needs.ended_leases)


async def _judge(tx: Tx, needs: Needs, rows: Rows, mono_ms: int) -> None:
    """Delete the leases that are over; only their workers may be taken offline."""
    command = needs.judge
    assert command is not None
    scanned_at_ms = await tx.now_ms()
    await tx.one("clamp_leases", scanned_at_ms)
    lapsed = await lease_table.load_lapsed(tx, now_ms=scanned_at_ms, amount=command.amount)
    if not lapsed:
        return
    workers = await worker_table.lock_workers(tx, {each.lease.worker_id for each in lapsed})
    rows.workers.update((each.id, each) for each in workers)
    sighted_ms = still_sighted_ms(command, mono_ms=mono_ms, now_ms=scanned_at_ms)
    servers = await _stale_servers(tx, lapsed, scanned_at_ms)
    over = []
    for each in lapsed:
        worker = rows.workers.get(each.lease.worker_id)
        if worker is None or worker.id in needs.leases:
            # Who opens a session in this very batch is heard before it is judged.
            continue
        reason = judge_rules.judge(
            each.lease,
            mode=worker.mode,
            now_ms=scanned_at_ms,
            sighted_ms=sighted_ms,
            server=servers.get(each.lease.server_id),
            suspect_grace_ms=command.suspect_grace_ms,
        )
        if reason is not None:
            over.append((each.lease, reason))
    await lease_table.keep_leases(tx, [each.worker_id for each, _ in over])
    gone = await lease_table.delete_leases(tx, [each for each, _ in over])
    rows.judged = {each.worker_id: reason for each, reason in over if each.worker_id in gone}


def still_sighted_ms(
    command: c.JudgeLeases | c.ProcessDue,
    *,
    mono_ms: int,
    now_ms: int,
) -> int:
    """Return for how long this server can judge: its sight was measured before the batch began."""
    if command.judge_readiness is None:
        return command.sighted_ms
    still_ms = readiness_rules.still_sighted_ms(
        command.judge_readiness, mono_ms=mono_ms, store_now_ms=now_ms
    )
    return min(command.sighted_ms, still_ms)


async def _stale_servers(tx: Tx, lapsed: Sequence[Lapsed], now_ms: int) -> dict[str, StaleServer]:
    """Return the servers of lapsed leases that are silent; others hear their workers.

    One that was seen in the future has not touched its row since the clock went back.
    """
    stale = {}
    for each in lapsed:
        seen_at_ms = each.server_seen_at_ms
        if seen_at_ms is not None and not 0 <= now_ms - seen_at_ms <= SIGHT_STALL_MS:
            stale[each.lease.server_id] = StaleServer(seen_at_ms, each.server_lease_count or 0)
    left = await lease_table.count_leases(tx, stale) if stale else {}
    return {key: replace(each, left_count=left.get(key, 0)) for key, each in stale.items()}


async def _load_tasks(
    tx: Tx,
    needs: Needs,
    rows: Rows,
    cache: Mapping[TaskKey, Task],
) -> None:
    rows.tasks = {key: task for key in needs.tasks if (task := cache.get(key)) is not None}
    rows.cached = set(rows.tasks)
    wanted = needs.tasks - rows.cached
    if wanted:
        for task in await task_table.load_tasks(tx, wanted):
            rows.tasks[task.namespace, task.id] = task
    for worker_id, amount in sorted(needs.held_of.items()):
        worker = rows.workers.get(worker_id)
        if worker is not None:
            await _load_held(tx, rows, worker, amount)
    if needs.due is not None:
        now_ms = await tx.now_ms()
        due = await task_table.load_due(tx, now_ms=now_ms, amount=needs.due.amount)
        rows.due = [_fresh(rows, task) for task in due]
    await _load_finished(tx, needs, rows, wanted)


async def _load_held(tx: Tx, rows: Rows, worker: Worker, amount: int) -> None:
    held = await task_table.load_held(tx, worker, amount=amount)
    rows.held[worker.id] = [_fresh(rows, task) for task in held]
    if worker.release_pending and crash_guard.is_control_needed(held):
        rows.control[worker.id] = await _load_control(tx, worker)


async def _load_control(tx: Tx, worker: Worker) -> ControlGroup:
    """Read how the other workers of a lost worker's queue have fared until it was lost."""
    assert worker.ended_at_ms is not None
    since_ms = worker.ended_at_ms - CONTROL_WINDOW_MS
    return await worker_table.count_control_group(
        tx, worker, since_ms=since_ms, seen_max=CONTROL_SEEN_MAX
    )


def _fresh(rows: Rows, task: Task) -> TaskKey:
    """Prefer a row that was just locked to a remembered copy."""
    key = (task.namespace, task.id)
    rows.tasks[key] = task
    rows.cached.discard(key)
    return key


async def _load_finished(tx: Tx, needs: Needs, rows: Rows, wanted: set[TaskKey]) -> None:
    """Look up what is not live: finished tasks, and the ended attempts that reports name."""
    missing = [key for key in wanted if key not in rows.tasks]
    if missing:
        for task in await task_table.load_history(tx, missing):
            rows.tasks[task.namespace, task.id] = task
    stale = set()
    for key, attempt in needs.finishes:
        known = rows.tasks.get(key)
        if known is None or attempt != known.attempt or not known.is_attempt_live:
            stale.add((*key, attempt))
    if stale:
        for ended in await task_table.load_ended(tx, stale):
            rows.ended[ended.namespace, ended.task_id, ended.number] = ended
