"""``python -m tests.soak``: run the long tests and print promised, measured, held."""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import Final

import structlog
from rich.console import Console
from rich.table import Table

from tests.soak.catalog import SCENARIOS
from tests.soak.result import Result

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
            results += asyncio.run(SCENARIOS[name](options.small))
    console.print(_table(results))
    for result in results:
        for detail in result.details:
            console.print(f"{result.name}: {detail}")
    return int(any(result.held is False for result in results))


def _table(results: list[Result]) -> Table:
    table = Table("what", "promised", "measured", "")
    for result in results:
        table.add_row(result.name, result.promised, result.measured, _HELD[result.held])
    return table


if __name__ == "__main__":
    sys.exit(main())
