"""What a client gets for a task of which stored parts are damaged: an error, never other bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NamedTuple

import apsw
import asyncpg
import pytest

from tenure import Client, TaskFailed
from tenure.core.task.record import TaskState
from tenure.core.task.retry import ErrorCategory
from tenure.errors import DataDamaged
from tests.postgres import PostgresServer
from tests.sdk.client.stage import RawWorker, ServerStage, double


class Spot(NamedTuple):
    """A server, and a way to change its rows behind its back."""

    stage: ServerStage
    execute: Callable[[str], object]


@pytest.fixture(params=["sqlite", "postgres"])
async def spot(
    request: pytest.FixtureRequest, tmp_path: Path, postgres: PostgresServer
) -> AsyncIterator[Spot]:
    file = tmp_path / "tenure.db"
    url = f"sqlite:///{file}"

    def change_file(sql: str) -> None:
        connection = apsw.Connection(str(file))
        connection.set_busy_timeout(5_000)
        connection.execute(sql.replace("DATA", "CAST('9000000001' AS BLOB)"))
        connection.close()

    execute: Callable[[str], None] = change_file
    if request.param == "postgres":
        url = postgres.dsn(await asyncio.to_thread(postgres.create_database))

        async def change(sql: str) -> None:
            connection = await asyncpg.connect(url)
            await connection.execute(sql.replace("DATA", "CAST('9000000001' AS bytea)"))
            await connection.close()

        def change_rows(sql: str) -> None:
            asyncio.run(change(sql))

        execute = change_rows

    async with ServerStage(url) as stage:
        yield Spot(stage, execute)


async def test_whoever_waits_for_a_damaged_result_gets_an_error(spot: Spot) -> None:
    async with Client(spot.stage.target) as client, RawWorker(spot.stage.target):
        handle = await client.enqueue(double, 500_000_001)
        assert await handle.result(timeout="30s") == 1_000_000_002
        sql = f"UPDATE history SET output = DATA WHERE id = '{handle.task_id}'"
        await asyncio.to_thread(spot.execute, sql)
        with pytest.raises(DataDamaged, match="output") as damaged:
            await handle.result(timeout="30s")
        assert damaged.value.fields == {"reason": "output"}
        info = await handle.describe()
        assert (info.state, info.damaged) == (TaskState.SUCCEEDED, ("output",))
        assert info.output is None
        assert info.input is not None


async def test_whoever_waits_for_a_task_with_a_damaged_input_hears_of_its_failure(
    spot: Spot,
) -> None:
    async with Client(spot.stage.target) as client:
        handle = await client.enqueue(double, 500_000_001)
        sql = f"UPDATE tasks SET input = DATA WHERE id = '{handle.task_id}'"
        await asyncio.to_thread(spot.execute, sql)
        # A server that has not stored it itself has nothing but the row.
        await spot.stage.stop()
        await spot.stage.start()
        waiting = asyncio.ensure_future(handle.result(timeout="60s"))
        async with RawWorker(spot.stage.target) as worker:
            with pytest.raises(TaskFailed, match="damaged") as failed:
                await waiting
            assert worker.started == []
        assert failed.value.reason == "NON_RETRYABLE"
        assert failed.value.error is not None
        assert failed.value.error.category is ErrorCategory.DATA_QUALITY
