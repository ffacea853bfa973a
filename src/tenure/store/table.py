"""The statements by what they mean: records in, records out. Nothing is decided here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import msgspec

from tenure.core.queue import Namespace, Queue
from tenure.core.task.attempt import Attempt
from tenure.core.task.crash_guard import ControlGroup
from tenure.core.task.record import Progress, Task
from tenure.core.worker.decide import Worker
from tenure.core.worker.lease import Beat, Lease
from tenure.store import codec
from tenure.store.damaged_row import suspect_from, tasks_from
from tenure.store.failure import FenceLost
from tenure.store.transaction import Tx

TaskKey = tuple[str, str]
"""(namespace, id)"""


class Demand(msgspec.Struct, frozen=True, gc=False):
    """One probe of the claim: how many of one type, line and priority range, from where on."""

    namespace: str
    queue: str
    type: str
    line: int
    priority_min: int
    priority_max: int
    mark_run_at_ms: int
    mark_id: str
    amount: int


class Key(msgspec.Struct, frozen=True, gc=False):
    """An idempotency key and the end of its task, if that has come."""

    namespace: str
    key: str
    task_id: str
    digest: bytes
    finished_at_ms: int | None
    is_task_live: bool


class Receiver(msgspec.Struct, frozen=True, gc=False):
    """A worker that may be handed work, its queue's brakes, its lease, the time after the lock."""

    worker: Worker
    queue: Queue | None
    beat_at_ms: int | None
    lease_ms: int | None
    now_ms: int | None


class Lapsed(msgspec.Struct, frozen=True, gc=False):
    """A lease that may be over; when its server was seen last, and how many leases it had then."""

    lease: Lease
    server_seen_at_ms: int | None
    server_lease_count: int | None


async def load_tasks(tx: Tx, keys: Iterable[TaskKey]) -> list[Task]:
    """Load and lock live tasks, without their inputs, in the order of their keys."""
    return tasks_from(await tx.each("load_tasks", sorted(keys)), codec.task_from)


async def read_tasks(tx: Tx, keys: Iterable[TaskKey]) -> list[Task]:
    """Read live tasks without locking them."""
    return tasks_from(await tx.each("read_tasks", sorted(keys)), codec.task_from)


async def load_history(tx: Tx, keys: Iterable[TaskKey]) -> list[Task]:
    """Read finished tasks."""
    return tasks_from(await tx.each("load_history", sorted(keys)), codec.finished_from)


async def load_ended(tx: Tx, keys: Iterable[tuple[str, str, int]]) -> list[Attempt]:
    """Read ended attempts by (namespace, task, number)."""
    return [codec.attempt_from(row) for row in await tx.each("load_ended", sorted(keys))]


async def load_attempts(tx: Tx, key: TaskKey) -> list[Attempt]:
    """Read all ended attempts of a task but the last one of a finished task."""
    return [codec.attempt_from(row) for row in await tx.each("load_attempts", [key])]


async def load_due(tx: Tx, *, now_ms: int, amount: int) -> list[Task]:
    """Lock tasks whose timer has fired; others that are looked at are left out, and inputs."""
    return tasks_from(await tx.one("load_due", now_ms, amount), codec.task_from)


async def load_held(tx: Tx, worker: Worker, *, amount: int) -> list[Task]:
    """Lock what a worker holds; inputs are not read."""
    rows = await tx.one("load_held", worker.namespace, worker.queue, worker.id, amount)
    return tasks_from(rows, codec.task_from)


async def claim_tasks(tx: Tx, demands: Sequence[Demand]) -> list[Task]:
    """Lock the head of each line that is asked for; large inputs are left in the store."""
    rows = await tx.each("claim_tasks", [msgspec.structs.astuple(each) for each in demands])
    return tasks_from(rows, codec.claimed_from)


async def load_inputs(tx: Tx, keys: Iterable[TaskKey]) -> dict[TaskKey, bytes]:
    """Read the inputs of tasks that this transaction has locked; damaged ones are left out."""
    rows: Sequence[codec.AnyRow] = await tx.each("load_inputs", sorted(keys))
    return {(row[0], row[1]): row[2] for row in rows if codec.is_input_sound(*row[2:])}


async def load_suspects(
    tx: Tx,
    workers: Iterable[tuple[str, str, str]],
) -> list[tuple[str, Progress]]:
    """Return the suspects of the crash guard that (namespace, queue, worker) hold, by worker."""
    rows = await tx.each("load_suspects", sorted(workers))
    return [suspect_from(row) for row in rows]


async def count_control_group(
    tx: Tx,
    worker: Worker,
    *,
    since_ms: int,
    seen_max: int,
) -> ControlGroup:
    """Count the other workers of a worker's queue: those lost since an instant, and live ones."""
    rows = await tx.one(
        "count_control_group", worker.namespace, worker.queue, worker.id, since_ms, seen_max
    )
    return ControlGroup(*cast("tuple[int, int]", tuple(rows[0])))


async def load_cancelling(tx: Tx, worker_ids: Iterable[str]) -> list[tuple[str, str, int]]:
    """Return (worker, task, attempt) of what is being cancelled on these workers."""
    rows = await tx.each("load_cancelling", [(each,) for each in sorted(worker_ids)])
    return [cast("tuple[str, str, int]", tuple(row)) for row in rows]


async def count_held(tx: Tx, queues: Iterable[tuple[str, str]]) -> dict[tuple[str, str], int]:
    """Count the live attempts that workers hold, per queue."""
    rows = await tx.each("count_held", sorted(queues))
    return {cast("tuple[str, str]", (row[0], row[1])): cast("int", row[2]) for row in rows}


async def insert_tasks(tx: Tx, tasks: Sequence[Task]) -> None:
    """Write new tasks."""
    await tx.each("insert_tasks", [codec.task_inserted(task) for task in tasks])


async def insert_finished(tx: Tx, tasks: Sequence[Task]) -> None:
    """Write tasks that were finished before they were ever stored."""
    await tx.each("insert_history", [codec.history_inserted(task) for task in tasks])


async def update_tasks(tx: Tx, tasks: Sequence[Task]) -> None:
    """Write changed tasks, each fenced by the version that was read."""
    written = await tx.fenced("update_tasks", [codec.task_updated(task) for task in tasks])
    _check_fence(tasks, written)


async def finish_tasks(tx: Tx, tasks: Sequence[Task]) -> None:
    """Move finished tasks to history, each fenced by the version that was read."""
    written = await tx.fenced("finish_tasks", [codec.task_finished(task) for task in tasks])
    _check_fence(tasks, written)


def _check_fence(records: Sequence[Task] | Sequence[Worker], written: int) -> None:
    """Raise when a row has moved on; which one it was does not matter, all are read again."""
    if written != len(records):
        raise FenceLost(frozenset(each.id for each in records))


async def insert_attempts(tx: Tx, attempts: Sequence[Attempt]) -> None:
    """Write ended attempts."""
    await tx.each("insert_attempts", [codec.attempt_inserted(each) for each in attempts])


async def lock_workers(tx: Tx, worker_ids: Iterable[str]) -> list[Worker]:
    """Lock workers whose status may change."""
    rows = await tx.each("lock_workers", [(each,) for each in sorted(worker_ids)])
    return [codec.worker_from(row) for row in rows]


async def share_workers(tx: Tx, worker_ids: Iterable[str]) -> list[Receiver]:
    """Lock workers against a change of their status for the rest of this transaction."""
    rows = await tx.each("share_workers", [(each,) for each in sorted(worker_ids)])
    return [_receiver(row) for row in rows]


def _receiver(row: codec.AnyRow) -> Receiver:
    worker = codec.worker_from(row)
    queue = None
    if row[21] is not None:
        queue = Queue(worker.namespace, worker.queue, bool(row[21]), row[22])
    return Receiver(worker, queue, row[23], row[24], row[25])


async def read_workers(tx: Tx, worker_ids: Iterable[str]) -> list[Worker]:
    """Read workers without locking them."""
    rows = await tx.each("read_workers", [(each,) for each in sorted(worker_ids)])
    return [codec.worker_from(row) for row in rows]


async def find_workers(tx: Tx, *, namespace: str, instance_key: str, name: str) -> list[Worker]:
    """Lock the incarnation with this key, and the live one with this name."""
    rows = await tx.one("find_workers", namespace, instance_key, name)
    return [codec.worker_from(row) for row in rows]


async def insert_workers(tx: Tx, workers: Sequence[Worker]) -> None:
    """Write new incarnations."""
    await tx.each("insert_workers", [codec.worker_inserted(each) for each in workers])


async def update_workers(tx: Tx, workers: Sequence[Worker]) -> None:
    """Write changed workers, each fenced by the version that was read."""
    written = await tx.fenced("update_workers", [codec.worker_updated(each) for each in workers])
    _check_fence(workers, written)


async def mark_ends_explained(tx: Tx, worker_ids: Iterable[str]) -> None:
    """Note that suspects of the crash guard explain why these workers died."""
    await tx.each("mark_ends_explained", [(each,) for each in sorted(worker_ids)])


async def load_releasing(tx: Tx, *, amount: int) -> list[str]:
    """Return offline workers whose tasks are not all put back yet."""
    return [cast("str", row[0]) for row in await tx.one("load_releasing", amount)]


async def beat_leases(
    tx: Tx,
    beats: Sequence[tuple[str, str, Beat]],
    now_ms: int,
) -> list[Lease]:
    """Renew the leases of (worker, namespace) whose token matches; others are left out."""
    given = {each[0]: each for each in beats}
    rows = await tx.each(
        "beat_leases",
        [
            (
                worker_id,
                namespace,
                beat.token,
                beat.server_id,
                beat.lease_ms,
                beat.total_completed if beat.total_completed >= 0 else -1 - beat.completed_delta,
                beat.total_failed if beat.total_failed >= 0 else -1 - beat.failed_delta,
                beat.active_count,
                beat.loop_lag_ms,
                beat.stuck_count,
            )
            for worker_id, namespace, beat in beats
        ],
        now_ms,
    )
    return [_renewed(row, given, now_ms) for row in rows]


def _renewed(
    row: codec.AnyRow,
    given: Mapping[str, tuple[str, str, Beat]],
    now_ms: int,
) -> Lease:
    """Return a lease after its heartbeat: what was sent, and what only the row knew."""
    worker_id, lease_ms, previous_beat_at_ms, total_completed, total_failed = row
    _, namespace, beat = given[worker_id]
    return Lease(
        worker_id,
        namespace,
        beat.server_id,
        now_ms + lease_ms,
        lease_ms,
        beat.token + 1,
        now_ms,
        previous_beat_at_ms,
        total_completed,
        total_failed,
        beat.active_count,
        beat.loop_lag_ms,
        beat.stuck_count,
    )


async def read_leases(tx: Tx, worker_ids: Iterable[str]) -> list[Lease]:
    """Read leases."""
    rows = await tx.each("read_leases", [(each,) for each in sorted(worker_ids)])
    return [codec.lease_from(row) for row in rows]


async def load_lapsed(tx: Tx, *, now_ms: int, amount: int) -> list[Lapsed]:
    """Return leases that seem to be over."""
    rows = await tx.one("load_lapsed", now_ms, amount)
    return [Lapsed(codec.lease_from(row), *cast("list[int | None]", row[15:17])) for row in rows]


async def count_leases(tx: Tx, server_ids: Iterable[str]) -> dict[str, int]:
    """Count the leases of workers that these servers heard last."""
    rows = await tx.each("count_leases", [(each,) for each in sorted(server_ids)])
    return {cast("str", row[0]): cast("int", row[1]) for row in rows}


async def insert_leases(tx: Tx, leases: Sequence[Lease]) -> None:
    """Write the leases of new incarnations."""
    await tx.each("insert_leases", [codec.lease_inserted(each) for each in leases])


async def delete_leases(tx: Tx, leases: Sequence[Lease]) -> set[str]:
    """Delete leases that no heartbeat has renewed meanwhile; return whose are gone."""
    rows = await tx.each(
        "delete_leases",
        [(x.worker_id, x.token, x.lease_until_ms, x.suspect_until_ms) for x in leases],
    )
    return {cast("str", row[0]) for row in rows}


async def keep_leases(tx: Tx, worker_ids: Iterable[str]) -> None:
    """Note the leases of workers that are about to go offline, as they are now."""
    await tx.each("keep_leases", [(each,) for each in sorted(worker_ids)])


async def read_ended_leases(tx: Tx, worker_ids: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Return until when the lease of each offline worker would have lasted, and its length."""
    rows = await tx.each("read_ended_leases", [(each,) for each in sorted(worker_ids)])
    return {cast("str", row[0]): (cast("int", row[1]), cast("int", row[2])) for row in rows}


async def drop_ended_leases(tx: Tx, worker_ids: Iterable[str]) -> None:
    """Forget the leases of workers that hold nothing more."""
    await tx.each("drop_ended_leases", [(each,) for each in sorted(worker_ids)])


async def drop_leases(tx: Tx, worker_ids: Iterable[str]) -> None:
    """Delete the leases of workers that end for another reason than silence."""
    await tx.each("drop_leases", [(each,) for each in sorted(worker_ids)])


async def fail_leases(tx: Tx, worker_ids: Iterable[str]) -> None:
    """Count a failed call to served workers."""
    await tx.each("fail_leases", [(each,) for each in sorted(worker_ids)])


async def suspect_leases(tx: Tx, leases: Sequence[Lease]) -> set[str]:
    """Write until when each worker is suspected, unless it has been heard meanwhile."""
    rows = await tx.each(
        "suspect_leases",
        [(each.worker_id, each.token, each.suspect_until_ms) for each in leases],
    )
    return {cast("str", row[0]) for row in rows}


async def resume_leases(tx: Tx, leases: Sequence[Lease]) -> None:
    """Write that suspected workers are here again."""
    await tx.each("resume_leases", [(each.worker_id, each.server_id) for each in leases])


async def lock_keys(tx: Tx, keys: Iterable[TaskKey]) -> list[Key]:
    """Lock idempotency keys by (namespace, key)."""
    rows = await tx.each("lock_keys", sorted(keys))
    return [
        Key(*cast("tuple[str, str, str, bytes, int | None]", tuple(row[:5])), bool(row[5]))
        for row in rows
    ]


async def insert_keys(tx: Tx, keys: Sequence[tuple[str, str, str, bytes, int]]) -> None:
    """Write keys as (namespace, key, task, digest, created_at)."""
    await tx.each("insert_keys", keys)


async def delete_keys(tx: Tx, keys: Sequence[tuple[str, str, str]]) -> None:
    """Delete keys whose time is over, as (namespace, key, task)."""
    await tx.each("delete_keys", keys)


async def lock_queues(tx: Tx, names: Iterable[tuple[str, str]]) -> list[Queue]:
    """Lock queues, so that their held tasks can be counted."""
    return [codec.queue_from(row) for row in await tx.each("lock_queues", sorted(names))]


async def save_queues(tx: Tx, queues: Sequence[Queue]) -> None:
    """Write the brakes of queues."""
    await tx.each(
        "save_queues",
        [(q.namespace, q.name, q.is_paused, q.concurrency_max, q.version) for q in queues],
    )


async def read_namespaces(tx: Tx, names: Iterable[str]) -> list[Namespace]:
    """Read namespaces."""
    rows = await tx.each("read_namespaces", [(name,) for name in sorted(names)])
    return [codec.namespace_from(row) for row in rows]
