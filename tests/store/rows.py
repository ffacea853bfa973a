"""Builders of records, and short ways to write and read them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from msgspec.structs import replace

from tenure.core.task.attempt import Attempt, Outcome
from tenure.core.task.record import Line, Spec, Task, TaskState
from tenure.core.task.retry import ErrorCategory, ErrorInfo
from tenure.core.worker.lease import Lease
from tenure.core.worker.record import EndReason, Worker, WorkerStatus
from tenure.store.table import lease as lease_table
from tenure.store.table import task as task_table
from tenure.store.table import worker as worker_table
from tenure.store.table.task import Demand
from tenure.store.transaction import Store

NOW: Final = 1_790_000_000_000
DAY_MS: Final = 86_400_000
NAMESPACE: Final = "acme/default"
QUEUE: Final = "default"
SPEC: Final = Spec(start_to_close_ms=60_000)
FAULT: Final = ErrorInfo(ErrorCategory.USER_CODE, "boom", type="ValueError", details=b"\x00\xff")
LOWEST_ID: Final = "00000000-0000-0000-0000-000000000000"
HIGHEST_ID: Final = "ffffffff-ffff-ffff-ffff-ffffffffffff"


def task_id(number: int) -> str:
    """Return an id that is greater than those of lower numbers."""
    return f"0190a000-0000-7000-8000-{number:012x}"


def worker_id(number: int) -> str:
    return f"0190a000-0000-7000-9000-{number:012x}"


def server_id(number: int) -> str:
    return f"0190a000-0000-7000-a000-{number:012x}"


def pending(number: int, **changes: Any) -> Task:
    task = Task(
        id=task_id(number),
        namespace=NAMESPACE,
        queue=QUEUE,
        type="mail",
        spec=SPEC,
        state=TaskState.PENDING,
        line=Line.FRESH,
        created_at_ms=NOW,
        run_at_ms=NOW,
    )
    return replace(task, **changes)


def held(number: int, *, by: str = worker_id(1), **changes: Any) -> Task:
    return pending(
        number,
        **{
            "state": TaskState.RUNNING,
            "line": Line.NONE,
            "worker_id": by,
            "attempt": 1,
            "handed_at_ms": NOW,
            **changes,
        },
    )


def dispatched_from(task: Task, *, by: str = worker_id(1)) -> Task:
    """Return a claimed task as the engine would write it."""
    return replace(
        task,
        state=TaskState.DISPATCHED,
        line=Line.NONE,
        worker_id=by,
        attempt=task.attempt + 1,
        handed_at_ms=NOW,
    )


def finished_from(task: Task, state: TaskState = TaskState.SUCCEEDED, **changes: Any) -> Task:
    """Return a task as the engine would finish it; ``version`` stays the one that was read."""
    return replace(
        task,
        **{
            "state": state,
            "line": Line.NONE,
            "finished_at_ms": NOW,
            "due_at_ms": None,
            "last_outcome": Outcome.SUCCEEDED,
            "output": b"done",
            **changes,
        },
    )


def ended_attempt(task_number: int, number: int, **changes: Any) -> Attempt:
    attempt = Attempt(
        namespace=NAMESPACE,
        task_id=task_id(task_number),
        number=number,
        outcome=Outcome.WORKER_LOST,
        worker_id=worker_id(1),
        handed_at_ms=NOW - 10,
        ended_at_ms=NOW,
        state_after="pending",
    )
    return replace(attempt, **changes)


def worker(number: int, **changes: Any) -> Worker:
    record = Worker(
        id=worker_id(number),
        namespace=NAMESPACE,
        queue=QUEUE,
        types=("mail",),
        instance_key=f"key-{number}",
        registered_at_ms=NOW,
    )
    return replace(record, **changes)


def offline(number: int, ended_at_ms: int = NOW, **changes: Any) -> Worker:
    return worker(
        number,
        **{
            "status": WorkerStatus.OFFLINE,
            "end_reason": EndReason.LEASE_EXPIRED,
            "ended_at_ms": ended_at_ms,
            **changes,
        },
    )


def lease(number: int, **changes: Any) -> Lease:
    record = Lease(
        worker_id=worker_id(number),
        namespace=NAMESPACE,
        server_id=server_id(1),
        lease_until_ms=NOW + 15_000,
        lease_ms=15_000,
        beat_at_ms=NOW,
    )
    return replace(record, **changes)


def demand(**changes: Any) -> Demand:
    """Return a probe for everything that is fresh."""
    whole = Demand(
        namespace=NAMESPACE,
        queue=QUEUE,
        type="mail",
        line=Line.FRESH,
        priority_min=0,
        priority_max=9,
        mark_run_at_ms=0,
        mark_id=LOWEST_ID,
        amount=100,
    )
    return replace(whole, **changes)


async def insert(store: Store, *tasks: Task) -> None:
    await store.transaction(lambda tx: task_table.insert_tasks(tx, tasks))


async def live(store: Store, *numbers: int) -> list[Task]:
    """Return the live tasks of these numbers that are there."""
    keys = [(NAMESPACE, task_id(number)) for number in numbers]
    return by_id(await store.read(lambda tx: task_table.read_tasks(tx, keys)))


async def history(store: Store, *numbers: int) -> list[Task]:
    """Return the finished tasks of these numbers that are there."""
    keys = [(NAMESPACE, task_id(number)) for number in numbers]
    return by_id(await store.read(lambda tx: task_table.load_history(tx, keys)))


def by_id(tasks: Iterable[Task]) -> list[Task]:
    return sorted(tasks, key=lambda task: task.id)


async def claim(store: Store, *demands: Demand) -> list[str]:
    """Return the ids that a claim takes, in its order; nothing is written."""
    found = await store.transaction(lambda tx: task_table.claim_tasks(tx, demands))
    return [task.id for task in found]


async def add_workers(store: Store, workers: Sequence[Worker], leases: Sequence[Lease]) -> None:
    await store.transaction(lambda tx: worker_table.insert_workers(tx, workers))
    await store.transaction(lambda tx: lease_table.insert_leases(tx, leases))


async def stored_worker(store: Store, number: int) -> Worker:
    (found,) = await store.read(lambda tx: worker_table.read_workers(tx, [worker_id(number)]))
    return found


async def stored_lease(store: Store, number: int) -> Lease | None:
    found = await store.read(lambda tx: lease_table.read_leases(tx, [worker_id(number)]))
    return found[0] if found else None
