"""How long a task waits whose worker is killed with ``kill -9``, until another worker runs it."""

from __future__ import annotations

from benchmarks.context import Context
from benchmarks.peers.candidate import CANDIDATES
from benchmarks.peers.measure import FULL, recovery
from benchmarks.peers.stage import open_stage


async def run(context: Context) -> dict[str, float]:
    """Measure both stores; the slower one is what is promised."""
    seconds = []
    for candidate in CANDIDATES:
        if candidate.is_ours:
            async with open_stage(context, candidate) as stage:
                measured = await recovery(stage, FULL)
            seconds.append(measured.get("recovery_s", FULL.recovery_seconds))
    context.report("session_kill_s", max(seconds))
    return {"session_kill_s": max(seconds)}
