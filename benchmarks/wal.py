"""Write-ahead log per task on PostgreSQL: a figure nearly without noise.

512 callers as in the headline of ``engine``, with all services and the own vacuum. Full page
images are left to a check: the tables are younger than the last checkpoint, so there are few.
"""

from __future__ import annotations

from benchmarks.context import Context
from benchmarks.database import PostgresDatabase, count_wal_images, wal_position
from benchmarks.floor_postgres import PAGE_BYTES
from benchmarks.flow import open_callers
from benchmarks.load import open_engine
from tenure.engine.settings import Settings

IMAGE_SHARE_MAX = 0.03


async def run(context: Context) -> dict[str, float]:
    """Measure by claim and by direct hand-out."""
    count = context.scale.wal_task_count
    by_claim = Settings(direct_hand_out=False)
    numbers = {
        "postgres.bytes_per_task": await _bytes_per_task(context.postgres(), count, by_claim),
        "postgres.bytes_per_task_direct": await _bytes_per_task(context.postgres(), count, None),
    }
    for name, value in numbers.items():
        context.report(name, value)
    return numbers


async def _bytes_per_task(
    database: PostgresDatabase, task_count: int, settings: Settings | None
) -> float:
    engine = await open_engine(database.store(), settings)
    async with open_callers(engine) as callers, database.connect() as connection:
        images_before = await count_wal_images(connection)
        begun = await wal_position(connection)
        flow = await callers.run_count(task_count)
        written = await wal_position(connection) - begun
        images = await count_wal_images(connection) - images_before
    await engine.stop()
    share = images * PAGE_BYTES / written
    assert share < IMAGE_SHARE_MAX, f"{images} page images ({share:.1%}): was it a checkpoint?"
    return written / flow.task_count
