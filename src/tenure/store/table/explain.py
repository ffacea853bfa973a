"""The reads of an explanation: bounded reads of a queue, its workers and its line."""

from __future__ import annotations

from itertools import groupby
from typing import cast

from tenure.core.explain.fact import Crew, EndedWorker, HeldTask, Member, NearWorker
from tenure.core.limits import ENDED_SEEN_MAX, EXPLAINED_MAX
from tenure.core.task.record import Line, Task, TaskKind
from tenure.core.worker.health import Health
from tenure.core.worker.record import EndReason, WorkerStatus
from tenure.store.table import codec
from tenure.store.table.listing import Onlooker, deaf_text
from tenure.store.transaction import Tx


async def list_crews(tx: Tx, task: Task, onlooker: Onlooker) -> tuple[Crew, ...]:
    """Return the active workers that could run a task, grouped by their state."""
    place = (task.namespace, task.queue, task.type, task.kind is TaskKind.WORKFLOW)
    given = (deaf_text(onlooker), onlooker.now_ms, EXPLAINED_MAX)
    rows: list[codec.AnyRow] = list(await tx.one("list_crews", *place, *given))
    return tuple(
        _crew(kind, list(alike)) for kind, alike in groupby(rows, lambda row: tuple(row[:5]))
    )


def _crew(kind: tuple[object, ...], rows: list[codec.AnyRow]) -> Crew:
    status, health, is_full, is_guarding, count = cast("tuple[str, str, int, int, int]", kind)
    return Crew(
        WorkerStatus(status),
        Health(health),
        bool(is_full),
        bool(is_guarding),
        count,
        tuple(Member(row[5], row[6], row[7], row[8]) for row in rows),
    )


async def count_served(tx: Tx, task: Task) -> int:
    """Count the active served workers that offer the type of a task."""
    rows = await tx.one("count_served_workers", task.namespace, task.queue, task.type)
    return cast("int", rows[0][0])


async def list_near(tx: Tx, task: Task) -> tuple[NearWorker, ...]:
    """Return active workers that do not fit a task because of their queue or their types."""
    rows: list[codec.AnyRow] = list(
        await tx.one("list_near_workers", task.namespace, task.queue, task.type, EXPLAINED_MAX)
    )
    return tuple(
        NearWorker(row[0], row[1], row[2], codec.types_from(row[3]), row[4]) for row in rows
    )


async def find_last_ended(tx: Tx, task: Task) -> EndedWorker | None:
    """Return the worker of a task's queue that ended last, if that was recent."""
    given = (task.namespace, task.queue, ENDED_SEEN_MAX)
    rows: list[codec.AnyRow] = list(await tx.one("list_ended_workers", *given))
    for row in rows:
        return EndedWorker(row[0], row[1], row[2], EndReason(row[3]))
    return None


async def list_held(tx: Tx, task: Task) -> tuple[HeldTask, ...]:
    """Return the tasks of a queue that workers have held longest."""
    rows: list[codec.AnyRow] = list(
        await tx.one("list_holders", task.namespace, task.queue, EXPLAINED_MAX)
    )
    return tuple(HeldTask(*row) for row in rows)


async def count_ahead(tx: Tx, task: Task, *, amount: int) -> int:
    """Count the tasks of the same type that come before a task, up to ``amount``."""
    count = 0
    place = (task.namespace, task.queue, task.type)
    rank = (task.priority, task.run_at_ms, task.id)
    for line in (Line.RETURNED, Line.FRESH):
        rows = await tx.one("count_ahead", *place, int(line), *rank, amount)
        count += cast("int", rows[0][0])
    return min(count, amount)
