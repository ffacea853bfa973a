"""What is left of a transaction that fails at its n-th statement, or whose store goes away."""

from __future__ import annotations

import asyncio
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import asyncpg
import pytest
from msgspec.structs import replace

from tenure.core.limits import READ_POOL_SIZE
from tenure.store.failure import Lost, Refused, StoreInUseError
from tenure.store.postgres import PostgresStore
from tenure.store.sqlite import SqliteStore
from tenure.store.table import idempotency as idempotency_table
from tenure.store.table import lease as lease_table
from tenure.store.table import queue as queue_table
from tenure.store.table import task as task_table
from tenure.store.table import worker as worker_table
from tenure.store.table.idempotency import Key
from tenure.store.transaction import LaneName, Store, Tx
from tests.bounds import WAIT_S
from tests.store.rows import (
    NAMESPACE,
    NOW,
    QUEUE,
    add_workers,
    by_id,
    demand,
    dispatched_from,
    ended_attempt,
    finished_from,
    held,
    history,
    insert,
    lease,
    live,
    pending,
    stored_lease,
    stored_worker,
    task_id,
    worker,
    worker_id,
)


class Cut(Exception):
    """What a test lets fail."""


class Crash(BaseException):
    """What the simulation raises: nobody may swallow it."""


class Fault:
    """A probe that raises at the n-th of its points."""

    def __init__(self) -> None:
        self.points: list[str] = []
        self._raise_at: int | None = None
        self._error: type[BaseException] = Cut

    def __call__(self, point: str) -> None:
        self.points.append(point)
        if len(self.points) - 1 == self._raise_at:
            raise self._error

    def arm(self, at: int, error: type[BaseException] = Cut) -> None:
        """Raise at the n-th point from now on."""
        self.points, self._raise_at, self._error = [], at, error

    def disarm(self) -> None:
        self.points, self._raise_at = [], None


@pytest.fixture
def fault() -> Fault:
    return Fault()


@pytest.fixture
async def faulty_sqlite(fault: Fault, tmp_path: Path) -> AsyncIterator[SqliteStore]:
    path = str(tmp_path / "tenure.db")
    store = SqliteStore(path, clock=lambda: NOW, probe=fault, synchronous="OFF")
    await prepare(store)
    yield store
    await store.close()


@pytest.fixture
async def faulty_postgres(fault: Fault, dsn: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(dsn, probe=fault)
    await prepare(store)
    yield store
    await store.close()


@pytest.fixture(params=["sqlite", "postgres"])
def faulty(request: pytest.FixtureRequest) -> Store:
    """Return a store with the probe."""
    opened: Store = request.getfixturevalue(f"faulty_{request.param}")
    return opened


async def prepare(store: Store) -> None:
    """Open a store in which a worker holds two tasks and another one waits."""
    await store.open()
    await insert(store, pending(1), held(2), held(3))
    await add_workers(store, [worker(1)], [lease(1)])


async def everything(tx: Tx) -> None:
    """A transaction with a write of each kind."""
    (locked,) = await worker_table.lock_workers(tx, [worker_id(1)])
    await idempotency_table.lock_keys(tx, [(NAMESPACE, "order")])
    second, third = await task_table.load_tasks(tx, [(NAMESPACE, task_id(n)) for n in (2, 3)])
    claimed = await task_table.claim_tasks(tx, [demand()])
    await worker_table.update_workers(tx, [replace(locked, session_no=7)])
    await worker_table.insert_workers(tx, [worker(2)])
    await lease_table.insert_leases(tx, [lease(2)])
    await idempotency_table.insert_keys(
        tx, [Key(NAMESPACE, "order", task_id(4), b"digest", None, is_task_live=True)]
    )
    await task_table.finish_tasks(tx, [finished_from(second)])
    await task_table.update_tasks(
        tx, [*map(dispatched_from, claimed), replace(third, due_at_ms=NOW)]
    )
    await task_table.insert_tasks(tx, [pending(4)])
    await task_table.insert_finished(tx, [finished_from(held(5))])
    await task_table.insert_attempts(tx, [ended_attempt(3, 1)])


async def state_of(store: Store, fault: Fault) -> list[object]:
    """Return all that ``everything`` may change."""
    fault.disarm()
    keys = await store.transaction(
        lambda tx: idempotency_table.lock_keys(tx, [(NAMESPACE, "order")])
    )
    attempts = await store.read(lambda tx: task_table.load_attempts(tx, (NAMESPACE, task_id(3))))
    workers = await store.read(
        lambda tx: worker_table.read_workers(tx, [worker_id(1), worker_id(2)])
    )
    return [
        await live(store, 1, 2, 3, 4, 5),
        await history(store, 1, 2, 3, 4, 5),
        [await stored_lease(store, number) for number in (1, 2)],
        sorted(workers, key=lambda each: each.id),
        keys,
        attempts,
    ]


async def points_of_everything(store: Store, fault: Fault) -> list[str]:
    """Return at which points the transaction may fail, without keeping any of it."""

    async def body(tx: Tx) -> None:
        await everything(tx)
        raise Cut

    fault.disarm()
    with pytest.raises(Cut):
        await store.transaction(body)
    return [*fault.points, "before COMMIT"]


@pytest.mark.parametrize("error", [Cut, Crash])
async def test_a_transaction_that_fails_before_its_commit_leaves_nothing(
    faulty: Store, fault: Fault, error: type[BaseException]
) -> None:
    before = await state_of(faulty, fault)
    points = await points_of_everything(faulty, fault)
    assert len(points) == 14
    for at, point in enumerate(points):
        fault.arm(at, error)
        with pytest.raises(error):
            await faulty.transaction(everything)
        assert fault.points[-1] == point
        assert await state_of(faulty, fault) == before, point


@pytest.mark.parametrize("error", [Cut, Crash])
async def test_a_transaction_that_fails_after_its_commit_is_kept(
    faulty: Store, fault: Fault, error: type[BaseException]
) -> None:
    before = await state_of(faulty, fault)
    points = await points_of_everything(faulty, fault)
    fault.arm(len(points), error)
    with pytest.raises(error):
        await faulty.transaction(everything)
    assert fault.points[-1] == "after COMMIT"
    after = await state_of(faulty, fault)
    assert all(old != new for old, new in zip(before, after, strict=True))
    assert [task.id for task in await history(faulty, 2, 5)] == [task_id(2), task_id(5)]


async def test_a_failed_body_raises_its_own_error_and_the_next_transaction_works(
    store: Store,
) -> None:
    async def body(tx: Tx) -> None:
        await task_table.insert_tasks(tx, [pending(1)])
        message = "mine"
        raise Cut(message)

    with pytest.raises(Cut, match="mine") as failure:
        await store.transaction(body)
    assert failure.value.__cause__ is None
    await insert(store, pending(2))
    assert await live(store, 1, 2) == [pending(2)]


BAD_ROWS = {
    "an integer beyond 64 bits": pending(1, run_at_ms=2**63),
    "a lone surrogate": pending(1, queue="\ud800"),
    "a priority that does not exist": pending(1, priority=10),
}


@pytest.mark.parametrize("name", BAD_ROWS)
async def test_bad_data_is_refused_alike_and_leaves_its_neighbours_undisturbed(
    store: Store, name: str
) -> None:
    with pytest.raises(Refused):
        await insert(store, pending(2), BAD_ROWS[name])
    await insert(store, pending(3))
    assert await live(store, 1, 2, 3) == [pending(3)]


async def test_a_read_cannot_write(store: Store) -> None:
    with pytest.raises(Lost):
        await store.read(lambda tx: task_table.insert_tasks(tx, [pending(1)]))
    assert await live(store, 1) == []
    await insert(store, pending(2))


async def test_a_closed_store_says_so(store: Store) -> None:
    await store.close()
    with pytest.raises(Lost) as failure:
        await insert(store, pending(1))
    assert failure.value.reason == "shutting_down"
    with pytest.raises(Lost):
        await live(store, 1)


@pytest.mark.parametrize("wait", [lambda: asyncio.sleep(0), asyncio.Future])
async def test_a_body_that_awaits_something_else_than_its_transaction_is_a_mistake(
    sqlite_store: SqliteStore, wait: Callable[[], object]
) -> None:
    waiting = wait()

    async def body(tx: Tx) -> None:
        await task_table.insert_tasks(tx, [pending(1)])
        await waiting  # type: ignore[misc]  # one of two awaitables

    with pytest.raises(AssertionError, match="awaited something other"):
        await sqlite_store.transaction(body)
    await insert(sqlite_store, pending(2))
    assert await live(sqlite_store, 1, 2) == [pending(2)]


async def test_a_second_server_on_the_same_file_is_refused(
    sqlite_store: SqliteStore, tmp_path: Path
) -> None:
    await insert(sqlite_store, pending(1))
    second = SqliteStore(str(tmp_path / "tenure.db"), clock=lambda: NOW)
    with pytest.raises(StoreInUseError, match=r"Another Tenure server uses tenure\.db"):
        await second.open()
    await second.close()
    await sqlite_store.close()
    third = SqliteStore(str(tmp_path / "tenure.db"), clock=lambda: NOW)
    await third.open()
    assert await live(third, 1) == [pending(1)]
    await third.close()


OPEN_IN_ANOTHER_PROCESS = """
import asyncio, sys
from tenure.store.sqlite import SqliteStore
asyncio.run(SqliteStore(sys.argv[1], clock=lambda: 0).open())
"""


async def test_a_second_process_on_the_same_file_is_refused(
    sqlite_store: SqliteStore, tmp_path: Path
) -> None:
    await insert(sqlite_store, pending(1))
    command = [sys.executable, "-c", OPEN_IN_ANOTHER_PROCESS, str(tmp_path / "tenure.db")]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)  # noqa: ASYNC221 (the store is idle)
    assert ended.returncode == 1
    assert "StoreInUseError: Another Tenure server uses tenure.db" in ended.stderr


async def test_the_files_of_a_store_are_open_to_their_owner_alone(
    sqlite_store: SqliteStore, tmp_path: Path
) -> None:
    await insert(sqlite_store, pending(1))
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}  # noqa: ASYNC240 (nobody waits)
    assert modes.keys() >= {"tenure.db", "tenure.db-wal"}
    assert set(modes.values()) == {0o600}


async def test_a_file_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    path = tmp_path / "tenure.db"
    path.touch(0o644)
    store = SqliteStore(str(path), clock=lambda: NOW)
    await store.open()
    await store.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def terminate_others(dsn: str) -> None:
    """End all other connections to a database, as a failover would."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid() "
            "AND backend_type = 'client backend'"
        )
    finally:
        await connection.close()


@pytest.mark.parametrize("then", ["another statement", "COMMIT"])
async def test_a_connection_lost_inside_a_transaction_loses_all_of_it(
    postgres_store: PostgresStore, dsn: str, then: str
) -> None:
    async def body(tx: Tx) -> None:
        await task_table.insert_tasks(tx, [pending(1)])
        await terminate_others(dsn)
        if then == "another statement":
            await task_table.insert_tasks(tx, [pending(2)])

    with pytest.raises(Lost) as failure:
        await postgres_store.transaction(body)
    assert failure.value.reason == "store_unreachable"
    await insert(postgres_store, pending(3))
    assert await live(postgres_store, 1, 2, 3) == [pending(3)]


async def test_a_connection_lost_between_two_transactions_costs_one_at_most(
    postgres_store: PostgresStore, dsn: str
) -> None:
    await insert(postgres_store, pending(1))
    await terminate_others(dsn)
    try:
        await insert(postgres_store, pending(2))
    except Lost:
        await insert(postgres_store, pending(2))
    try:
        found = await live(postgres_store, 1, 2)
    except Lost:
        found = await live(postgres_store, 1, 2)
    assert found == [pending(1), pending(2)]


async def test_the_lanes_of_a_server_do_not_wait_for_each_other(
    postgres_store: PostgresStore,
) -> None:
    inside, go = asyncio.Event(), asyncio.Event()

    async def slow(tx: Tx) -> None:
        await task_table.insert_tasks(tx, [pending(1)])
        inside.set()
        await go.wait()

    working = asyncio.create_task(postgres_store.transaction(slow))
    await inside.wait()
    assert await postgres_store.transaction(lambda tx: tx.now_ms(), LaneName.HEARTBEAT) > 0
    go.set()
    await working


async def test_a_caller_that_gives_up_waiting_for_a_lane_disturbs_nobody_in_it(
    postgres_store: PostgresStore,
) -> None:
    inside, go = asyncio.Event(), asyncio.Event()

    async def slow(tx: Tx) -> None:
        inside.set()
        await go.wait()
        await task_table.insert_tasks(tx, [pending(1)])

    working = asyncio.create_task(postgres_store.transaction(slow))
    await inside.wait()
    impatient = asyncio.create_task(insert(postgres_store, pending(2)))
    await asyncio.sleep(0)
    impatient.cancel()
    await asyncio.wait([impatient])
    go.set()
    await working
    assert await live(postgres_store, 1, 2) == [pending(1)]


async def test_a_cancelled_transaction_is_undone_and_the_lane_works_on(
    postgres_store: PostgresStore,
) -> None:
    inside = asyncio.Event()

    async def endless(tx: Tx) -> None:
        await task_table.insert_tasks(tx, [pending(1)])
        inside.set()
        await asyncio.Event().wait()

    working = asyncio.create_task(postgres_store.transaction(endless))
    await inside.wait()
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    await insert(postgres_store, pending(2))
    assert await live(postgres_store, 1, 2) == [pending(2)]


async def test_everything_works_behind_a_pooler(dsn: str) -> None:
    store = PostgresStore(dsn, pooled=True)
    await store.open()
    try:
        await insert(store, pending(1), held(2), held(3))
        await add_workers(store, [worker(1)], [lease(1)])
        await store.transaction(everything)
        assert (await stored_worker(store, 1)).session_no == 7
        assert [task.id for task in by_id(await live(store, 1, 2, 3, 4))] == [
            task_id(1),
            task_id(3),
            task_id(4),
        ]
        await store.maintain("vacuum_tasks")
        await store.notify("nobody listens")
    finally:
        await store.close()


async def test_a_read_on_sqlite_has_a_time_limit(
    sqlite_store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure.store.sqlite.store.READ_SECONDS_MAX", 0.05)
    await insert(sqlite_store, *(pending(number) for number in range(5_000)))

    async def endless(tx: Tx) -> None:
        while True:
            await tx.one("count_queue_tasks", NAMESPACE, QUEUE, 5_000)

    with pytest.raises(Lost) as failure:
        await sqlite_store.read(endless)
    assert failure.value.reason == "read_timeout"
    assert await sqlite_store.read(lambda tx: queue_table.read_namespaces(tx, ["x/y"])) == []


@pytest.mark.parametrize("kind", ["read", "scan"])
async def test_a_read_on_postgres_has_a_time_limit(
    dsn: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure.store.postgres.store.READ_SECONDS_MAX", 0.5)
    store = PostgresStore(dsn)
    await store.open()
    blocker = await asyncpg.connect(dsn)
    read = store.read if kind == "read" else store.scan
    try:
        async with blocker.transaction():
            await blocker.execute("LOCK TABLE namespaces IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(Lost) as failure:
                await read(lambda tx: queue_table.read_namespaces(tx, ["x/y"]))
        assert failure.value.reason == "read_timeout"
        assert await read(lambda tx: queue_table.read_namespaces(tx, ["x/y"])) == []
    finally:
        await blocker.close()
        await store.close()


async def test_a_lookup_does_not_wait_for_any_number_of_scans(store: Store) -> None:
    is_over = threading.Event()

    async def hold(tx: Tx) -> None:
        await tx.one("read_namespaces", NAMESPACE if store.dialect == "sqlite" else [NAMESPACE])
        if store.dialect == "sqlite":
            is_over.wait(60)
        else:
            await asyncio.to_thread(is_over.wait, 60)

    scans = [asyncio.ensure_future(store.scan(hold)) for _ in range(READ_POOL_SIZE + 2)]
    await asyncio.sleep(0)
    try:
        async with asyncio.timeout(WAIT_S):
            assert await store.read(lambda tx: queue_table.read_namespaces(tx, ["x/y"])) == []
        assert not any(scan.done() for scan in scans)
    finally:
        is_over.set()
        await asyncio.gather(*scans)


async def test_servers_hear_what_others_tell_and_not_what_they_say_themselves(dsn: str) -> None:
    stores = [PostgresStore(dsn) for _ in range(2)]
    heard: list[tuple[int, str]] = []
    arrived = asyncio.Event()

    def hear(who: int, payload: str) -> None:
        heard.append((who, payload))
        if payload == "last":
            arrived.set()

    for who, store in enumerate(stores):
        await store.open()
        store.listen(lambda payload, who=who: hear(who, payload))  # type: ignore[misc]  # bound early
    try:
        await stores[0].notify("work")
        await stores[0].notify("last")
        async with asyncio.timeout(WAIT_S):
            await arrived.wait()
        assert heard == [(1, "work"), (1, "last")]
    finally:
        for store in stores:
            await store.close()


async def test_a_server_tells_again_before_its_last_word_is_out(dsn: str) -> None:
    store = PostgresStore(dsn)
    await store.open()
    try:
        await asyncio.gather(store.notify("one"), store.notify("two"), store.notify("three"))
    finally:
        await store.close()


async def test_a_server_listens_again_after_its_side_connection_was_lost(dsn: str) -> None:
    store = PostgresStore(dsn)
    await store.open()
    try:
        await terminate_others(dsn)
        for _ in range(2):
            try:
                await store.notify("work")
                break
            except Lost:
                continue
        else:
            pytest.fail("the side connection did not come back")
    finally:
        await store.close()
