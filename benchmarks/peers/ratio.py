"""Ours beside the best of the others, and the table of all candidates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from rich.table import Table

from benchmarks.peers.candidate import CANDIDATES, Candidate, Store

Numbers = Mapping[str, float]

# Stands for what could not be measured.
DASH = "\N{EN DASH}"

RATIO_NAMES = (
    "postgres.drain_ratio_best",
    "postgres.bulk_drain_ratio_best",
    "postgres.cpu_ratio_pgqueuer",
    "sqlite.drain_ratio_best",
    "latency_ratio_best",
    "recovery_ratio_best",
    "short_recovery_ratio_best",
)

# Heading, measure, and how many digits after the point.
COLUMNS = (
    ("enqueue/s", "enqueue_per_s", 0),
    ("drain/s 1", "drain_1_per_s", 0),
    ("drain/s 2", "drain_2_per_s", 0),
    ("after bulk", "bulk_drain_per_s", 0),
    ("idle p50", "idle_p50_ms", 1),
    ("p95", "idle_p95_ms", 1),
    ("p99", "idle_p99_ms", 1),
    ("100/s p50", "paced_p50_ms", 1),
    ("p95", "paced_p95_ms", 1),
    ("p99", "paced_p99_ms", 1),
    ("CPU ms", "cpu_ms_per_task", 2),
    ("rest %", "rest_cpu_percent", 1),
)


def value(numbers: Numbers, candidate: Candidate, measure: str) -> float | None:
    """Return one number of a candidate; None if there is none."""
    return numbers.get(f"peers.{candidate.name}.{measure}")


def ratios(numbers: Numbers) -> dict[str, float]:
    """Compare ours with the best of the others; what was not measured is left out."""
    found = (
        _faster(numbers, "drain_1_per_s", "postgres"),
        _faster(numbers, "bulk_drain_per_s", "postgres"),
        _cpu_ratio(numbers),
        _faster(numbers, "drain_1_per_s", "sqlite"),
        _sooner(numbers, "idle_p50_ms"),
        _sooner(numbers, "recovery_s"),
        _sooner(numbers, "short_recovery_s"),
    )
    named = zip(RATIO_NAMES, found, strict=True)
    return {name: ratio for name, ratio in named if ratio is not None}


def recovery_text(numbers: Numbers, candidate: Candidate, kind: str = "") -> str:
    """Say when the task of a killed worker ran again."""
    seconds = value(numbers, candidate, f"{kind}recovery_s")
    if seconds is not None:
        return f"{seconds:.1f} s"
    waited = value(numbers, candidate, f"{kind}recovery_waited_s")
    return DASH if waited is None else f"not within {waited:.0f} s"


def number_text(number: float | None, digits: int) -> str:
    """Write a number, or a dash where there is none."""
    return DASH if number is None else f"{number:,.{digits}f}"


def peer_table(numbers: Numbers) -> Table:
    """Lay all candidates beside each other."""
    table = Table("candidate")
    for heading, _, _ in COLUMNS:
        table.add_column(heading, justify="right")
    table.add_column("runs again after kill -9")
    table.add_column("runs repeated", justify="right")
    for candidate in CANDIDATES:
        cells = [
            number_text(value(numbers, candidate, measure), digits)
            for _, measure, digits in COLUMNS
        ]
        repeated = number_text(value(numbers, candidate, "repeated_runs"), 0)
        table.add_row(candidate.title, *cells, recovery_text(numbers, candidate), repeated)
    return table


def _faster(numbers: Numbers, measure: str, store: Store) -> float | None:
    """Return our rate divided by the best rate of the others on the same store."""
    same = [each for each in CANDIDATES if each.store == store]
    ours = _best(max, numbers, measure, (each for each in same if each.is_ours))
    best = _best(max, numbers, measure, (each for each in same if not each.is_ours))
    return None if ours is None or best is None else ours / best


def _sooner(numbers: Numbers, measure: str) -> float | None:
    """Return the shortest time of the others divided by ours on our slower store."""
    ours = _best(max, numbers, measure, (each for each in CANDIDATES if each.is_ours))
    best = _best(min, numbers, measure, (each for each in CANDIDATES if not each.is_ours))
    return None if ours is None or best is None else best / ours


def _cpu_ratio(numbers: Numbers) -> float | None:
    ours = numbers.get("peers.tenure_postgres.cpu_ms_per_task")
    theirs = numbers.get("peers.pgqueuer.cpu_ms_per_task")
    return None if ours is None or theirs is None else ours / theirs


def _best(
    choose: Callable[[Iterable[float]], float],
    numbers: Numbers,
    measure: str,
    candidates: Iterable[Candidate],
) -> float | None:
    values = [value(numbers, candidate, measure) for candidate in candidates]
    known = [each for each in values if each is not None]
    return choose(known) if known else None
