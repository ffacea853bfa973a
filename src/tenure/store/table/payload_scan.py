"""Checks every stored payload for damage.

Some rows at a time, in the order of their keys, so that neither the memory nor a running server is
affected by the number of rows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec

from tenure.core.limits import SCANNED_DAMAGES_MAX, SCANNED_ROWS_MAX
from tenure.core.task.record import Task
from tenure.core.task.retry import ErrorInfo
from tenure.store.table import codec
from tenure.store.table.codec import AnyRow
from tenure.store.table.damaged_row import tasks_from

Read = Callable[..., Awaitable[Sequence[AnyRow]]]
"""Runs a statement by its name and its parameters."""

_NIL_ID: Final = "00000000-0000-0000-0000-000000000000"


class Scan(msgspec.Struct):
    """The result. Rows that were written before there were checksums cannot be verified."""

    row_count: int = 0
    unverified_count: int = 0
    damaged_count: int = 0
    problems: list[str] = msgspec.field(default_factory=list)

    def damaged(self, what: str) -> None:
        """Add a damaged row; the first ones are named."""
        self.damaged_count += 1
        if len(self.problems) < SCANNED_DAMAGES_MAX:
            self.problems.append(what)


class _Table(msgspec.Struct, frozen=True):
    """How the rows of a table are read: where its keys are, and how damage is found."""

    name: str
    key_columns: tuple[int, ...]
    first_key: tuple[object, ...]
    look: Callable[[Scan, str, Sequence[AnyRow]], None]


async def scan(read: Read, tell: Callable[[int], None]) -> Scan:
    """Check the payloads of all tasks and attempts; ``tell`` gets the number of rows."""
    found = Scan()
    for table in _TABLES:
        await _scan_table(found, table, read, tell)
    return found


async def _scan_table(found: Scan, table: _Table, read: Read, tell: Callable[[int], None]) -> None:
    key = table.first_key
    while rows := await read(f"scan_{table.name}", *key, SCANNED_ROWS_MAX):
        table.look(found, table.name, rows)
        found.row_count += len(rows)
        tell(found.row_count)
        after = tuple(rows[-1][column] for column in table.key_columns)
        if not _is_behind(after, key):
            found.damaged(f"{table.name}: the keys after {key[1]} are out of order")
            return
        key = after


def _is_behind(after: tuple[object, ...], key: tuple[object, ...]) -> bool:
    """Return whether a key is valid and comes later; otherwise the loop would never end."""
    try:
        return after > key
    except TypeError:
        return False


def _look_at_live(found: Scan, name: str, rows: Sequence[AnyRow]) -> None:
    _look_at_tasks(found, name, rows, codec.task_from)


def _look_at_finished(found: Scan, name: str, rows: Sequence[AnyRow]) -> None:
    _look_at_tasks(found, name, rows, codec.finished_from)


def _look_at_tasks(
    found: Scan, name: str, rows: Sequence[AnyRow], make: Callable[[AnyRow], Task]
) -> None:
    def tell(row: AnyRow) -> None:
        found.damaged(f"{name} {row[1]!r} {row[0]!r}: its key cannot be read")

    for task in tasks_from(rows, make, tell):
        if task.damaged:
            found.damaged(f"{name} {task.namespace} {task.id}: {', '.join(task.damaged)}")
    found.unverified_count += sum(row[21] is None for row in rows)


def _look_at_attempts(found: Scan, name: str, rows: Sequence[AnyRow]) -> None:
    for row in rows:
        error: ErrorInfo | None = codec.error_from(row)
        if error is codec.DAMAGED_ERROR:
            found.damaged(f"{name} {row[0]} {row[1]} attempt {row[2]}: error")
        found.unverified_count += row[8] is not None and row[9] is None


_TABLES: Final = (
    _Table("tasks", (1, 0), ("", _NIL_ID), _look_at_live),
    _Table("history", (1, 0), ("", _NIL_ID), _look_at_finished),
    _Table("attempts", (0, 1, 2), ("", _NIL_ID, 0), _look_at_attempts),
)
