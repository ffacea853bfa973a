"""The list of commands in docs/reference/cli.md; run as a program it writes it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from tenure.cli.main import tenure

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
BEGIN: Final = "<!-- commands: make them with `python -m tests.cli.reference` -->\n"
END: Final = "<!-- end of commands -->\n"


def commands(
    group: click.Group = tenure, path: str = "tenure"
) -> Iterator[tuple[str, click.Command]]:
    """Return every command that does something, with its path."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def table() -> str:
    """Return the list of commands as a table."""
    rows = ["| command | what it does |", "|---|---|"]
    for path, command in commands():
        context = click.Context(command)
        arguments = [
            each.make_metavar(context)
            for each in command.params
            if isinstance(each, click.Argument)
        ]
        usage = " ".join([path, *arguments]).replace("|", "\\|")
        rows.append(f"| `{usage}` | {command.get_short_help_str(100)} |")
    return "\n".join(rows) + "\n"


def page() -> str:
    """Return the page with the present list in it."""
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    return before + BEGIN + table() + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
