"""The part ``peers`` of the benchmarks: every candidate, in turns."""

from __future__ import annotations

import os

import asyncpg
from rich.console import Console

from benchmarks.context import FULL as FULL_SCALE
from benchmarks.context import Context
from benchmarks.peers.candidate import CANDIDATES
from benchmarks.peers.measure import FULL, MEASUREMENTS, QUICK, Numbers, measure


async def run(context: Context) -> dict[str, float]:
    """Measure the candidates that were asked for."""
    console = Console()

    def report(text: str) -> None:
        console.print(text, markup=False, highlight=False)

    bounds = FULL if context.scale == FULL_SCALE else QUICK
    numbers = {
        "is_quick": float(bounds is QUICK),
        "load_before": os.getloadavg()[0],
        "postgres_version": float(await _postgres_version(context)),
        "drain_count": float(bounds.drain_count),
        "drain_s": bounds.drain_seconds,
        "enqueue_s": bounds.enqueue_seconds,
        "bulk_count": float(bounds.bulk_count),
        "bulk_s": bounds.bulk_seconds,
        "recovery_s": bounds.recovery_seconds,
    }
    candidates = []
    for candidate in CANDIDATES:
        if context.candidates and candidate.name not in context.candidates:
            continue
        report(f"  {candidate.title} {candidate.version}")
        if candidate.python.exists():
            candidates.append(candidate)
        else:
            report(f"{candidate.name}: it has no environment; run `make bench-peers`")
            numbers[f"{candidate.name}.failures"] = len(MEASUREMENTS)
    for name, measured in (await measure(context, candidates, bounds, report)).items():
        _report(context, name, measured)
        numbers |= {f"{name}.{what}": value for what, value in measured.items()}
    return numbers


async def _postgres_version(context: Context) -> int:
    connection = await asyncpg.connect(context.server.dsn())
    version = connection.get_server_version().major
    await connection.close()
    return version


def _report(context: Context, candidate: str, numbers: Numbers) -> None:
    for name, value in numbers.items():
        context.report(f"{candidate}.{name}", value)
