"""What each measure of the engine brings: the rate without it as a share of the rate with all.

Below 1 the measure pays. The own vacuum and the low-water marks concern PostgreSQL alone and show
only after tens of thousands of tasks, so they run longer. The marks are for claims beside an open
snapshot: both sides of that comparison claim (no direct hand-out), and a snapshot is open.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.context import Context
from benchmarks.database import Database, PostgresDatabase
from benchmarks.engine import measure_flow
from benchmarks.flow import Flow, combined_flow
from benchmarks.load import open_engine
from tenure.engine.settings import Settings

ROUND_COUNT_MAX = 2
LONG = 3

ALL_ON = Settings()
BY_CLAIM = Settings(direct_hand_out=False)
SHORT_CASES = {
    "on": ALL_ON,
    "direct_hand_out": BY_CLAIM,
    "cached_rows": Settings(cached_rows=False),
}
LONG_CASES = {"on": ALL_ON, "own_vacuum": Settings(own_vacuum=False)}
SNAPSHOT_CASES = {
    "on": BY_CLAIM,
    "low_water_marks": Settings(direct_hand_out=False, low_water_marks=False),
}


async def run(context: Context) -> dict[str, float]:
    """Measure with and without in turns."""
    seconds = context.scale.seconds
    numbers = {
        **await _compare(context, "sqlite", context.sqlite, SHORT_CASES),
        **await _compare(context, "postgres", context.postgres, SHORT_CASES),
        **await _compare(context, "postgres", context.postgres, LONG_CASES, LONG),
    }
    rates: dict[str, float] = {}
    for _ in range(min(context.scale.round_count, ROUND_COUNT_MAX)):
        for name, settings in SNAPSHOT_CASES.items():
            flow = await measure_beside_snapshot(context.postgres(), seconds * LONG, settings)
            rates[name] = max(flow.rate, rates.get(name, 0.0))
    numbers |= _shares("postgres", rates)
    for name, value in numbers.items():
        context.report(name, value)
    return numbers


async def _compare(
    context: Context,
    store: str,
    make: Callable[[], Database],
    cases: dict[str, Settings],
    length: int = 1,
) -> dict[str, float]:
    rates: dict[str, float] = {}
    for _ in range(min(context.scale.round_count, ROUND_COUNT_MAX)):
        for name, settings in cases.items():
            flow = await measure_flow(make(), context.scale.seconds * length, settings)
            rates[name] = max(flow.rate, rates.get(name, 0.0))
    return _shares(store, rates)


def _shares(store: str, rates: dict[str, float]) -> dict[str, float]:
    """Return the ratios, and the rates that they come from."""
    on = rates.pop("on")
    return {
        **{f"{store}.{name}_ratio": rate / on for name, rate in rates.items()},
        **{f"{store}.{name}_rate": rate for name, rate in rates.items()},
        **{f"{store}.{name}_rate.floor": on for name in rates},
    }


async def measure_beside_snapshot(
    database: PostgresDatabase, seconds: float, settings: Settings | None = None
) -> Flow:
    """Measure while another session keeps every row version since the beginning."""
    engine = await open_engine(database.store(), settings)
    async with database.open_snapshot():
        flow = await combined_flow(engine, seconds)
    await engine.stop()
    return flow
