"""What commands write: tables for people, JSON for programs.

Results go to stdout. What is said about them (progress, advice) goes to stderr, so that a pipe
gets nothing but results. Colour is used on a terminal only.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import IO, TYPE_CHECKING, Literal, TypeVar

import click
import msgspec

from tenure.cli.show.table import STYLES, UNLIMITED, Column, Layout
from tenure.cli.show.text import clean, escaped, escaped_json

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

T = TypeVar("T")
Format = Literal["table", "json", "jsonl"]


class Lines(str):
    """A fact that may have several lines; all others are shown in one."""

    __slots__ = ()


class Output:
    """Writes in the form that was asked for."""

    def __init__(self, form: Format) -> None:
        """Write tables, JSON or lines of JSON."""
        self.form = form

    @property
    def is_table(self) -> bool:
        """Tell whether people read this."""
        return self.form == "table"

    def write(self, item: object) -> None:
        """Write one object as JSON, over several lines or on one."""
        click.echo(encoded(item, indent=2 if self.form == "json" else -1))

    def say(self, text: str) -> None:
        """Write a sentence as the result."""
        click.echo(escaped(text))

    def lines(self, text: str) -> None:
        """Write a text of several lines as the result."""
        click.echo(clean(text))

    def note(self, text: str) -> None:
        """Tell people something beside the result."""
        if self.is_table:
            click.echo(escaped(text), err=True)

    def table(self, columns: Sequence[Column[T]], items: Sequence[T]) -> None:
        """Write a table, and name the columns that the terminal has no room for."""
        made = console(sys.stdout)
        layout = Layout(columns, items, made.width)
        click.echo(rendered([layout.header, *map(layout.row, items)]), nl=False)
        if layout.hidden:
            hidden = ", ".join(layout.hidden)
            self.note(f"Hidden columns: {hidden}. Use a wider terminal, or -o json.")

    def facts(self, facts: Iterable[tuple[str, object]]) -> None:
        """Write what is known of one thing, one fact per line; what is not there is left out."""
        known = [(name, value) for name, value in facts if value not in (None, "")]
        width = max((len(name) for name, _ in known), default=0) + 2
        for name, value in known:
            label = click.style(f"{name}:".ljust(width), dim=True)
            click.echo(label + _coloured(_fact(value, width)))


def _fact(value: object, width: int) -> str:
    if isinstance(value, Lines):
        return clean(value).replace("\n", "\n" + " " * width)
    return escaped(str(value))


def _coloured(text: str) -> str:
    style = STYLES.get(text)
    if style is None:
        return text
    return click.style(text, dim=True) if style == "dim" else click.style(text, fg=style)


def encoded(item: object, *, indent: int) -> bytes:
    """Return an object as JSON; -1 puts all on one line, payloads inside too."""
    made = msgspec.json.format(msgspec.json.encode(item), indent=indent)
    return escaped_json(made.decode()).encode()


def console(file: IO[str]) -> Console:
    """Return rich's console on a stream; nothing in a text is taken for markup."""
    from rich.console import Console

    width = None if file.isatty() else UNLIMITED
    return Console(file=file, markup=False, emoji=False, highlight=False, width=width)


def rendered(lines: Iterable[RenderableType]) -> str:
    """Return what stdout shows; written by click, which knows what to do with a closed pipe."""
    made = console(sys.stdout)
    with made.capture() as captured:
        for line in lines:
            made.print(line)
    return captured.get()
