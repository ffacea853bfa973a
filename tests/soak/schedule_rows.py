"""What scenes about schedules share: the schedules they put, what is stored, and its check."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

import apsw
import asyncpg
import msgspec

from tenure.core.schedule.record import Rule, Schedule, ScheduleSpec, Target
from tenure.core.task.record import Spec
from tenure.engine.clock import SystemClock
from tenure.store.location import make_store, sqlite_path
from tenure.store.table.schedule import load_active, replace_schedules
from tenure.store.transaction import Store, Tx
from tests.soak.result import Result
from tests.wire.checker import COMPLAINTS_MAX

NAMESPACE: Final = "default/default"
SECOND_MS: Final = 1_000
CHUNK: Final = 1_000
EVERY_SECOND: Final = Rule(every_ms=SECOND_MS)
TARGET: Final = Target(
    type="work", queue="default", spec=Spec(start_to_close_ms=60_000), input=b'{"sleep_ms": 0}'
)
_FIRES: Final = (
    "SELECT schedule_id, key, kind, fire_at_ms, until_ms, recorded_at_ms, task_id, reason, count, "
    "is_count_exact FROM fires ORDER BY schedule_id, id"
)
_COUNT: Final = "SELECT count(*) FROM fires"
_TASKS: Final = "SELECT id FROM tasks UNION ALL SELECT id FROM history"


class FireRow(msgspec.Struct, frozen=True, gc=False):
    """A fire as it is stored."""

    schedule_id: str
    key: str
    kind: str
    fire_at_ms: int
    until_ms: int
    recorded_at_ms: int
    task_id: str | None
    reason: str | None
    count: int
    is_count_exact: bool

    @property
    def lateness_ms(self) -> int:
        return self.recorded_at_ms - self.fire_at_ms


class Stored(NamedTuple):
    """All fires of each schedule in the order in which they were made, and the ids of all tasks."""

    fires: Mapping[str, list[FireRow]]
    task_ids: Sequence[str]

    def of(self, schedule_id: str) -> list[FireRow]:
        return self.fires.get(schedule_id, [])

    def fired(self, schedule_id: str) -> list[FireRow]:
        return [each for each in self.of(schedule_id) if each.kind == "tick"]

    def skipped(self, schedule_id: str) -> list[FireRow]:
        return [each for each in self.of(schedule_id) if each.kind == "skipped"]

    @property
    def all_fired(self) -> list[FireRow]:
        return [each for key in self.fires for each in self.fired(key)]


def content(rule: Rule = EVERY_SECOND, **fields: Any) -> ScheduleSpec:
    """Return a schedule of the activity that the workers of scenes have."""
    return ScheduleSpec(rule=rule, target=TARGET, **fields)


async def read_stored(url: str) -> Stored:
    """Read all fires and the ids of all tasks in one snapshot."""
    fires, tasks = await _select(url, _FIRES, _TASKS)
    found: dict[str, list[FireRow]] = defaultdict(list)
    for row in fires:
        values: list[Any] = [*row]
        values[6] = None if row[6] is None else str(row[6])
        found[row[0]].append(FireRow(*values))
    return Stored(found, [str(row[0]) for row in tasks])


async def count_fires(url: str) -> int:
    """Count all fires, also of a server that runs."""
    (row,) = (await _select(url, _COUNT))[0]
    return int(row[0])


async def _select(url: str, *statements: str) -> list[list[Any]]:
    """Read in one snapshot."""
    if url.startswith("sqlite"):
        file = apsw.Connection(sqlite_path(url), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            with file:
                return [list(file.execute(each)) for each in statements]
        finally:
            file.close()
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction(isolation="repeatable_read"):
            return [await connection.fetch(each) for each in statements]
    finally:
        await connection.close()


@asynccontextmanager
async def open_store(url: str) -> AsyncIterator[Store]:
    """Open the store of a scene; that of SQLite only while no server has it."""
    store = make_store(url, clock=SystemClock().now_ms)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def rewrite(url: str, change: Callable[[Schedule], Schedule]) -> int:
    """Change all active schedules as no client can: their marks, and when they are due."""
    async with open_store(url) as store:
        return await _rewrite(store, change)


async def _rewrite(store: Store, change: Callable[[Schedule], Schedule]) -> int:
    count, after_id = 0, ""
    while True:

        async def body(tx: Tx, after_id: str = after_id) -> list[Schedule]:
            found = await load_active(tx, NAMESPACE, after_id=after_id, amount=CHUNK)
            if found:
                await replace_schedules(tx, [change(each) for each in found])
            return found

        found = await store.transaction(body)
        if not found:
            break
        count, after_id = count + len(found), found[-1].id
    return count


def check_ticks(stored: Stored, schedule_id: str, expected: Sequence[int]) -> list[str]:
    """Complain unless each expected tick fired once or is in one skipped range, and no other is."""
    seen = Counter(each.fire_at_ms for each in stored.fired(schedule_id))
    for row in stored.skipped(schedule_id):
        seen.update(range(row.fire_at_ms, row.until_ms + 1, SECOND_MS))
    wanted = set(expected)
    complaints = [
        f"{schedule_id}: tick {at_ms} has {seen[at_ms]} fires or ranges"
        for at_ms in expected
        if seen[at_ms] != 1
    ]
    complaints += [f"{schedule_id}: {at_ms} is no tick" for at_ms in seen if at_ms not in wanted]
    return complaints[:COMPLAINTS_MAX]


def check_tasks(stored: Stored, others: Iterable[str] = ()) -> list[str]:
    """Complain unless each fire has a task of its own, and each task that nobody enqueued a fire.

    ``others`` are the tasks that a client has enqueued.
    """
    started = Counter(each.task_id for each in stored.all_fired)
    made = Counter(stored.task_ids)
    known = set(others)
    complaints = [f"task {each} belongs to {n} fires" for each, n in started.items() if n != 1]
    complaints += [f"task {each} is stored {n} times" for each, n in made.items() if n != 1]
    complaints += [f"the task of a fire is missing: {each}" for each in started.keys() - made]
    extra = made.keys() - started.keys() - known
    complaints += [f"task {each} belongs to no fire" for each in extra]
    return complaints[:COMPLAINTS_MAX]


def quantile(values: Iterable[float], part: float) -> float:
    """Return a value that ``part`` of all do not exceed; 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else 0.0


def load_note() -> str:
    """Say how busy the machine is: what is measured on a busy one says little."""
    return f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


def reported(name: str, measured: str) -> Result:
    """Return a number that nothing was promised of."""
    return Result(name, "reported", measured)
