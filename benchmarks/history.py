"""The life-cycle rate after a million finished tasks, against that of an empty database.

Part of the history is made by running tasks (150,000 in a full run), so that the live table has
seen them; the rest by one set-based INSERT. Both databases are measured in turns.
"""

from __future__ import annotations

from benchmarks.context import Context
from benchmarks.database import FIXTURE, PostgresDatabase
from benchmarks.flow import Flow, combined_flow, open_callers
from benchmarks.load import INPUT, NAMESPACE, OUTPUT, QUEUE, SPEC, TYPE, open_engine
from tenure.engine.engine import Engine
from tenure.store.table import codec

SIZES = ("tasks_table", "tasks_index", "history_table", "history_index")


async def run(context: Context) -> dict[str, float]:
    """Fill one database, then measure both in turns."""
    scale = context.scale
    filled = context.postgres()
    full_engine = await open_engine(filled.store())
    await _fill(filled, full_engine, scale.run_task_count, scale.row_count)
    fresh: list[Flow] = []
    full: list[Flow] = []
    for _ in range(scale.round_count):
        new_engine = await open_engine(context.postgres().store())
        fresh.append(await combined_flow(new_engine, scale.seconds))
        await new_engine.stop()
        full.append(await combined_flow(full_engine, scale.seconds))
    await full_engine.stop()
    beginning, later = (max(flow.rate for flow in flows) for flows in (fresh, full))
    numbers = {
        "postgres.million_rate": later,
        "postgres.million_rate.floor": beginning,
        "postgres.million_ratio": later / beginning,
        "postgres.finished_count": float(await filled.count_finished()),
        **await _sizes(filled),
    }
    for name, value in numbers.items():
        context.report(name, value)
    return numbers


async def _fill(database: PostgresDatabase, engine: Engine, run_count: int, row_count: int) -> None:
    async with open_callers(engine) as callers:
        await callers.run_count(run_count)
    async with database.connect() as connection:
        finished_at_ms = await connection.fetchval(FIXTURE["now_ms"])
        left = row_count - await database.count_finished()
        named = (NAMESPACE, QUEUE, TYPE, codec.spec_to(SPEC)[1], INPUT, OUTPUT)
        await connection.execute(FIXTURE["insert_history"], max(left, 0), finished_at_ms, *named)


async def _sizes(database: PostgresDatabase) -> dict[str, float]:
    async with database.connect() as connection:
        row = await connection.fetchrow(FIXTURE["sizes"])
    assert row is not None
    return {f"postgres.{name}_bytes": float(size) for name, size in zip(SIZES, row, strict=True)}
