"""A SQLite file whose bytes have changed on disk: nothing of it is served, and a check finds it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import apsw
import pytest
from structlog.testing import capture_logs

from tenure.cli.database import inspection
from tenure.core.task.record import TaskState
from tenure.core.task.retry import ErrorCategory
from tenure.engine.engine import Engine
from tenure.engine.read import query
from tenure.engine.settings import Settings
from tenure.errors import Unavailable
from tenure.store.failure import Lost, StoreDamagedError
from tenure.store.sqlite import SqliteStore
from tenure.store.table import task as task_table
from tests.engine.world import NAMESPACE, NAMESPACES_SQL, Clock, SqliteDatabase, World
from tests.store.rows import NOW, demand, insert, pending

INPUT: Final = b'{"amount": 1000000001, "note": "' + b"x" * 300 + b'"}'
OUTPUT: Final = b'{"receipt": 4711, "note": "' + b"y" * 300 + b'"}'
FLIPS: Final = 16


class FileDatabase(SqliteDatabase):
    """A file in place of a name in memory."""

    def __init__(self, clock: Clock, path: Path) -> None:
        super().__init__(clock)
        self.path = path

    def store(self, faults: Any, *, pooled: bool = False) -> SqliteStore:
        del faults, pooled
        return SqliteStore(str(self.path), clock=self.clock.now_ms, inline=True, synchronous="OFF")


@asynccontextmanager
async def opened(path: Path, clock: Clock) -> AsyncIterator[tuple[World, Engine]]:
    """Run an engine on a file."""
    database = FileDatabase(clock, path)
    store = database.store(None)
    engine = Engine(store, clock=clock, settings=Settings(lease_least_ms=1), services=())
    await engine.start()
    try:
        yield World(database, clock), engine
    finally:
        await engine.stop()
        await database.close()


def places(data: bytes, payload: bytes) -> Iterator[tuple[int, int]]:
    """Yield (byte, bit) of a sample of the bits of a payload in the file, its ends among them."""
    start = data.index(payload)
    assert data.count(payload) == 1
    size = len(payload) * 8
    chosen = {0, size - 1, *random.Random(7).sample(range(size), k=FLIPS)}
    for bit in sorted(chosen):
        yield start + bit // 8, bit % 8


def flip(source: Path, target: Path, byte: int, bit: int) -> None:
    data = bytearray(source.read_bytes())
    data[byte] ^= 1 << bit
    for old in target.parent.glob(f"{target.name}*"):
        old.unlink()
    target.write_bytes(data)


async def prepare(path: Path) -> None:
    store = SqliteStore(str(path), clock=lambda: NOW, inline=True, synchronous="OFF")
    await store.open()
    await store.close()
    connection = apsw.Connection(str(path))
    connection.execute(NAMESPACES_SQL)
    connection.close()


async def test_every_flip_in_a_stored_input_fails_its_task_and_is_found(tmp_path: Path) -> None:
    clock, source, file = Clock(), tmp_path / "source.db", tmp_path / "tenure.db"
    await prepare(source)
    async with opened(source, clock) as (world, engine):
        (bad,) = await world.add(engine, input=INPUT)
        (good,) = await world.add(engine, input=b'"sound"')
    for byte, bit in places(source.read_bytes(), INPUT):
        flip(source, file, byte, bit)
        found = await _check(file)
        assert found.problems == [f"tasks {NAMESPACE} {bad}: input"]
        with capture_logs() as logs:
            async with opened(file, clock) as (world, engine):
                worker = await world.worker(engine)
                given = await world.claim(engine, worker)
                assert [(task.id, task.input) for task in given] == [(good, b'"sound"')]
                task = await query.get_task(engine.store, namespace=NAMESPACE, task_id=bad)
        assert (task.state, task.input) == (TaskState.FAILED, None)
        assert task.progress.error is not None
        assert task.progress.error.category is ErrorCategory.DATA_QUALITY
        assert {each["task_id"] for each in logs if each["event"] == "task.damaged"} == {bad}


async def _check(file: Path) -> inspection.Check:
    """Check a file as the command does, from a loop that runs already."""
    return await asyncio.to_thread(inspection.check, f"sqlite:///{file}")


async def test_every_flip_in_a_stored_output_is_found_and_not_served(tmp_path: Path) -> None:
    clock, source, file = Clock(), tmp_path / "source.db", tmp_path / "tenure.db"
    await prepare(source)
    async with opened(source, clock) as (world, engine):
        worker = await world.worker(engine)
        done = await world.held(engine, worker, input=b"1")
        await world.finish(engine, worker, done, output=OUTPUT)
    for byte, bit in places(source.read_bytes(), OUTPUT):
        flip(source, file, byte, bit)
        assert (await _check(file)).problems == [f"history {NAMESPACE} {done.id}: output"]
        async with opened(file, clock) as (_, engine):
            task = await query.get_task(engine.store, namespace=NAMESPACE, task_id=done.id)
            assert (task.state, task.output) == (TaskState.SUCCEEDED, None)
            assert (task.input, task.damaged) == (b"1", ("output",))


async def test_no_flip_anywhere_in_the_tasks_serves_another_payload(tmp_path: Path) -> None:
    """Keys, texts and headers of rows included: what can be read is right, or it says so."""
    source, file = tmp_path / "source.db", tmp_path / "tenure.db"
    store = SqliteStore(str(source), clock=lambda: NOW, inline=True, synchronous="OFF")
    await store.open()
    tasks = [pending(n, input=INPUT, labels={"team": "blue"}) for n in range(20)]
    await insert(store, *tasks)
    await store.close()
    connection = apsw.Connection(str(source))
    pages = [row[0] for row in connection.execute("SELECT pageno FROM dbstat WHERE name = 'tasks'")]
    size = connection.pragma("page_size")
    connection.close()
    chosen = random.Random(3)
    read_count = 0
    for _ in range(150):
        byte = (chosen.choice(pages) - 1) * size + chosen.randrange(size)
        flip(source, file, byte, chosen.randrange(8))
        store = SqliteStore(str(file), clock=lambda: NOW, inline=True, synchronous="OFF")
        try:
            await store.open()
            found = await store.transaction(lambda tx: task_table.claim_tasks(tx, [demand()]))
            read_count += len(found)
            assert all(task.input == INPUT for task in found if not task.damaged)
            assert all(task.input in {None, INPUT} for task in found)
        except (StoreDamagedError, Lost):
            # A tree that cannot be walked any more.
            pass
        finally:
            await store.close()
    assert read_count > 100 * len(tasks)


async def test_a_text_that_is_none_any_more_hides_no_other_row(tmp_path: Path) -> None:
    file = tmp_path / "tenure.db"
    store = SqliteStore(str(file), clock=lambda: NOW, inline=True, synchronous="OFF")
    await store.open()
    await insert(store, *[pending(n, labels={"team": "blue"}, input=INPUT) for n in range(3)])
    await store.close()
    data = file.read_bytes()
    first = data.index(b'{"team":"blue"}')
    file.write_bytes(data[: first + 9] + b"\xff" + data[first + 10 :])
    store = SqliteStore(str(file), clock=lambda: NOW, inline=True, synchronous="OFF")
    await store.open()
    found = await store.transaction(lambda tx: task_table.claim_tasks(tx, [demand()]))
    read = await store.read(
        lambda tx: task_table.read_tasks(tx, [(task.namespace, task.id) for task in found])
    )
    await store.close()
    assert [task.damaged for task in found].count(("labels",)) == 1
    assert [task.labels for task in found].count({"team": "blue"}) == 2
    assert sorted(read, key=lambda task: task.id) == sorted(found, key=lambda task: task.id)


async def test_a_file_whose_structure_is_broken_is_not_worked_on(tmp_path: Path) -> None:
    file = tmp_path / "tenure.db"
    await _filled(file)
    connection = apsw.Connection(str(file))
    (page,) = next(
        connection.execute("SELECT pageno FROM dbstat WHERE name = 'tasks' AND pagetype = 'leaf'")
    )
    size = connection.pragma("page_size")
    connection.close()
    with file.open("r+b") as handle:
        handle.seek((page - 1) * size + 8)
        handle.write(b"\xff" * 40)
    store = SqliteStore(str(file), clock=lambda: NOW, inline=True)
    with capture_logs() as logs, pytest.raises(StoreDamagedError, match="restore a backup"):
        await store.open()
    await store.close()
    assert [each["event"] for each in logs] == ["store.damaged"]


async def test_a_row_with_an_impossible_value_is_logged_at_the_start(tmp_path: Path) -> None:
    file = tmp_path / "tenure.db"
    await _filled(file)
    connection = apsw.Connection(str(file))
    connection.pragma("ignore_check_constraints", 1)
    connection.execute("UPDATE tasks SET state = 'pfnding'")
    connection.close()
    store = SqliteStore(str(file), clock=lambda: NOW, inline=True)
    with capture_logs() as logs:
        await store.open()
    found = await store.read(lambda tx: task_table.claim_tasks(tx, [demand()]))
    await store.close()
    assert {task.damaged for task in found} == {("state",)}
    (event,) = [each for each in logs if each["event"] == "store.damaged"]
    assert set(event["problems"]) == {"CHECK constraint failed in tasks"}


async def test_a_damaged_page_that_is_met_later_makes_the_store_unavailable(tmp_path: Path) -> None:
    file = tmp_path / "tenure.db"
    await _filled(file)
    store = SqliteStore(str(file), clock=lambda: NOW, inline=True)
    await store.open()

    async def broken(_: object) -> None:
        raise apsw.CorruptError("database disk image is malformed")

    with pytest.raises(Unavailable) as refused:
        await query.read(store, broken)
    await store.close()
    assert refused.value.fields["reason"] == "storage_damaged"


async def _filled(file: Path) -> None:
    store = SqliteStore(str(file), clock=lambda: NOW, inline=True, synchronous="OFF")
    await store.open()
    await insert(store, *[pending(n, input=INPUT) for n in range(20)])
    await store.close()
