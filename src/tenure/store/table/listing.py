"""Lists and counts of workers, queues and lines: filters in, records out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final, cast

import msgspec

from tenure.core.filter import WorkerFilter
from tenure.core.limits import LISTED_SEEN_MAX
from tenure.core.queue import Namespace, Queue
from tenure.core.task.record import TaskState
from tenure.core.worker.lease import Lease
from tenure.core.worker.record import Worker
from tenure.core.worker.stop_check import HeldAttempt, HeldSum
from tenure.store.table import codec
from tenure.store.transaction import Row, Tx

# Columns of a listed worker: its own, then those of its lease, and how it was found.
_LEASE, _IS_LISTED, _PLACE = 21, 36, 37
# After every existing id: lists go from the newest to the oldest.
NEWEST: Final = "ffffffff-ffff-ffff-ffff-ffffffffffff"


class Slice(msgspec.Struct, frozen=True, gc=False):
    """What precedes a page in its list, and how many rows the page may have.

    At most this many rows are read for it, whether they match the filter or not.
    """

    position: str
    amount: int
    seen_max: int = LISTED_SEEN_MAX


class Total(msgspec.Struct, frozen=True, gc=False):
    """How many there are, or at least are."""

    count: int
    is_exact: bool


def total_from(rows: Sequence[Row], amount: int) -> Total:
    """Make a total from the matching rows among those that were read."""
    listed, seen = cast("tuple[int, int]", tuple(rows[0]))
    return Total(listed, seen < amount)


class Onlooker(msgspec.Struct, frozen=True, gc=False):
    """What health depends on besides the leases: the time, and the deaf workers."""

    now_ms: int
    deaf: Collection[str] = ()


class OnlineWorker(msgspec.Struct, frozen=True, gc=False):
    """A worker that may get work, with the counters of its heartbeats: reports, stuck attempts."""

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
        """Return (namespace, queue, worker), by which its tasks are found."""
        return self.namespace, self.queue, self.id


class HeldCount(msgspec.Struct, frozen=True, gc=False):
    """How many live attempts a worker holds, and when the last of them was handed out."""

    count: int
    handed_at_ms: int


class Crew(msgspec.Struct, frozen=True, gc=False):
    """How many workers are alike, and how many slots they have together."""

    count: int
    slots: int


class Head(msgspec.Struct, frozen=True, gc=False):
    """The first claimable task of a line, with pause and limit of its queue."""

    namespace: str
    queue: str
    type: str
    run_at_ms: int
    is_paused: bool
    concurrency_max: int


async def list_workers(
    tx: Tx, namespace: str, where: WorkerFilter, part: Slice, onlooker: Onlooker
) -> tuple[list[tuple[Worker, Lease | None]], str | None]:
    """Return workers with the leases of the active ones, and where the read stopped early."""
    given = (*_worker_parameters(namespace, where, onlooker), part.position, part.seen_max)
    rows: list[codec.AnyRow] = list(await tx.one("list_workers", *given, part.amount))
    found = [(codec.worker_from(row), _lease_from(row)) for row in rows if row[_IS_LISTED]]
    is_cut = bool(rows) and rows[-1][_PLACE] == part.seen_max
    return found, rows[-1][0] if is_cut else None


async def count_workers(
    tx: Tx, namespace: str, where: WorkerFilter, onlooker: Onlooker, *, amount: int
) -> Total:
    """Count the matches among the newest ``amount`` workers."""
    given = _worker_parameters(namespace, where, onlooker)
    return total_from(await tx.one("count_listed_workers", *given, amount), amount)


def _worker_parameters(
    namespace: str, where: WorkerFilter, onlooker: Onlooker
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
    """Return the deaf workers in the form of the statements."""
    return msgspec.json.encode(sorted(onlooker.deaf)).decode()


def _lease_from(row: codec.AnyRow) -> Lease | None:
    return None if row[_LEASE] is None else codec.lease_from(row[_LEASE:_IS_LISTED])


async def list_online(tx: Tx, *, server_id: str, after_id: str, amount: int) -> list[OnlineWorker]:
    """Return the workers that sent a server their last heartbeat, in the order of their ids."""
    rows = await tx.one("list_online_workers", server_id, after_id, amount)
    return [_online_from(row) for row in rows]


def _online_from(row: codec.AnyRow) -> OnlineWorker:
    worker_id, namespace, queue, types, *counts = row
    return OnlineWorker(worker_id, namespace, queue, codec.types_from(types), *counts)


async def count_worker_held(tx: Tx, places: Iterable[tuple[str, str, str]]) -> dict[str, HeldCount]:
    """Count the tasks of each (namespace, queue, worker)."""
    rows = await tx.each("count_worker_held", sorted(places))
    return {
        cast("str", row[0]): HeldCount(cast("int", row[1]), cast("int", row[2])) for row in rows
    }


async def sum_worker_held(
    tx: Tx, places: Iterable[tuple[str, str, str]], *, amount: int
) -> dict[str, HeldSum]:
    """Add up what each (namespace, queue, worker) holds, at most ``amount`` attempts of each."""
    rows: list[codec.AnyRow] = list(await tx.each("sum_worker_held", sorted(places), amount))
    return {
        row[0]: HeldSum(row[1], row[2], row[3], is_exact=row[1] < amount) for row in rows if row[1]
    }


async def list_worker_held(
    tx: Tx, place: tuple[str, str, str], *, amount: int
) -> list[HeldAttempt]:
    """Return what a worker holds, the longest held first."""
    rows: list[codec.AnyRow] = list(await tx.one("list_worker_held", *place, amount))
    return [HeldAttempt(row[0], row[1], TaskState(row[2]), row[3], row[4]) for row in rows]


async def list_waiting(tx: Tx, *, amount: int, scope: Sequence[str] = ()) -> list[Head]:
    """Return the heads of the lines that have claimable tasks; a type may have several lines.

    Only namespaces in ``scope``; an empty one means all.
    """
    if scope:
        rows = await tx.one("list_waiting_in", codec.names_to(scope), amount)
    else:
        rows = await tx.one("list_waiting", amount)
    return [_head_from(row) for row in rows]


def _head_from(row: codec.AnyRow) -> Head:
    return Head(row[0], row[1], row[2], row[3], bool(row[4]), row[5])


async def count_depths(
    tx: Tx, namespace: str, names: Iterable[str], *, amount: int
) -> dict[str, dict[TaskState, int]]:
    """Count live tasks by queue and state; at most ``amount`` per queue and kind."""
    depths: dict[str, dict[TaskState, int]] = {}
    for row in await tx.each("count_depths", [(namespace, name) for name in names], amount):
        queue, state, count = cast("tuple[str, str, int]", tuple(row))
        if count:
            counts = depths.setdefault(queue, {})
            counts[TaskState(state)] = counts.get(TaskState(state), 0) + count
    return depths


async def count_crews(
    tx: Tx, onlooker: Onlooker
) -> dict[tuple[str, str], dict[tuple[str, str], Crew]]:
    """Count the workers of each (namespace, queue) by (status, health); offline has none."""
    crews: dict[tuple[str, str], dict[tuple[str, str], Crew]] = {}
    rows: list[codec.AnyRow] = list(
        await tx.one("count_crews", deaf_text(onlooker), onlooker.now_ms)
    )
    for namespace, queue, status, health, count, slots in rows:
        crews.setdefault((namespace, queue), {})[status, health] = Crew(count, slots)
    return crews


async def count_run_states(tx: Tx, *, amount: int) -> dict[str, int]:
    """Count live runs by state, at most so many; parked ones are apart from those that wait."""
    rows = await tx.one("count_run_states", amount)
    return {cast("str", row[0]): cast("int", row[1]) for row in rows}


async def find_queues(tx: Tx, namespace: str, part: Slice) -> list[str]:
    """Return the names of queues that have settings or live tasks, in the order of the store."""
    rows = await tx.one("find_queues", namespace, part.position, part.amount)
    return [cast("str", row[0]) for row in rows]


async def find_busy_namespaces(tx: Tx, *, after: str, amount: int) -> list[str]:
    """Return the namespaces that have live tasks, in the order of the store."""
    return [cast("str", row[0]) for row in await tx.one("find_busy_namespaces", after, amount)]


async def read_queues(tx: Tx, namespace: str, names: Iterable[str]) -> list[Queue]:
    """Return the settings of some queues, if they have any."""
    rows = await tx.each("read_queues", [(namespace, name) for name in names])
    return [codec.queue_from(row) for row in rows]


async def count_queues(
    tx: Tx, namespace: str, names: Iterable[str], *, amount: int
) -> dict[str, dict[str, dict[TaskState, int]]]:
    """Count live tasks by queue, type and state; at most ``amount`` per queue."""
    counts: dict[str, dict[str, dict[TaskState, int]]] = {}
    for row in await tx.each("count_queue_tasks", [(namespace, name) for name in names], amount):
        queue, type_, state, count = cast("tuple[str, str, str, int]", tuple(row))
        counts.setdefault(queue, {}).setdefault(type_, {})[TaskState(state)] = count
    return counts


async def list_namespaces(tx: Tx, part: Slice) -> list[Namespace]:
    """Return namespaces by name."""
    rows = await tx.one("list_namespaces", part.position, part.amount)
    return [codec.namespace_from(row) for row in rows]
