"""The outside world of the activities: a database of its own, that survives every worker."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

_SCHEMA = """
CREATE TABLE IF NOT EXISTS row (id INTEGER PRIMARY KEY, written INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS effect (name TEXT NOT NULL, key TEXT NOT NULL, UNIQUE (name, key));
CREATE TABLE IF NOT EXISTS run (name TEXT NOT NULL, attempt INTEGER NOT NULL, pid INTEGER NOT NULL);
"""


class OutsideWorld:
    """What activities have done to the world; every call is a transaction of its own."""

    def __init__(self, folder: str | Path) -> None:
        self._path = Path(folder) / "ledger.db"
        with self._open() as database:
            database.executescript(_SCHEMA)

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with contextlib.closing(sqlite3.connect(self._path, timeout=30)) as database, database:
            yield database

    def upsert_row(self, row: int) -> None:
        """Write a row; written again it is the same row, and the count tells."""
        with self._open() as database:
            database.execute(
                "INSERT INTO row VALUES (?, 1) ON CONFLICT DO UPDATE SET written = written + 1",
                (row,),
            )

    def rows(self) -> dict[int, int]:
        """Return how often each row was written."""
        with self._open() as database:
            return dict(database.execute("SELECT id, written FROM row ORDER BY id"))

    def has(self, name: str, key: str) -> bool:
        """Tell whether an effect was recorded under a key."""
        with self._open() as database:
            query = "SELECT 1 FROM effect WHERE name = ? AND key = ?"
            return database.execute(query, (name, key)).fetchone() is not None

    def add(self, name: str, key: str) -> bool:
        """Record an effect; False if its key was known."""
        with self._open() as database:
            query = "INSERT INTO effect VALUES (?, ?) ON CONFLICT DO NOTHING"
            return database.execute(query, (name, key)).rowcount == 1

    def count(self, name: str) -> int:
        """Return how many effects of a name there are."""
        with self._open() as database:
            query = "SELECT count(*) FROM effect WHERE name = ?"
            return int(database.execute(query, (name,)).fetchone()[0])

    def note_run(self, name: str, attempt: int, pid: int) -> None:
        """Write down that an activity begins."""
        with self._open() as database:
            database.execute("INSERT INTO run VALUES (?, ?, ?)", (name, attempt, pid))

    def runs(self, name: str) -> list[tuple[int, int]]:
        """Return attempt and process of each run of an activity."""
        with self._open() as database:
            query = "SELECT attempt, pid FROM run WHERE name = ? ORDER BY rowid"
            return database.execute(query, (name,)).fetchall()
