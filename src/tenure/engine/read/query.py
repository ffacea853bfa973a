"""The reads: one task, lists with cursors, attempts, workers with their health, queue counts.

They run on the store's readers, separate from the lanes, and see committed data. Lists and counts
are scans, of which few run at a time; lookups never wait for them. A row of another namespace is
not found, with the same message as if it did not exist.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec

from tenure.core import check, cursor
from tenure.core.filter import (
    ALL_TASKS,
    ALL_WORKERS,
    RunFilter,
    TaskFilter,
    TaskSearch,
    WorkerFilter,
    instant_of,
    query_text,
)
from tenure.core.limits import (
    COUNTED_MAX,
    HELD_LISTED_MAX,
    HELD_SET_MAX,
    LISTED_IDS_MAX,
    LISTED_SEEN_MAX,
    QUEUE_ROWS_MAX,
    QUEUES_COUNTED_AT_ONCE,
)
from tenure.core.queue import Queue
from tenure.core.seat.record import SeatView
from tenure.core.task.attempt import Attempt, Outcome
from tenure.core.task.callback import CallbackAttempt
from tenure.core.task.record import Task, TaskState
from tenure.core.task.retry import ErrorInfo
from tenure.core.worker import decide as worker_rules
from tenure.core.worker import health as health_rules
from tenure.core.worker import stop_check
from tenure.core.worker.health import Health
from tenure.core.worker.lease import Lease
from tenure.core.worker.record import Worker, WorkerMode
from tenure.core.worker.stop_check import HeldSum
from tenure.engine.batch.damage_log import note_damage
from tenure.errors import InvalidArgument, NotFound, Unavailable
from tenure.store.failure import Lost, StoreError
from tenure.store.table import lease as lease_table
from tenure.store.table import listing, run_list, task_list, task_search
from tenure.store.table import queue as queue_table
from tenure.store.table import seat as seat_table
from tenure.store.table import task as task_table
from tenure.store.table import worker as worker_table
from tenure.store.table.listing import NEWEST, Onlooker, Slice, Total
from tenure.store.transaction import Body, Store, Tx

T = TypeVar("T")
AnyTaskFilter = TaskFilter | RunFilter | TaskSearch
RETRY_AFTER_MS: Final = 500


class Page(msgspec.Struct, Generic[T], frozen=True):
    """Some items of a list, newest first; an empty token means that there are no more.

    One page reads a limited number of rows, so it may be short, or even empty, while there is a
    next one. ``total_count`` is set when it was requested. Counting stops at a limit: then there
    are at least so many.
    """

    items: tuple[T, ...]
    next_page_token: str
    total_count: int | None = None
    is_total_exact: bool = True
    # A list of tasks that ended early has gone back to this instant.
    searched_back_to_ms: int | None = None


class PageRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Which page of a list is requested, and the secret that signs the cursors of this server."""

    cursor_key: bytes
    size: int = 0
    token: str = ""
    wants_total: bool = False


class AttemptView(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One attempt of a task; the end of a live one is not known."""

    number: int
    worker_id: str | None
    handed_at_ms: int
    ended_at_ms: int | None = None
    outcome: Outcome | None = None
    error: ErrorInfo | None = None
    callback: CallbackAttempt | None = None


class WorkerView(msgspec.Struct, frozen=True, gc=False):
    """A worker at an instant, with what it holds, and while it is active its lease and its health.

    The totals are those of its last heartbeat, also when it is offline. A served worker has a
    ``seat``.
    """

    worker: Worker
    lease: Lease | None
    health: Health | None
    total_completed: int
    total_failed: int
    held: HeldSum
    now_ms: int
    seat: SeatView | None = None

    @property
    def may_stop(self) -> bool:
        """Return whether a stop interrupts nothing."""
        return stop_check.is_safe(stop_check.reason(self.worker, self.held))


class QueueView(msgspec.Struct, frozen=True):
    """A queue with pause and limit and the number of its live tasks, by type and state.

    Counting stops at a limit: then there are at least so many, and types may be missing.
    """

    queue: Queue
    counts: dict[str, dict[TaskState, int]]
    is_exact: bool = True

    def count(self, state: TaskState) -> int:
        """Return how many tasks of any type are in a state."""
        return sum(each.get(state, 0) for each in self.counts.values())


async def get_task(store: Store, *, namespace: str, task_id: str) -> Task:
    """Return a task, live or finished."""
    key = (check.namespace(namespace), check.task_id(task_id, "taskId"))
    task = await read(store, lambda tx: find_task(tx, key))
    note_damage((task,))
    return task


async def list_tasks(
    store: Store, *, namespace: str, page: PageRequest, where: AnyTaskFilter = ALL_TASKS
) -> Page[Task]:
    """Return tasks or runs that match the filter, newest first, live and finished."""
    namespace = check.namespace(namespace)
    if page.wants_total and type(where) is TaskSearch:
        raise InvalidArgument("This search cannot be counted.", field="totalCount")
    what, find, count = _LISTS[type(where)]
    place = place_of(namespace, query_text(what, where.checked()), page)

    async def body(tx: Tx) -> Read[Task]:
        await check_exists(tx, namespace)
        found = await find(tx, namespace, where, place.part)
        tasks = await task_list.load_tasks(tx, namespace, found.ids)
        total = None
        if page.wants_total:
            total = await count(tx, namespace, where, amount=COUNTED_MAX + 1)
        return Read(tasks, total, found.end_id)

    found = await scan(store, body)
    note_damage(found.found)
    shown = page_of(found, place, lambda task: task.id)
    if found.end is None or len(found.found) > place.size:
        return shown
    return msgspec.structs.replace(shown, searched_back_to_ms=instant_of(found.end))


async def find_listed(
    store: Store,
    *,
    namespace: str,
    task_ids: Collection[str],
    page: PageRequest,
    plain: TaskFilter,
    where: TaskSearch,
) -> Page[Task]:
    """Return those of some tasks that match the filter, newest first, all on one page."""
    namespace = check.namespace(namespace)
    check.integer(len(task_ids), "id", 1, LISTED_IDS_MAX)
    wanted = sorted({check.task_id(each, "id") for each in task_ids}, reverse=True)
    where.checked()
    place_of(namespace, query_text("tasks", plain.checked()), page)

    async def body(tx: Tx) -> list[Task]:
        await check_exists(tx, namespace)
        return await task_list.load_tasks(tx, namespace, wanted)

    note_damage(found := await scan(store, body))
    return Page(tuple(each for each in found if where.takes(each)), "")


# What is listed, and how; each function takes the filter next to it.
_LISTS: Final[dict[type, tuple[str, Callable[..., Any], Callable[..., Any]]]] = {
    TaskFilter: ("tasks", task_list.find_tasks, task_list.count_tasks),
    RunFilter: ("runs", run_list.find_runs, run_list.count_runs),
    TaskSearch: ("search", task_search.search_tasks, task_list.count_tasks),
}


async def list_attempts(store: Store, *, namespace: str, task_id: str) -> tuple[AttemptView, ...]:
    """Return the attempts of a task in their order; the last one may be live."""
    key = (check.namespace(namespace), check.task_id(task_id, "taskId"))

    async def body(tx: Tx) -> tuple[AttemptView, ...]:
        # The task first: an attempt that ends in between is then found among the ended ones.
        task = await find_task(tx, key)
        ended = await task_table.load_attempts(tx, key)
        views = [_ended(each) for each in ended]
        if task.attempt and task.attempt not in {each.number for each in ended}:
            views.append(_last(task))
        return tuple(views)

    return await read(store, body)


def _ended(attempt: Attempt) -> AttemptView:
    return AttemptView(
        number=attempt.number,
        worker_id=attempt.worker_id,
        handed_at_ms=attempt.handed_at_ms,
        ended_at_ms=attempt.ended_at_ms,
        outcome=attempt.outcome,
        error=attempt.error,
        callback=attempt.callback,
    )


def _last(task: Task) -> AttemptView:
    """Return the last attempt, which has no row: it is part of its task, or ended with it."""
    return AttemptView(
        number=task.attempt,
        worker_id=task.worker_id,
        handed_at_ms=task.handed_at_ms,
        ended_at_ms=task.finished_at_ms,
        outcome=None if task.finished_at_ms is None else task.last_outcome,
        error=None if task.finished_at_ms is None else task.progress.error,
        callback=task.progress.callback,
    )


async def get_worker(
    store: Store, *, namespace: str, worker_id: str, deaf: Collection[str] = ()
) -> WorkerView:
    """Return a worker with lease, health and held tasks; ``deaf`` is the engine's own set."""
    namespace = check.namespace(namespace)
    check.task_id(worker_id, "workerId")

    async def body(tx: Tx) -> WorkerView:
        found = await worker_table.read_workers(tx, [worker_id])
        if not found or found[0].namespace != namespace:
            raise NotFound(f"Worker {worker_id} was not found.")
        worker = found[0]
        leases = await lease_table.read_leases(tx, [worker_id])
        onlooker = Onlooker(await tx.now_ms(), deaf)
        found_lease = leases[0] if leases else None
        (view,) = await _views(tx, [(worker, found_lease)], onlooker, HELD_SET_MAX + 1)
        return view

    return await read(store, body)


async def find_workers(
    store: Store,
    *,
    namespace: str,
    worker_ids: Collection[str],
    page: PageRequest,
    where: WorkerFilter = ALL_WORKERS,
    deaf: Collection[str] = (),
) -> Page[WorkerView]:
    """Return those of some workers that match the filter, newest first, all on one page."""
    namespace = check.namespace(namespace)
    check.integer(len(worker_ids), "id", 1, LISTED_IDS_MAX)
    wanted = {check.task_id(each, "id") for each in worker_ids}
    place_of(namespace, query_text("workers", where.checked()), page)

    async def body(tx: Tx) -> list[WorkerView]:
        await check_exists(tx, namespace)
        found = await worker_table.read_workers(tx, wanted)
        leases = {each.worker_id: each for each in await lease_table.read_leases(tx, wanted)}
        mine = [(each, leases.get(each.id)) for each in found if each.namespace == namespace]
        mine.sort(key=lambda placed: placed[0].id, reverse=True)
        return await _views(tx, mine, Onlooker(await tx.now_ms(), deaf))

    views = await scan(store, body)
    return Page(tuple(each for each in views if where.takes(each.worker, each.health)), "")


async def check_reporter(
    store: Store, *, namespace: str, worker_id: str, speaker: str | None
) -> None:
    """Refuse a worker that is not live, and an API key that acts for a worker of another key."""

    async def body(tx: Tx) -> list[Worker]:
        return await worker_table.read_workers(tx, [worker_id])

    found = await read(store, body)
    worker = found[0] if found else None
    refusal = worker_rules.report_refusal(worker, namespace=namespace, worker_id=worker_id)
    if refusal is None and worker is not None:
        refusal = worker_rules.speaker_refusal(worker, speaker)
    if refusal is not None:
        raise refusal.to_error()


async def list_workers(
    store: Store,
    *,
    namespace: str,
    page: PageRequest,
    where: WorkerFilter = ALL_WORKERS,
    deaf: Collection[str] = (),
) -> Page[WorkerView]:
    """Return workers that match the filter, newest first, with lease and health."""
    namespace = check.namespace(namespace)
    query = query_text("workers", where.checked())
    place = place_of(namespace, query, page)

    async def body(tx: Tx) -> Read[WorkerView]:
        await check_exists(tx, namespace)
        onlooker = Onlooker(await tx.now_ms(), deaf)
        found, end_id = await listing.list_workers(tx, namespace, where, place.part, onlooker)
        views = await _views(tx, found, onlooker)
        total = None
        if page.wants_total:
            most = COUNTED_MAX + 1
            total = await listing.count_workers(tx, namespace, where, onlooker, amount=most)
        return Read(views, total, end_id)

    return page_of(await scan(store, body), place, lambda view: view.worker.id)


async def get_queue(
    store: Store, *, namespace: str, name: str, counted_max: int = COUNTED_MAX
) -> QueueView:
    """Return a queue; a queue without tasks and settings is empty, without pause and limit."""
    namespace, name = check.namespace(namespace), check.name(name, "queue")

    async def body(tx: Tx) -> QueueView:
        await check_exists(tx, namespace)
        return (await _queue_views(tx, namespace, [name], counted_max))[0]

    return await scan(store, body)


async def check_namespace(store: Store, *, namespace: str) -> None:
    """Raise ``not_found`` for a namespace that does not exist."""
    namespace = check.namespace(namespace)
    await read(store, lambda tx: check_exists(tx, namespace))


async def list_queues(
    store: Store, *, namespace: str, page: PageRequest, counted_max: int = COUNTED_MAX
) -> Page[QueueView]:
    """Return the queues that have settings or live tasks, by name in the order of the store."""
    namespace = check.namespace(namespace)
    place = place_of(namespace, "queues", page, first="")

    async def body(tx: Tx) -> Read[QueueView]:
        await check_exists(tx, namespace)
        names = await listing.find_queues(tx, namespace, place.part)
        wanted = names[: place.size]
        views: list[QueueView] = []
        counted = 0
        while len(views) < len(wanted) and counted < QUEUE_ROWS_MAX:
            some = wanted[len(views) : len(views) + QUEUES_COUNTED_AT_ONCE]
            found = await _queue_views(tx, namespace, some, counted_max)
            counted += sum(view.count(state) for view in found for state in TaskState)
            views += found
        is_whole = len(views) == len(names)
        return Read(views, None, None if is_whole else views[-1].queue.name)

    return page_of(await scan(store, body), place, lambda view: view.queue.name)


async def _queue_views(
    tx: Tx, namespace: str, names: Sequence[str], counted_max: int
) -> list[QueueView]:
    known = {each.name: each for each in await listing.read_queues(tx, namespace, names)}
    found = await listing.count_queues(tx, namespace, names, amount=counted_max)
    views = []
    for name in names:
        counts = found.get(name, {})
        counted = sum(count for states in counts.values() for count in states.values())
        queue = known.get(name) or Queue(namespace, name)
        views.append(QueueView(queue, counts, is_exact=counted < counted_max))
    return views


def namespace_not_found(name: str) -> NotFound:
    """Return that a namespace does not exist, or is not the caller's."""
    return NotFound(f"Namespace {name} was not found.")


async def find_task(tx: Tx, key: tuple[str, str]) -> Task:
    """Return a task, live or finished, by its namespace and its id."""
    # Live first: a task that moves in between has then arrived in history.
    for task in await task_table.read_tasks(tx, [key]):
        return task
    for task in await task_table.load_history(tx, [key]):
        return task
    raise NotFound(f"Task {key[1]} was not found.")


async def check_exists(tx: Tx, namespace: str) -> None:
    """Raise ``not_found`` for a namespace that does not exist, within a read."""
    if not await queue_table.read_namespaces(tx, [namespace]):
        raise namespace_not_found(namespace)


async def _views(
    tx: Tx,
    found: Sequence[tuple[Worker, Lease | None]],
    onlooker: Onlooker,
    held_max: int = HELD_LISTED_MAX,
) -> list[WorkerView]:
    """Show workers; the totals of those without a lease are read after it was missed.

    What they hold is read after their status: see ``core.worker.stop_check``.
    """
    ended = [worker.id for worker, lease in found if lease is None]
    totals = await worker_table.read_totals(tx, ended) if ended else {}
    places = [(worker.namespace, worker.queue, worker.id) for worker, _ in found]
    sums = await listing.sum_worker_held(tx, places, amount=held_max)
    views = []
    for worker, lease in found:
        held, now_ms = sums.get(worker.id, HeldSum()), onlooker.now_ms
        if lease is None:
            # A worker that was deleted meanwhile has none.
            counts = totals.get(worker.id, (0, 0))
            view = WorkerView(worker, None, None, *counts, held, now_ms)
        else:
            is_deaf = worker.id in onlooker.deaf
            health = health_rules.judge(lease, now_ms=now_ms, is_deaf=is_deaf)
            counts = (lease.total_completed, lease.total_failed)
            view = WorkerView(worker, lease, health, *counts, held, now_ms)
        views.append(view)
    return await _with_seats(tx, views)


async def _with_seats(tx: Tx, views: list[WorkerView]) -> list[WorkerView]:
    """Show the seats of served workers."""
    served = [each.worker.id for each in views if each.worker.mode is WorkerMode.SERVED]
    if not served:
        return views
    seats = await seat_table.view_seats(tx, served)
    return [msgspec.structs.replace(each, seat=seats.get(each.worker.id)) for each in views]


class Read(msgspec.Struct, Generic[T], frozen=True):
    """The rows of a list, the total if it was requested, and where an early end was."""

    found: Sequence[T]
    total: Total | None = None
    end: str | None = None


class Place(msgspec.Struct, frozen=True):
    """A page of a list: the scope of its cursors, and the rows to read for it."""

    namespace: str
    query: str
    cursor_key: bytes
    size: int
    part: Slice


def place_of(namespace: str, query: str, page: PageRequest, *, first: str = NEWEST) -> Place:
    """Return where a page is; one extra row shows whether there is a next one."""
    size = check.page_size(page.size)
    position = first
    if page.token:
        position = cursor.decode(page.cursor_key, page.token, namespace=namespace, query=query)
    part = Slice(position, size + 1, LISTED_SEEN_MAX)
    return Place(namespace, query, page.cursor_key, size, part)


def page_of(read: Read[T], place: Place, position: Callable[[T], str]) -> Page[T]:
    """Cut the rows to the page, with the cursor of the next one."""
    items = tuple(read.found[: place.size])
    end = read.end if len(read.found) <= place.size else position(items[-1])
    token = ""
    if end is not None:
        token = cursor.encode(
            place.cursor_key, namespace=place.namespace, query=place.query, position=end
        )
    total = read.total
    if total is None:
        return Page(items, token)
    is_exact = total.is_exact and total.count <= COUNTED_MAX
    return Page(items, token, min(total.count, COUNTED_MAX), is_total_exact=is_exact)


async def list_named(
    store: Store,
    *,
    namespace: str,
    query: str,
    page: PageRequest,
    find: Callable[[Tx, str, int], Awaitable[Sequence[T]]],
    name_of: Callable[[T], str],
) -> Page[T]:
    """Return a page of things of a namespace that are found and ordered by their names."""
    place = place_of(namespace, query, page, first="")

    async def body(tx: Tx) -> Read[T]:
        await check_exists(tx, namespace)
        return Read(await find(tx, place.part.position, place.part.amount))

    return page_of(await scan(store, body), place, name_of)


async def read(store: Store, body: Body[T]) -> T:
    """Look up a few rows, and translate a failure of the store for the caller."""
    try:
        return await store.read(body)
    except StoreError as error:
        raise _unavailable(error) from error


async def scan(store: Store, body: Body[T]) -> T:
    """Read many rows, and translate a failure of the store for the caller."""
    try:
        return await store.scan(body)
    except StoreError as error:
        raise _unavailable(error) from error


def _unavailable(error: StoreError) -> Unavailable:
    reason = error.reason if isinstance(error, Lost) else "conflict"
    message = f"The store is not available ({reason}). Try again."
    return Unavailable(message, reason=reason, retry_after_ms=RETRY_AFTER_MS)
