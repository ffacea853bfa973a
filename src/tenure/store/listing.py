"""The lists and their totals: filters in, records out, newest first."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import cast

import msgspec

from tenure.core.filter import TaskFilter, WorkerFilter
from tenure.core.lease import Lease
from tenure.core.queue import Namespace, Queue
from tenure.core.task_record import Task, TaskState
from tenure.core.worker import Worker
from tenure.store import codec
from tenure.store.transaction import Tx


class Slice(msgspec.Struct, frozen=True, gc=False):
    """What stands in front of a page in its list, and how many rows the page may have."""

    position: str
    amount: int


class Onlooker(msgspec.Struct, frozen=True, gc=False):
    """What health is judged by besides the leases: the time, and who was found deaf."""

    now_ms: int
    deaf: Collection[str] = ()


class OnlineWorker(msgspec.Struct, frozen=True, gc=False):
    """A worker that may get work, with what its heartbeats have counted: reports, stuck runs."""

    id: str
    namespace: str
    queue: str
    types: tuple[str, ...]
    slots: int
    lease_ms: int
    report_count: int
    stuck_count: int

    @property
    def place(self) -> tuple[str, str, str]:
        """Return (namespace, queue, worker): where what it holds is found."""
        return self.namespace, self.queue, self.id


class Held(msgspec.Struct, frozen=True, gc=False):
    """How many live attempts a worker holds, and when the last of them was handed out."""

    count: int
    handed_at_ms: int


class Head(msgspec.Struct, frozen=True, gc=False):
    """The first claimable task of a line, with the brakes of its queue."""

    namespace: str
    queue: str
    type: str
    run_at_ms: int
    is_paused: bool
    concurrency_max: int


async def list_tasks(tx: Tx, namespace: str, where: TaskFilter, part: Slice) -> list[Task]:
    """Return tasks, live and finished."""
    given = _task_parameters(namespace, where)
    rows = await tx.one("list_tasks", *given, part.position, part.amount)
    return [codec.listed_from(row) for row in rows]


async def count_tasks(tx: Tx, namespace: str, where: TaskFilter, *, amount: int) -> int:
    """Count what the list has, up to ``amount``."""
    rows = await tx.one("count_listed_tasks", *_task_parameters(namespace, where), amount)
    return cast("int", rows[0][0])


def _task_parameters(namespace: str, where: TaskFilter) -> tuple[object, ...]:
    return namespace, where.queue, where.type, where.state or ""


async def list_workers(
    tx: Tx,
    namespace: str,
    where: WorkerFilter,
    part: Slice,
    onlooker: Onlooker,
) -> list[tuple[Worker, Lease | None]]:
    """Return workers with the leases of those that are active."""
    given = _worker_parameters(namespace, where, onlooker)
    rows = await tx.one("list_workers", *given, part.position, part.amount)
    return [(codec.worker_from(row), _lease_from(row)) for row in rows]


async def count_workers(
    tx: Tx,
    namespace: str,
    where: WorkerFilter,
    onlooker: Onlooker,
    *,
    amount: int,
) -> int:
    """Count what the list has, up to ``amount``."""
    given = _worker_parameters(namespace, where, onlooker)
    rows = await tx.one("count_listed_workers", *given, amount)
    return cast("int", rows[0][0])


def _worker_parameters(
    namespace: str,
    where: WorkerFilter,
    onlooker: Onlooker,
) -> tuple[object, ...]:
    return (
        namespace,
        where.queue,
        where.status or "",
        where.version,
        codec.labels_to(where.labels),
        where.health or "",
        deaf_text(onlooker),
        onlooker.now_ms,
    )


def deaf_text(onlooker: Onlooker) -> str:
    """Return who was found deaf as the statements take it."""
    return msgspec.json.encode(sorted(onlooker.deaf)).decode()


def _lease_from(row: codec.AnyRow) -> Lease | None:
    return None if row[21] is None else codec.lease_from(row[21:])


async def list_online(
    tx: Tx,
    *,
    server_id: str,
    after_id: str,
    amount: int,
) -> list[OnlineWorker]:
    """Return workers that were heard by a server last, in the order of their ids."""
    rows = await tx.one("list_online_workers", server_id, after_id, amount)
    return [_online_from(row) for row in rows]


def _online_from(row: codec.AnyRow) -> OnlineWorker:
    worker_id, namespace, queue, types, *counts = row
    return OnlineWorker(worker_id, namespace, queue, codec.types_from(types), *counts)


async def count_worker_held(tx: Tx, places: Iterable[tuple[str, str, str]]) -> dict[str, Held]:
    """Count what each of (namespace, queue, worker) holds."""
    rows = await tx.each("count_worker_held", sorted(places))
    return {cast("str", row[0]): Held(cast("int", row[1]), cast("int", row[2])) for row in rows}


async def list_waiting(tx: Tx, *, amount: int, scope: Sequence[str] = ()) -> list[Head]:
    """Return the heads of the lines that have claimable tasks; a type may have several lines.

    Those of the namespaces in ``scope``; an empty one has all.
    """
    if scope:
        rows = await tx.one("list_waiting_in", codec.names_to(scope), amount)
    else:
        rows = await tx.one("list_waiting", amount)
    return [_head_from(row) for row in rows]


def _head_from(row: codec.AnyRow) -> Head:
    return Head(row[0], row[1], row[2], row[3], bool(row[4]), row[5])


async def count_depths(
    tx: Tx,
    *,
    amount: int,
) -> dict[tuple[str, str], dict[TaskState, int]]:
    """Count live tasks by (namespace, queue) and state; ``amount`` groups at the most."""
    depths: dict[tuple[str, str], dict[TaskState, int]] = {}
    for row in await tx.one("count_depths", amount):
        namespace, queue, state, count = cast("tuple[str, str, str, int]", tuple(row))
        depths.setdefault((namespace, queue), {})[TaskState(state)] = count
    return depths


async def count_healths(tx: Tx, onlooker: Onlooker) -> dict[tuple[str, str], int]:
    """Count workers by (status, health); an offline one has an empty health."""
    rows = await tx.one("count_healths", deaf_text(onlooker), onlooker.now_ms)
    return {cast("tuple[str, str]", (row[0], row[1])): cast("int", row[2]) for row in rows}


async def list_queues(tx: Tx, namespace: str, *, name: str = "") -> list[Queue]:
    """Return the queues that have settings, by name."""
    return [codec.queue_from(row) for row in await tx.one("list_queues", namespace, name)]


async def count_queues(
    tx: Tx,
    namespace: str,
    *,
    name: str = "",
) -> dict[str, dict[str, dict[TaskState, int]]]:
    """Count live tasks by queue, type and state."""
    counts: dict[str, dict[str, dict[TaskState, int]]] = {}
    for row in await tx.one("count_tasks", namespace, name):
        queue, type_, state, count = cast("tuple[str, str, str, int]", tuple(row))
        counts.setdefault(queue, {}).setdefault(type_, {})[TaskState(state)] = count
    return counts


async def list_namespaces(tx: Tx, part: Slice) -> list[Namespace]:
    """Return namespaces by name."""
    rows = await tx.one("list_namespaces", part.position, part.amount)
    return [codec.namespace_from(row) for row in rows]
