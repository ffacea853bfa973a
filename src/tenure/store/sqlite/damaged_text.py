"""Rows with a damaged text: SQLite returns it, but Python cannot decode it.

One such text must not hide the other rows. So the statement runs once more and returns every text
as bytes. Those that cannot be decoded stay bytes, and the code that makes records of rows treats
them as damaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import apsw

from tenure.store.table.damaged_row import DamagedRows

# Statements whose rows are made into records one by one if something is wrong with them.
FORGIVING: Final = frozenset(
    {
        "claim_tasks",
        "list_finished_tasks",
        "list_live_tasks",
        "load_due",
        "load_held",
        "load_history",
        "load_tasks",
        "peek_tasks",
        "read_tasks",
        "scan_history",
        "scan_tasks",
    }
)


def read_rows(connection: apsw.Connection, text: str, given: Sequence[Any]) -> DamagedRows:
    """Return the rows of a statement that reads, for each row of parameters."""
    rows = DamagedRows()
    for values in given:
        columns = connection.execute(text, values).get_description()
        names = [f"c{number}" for number in range(len(columns))]
        as_bytes = (
            f"CASE typeof({c}) WHEN 'text' THEN CAST({c} AS BLOB) ELSE {c} END" for c in names
        )
        is_text = (f"typeof({c}) = 'text'" for c in names)
        wrapped = (
            f"WITH found ({', '.join(names)}) AS ({text})"  # noqa: S608 (made of our own statement)
            f" SELECT {', '.join(as_bytes)}, {', '.join(is_text)} FROM found"
        )
        for row in connection.execute(wrapped, values):
            count = len(names)
            rows.append(tuple(map(_decoded, row[:count], row[count:])))
    return rows


def _decoded(value: Any, is_text: object) -> object:  # noqa: ANN401 (whatever SQLite holds)
    if not is_text:
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
