"""``python -m tests.soak``: run the long tests and print promised, measured, held."""

from __future__ import annotations

import argparse
import asyncio
import sys
import traceback
from collections.abc import Callable
from typing import Final

import structlog
from rich.console import Console
from rich.table import Table

from tests.soak.catalog import SCENARIOS, CatalogEntry
from tests.soak.result import Result
from tests.starvation import Canary, Watch, run_watched

_HELD: Final = {True: "[green]held[/]", False: "[red]BROKEN[/]", None: ""}


def main() -> int:
    """Run what was asked for; 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    parser.add_argument("--only", default="", metavar="NAME[,NAME]", help=", ".join(SCENARIOS))
    parser.add_argument("--small", action="store_true", help="the size that make test uses")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(SCENARIOS)
    unknown = [name for name in names if name not in SCENARIOS]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(SCENARIOS)}")
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    console = Console()
    results: list[Result] = []
    for name in names:
        with console.status(f"{name} …"):
            results += play(name, SCENARIOS[name], is_small=options.small, say=console.print)
    console.print(_table(results))
    for result in results:
        for detail in result.details:
            console.print(f"{result.name}: {detail}")
    return int(bool(_broken(results)))


def play(
    name: str,
    entry: CatalogEntry,
    *,
    is_small: bool,
    say: Callable[[str], None],
    watch: Callable[[], Watch] = Canary,
) -> list[Result]:
    """Run a long test; say so if it is run again because the machine was too busy for it."""

    def tell(results: list[Result], text: str) -> None:
        say(f"{name}: {text}")
        for result in _broken(results):
            say(f"  {result.name}: promised {result.promised}, measured {result.measured}")

    return run_watched(
        lambda: _run(name, entry, is_small=is_small),
        allows_s=entry.allows_s(is_small=is_small),
        is_broken=lambda results: bool(_broken(results)),
        say=tell,
        watch=watch,
    )


def _run(name: str, entry: CatalogEntry, *, is_small: bool) -> list[Result]:
    try:
        return asyncio.run(entry.run(is_small))
    except Exception as error:  # noqa: BLE001 (a test that breaks off is a broken promise)
        text = traceback.format_exc()
        return [Result(name, "comes to its end", repr(error), held=False, details=(text,))]


def _broken(results: list[Result]) -> list[Result]:
    return [each for each in results if each.held is False]


def _table(results: list[Result]) -> Table:
    table = Table("what", "promised", "measured", "")
    for result in results:
        table.add_row(result.name, result.promised, result.measured, _HELD[result.held])
    return table


if __name__ == "__main__":
    sys.exit(main())
