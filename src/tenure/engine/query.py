"""The reads: one task, lists with cursors, attempts, workers with their health, queue counts.

They run on the store's readers, apart from the lanes, and see what was committed. What belongs to
another namespace is not found, in the same words as if it did not exist.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final, Generic, TypeVar, cast

import msgspec

from tenure.core import check, cursor
from tenure.core import health as health_rules
from tenure.core.attempt import Attempt, Outcome
from tenure.core.health import Health
from tenure.core.lease import Lease
from tenure.core.queue import Queue
from tenure.core.retry import ErrorInfo
from tenure.core.task_record import Task, TaskState
from tenure.core.worker import Worker, WorkerStatus
from tenure.errors import NotFound, Unavailable
from tenure.store import codec, table
from tenure.store.failure import Lost, StoreError
from tenure.store.transaction import Body, Store, Tx

T = TypeVar("T")
RETRY_AFTER_MS: Final = 500
# Behind every id that exists: lists go from the newest to the oldest.
_NEWEST: Final = "ffffffff-ffff-ffff-ffff-ffffffffffff"


class Page(msgspec.Struct, Generic[T], frozen=True):
    """Some items of a list, newest first; an empty token means that there are no more."""

    items: tuple[T, ...]
    next_page_token: str


class PageRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Which page of a list is wanted, and the secret that signs the cursors of this server."""

    cursor_key: bytes
    size: int = 0
    token: str = ""


class AttemptView(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One attempt of a task; of the live one the end is not known."""

    number: int
    worker_id: str | None
    handed_at_ms: int
    ended_at_ms: int | None = None
    outcome: Outcome | None = None
    error: ErrorInfo | None = None


class WorkerView(msgspec.Struct, frozen=True, gc=False):
    """A worker, and while it is active its lease and its health."""

    worker: Worker
    lease: Lease | None
    health: Health | None


class QueueView(msgspec.Struct, frozen=True):
    """A queue with its brakes and how many live tasks it has, by type and state."""

    queue: Queue
    counts: dict[str, dict[TaskState, int]]

    def count(self, state: TaskState) -> int:
        """Return how many tasks of any type are in a state."""
        return sum(each.get(state, 0) for each in self.counts.values())


async def get_task(store: Store, *, namespace: str, task_id: str) -> Task:
    """Return a task, live or finished."""
    key = (check.namespace(namespace), check.task_id(task_id, "taskId"))
    return await _read(store, lambda tx: _find_task(tx, key))


async def list_tasks(
    store: Store,
    *,
    namespace: str,
    page: PageRequest,
    queue: str = "",
    type_: str = "",
    state: TaskState | None = None,
) -> Page[Task]:
    """Return tasks that pass the filters, newest first, live and finished."""
    namespace = check.namespace(namespace)
    filters = {"queue": queue, "type": type_, "state": state.value if state else ""}
    query, size, before_id = _place("tasks", namespace, filters, page)

    async def body(tx: Tx) -> list[Task]:
        await _check_namespace(tx, namespace)
        return await table.list_tasks(
            tx,
            namespace=namespace,
            queue=queue,
            type_=type_,
            state=filters["state"],
            before_id=before_id,
            amount=size + 1,
        )

    return _page(await _read(store, body), size, namespace, query, page.cursor_key)


async def list_attempts(
    store: Store,
    *,
    namespace: str,
    task_id: str,
) -> tuple[AttemptView, ...]:
    """Return the attempts of a task in their order; the last one may be live."""
    key = (check.namespace(namespace), check.task_id(task_id, "taskId"))

    async def body(tx: Tx) -> tuple[AttemptView, ...]:
        # The task first: an attempt that ends in between is then found among the ended ones.
        task = await _find_task(tx, key)
        ended = await table.load_attempts(tx, key)
        views = [_ended(each) for each in ended]
        if task.attempt and task.attempt not in {each.number for each in ended}:
            views.append(_last(task))
        return tuple(views)

    return await _read(store, body)


def _ended(attempt: Attempt) -> AttemptView:
    return AttemptView(
        number=attempt.number,
        worker_id=attempt.worker_id,
        handed_at_ms=attempt.handed_at_ms,
        ended_at_ms=attempt.ended_at_ms,
        outcome=attempt.outcome,
        error=attempt.error,
    )


def _last(task: Task) -> AttemptView:
    """The last attempt has no row of its own: it lives in its task, or ended with it."""
    return AttemptView(
        number=task.attempt,
        worker_id=task.worker_id,
        handed_at_ms=task.handed_at_ms,
        ended_at_ms=task.finished_at_ms,
        outcome=None if task.finished_at_ms is None else task.last_outcome,
        error=None if task.finished_at_ms is None else task.progress.error,
    )


async def get_worker(
    store: Store,
    *,
    namespace: str,
    worker_id: str,
    deaf: Collection[str] = (),
) -> WorkerView:
    """Return a worker with its lease and health; ``deaf`` are those that the server found so."""
    namespace = check.namespace(namespace)
    check.task_id(worker_id, "workerId")

    async def body(tx: Tx) -> WorkerView:
        found = await table.read_workers(tx, [worker_id])
        if not found or found[0].namespace != namespace:
            raise NotFound(f"Worker {worker_id} was not found.")
        (view,) = await _views(tx, found, deaf)
        return view

    return await _read(store, body)


async def list_workers(
    store: Store,
    *,
    namespace: str,
    page: PageRequest,
    queue: str = "",
    status: WorkerStatus | None = None,
    deaf: Collection[str] = (),
) -> Page[WorkerView]:
    """Return workers that pass the filters, newest first, with lease and health."""
    namespace = check.namespace(namespace)
    filters = {"queue": queue, "status": status.value if status else ""}
    query, size, before_id = _place("workers", namespace, filters, page)

    async def body(tx: Tx) -> list[WorkerView]:
        await _check_namespace(tx, namespace)
        found = await table.list_workers(
            tx,
            namespace=namespace,
            queue=queue,
            status=filters["status"],
            before_id=before_id,
            amount=size + 1,
        )
        return await _views(tx, found, deaf)

    views = await _read(store, body)
    return _page(views, size, namespace, query, page.cursor_key)


async def list_queues(store: Store, *, namespace: str) -> tuple[QueueView, ...]:
    """Return the queues that have settings or live tasks, by name."""
    namespace = check.namespace(namespace)

    async def body(tx: Tx) -> tuple[QueueView, ...]:
        await _check_namespace(tx, namespace)
        known = [codec.queue_from(row) for row in await tx.one("list_queues", namespace)]
        queues = {each.name: each for each in known}
        counts: dict[str, dict[str, dict[TaskState, int]]] = {name: {} for name in queues}
        for row in await tx.one("count_tasks", namespace):
            name, type_, state, count = cast("tuple[str, str, str, int]", tuple(row))
            counts.setdefault(name, {}).setdefault(type_, {})[TaskState(state)] = count
        return tuple(
            QueueView(queues.get(name) or Queue(namespace, name), counts[name])
            for name in sorted(counts)
        )

    return await _read(store, body)


async def _find_task(tx: Tx, key: tuple[str, str]) -> Task:
    # Live first: a task that moves in between has then arrived in history.
    for task in await table.read_tasks(tx, [key]):
        return task
    for task in await table.load_history(tx, [key]):
        return task
    raise NotFound(f"Task {key[1]} was not found.")


async def _check_namespace(tx: Tx, namespace: str) -> None:
    if not await table.read_namespaces(tx, [namespace]):
        raise NotFound(f"Namespace {namespace} was not found.")


async def _views(tx: Tx, workers: Sequence[Worker], deaf: Collection[str]) -> list[WorkerView]:
    found = await table.read_leases(tx, [each.id for each in workers])
    leases = {each.worker_id: each for each in found}
    now_ms = await tx.now_ms()
    return [_view(each, leases.get(each.id), now_ms, is_deaf=each.id in deaf) for each in workers]


def _view(worker: Worker, lease: Lease | None, now_ms: int, *, is_deaf: bool) -> WorkerView:
    if lease is None:
        return WorkerView(worker, None, None)
    return WorkerView(worker, lease, health_rules.judge(lease, now_ms=now_ms, is_deaf=is_deaf))


def _place(
    what: str,
    namespace: str,
    filters: dict[str, str],
    page: PageRequest,
) -> tuple[str, int, str]:
    """Return the query that a cursor is bound to, the page size, and where the page begins."""
    for field, value in filters.items():
        if value:
            check.name(value, field)
    query = "&".join([what, *(f"{field}={value}" for field, value in filters.items())])
    size = check.page_size(page.size)
    if not page.token:
        return query, size, _NEWEST
    place = cursor.decode(page.cursor_key, page.token, namespace=namespace, query=query)
    return query, size, place


def _page(
    found: Sequence[T],
    size: int,
    namespace: str,
    query: str,
    cursor_key: bytes,
) -> Page[T]:
    """Cut what was read to the page; one row more than asked for tells that there is a next."""
    items = tuple(found[:size])
    if len(found) <= size:
        return Page(items, "")
    place = _id(items[-1])
    token = cursor.encode(cursor_key, namespace=namespace, query=query, position=place)
    return Page(items, token)


def _id(item: Any) -> str:  # noqa: ANN401 (a task, or a worker in its view)
    return cast("str", item.worker.id if isinstance(item, WorkerView) else item.id)


async def _read(store: Store, body: Body[T]) -> T:
    """Read, and say what a failure of the store means for the caller."""
    try:
        return await store.read(body)
    except StoreError as error:
        reason = error.reason if isinstance(error, Lost) else "conflict"
        message = f"The store is not available ({reason}). Try again."
        raise Unavailable(message, reason=reason, retry_after_ms=RETRY_AFTER_MS) from error
