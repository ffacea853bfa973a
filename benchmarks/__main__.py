"""Run the benchmarks: ``python -m benchmarks [--only NAME[,NAME]] [--quick]``."""

import argparse
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import uvloop
from rich.console import Console
from rich.table import Table

from benchmarks import floor
from benchmarks.context import FULL, QUICK, Context, open_context

Part = Callable[[Context], Awaitable[dict[str, float]]]

LATEST = Path(__file__).with_name("latest.json")

# In the order in which they run. Engine, claim, heartbeat, wal and history have their place here.
PARTS: dict[str, Part] = {
    "floor": floor.run,
}


def main() -> None:
    """Run the chosen parts, print their numbers beside the floor, and keep them."""
    arguments = _parse()
    console = Console()

    def report(name: str, value: float) -> None:
        console.print(f"  {name} {value:,.1f}", highlight=False)

    with open_context(QUICK if arguments.quick else FULL, report) as context:
        measured = uvloop.run(_measure(context, arguments.only, console))
    known: dict[str, float] = {}
    if len(arguments.only) < len(PARTS) and LATEST.exists():
        known = json.loads(LATEST.read_text())
    numbers = known | {name: round(value, 3) for name, value in measured.items()}
    LATEST.write_text(json.dumps(numbers, indent=2, sort_keys=True) + "\n")
    console.print(_table(numbers))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", type=_part_names, default=[*PARTS], metavar="NAME[,NAME]")
    parser.add_argument("--quick", action="store_true", help="shorter runs, less exact")
    return parser.parse_args()


def _part_names(text: str) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        message = f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}"
        raise argparse.ArgumentTypeError(message)
    return [name for name in PARTS if name in names]


async def _measure(context: Context, names: list[str], console: Console) -> dict[str, float]:
    numbers: dict[str, float] = {}
    for name in names:
        console.print(name)
        measured = await PARTS[name](context)
        numbers |= {f"{name}.{measure}": value for measure, value in measured.items()}
    return numbers


def _table(numbers: dict[str, float]) -> Table:
    """Lay the numbers beside their floor.

    The floor of ``engine.postgres_claim_per_s`` is ``engine.postgres_claim_per_s.floor``, which a
    part may measure alternately with its own, else ``floor.postgres_claim_per_s``.
    """
    table = Table("name")
    for heading in ("floor", "ours", "ratio"):
        table.add_column(heading, justify="right")
    for name, value in sorted(numbers.items()):
        part, _, measure = name.partition(".")
        if part == "floor":
            table.add_row(measure, f"{value:,.1f}", "", "")
        elif not measure.endswith(".floor"):
            limit = numbers.get(f"{name}.floor", numbers.get(f"floor.{measure}"))
            compared = ("", "") if limit is None else (f"{limit:,.1f}", f"{value / limit:.3f}")
            table.add_row(name, compared[0], f"{value:,.1f}", compared[1])
    return table


if __name__ == "__main__":
    main()
