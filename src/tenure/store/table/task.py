"""Tasks and attempts, live and finished: records in, records out. Nothing is decided here."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import msgspec

from tenure.core.limits import CONTROL_SEEN_MAX, CONTROL_WINDOW_MS
from tenure.core.task import crash_guard
from tenure.core.task.attempt import Attempt
from tenure.core.task.crash_guard import ControlGroup
from tenure.core.task.enqueue_window import NOBODY
from tenure.core.task.record import AttemptProgress, Task
from tenure.core.worker.record import Worker
from tenure.store.failure import RowsBusy
from tenure.store.table import codec
from tenure.store.table.damaged_row import suspect_from, tasks_from
from tenure.store.table.fence import check_fence
from tenure.store.table.row_set import RowSet, Table
from tenure.store.table.worker import count_control_group
from tenure.store.transaction import Tx

if TYPE_CHECKING:
    from tenure.store.table.lock_order import RowSets

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
    takes_runs: bool = True


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


async def find_attempts(tx: Tx, key: TaskKey, *, after: int, amount: int) -> list[Attempt]:
    """Read so many ended attempts of a task behind one of them."""
    return [codec.attempt_from(row) for row in await tx.one("find_attempts", *key, after, amount)]


async def load_attempts(tx: Tx, key: TaskKey) -> list[Attempt]:
    """Read all ended attempts of a task but the last one of a finished task."""
    return [codec.attempt_from(row) for row in await tx.each("load_attempts", [key])]


async def load_due(tx: Tx, *, now_ms: int, amount: int) -> list[Task]:
    """Lock tasks whose timer has fired, without inputs; those that others handle are left out."""
    return tasks_from(await tx.one("load_due", now_ms, amount), codec.task_from)


async def next_due_ms(tx: Tx) -> int | None:
    """Return the earliest instant at which a timer fires."""
    return cast("int | None", (await tx.one("next_due"))[0][0])


async def load_held(tx: Tx, worker: Worker, *, amount: int) -> list[Task]:
    """Lock the tasks of a worker; inputs are not read."""
    rows = await tx.one("load_held", worker.namespace, worker.queue, worker.id, amount)
    return tasks_from(rows, codec.task_from)


async def claim_tasks(tx: Tx, demands: Sequence[Demand]) -> list[Task]:
    """Lock the head of each requested line; large inputs are left in the store."""
    rows = await tx.each("claim_tasks", [msgspec.structs.astuple(each) for each in demands])
    return tasks_from(rows, codec.claimed_from)


async def load_inputs(tx: Tx, keys: Iterable[TaskKey]) -> dict[TaskKey, bytes]:
    """Read the inputs of tasks that this transaction has locked; damaged ones are left out."""
    rows: Sequence[codec.AnyRow] = await tx.each("load_inputs", sorted(keys))
    return {(row[0], row[1]): row[2] for row in rows if codec.is_input_sound(*row[2:])}


async def look_inputs(tx: Tx, keys: Iterable[TaskKey]) -> dict[TaskKey, tuple[bytes | None, int]]:
    """Read small inputs, and the sizes of large ones; damaged ones are left out."""
    rows: Sequence[codec.AnyRow] = await tx.each("look_inputs", sorted(keys))
    return {
        (row[0], row[1]): (row[2], row[5])
        for row in rows
        if row[5] or codec.is_input_sound(row[2] or b"", *row[3:5])
    }


async def load_suspects(
    tx: Tx, workers: Iterable[tuple[str, str, str]]
) -> list[tuple[str, AttemptProgress]]:
    """Return the suspects of the crash guard that (namespace, queue, worker) hold, by worker."""
    rows = await tx.each("load_suspects", sorted(workers))
    return [suspect_from(row) for row in rows]


async def load_cancelling(tx: Tx, worker_ids: Iterable[str]) -> list[tuple[str, str, int]]:
    """Return (worker, task, attempt) of tasks that are being cancelled on these workers."""
    rows = await tx.each("load_cancelling", [(each,) for each in sorted(worker_ids)])
    return [cast("tuple[str, str, int]", tuple(row)) for row in rows]


async def count_held(tx: Tx, queues: Iterable[tuple[str, str]]) -> dict[tuple[str, str], int]:
    """Count the live attempts that workers hold, per queue."""
    rows = await tx.each("count_held", sorted(queues))
    return {cast("tuple[str, str]", (row[0], row[1])): cast("int", row[2]) for row in rows}


async def insert_tasks(tx: Tx, tasks: Sequence[Task]) -> None:
    """Write new tasks."""
    plain = [task for task in tasks if task.link is None]
    if plain:
        await tx.each("insert_tasks", [codec.task_inserted(task) for task in plain])
    if len(plain) < len(tasks):
        linked = [
            (*codec.task_inserted(task), *codec.link_inserted(task))
            for task in tasks
            if task.link is not None
        ]
        await tx.each("insert_linked_tasks", linked)


async def insert_finished(tx: Tx, tasks: Sequence[Task]) -> None:
    """Write tasks that were finished before they were ever stored."""
    await tx.each("insert_history", [codec.history_inserted(task) for task in tasks])


async def update_tasks(tx: Tx, tasks: Sequence[Task]) -> None:
    """Write changed tasks, each fenced by the version that was read."""
    written = await tx.fenced("update_tasks", [codec.task_updated(task) for task in tasks])
    check_fence(tasks, written)


async def finish_tasks(tx: Tx, tasks: Sequence[Task]) -> None:
    """Move finished tasks to history, each fenced by the version that was read."""
    written = await tx.fenced("finish_tasks", [codec.task_finished(task) for task in tasks])
    check_fence(tasks, written)


async def insert_attempts(tx: Tx, attempts: Sequence[Attempt]) -> None:
    """Write ended attempts."""
    await tx.each("insert_attempts", [codec.attempt_inserted(each) for each in attempts])


class TaskRows(RowSet[TaskKey, Task]):
    """Tasks by (namespace, id), live ones locked, finished ones read.

    ``births`` are the ids of new tasks that have to be looked up; young ones, in ``window``, have
    not. ``cached`` are those of the ``cache`` that were not read. Of ``locked`` ones no copy will
    do, because what is decided on them may not write their row. ``parents`` are locked too, if
    they are live, and with them everything else that belongs to runs: so batches that end each
    other's children wait in one order. Others are found by who holds them (``held_of`` a worker,
    at the most so many) or because their timer has fired.
    ``reinput`` are runs that begin anew with another input.
    """

    __slots__ = (
        "births",
        "cache",
        "cached",
        "control",
        "due",
        "due_max",
        "has_young",
        "held",
        "held_of",
        "locked",
        "parents",
        "reinput",
        "window",
    )

    table = Table(operator.attrgetter("namespace", "id"))

    def __init__(self) -> None:
        """Start with nothing."""
        super().__init__()
        self.births: set[TaskKey] = set()
        self.window = NOBODY
        self.has_young = False
        self.cache: Mapping[TaskKey, Task] = {}
        self.cached: set[TaskKey] = set()
        self.locked: set[TaskKey] = set()
        self.parents: set[TaskKey] = set()
        self.held_of: dict[str, int] = {}
        self.held: dict[str, list[TaskKey]] = {}
        self.control: dict[str, ControlGroup] = {}
        self.reinput: set[TaskKey] = set()
        self.due_max = 0
        self.due: list[TaskKey] = []

    async def load(self, tx: Tx, rows: RowSets) -> None:
        """Load and lock wanted tasks that are not cached, then look up finished ones."""
        if rows.closings.amount:
            await self._want_children(tx, rows)
        wanted = self._remember(rows)
        await self._lock_wanted(tx, wanted | self.parents if self.parents else wanted)
        if self.held_of:
            await self._load_all_held(tx, rows)
        if self.due_max:
            await self._load_due(tx)
        if missing := [key for key in wanted if key not in self]:
            for task in await load_history(tx, missing):
                self.take(task)
        if len(self.loaded) > len(self.cached):
            rows.note_locked()

    async def _lock_wanted(self, tx: Tx, keys: set[TaskKey]) -> None:
        if keys:
            for task in await load_tasks(tx, keys):
                self.take(task)

    def _remember(self, rows: RowSets) -> set[TaskKey]:
        """Take cached copies of wanted tasks; return what has to be read."""
        self.wanted |= self.births
        self.wanted |= self.locked
        is_linked = False
        for key in self.wanted - self.locked if self.locked else self.wanted:
            task = self.cache.get(key)
            if task is not None:
                self[key] = self.loaded[key] = task
                self.cached.add(key)
                if task.link is not None:
                    is_linked = True
        if is_linked:
            self._lock_families(rows)
        return self.wanted - self.cached

    def _lock_families(self, rows: RowSets) -> None:
        """Lock the parents of children that may end; then no copy of what runs have will do."""
        for key, _ in rows.attempts.finishes:
            link = self[key].link if key in self.cached else None
            if link is not None and link.parent_id is not None:
                place = link.place
                parent = (key[0], place.run_id)
                self.parents.add(parent)
                rows.journals.of_runs.add(parent)
                if place.group_id:
                    rows.groups.wanted.add(place.group_id)
        if self.parents:
            for key in [key for key in self.cached if self[key].link is not None]:
                self.cached.discard(key)
                del self[key], self.loaded[key]

    async def _want_children(self, tx: Tx, rows: RowSets) -> None:
        """Want children that are to be closed, with the ends of their journals, and their run."""
        children = await rows.closings.take_children(tx)
        self.wanted.update(children)
        rows.journals.of_runs.update(children)
        taken = rows.closings.taken
        if taken is not None and not taken.is_group:
            self.parents.add((taken.namespace, taken.owner_id))
            rows.journals.of_runs.add((taken.namespace, taken.owner_id))

    async def lock_more(self, tx: Tx, keys: Iterable[TaskKey]) -> None:
        """Lock parents that were not known before, without waiting: others may wait for us.

        If one is locked by somebody else, or was decided on from a copy, all has to be done again,
        with these parents locked from the start.
        """
        missing = set(keys)
        self.parents |= missing
        for task in tasks_from(await tx.each("lock_free_tasks", sorted(missing)), codec.task_from):
            self.take(task)
            missing.discard((task.namespace, task.id))
        if missing and await tx.each("find_tasks", sorted(missing)):
            # Also those that were free now: the next time one of them may not be.
            raise RowsBusy(frozenset(self.parents))

    async def _load_due(self, tx: Tx) -> None:
        found = await load_due(tx, now_ms=await tx.now_ms(), amount=self.due_max)
        self.due = [self._take_fresh(task) for task in found]

    async def _load_all_held(self, tx: Tx, rows: RowSets) -> None:
        for worker_id, amount in sorted(self.held_of.items()):
            worker = rows.workers.get(worker_id)
            if worker is not None:
                await self._load_held(tx, worker, amount)

    async def _load_held(self, tx: Tx, worker: Worker, amount: int) -> None:
        held = await load_held(tx, worker, amount=amount)
        self.held[worker.id] = [self._take_fresh(task) for task in held]
        if worker.release_pending and crash_guard.is_control_needed(held):
            self.control[worker.id] = await _load_control(tx, worker)

    def _take_fresh(self, task: Task) -> TaskKey:
        """Prefer a row that was just locked to a cached copy."""
        key = self.take(task)
        self.cached.discard(key)
        return key

    async def save(self, tx: Tx, rows: RowSets) -> None:
        """Save tasks, split by whether they are finished."""
        if rows.journals.holders:
            await rows.journals.save_reported(tx)
        if self.changed:
            finished, live = _split(self.changed)
            if finished:
                # The end of a row keeps the journal that the row has.
                await self._renew_journals(tx, finished)
                await self._replace_inputs(tx, finished)
                await finish_tasks(tx, finished)
            if live:
                await update_tasks(tx, live)
                await self._renew_journals(tx, live)
                await self._replace_inputs(tx, live)
        if self.new:
            finished, live = _split(self.new)
            if live:
                await insert_tasks(tx, live)
            if finished:
                await insert_finished(tx, finished)

    async def _replace_inputs(self, tx: Tx, tasks: Sequence[Task]) -> None:
        """Store the inputs with which runs begin anew."""
        given = [task for task in tasks if (task.namespace, task.id) in self.reinput]
        if given:
            await tx.each("replace_inputs", [codec.input_replaced(task) for task in given])

    async def _renew_journals(self, tx: Tx, tasks: Sequence[Task]) -> None:
        """Give runs that begin anew their new journals, of which no other write knows."""
        renewed = []
        for task in tasks:
            link = task.link
            if link is not None:
                key = (task.namespace, task.id)
                # What was claimed was not loaded, and is only handed out.
                old = self.loaded.get(key, task).link
                assert old is not None
                if old.journal_id != link.journal_id:
                    renewed.append((*key, link.journal_id, old.journal_id))
        if renewed:
            await tx.each("renew_journals", renewed)

    def keep_taken(self, first: RowSet[TaskKey, Task]) -> None:
        """Keep the tasks that were locked because their timers have fired."""
        assert isinstance(first, TaskRows)
        self.due = [self._take_fresh(first.loaded[key]) for key in first.due]


async def _load_control(tx: Tx, worker: Worker) -> ControlGroup:
    """Read how many other workers of a lost worker's queue were lost and live."""
    assert worker.ended_at_ms is not None
    since_ms = worker.ended_at_ms - CONTROL_WINDOW_MS
    return await count_control_group(tx, worker, since_ms=since_ms, seen_max=CONTROL_SEEN_MAX)


def _split(tasks: Mapping[TaskKey, Task]) -> tuple[list[Task], list[Task]]:
    """Split tasks into finished and live ones."""
    finished: list[Task] = []
    live: list[Task] = []
    for task in tasks.values():
        (finished if task.finished_at_ms is not None else live).append(task)
    return finished, live


class AttemptRows(RowSet[tuple[str, str, int], Attempt]):
    """Ended attempts by (namespace, task, number); ``finishes`` are those that reports end.

    They are only written. A reported attempt that is not live any more is read: it may have been
    accepted before.
    """

    __slots__ = ("finishes",)

    table = Table(
        operator.attrgetter("namespace", "task_id", "number"),
        load=load_ended,
        insert=insert_attempts,
        is_locked=False,
    )

    def __init__(self) -> None:
        """Start with nothing."""
        super().__init__()
        self.finishes: list[tuple[TaskKey, int]] = []

    async def load(self, tx: Tx, rows: RowSets) -> None:
        """Look up attempts that are not live."""
        tasks = rows.tasks
        for key, attempt in self.finishes:
            known = tasks.get(key)
            if known is None or attempt != known.attempt or not known.is_attempt_live:
                self.wanted.add((*key, attempt))
        await super().load(tx, rows)
