"""A primary that was replaced and comes back: it is never written to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from tenure.store.failure import Lost
from tenure.store.postgres import PostgresStore
from tenure.store.postgres.primary import host_dsns
from tenure.store.transaction import LaneName
from tests.bounds import WAIT_S
from tests.postgres import PostgresServer
from tests.store.rows import insert, live, pending

NAME = "tenure_1"


class Pair:
    """A primary and its synchronous standby."""

    def __init__(self, first: PostgresServer, second: PostgresServer) -> None:
        self.first = first
        self.second = second

    @property
    def dsn(self) -> str:
        return self.first.dsn_with(self.second, NAME)

    def fail_over(self) -> None:
        """Replace the first by the second."""
        self.first.stop("immediate")
        self.second.promote()

    def bring_back_old(self) -> None:
        """Start the first again, as a primary that waits for nobody."""
        self.first.stand_alone()
        self.first.resume()


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    first = await asyncio.to_thread(PostgresServer.start)
    try:
        assert first.create_database() == NAME
        second = await asyncio.to_thread(PostgresServer.start_standby, first)
        try:
            yield Pair(first, second)
        finally:
            second.close()
    finally:
        first.close()


async def task_count(server: PostgresServer) -> int:
    connection = await asyncpg.connect(server.dsn(NAME))
    try:
        return int(await connection.fetchval("SELECT count(*) FROM tasks"))
    finally:
        await connection.close()


async def insert_soon(store: PostgresStore, number: int) -> None:
    """Insert a task; the transactions that find their connection lost are repeated."""
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                await insert(store, pending(number))
            except Lost:
                await asyncio.sleep(0.05)
            else:
                return


async def test_of_two_primaries_the_promoted_one_is_taken_and_the_old_one_never(pair: Pair) -> None:
    running = PostgresStore(pair.dsn)
    await running.open()
    await insert(running, pending(1))
    await running.transaction(lambda tx: tx.now_ms(), LaneName.SERVICE)
    pair.fail_over()
    pair.bring_back_old()
    restarted = PostgresStore(pair.dsn)
    try:
        await restarted.open()
        await insert(restarted, pending(2))
        assert restarted.position.timeline == 2
        await insert_soon(running, 3)
        assert running.position == restarted.position
        assert await live(running, 1, 2, 3) == [pending(1), pending(2), pending(3)]
        assert (await task_count(pair.first), await task_count(pair.second)) == (1, 3)
        pair.second.stop("immediate")
        for store in (running, restarted):
            for _ in range(3):
                with pytest.raises(Lost):
                    await insert(store, pending(4))
            with pytest.raises(Lost) as failure:
                await insert(store, pending(4))
            assert failure.value.reason == "old_primary"
            with pytest.raises(Lost):
                await live(store, 1)
        assert await task_count(pair.first) == 1
        pair.second.resume()
        for number, store in ((4, running), (5, restarted)):
            await insert_soon(store, number)
        assert (await task_count(pair.first), await task_count(pair.second)) == (1, 5)
    finally:
        await running.close()
        await restarted.close()


async def test_a_connection_to_the_old_primary_that_survived_is_used_no_more(pair: Pair) -> None:
    """Promoted though the first still runs: one lane finds out, and no other commits there."""
    store = PostgresStore(pair.dsn)
    await store.open()
    try:
        await insert(store, pending(1))
        await store.transaction(lambda tx: tx.now_ms(), LaneName.HEARTBEAT)
        pair.second.promote()
        pair.first.configure("synchronous_standby_names", "")
        await store.maintain("vacuum_tasks")
        assert store.position.timeline == 2
        await insert(store, pending(2))
        await store.transaction(lambda tx: tx.now_ms(), LaneName.HEARTBEAT)
        assert (await task_count(pair.first), await task_count(pair.second)) == (1, 2)
        assert await live(store, 1, 2) == [pending(1), pending(2)]
    finally:
        await store.close()


async def test_another_database_system_is_refused_while_the_server_runs() -> None:
    first = await asyncio.to_thread(PostgresServer.start)
    other = await asyncio.to_thread(PostgresServer.start)
    try:
        for server in (first, other):
            assert server.create_database() == NAME
        both = PostgresStore(first.dsn_with(other, NAME))
        with pytest.raises(Lost, match="different database systems"):
            await both.open()
        await both.close()
        other.stop()
        store = PostgresStore(first.dsn_with(other, NAME))
        await store.open()
        await insert(store, pending(1))
        first.stop("immediate")
        other.resume()
        with pytest.raises(Lost):
            await insert(store, pending(2))
        with pytest.raises(Lost, match="belongs to database system"):
            await insert(store, pending(2))
        await store.close()
    finally:
        other.close()
        first.close()


async def test_a_server_starts_not_on_a_copy_that_others_know_to_be_old(dsn: str) -> None:
    store = PostgresStore(dsn)
    await store.open()
    system_id = store.position.system_id
    row = ("00000000-0000-7000-8000-000000000001", 1, system_id, 9)
    await store.transaction(lambda tx: tx.one("touch_server", *row))
    await store.close()
    again = PostgresStore(dsn)
    with pytest.raises(Lost, match="timeline 1; this server has seen timeline 9") as failure:
        await again.open()
    assert failure.value.reason == "old_primary"
    await again.close()


async def test_a_role_that_may_not_ask_for_the_timeline_works_without_it(
    postgres: PostgresServer,
) -> None:
    admin = await asyncpg.connect(postgres.dsn())
    await admin.execute("CREATE ROLE plain LOGIN")
    await admin.execute("CREATE DATABASE of_plain OWNER plain")
    try:
        owner = await asyncpg.connect(postgres.dsn("of_plain"))
        await owner.execute("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
        await owner.close()
        store = PostgresStore(postgres.dsn("of_plain").replace("tenure@", "plain@"))
        await store.open()
        await insert(store, pending(1))
        assert store.position.timeline == 0
        await store.close()
    finally:
        await admin.execute("DROP DATABASE of_plain WITH (FORCE)")
        await admin.execute("DROP ROLE plain")
        await admin.close()


@pytest.mark.parametrize(
    ("dsn", "each"),
    [
        ("postgresql://u@a/d", ["postgresql://u@a/d"]),
        ("postgresql:///d", ["postgresql:///d"]),
        (
            "postgresql://u:p@a:1,[::1]:2/d?sslmode=require",
            [
                "postgresql://u:p@a:1/d?sslmode=require",
                "postgresql://u:p@[::1]:2/d?sslmode=require",
            ],
        ),
        (
            "postgresql://u@/d?host=/a,/b&port=1,2",
            ["postgresql://u@/d?host=/a&port=1", "postgresql://u@/d?host=/b&port=2"],
        ),
        (
            "postgresql://u@/d?host=/a,/b&port=7",
            ["postgresql://u@/d?host=/a&port=7", "postgresql://u@/d?host=/b&port=7"],
        ),
        (
            "postgresql://u@/d?host=/a,/b",
            ["postgresql://u@/d?host=/a", "postgresql://u@/d?host=/b"],
        ),
    ],
)
def test_each_host_of_a_url_has_a_url_of_its_own(dsn: str, each: list[str]) -> None:
    assert host_dsns(dsn) == each
