"""Writes ``docs/benchmarks.md`` and its plot from the latest numbers."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.peers.candidate import CANDIDATES, Candidate
from benchmarks.peers.plot import Bar, Panel, draw
from benchmarks.peers.ratio import DASH, number_text, recovery_text, value

Numbers = Mapping[str, float]
Column = tuple[str, Callable[[Numbers, Candidate], str]]

DOCUMENTS = Path(__file__).parents[2] / "docs"
METHOD = Path(__file__).with_name("method.md")
GIGABYTE = 1 << 30
# Above this load before the run the machine was not quiet.
LOAD_MAX = 0.5

RATIOS = (
    (
        "Drain rate on PostgreSQL, one worker process: ours / best peer",
        "peers.postgres.drain_ratio_best",
        "at least 1.2",
    ),
    ("The same right after the bulk load", "peers.postgres.bulk_drain_ratio_best", ""),
    (
        "Drain rate on SQLite, one worker process: ours / best peer",
        "peers.sqlite.drain_ratio_best",
        "at least 5",
    ),
    (
        "Submit → result, idle, p50: best peer / our slower store",
        "peers.latency_ratio_best",
        "above 1",
    ),
    (
        "CPU per task on PostgreSQL: ours / PgQueuer, which has no server between",
        "peers.postgres.cpu_ratio_pgqueuer",
        "at most 1.5",
    ),
    (
        "Task runs again after `kill -9`, defaults: best peer / our slower store",
        "peers.recovery_ratio_best",
        "first by far",
    ),
    ("The same where something was set for it", "peers.short_recovery_ratio_best", "first by far"),
)


def write_document(numbers: Numbers) -> None:
    """Write the page and the plot."""
    (DOCUMENTS / "benchmarks.md").write_text(_page(numbers))
    (DOCUMENTS / "benchmarks.svg").write_text(draw(_panels(numbers)))


def _page(numbers: Numbers) -> str:
    set_up = _table(
        ("candidate", "version", "set up"),
        [
            (candidate.title, candidate.version or "this", candidate.set_up)
            for candidate in CANDIDATES
        ],
    )
    sections = [
        METHOD.read_text().format(**_facts(numbers)).strip(),
        "## The candidates",
        set_up,
        "## The numbers",
        f"Measured on {_machine()}. A dash: not measured in this run.{_caution(numbers)}",
        "![Drain rate, latency and CPU time of all candidates](benchmarks.svg)",
        "### In short",
        _ratio_table(numbers),
        "### Throughput, tasks per second",
        _candidate_table(numbers, THROUGHPUT),
        "### Submit → result, milliseconds",
        _candidate_table(numbers, LATENCY),
        "### Cost and recovery",
        _candidate_table(numbers, COST),
    ]
    return "\n\n".join(sections) + "\n"


def _facts(numbers: Numbers) -> dict[str, str]:
    return {
        "drain_count": number_text(numbers.get("peers.drain_count"), 0),
        "bulk_count": number_text(numbers.get("peers.bulk_count"), 0),
        "enqueue_s": number_text(numbers.get("peers.enqueue_s"), 0),
        "drain_s": number_text(numbers.get("peers.drain_s"), 0),
        "bulk_s": number_text(numbers.get("peers.bulk_s"), 0),
        "recovery_s": number_text(numbers.get("peers.recovery_s"), 0),
        "postgres": number_text(numbers.get("peers.postgres_version"), 0),
    }


def _machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIGABYTE
    return (
        f"{os.cpu_count()} cores and {memory:.0f} GB of memory ({platform.machine()}), "
        f"Python {platform.python_version()}"
    )


def _caution(numbers: Numbers) -> str:
    """Say what makes the numbers less than they could be."""
    text = ""
    if numbers.get("peers.is_quick"):
        text += " **This was a short run to try the method (`--quick`), no comparison.**"
    load = numbers.get("peers.load_before", 0)
    if load >= LOAD_MAX:
        text += f" **Other work ran on the machine (load {load:.1f}): the numbers are too low.**"
    failed = [each for each in CANDIDATES if value(numbers, each, "failures")]
    if failed:
        text += f" Failed in part or in whole: {', '.join(each.title for each in failed)}."
    return text


def _number(measure: str, digits: int) -> Callable[[Numbers, Candidate], str]:
    return lambda numbers, candidate: number_text(value(numbers, candidate, measure), digits)


def _short_recovery_text(numbers: Numbers, candidate: Candidate) -> str:
    text = recovery_text(numbers, candidate, "short_")
    return text if text == DASH else f"{text}: {candidate.short_recovery}"


THROUGHPUT: tuple[Column, ...] = (
    ("bulk enqueue", _number("enqueue_per_s", 0)),
    ("drain, one worker", _number("drain_1_per_s", 0)),
    ("two workers", _number("drain_2_per_s", 0)),
    ("waiting after the bulk load", _number("bulk_count", 0)),
    ("drain after it", _number("bulk_drain_per_s", 0)),
    ("runs repeated", _number("repeated_runs", 0)),
    ("runs ahead of the store", _number("ahead_of_store", 0)),
)
LATENCY: tuple[Column, ...] = (
    ("idle p50", _number("idle_p50_ms", 1)),
    ("p95", _number("idle_p95_ms", 1)),
    ("p99", _number("idle_p99_ms", 1)),
    ("starts after (p50)", _number("idle_start_p50_ms", 1)),
    ("at 100/s p50", _number("paced_p50_ms", 1)),
    ("p95", _number("paced_p95_ms", 1)),
    ("p99", _number("paced_p99_ms", 1)),
)
COST: tuple[Column, ...] = (
    ("CPU per task, ms", _number("cpu_ms_per_task", 2)),
    ("CPU at rest, % of a core", _number("rest_cpu_percent", 1)),
    ("runs again after `kill -9`, defaults", recovery_text),
    ("the same, set for it", _short_recovery_text),
)


def _candidate_table(numbers: Numbers, columns: Sequence[Column]) -> str:
    rows = [
        (_name(candidate), *(text(numbers, candidate) for _, text in columns))
        for candidate in CANDIDATES
    ]
    return _table(("candidate", *(heading for heading, _ in columns)), rows)


def _ratio_table(numbers: Numbers) -> str:
    rows = [
        (title, number_text(numbers.get(name), 2), goal or DASH) for title, name, goal in RATIOS
    ]
    return _table(("", "ratio", "goal"), rows)


def _name(candidate: Candidate) -> str:
    return f"**{candidate.title}**" if candidate.is_ours else candidate.title


def _table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _panels(numbers: Numbers) -> list[Panel]:
    panels = (
        _panel(numbers, "Tasks completed per second, one worker process", "drain_1_per_s", "/s"),
        _panel(numbers, "Submit → result on an idle system, p50", "idle_p50_ms", " ms"),
        _panel(numbers, "CPU time per task, all processes", "cpu_ms_per_task", " ms"),
    )
    return [panel for panel in panels if panel.bars]


def _panel(numbers: Numbers, title: str, measure: str, unit: str) -> Panel:
    bars = []
    for candidate in CANDIDATES:
        number = value(numbers, candidate, measure)
        if number:
            digits = 0 if number >= 100 else 2
            text = f"{number:,.{digits}f}{unit}"
            bars.append(Bar(candidate.title, number, text, candidate.is_ours))
    # The best first: the highest rate, the shortest time.
    bars.sort(key=lambda bar: bar.value, reverse=unit == "/s")
    better = "longer is better" if unit == "/s" else "shorter is better"
    return Panel(f"{title} (logarithmic; {better})", bars)
