"""The limit on this machine: the life of a task as bare, batched SQL, without code of Tenure.

Enqueue, claim and complete, each acknowledged after its commit, in batches of 500. The direct
form inserts the task already dispatched, and so spends one commit less.
"""

from benchmarks.context import Context
from benchmarks.floor_postgres import (
    postgres_lease_rate,
    postgres_rate,
    postgres_single_commit_us,
    postgres_wal_bytes,
)
from benchmarks.floor_sqlite import sqlite_rate, sqlite_single_commit_us

__all__ = [
    "postgres_lease_rate",
    "postgres_rate",
    "postgres_single_commit_us",
    "postgres_wal_bytes",
    "run",
    "sqlite_rate",
    "sqlite_single_commit_us",
]


async def run(context: Context) -> dict[str, float]:
    """Measure in rounds, so that each figure meets the machine at several moments."""
    dsn = context.postgres_dsn()
    best: dict[str, float] = {}
    for _ in range(context.scale.round_count):
        for name, value in (await _rates(context, dsn)).items():
            best[name] = max(value, best.get(name, value))
        for name, value in (await _commit_times(context, dsn)).items():
            best[name] = min(value, best.get(name, value))
    best |= await _wal_bytes(context, dsn)
    for name, value in best.items():
        context.report(name, value)
    return best


async def _rates(context: Context, dsn: str) -> dict[str, float]:
    seconds = context.scale.seconds
    return {
        "postgres_claim_per_s": await postgres_rate(dsn, seconds=seconds),
        "sqlite_claim_per_s": sqlite_rate(context.sqlite_path(), seconds=seconds),
        "postgres_direct_per_s": await postgres_rate(dsn, seconds=seconds, direct=True),
        "sqlite_direct_per_s": sqlite_rate(context.sqlite_path(), seconds=seconds, direct=True),
        "postgres_lease_per_s": await postgres_lease_rate(dsn, seconds=seconds),
    }


async def _commit_times(context: Context, dsn: str) -> dict[str, float]:
    count = context.scale.commit_count
    postgres = await postgres_single_commit_us(dsn, count=count)
    sqlite = sqlite_single_commit_us(context.sqlite_path(), count=count)
    return {
        **{f"postgres_{step}_us": value for step, value in postgres.items()},
        **{f"sqlite_{step}_us": value for step, value in sqlite.items()},
    }


async def _wal_bytes(context: Context, dsn: str) -> dict[str, float]:
    count = context.scale.wal_task_count
    direct = await postgres_wal_bytes(dsn, task_count=count, direct=True)
    return {
        "postgres_wal_claim_bytes": await postgres_wal_bytes(dsn, task_count=count),
        "postgres_wal_direct_bytes": direct,
    }
