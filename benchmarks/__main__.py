"""Run the benchmarks: ``python -m benchmarks [--only NAME[,NAME]] [--quick]``.

The parts ``memory``, which takes some minutes, ``peers``, which takes most of an hour, and
``steps`` run only when named. The last two need ``make bench-peers``.
"""

import argparse
import gc
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import uvloop
from rich.console import Console
from rich.table import Table

from benchmarks import (
    claim,
    engine,
    floor,
    heartbeat,
    history,
    imports,
    memory,
    notify,
    reads,
    recovery,
    served,
    server,
    steps,
    switch,
    wal,
)
from benchmarks.context import FULL, QUICK, Context, open_context
from benchmarks.peers import part as peers
from benchmarks.peers.candidate import CANDIDATES
from benchmarks.peers.document import write_document
from benchmarks.peers.ratio import RATIO_NAMES, peer_table, ratios
from benchmarks.promise import promise_table

Part = Callable[[Context], Awaitable[dict[str, float]]]

WIDTH_MIN = 110
PEER_WIDTH = 200
LATEST = Path(__file__).with_name("latest.json")

# In the order in which they run: those with most of the promises first, bulk loads last.
PARTS: dict[str, Part] = {
    "floor": floor.run,
    "engine": engine.run,
    "server": server.run,
    "served": served.run,
    "wal": wal.run,
    "heartbeat": heartbeat.run,
    "notify": notify.run,
    "switch": switch.run,
    "memory": memory.run,
    "claim": claim.run,
    "history": history.run,
    "reads": reads.run,
    "imports": imports.run,
    "recovery": recovery.run,
    "steps": steps.run,
    "peers": peers.run,
}
# The others together stay within ten minutes.
USUAL_PARTS = [name for name in PARTS if name not in ("memory", "peers", "steps")]


def main() -> None:
    """Run the chosen parts, print their numbers beside the floor, and keep them."""
    arguments = _parse()
    console = Console()
    # Names are read by their ends; a narrow terminal must not cut them off.
    console.width = max(console.width, WIDTH_MIN)
    # As a server sets them; for the floor as for ours.
    gc.set_threshold(20_000, 50, 100)

    def report(name: str, value: float) -> None:
        console.print(f"  {name} {_text(value)}", highlight=False)

    scale = QUICK if arguments.quick else FULL
    with open_context(scale, report, arguments.candidates) as context:
        measured = uvloop.run(_measure(context, arguments.only, console))
    numbers = _known(arguments.only, arguments.candidates)
    numbers |= {name: round(value, 3) for name, value in measured.items()}
    numbers |= {f"peers.{name}": round(value, 3) for name, value in ratios(numbers).items()}
    LATEST.write_text(json.dumps(numbers, indent=2, sort_keys=True) + "\n")
    console.print(_table(numbers))
    if any(name.startswith("peers.") for name in numbers):
        console.print(peer_table(numbers), width=PEER_WIDTH)
    console.print(promise_table(numbers))
    if arguments.write_docs:
        write_document(numbers)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", type=_part_names, default=USUAL_PARTS, metavar="NAME[,NAME]")
    parser.add_argument("--quick", action="store_true", help="shorter runs, less exact")
    parser.add_argument(
        "--candidates",
        type=_candidate_names,
        default=(),
        metavar="NAME[,NAME]",
        help="measure these of the peers alone",
    )
    parser.add_argument(
        "--write-docs", action="store_true", help="write docs/benchmarks.md from the latest numbers"
    )
    return parser.parse_args()


def _part_names(text: str) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        message = f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}"
        raise argparse.ArgumentTypeError(message)
    return [name for name in PARTS if name in names]


def _candidate_names(text: str) -> tuple[str, ...]:
    names = text.split(",")
    known = [candidate.name for candidate in CANDIDATES]
    unknown = [name for name in names if name not in known]
    if unknown:
        message = f"no candidate {', '.join(unknown)}; there are {', '.join(known)}"
        raise argparse.ArgumentTypeError(message)
    return tuple(names)


def _known(parts: list[str], candidates: tuple[str, ...]) -> dict[str, float]:
    """Return the numbers of earlier runs, without those of what has just been measured."""
    if not LATEST.exists():
        return {}
    numbers: dict[str, float] = json.loads(LATEST.read_text())
    measured = [f"{part}." for part in parts if part != "peers" or not candidates]
    if "peers" in parts:
        measured += [f"peers.{candidate}." for candidate in candidates]
    # Ratios are made anew from what is known.
    measured += [f"peers.{name}" for name in RATIO_NAMES]
    return {name: value for name, value in numbers.items() if not name.startswith(tuple(measured))}


async def _measure(context: Context, names: list[str], console: Console) -> dict[str, float]:
    numbers: dict[str, float] = {}
    for name in names:
        console.print(name)
        began = time.perf_counter()
        measured = await PARTS[name](context)
        context.remove_databases()
        console.print(f"  ({time.perf_counter() - began:.0f} s)", highlight=False)
        numbers |= {f"{name}.{measure}": value for measure, value in measured.items()}
    return numbers


def _table(numbers: dict[str, float]) -> Table:
    """Lay the numbers beside what they are compared with.

    The floor of ``engine.postgres.rate`` is ``engine.postgres.rate.floor``, which a part measures
    alternately with its own. The part ``floor`` stands for itself; peers have their own table.
    """
    table = Table("name")
    for heading in ("floor", "ours", "ratio"):
        table.add_column(heading, justify="right")
    for name, value in sorted(numbers.items()):
        if name.startswith("floor."):
            table.add_row(name, _text(value), "", "")
        elif not name.endswith(".floor") and not name.startswith("peers."):
            limit = numbers.get(f"{name}.floor")
            compared = ("", "") if not limit else (_text(limit), f"{value / limit:.3f}")
            table.add_row(name, compared[0], _text(value), compared[1])
    return table


def _text(value: float) -> str:
    return f"{value:,.3f}" if abs(value) < 100 else f"{value:,.0f}"


if __name__ == "__main__":
    main()
