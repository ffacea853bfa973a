"""Tables for people: which columns a terminal has room for, and how wide each is.

On a narrow terminal the least important columns are left out. Ids, states and numbers are never
cut, because a part of them is worth nothing. Names and notes are cut, but keep a few characters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from tenure.cli.show.text import one_line

if TYPE_CHECKING:
    from rich.text import Text

T = TypeVar("T")
NOTHING: Final = "-"
# Without a terminal nothing is left out: whoever reads the file or the pipe wants all of it.
UNLIMITED: Final = 100_000
_GAP: Final = 2
# A name that is cut further says too little.
_TEXT_MIN: Final = 12

STYLES: Final = {
    "SUCCEEDED": "green",
    "COMPLETED": "green",
    "FAILED": "red",
    "CANCELLED": "yellow",
    "CANCELLING": "yellow",
    "RUNNING": "cyan",
    "DISPATCHED": "cyan",
    "PAUSED": "magenta",
    "WAITING": "blue",
    "SLEEPING": "blue",
    "PARKED": "red",
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


class Column(Generic[T]):
    """One column of a table."""

    def __init__(
        self,
        header: str,
        cell: Callable[[T], object],
        *,
        rank: int = 0,
        is_text: bool = False,
        short: Callable[[T], object] | None = None,
    ) -> None:
        """Take the cells from ``cell``.

        A narrow terminal leaves out the column with the highest ``rank`` first, and never one of
        rank 0. ``is_text`` marks cells that may be cut. ``short`` gives shorter cells, which are
        shown before anything is left out.
        """
        self.header = header
        self.rank = rank
        self.is_text = is_text
        self.short = short
        self._cell = cell

    def text(self, item: T, *, is_short: bool = False) -> str:
        """Return the cell of an item."""
        value = (self.short if is_short and self.short else self._cell)(item)
        return NOTHING if value is None or value == "" else one_line(str(value))


class Layout(Generic[T]):
    """The columns that fit into a width, for a list of items."""

    def __init__(self, columns: Sequence[Column[T]], items: Sequence[T], width: int) -> None:
        """Choose the columns for ``items``, and measure them."""
        self._is_short = False
        self._columns = list(columns)
        self._widths = self._measured(items)
        if self._needed > width and any(column.short for column in columns):
            self._is_short = True
            self._widths = self._measured(items)
        while self._needed > width and any(column.rank for column in self._columns):
            last = max(self._columns, key=lambda column: column.rank)
            self._widths.pop(self._columns.index(last))
            self._columns.remove(last)
        self._share(width)
        self.hidden = [column.header for column in columns if column not in self._columns]

    def _measured(self, items: Sequence[T]) -> list[int]:
        from rich.cells import cell_len

        return [
            max(
                len(column.header),
                *(cell_len(column.text(item, is_short=self._is_short)) for item in items),
                0,
            )
            for column in self._columns
        ]

    @property
    def _needed(self) -> int:
        """Return the width of the table with all of its text cut."""
        return sum(map(self._least, range(len(self._columns)))) + _GAP * (len(self._columns) - 1)

    def _least(self, index: int) -> int:
        width = self._widths[index]
        return min(width, _TEXT_MIN) if self._columns[index].is_text else width

    def _share(self, width: int) -> None:
        """Give the room that is left to the text, to the most important first."""
        room = max(width - self._needed, 0)
        texts = [index for index, column in enumerate(self._columns) if column.is_text]
        for index in sorted(texts, key=lambda each: self._columns[each].rank):
            least = self._least(index)
            more = min(self._widths[index] - least, room)
            self._widths[index] = least + more
            room -= more

    @property
    def header(self) -> Text:
        """Return the line with the names of the columns."""
        return self._line([(column.header, "bold") for column in self._columns])

    def row(self, item: T) -> Text:
        """Return the line of an item."""
        cells = [column.text(item, is_short=self._is_short) for column in self._columns]
        return self._line([(cell, STYLES.get(cell, "")) for cell in cells])

    def _line(self, cells: Sequence[tuple[str, str]]) -> Text:
        from rich.text import Text

        made = Text(no_wrap=True, overflow="ellipsis")
        for (cell, style), width in zip(cells, self._widths, strict=True):
            part = Text(cell, style)
            part.truncate(width, overflow="ellipsis", pad=True)
            made.append_text(part).append(" " * _GAP)
        # A terminal would count spaces at the end as well.
        made.rstrip()
        return made


def lines(columns: Sequence[Column[T]], items: Sequence[T], width: int) -> list[Text]:
    """Return a table as lines, the header first."""
    layout = Layout(columns, items, width)
    return [layout.header, *map(layout.row, items)]
