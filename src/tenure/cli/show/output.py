"""What commands write: tables for people, JSON for programs.

Results go to stdout. What is said about them (progress, advice) goes to stderr, so that a pipe
gets nothing but results. Colour is used on a terminal only.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import IO, TYPE_CHECKING, Final, Generic, Literal, TypeVar

import click
import msgspec

from tenure.cli.show.text import clean, escaped, escaped_json, one_line

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

T = TypeVar("T")
Format = Literal["table", "json", "jsonl"]
NOTHING: Final = "-"
# Without a terminal nothing is cut: whoever reads the file or the pipe wants all of it.
_WIDE: Final = 100_000

STYLES: Final = {
    "SUCCEEDED": "green",
    "FAILED": "red",
    "CANCELLED": "yellow",
    "CANCELLING": "yellow",
    "RUNNING": "cyan",
    "DISPATCHED": "cyan",
    "PAUSED": "magenta",
    "WAITING": "blue",
    "ONLINE": "green",
    "DRAINING": "yellow",
    "OFFLINE": "dim",
    "HEALTHY": "green",
    "SUSPECT": "red",
    "LATE": "red",
    "BLOCKED": "red",
    "DEAF": "yellow",
    "STUCK": "yellow",
}


class Lines(str):
    """A fact that may have several lines; all others are shown in one."""

    __slots__ = ()


class Column(Generic[T]):
    """One column of a table; a whole one is never cut, because its values are copied."""

    def __init__(self, header: str, cell: Callable[[T], object], *, is_whole: bool = False) -> None:
        """Take the cells from ``cell``."""
        self.header = header
        self.is_whole = is_whole
        self._cell = cell

    def text(self, item: T) -> str:
        """Return the cell of an item."""
        value = self._cell(item)
        return NOTHING if value is None or value == "" else one_line(str(value))


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

    def table(self, columns: Sequence[Column[T]], items: Iterable[T]) -> None:
        """Write a table."""
        click.echo(rendered(table(columns, items)), nl=False)

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


def table(columns: Sequence[Column[T]], items: Iterable[T]) -> RenderableType:
    """Return a table without lines, which reads well and is easy to cut."""
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        made.add_column(
            column.header,
            no_wrap=True,
            overflow="fold" if column.is_whole else "ellipsis",
            min_width=36 if column.is_whole else None,
        )
    for item in items:
        cells = [column.text(item) for column in columns]
        made.add_row(*(Text(cell, style=STYLES.get(cell, "")) for cell in cells))
    return made


def console(file: IO[str]) -> Console:
    """Return rich's console on a stream; nothing in a text is taken for markup."""
    from rich.console import Console

    width = None if file.isatty() else _WIDE
    return Console(file=file, markup=False, emoji=False, highlight=False, width=width)


def rendered(content: RenderableType) -> str:
    """Return what stdout shows; written by click, which knows what to do with a closed pipe."""
    made = console(sys.stdout)
    with made.capture() as captured:
        made.print(content)
    # Cells are padded to the width of their column; nobody needs the spaces at the end.
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())
