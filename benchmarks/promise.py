"""What is promised of the numbers, and whether it was held."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from rich.table import Table


@dataclass(frozen=True)
class Promise:
    """A bound on one number."""

    name: str
    side: Literal["at least", "at most"]
    bound: float

    def is_held(self, value: float) -> bool:
        """Tell whether a number is within its bound."""
        return value >= self.bound if self.side == "at least" else value <= self.bound


PROMISES = (
    Promise("engine.sqlite.ratio_to_floor", "at least", 0.4),
    Promise("engine.postgres.ratio_to_floor", "at least", 0.4),
    Promise("engine.sqlite.idle_ratio_to_floor", "at most", 3),
    Promise("engine.postgres.idle_ratio_to_floor", "at most", 3),
    Promise("claim.postgres.million_buffers_ratio", "at most", 1.2),
    Promise("claim.postgres.alien_buffers_ratio", "at most", 1.2),
    # The trap does not bite: a hand-out takes at most 1.2 times as long.
    Promise("claim.postgres.snapshot_rate_ratio", "at least", 0.83),
    Promise("heartbeat.postgres.ratio_to_floor", "at least", 0.3),
    # Equal; records of page pruning fall now on this side, now on that.
    Promise("heartbeat.postgres.held_500_wal_ratio", "at most", 1.02),
    # A call to a served worker, against a bare unary call in the same run.
    Promise("served.ratio_to_bare", "at most", 2),
    Promise("wal.postgres.bytes_per_task", "at most", 1_600),
    Promise("wal.postgres.bytes_per_task_direct", "at most", 1_100),
    Promise("history.postgres.million_ratio", "at least", 0.8),
    Promise("notify.postgres.rate_ratio", "at least", 0.8),
    Promise("imports.tenure_cpu_s", "at most", 0.3),
    Promise("imports.help_cpu_s", "at most", 0.25),
    Promise("recovery.session_kill_s", "at most", 5),
    Promise("steps.postgres.per_s", "at least", 5_000),
    Promise("steps.sqlite.per_s", "at least", 5_000),
    Promise("steps.postgres.per_s_200", "at least", 4_000),
    Promise("steps.sqlite.per_s_200", "at least", 4_000),
    Promise("steps.ratio_best_durable", "at least", 5),
    Promise("steps.postgres.lone_p50_ms", "at most", 2),
    Promise("steps.sqlite.lone_p50_ms", "at most", 2),
    Promise("steps.postgres.cpu_us", "at most", 160),
    Promise("steps.postgres.wal_bytes", "at most", 500),
    Promise("steps.rerun_5000_ms", "at most", 150),
    # First goals beside the peers; measured only when they are asked for.
    Promise("peers.postgres.drain_ratio_best", "at least", 1.2),
    Promise("peers.sqlite.drain_ratio_best", "at least", 5),
    Promise("peers.latency_ratio_best", "at least", 1),
    # PgQueuer has no server between.
    Promise("peers.postgres.cpu_ratio_pgqueuer", "at most", 1.5),
)


def promise_table(numbers: Mapping[str, float]) -> Table:
    """Lay promises beside what was measured."""
    table = Table("name", "promised")
    table.add_column("measured", justify="right")
    table.add_column("held")
    for promise in PROMISES:
        value = numbers.get(promise.name)
        if value is None:
            measured, held = "", "not measured"
        else:
            measured, held = f"{value:,.3f}", "yes" if promise.is_held(value) else "NO"
        table.add_row(promise.name, f"{promise.side} {promise.bound:,g}", measured, held)
    return table
