"""The limit on SQLite: bare SQL on one connection, 500 tasks per transaction.

Nothing else wants the thread, so it runs inline: a hop to a writer thread would only add to it.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import apsw
import uuid_utils

from benchmarks.floor_postgres import BATCH_SIZE, INPUT, LEASE_MS, OUTPUT, medians_us, wall_ms
from benchmarks.statement import read_statements

# Of each row the completion needs its id and, as the fence, its version: the first two columns.
# In quotes: apsw has this type in its stubs only.
Row: TypeAlias = "Sequence[apsw.SQLiteValue]"

SQL = read_statements("floor_sqlite.sql")


class Floor:
    """The life of a task in three transactions; apsw keeps the prepared statements."""

    def __init__(self, path: Path) -> None:
        self.connection = apsw.Connection(str(path))
        self.worker_id = new_ids(1)[0]
        self.connection.execute(SQL["set_pragmas"])
        self.connection.execute(SQL["create_schema"])

    def insert(self, ids: list[bytes], *, direct: bool) -> list[Row]:
        """Insert pending tasks, or with ``direct`` tasks that a worker already has."""
        now_ms = wall_ms()
        held = (1, self.worker_id, now_ms + LEASE_MS) if direct else (0, None, None)
        shared = ("default", "default", "noop", 0, now_ms, INPUT, *held)
        self.connection.execute("BEGIN IMMEDIATE")
        self.connection.executemany(SQL["insert_tasks"], [(id, *shared) for id in ids])
        self.connection.execute("COMMIT")
        return [(id, 1) for id in ids]

    def claim(self, count: int) -> list[Row]:
        """Hand the first tasks of the queue to the worker."""
        now_ms = wall_ms()
        head = ("default", "default", "noop", now_ms, count, self.worker_id, now_ms + LEASE_MS)
        self.connection.execute("BEGIN IMMEDIATE")
        rows = self.connection.execute(SQL["claim_tasks"], head).fetchall()
        self.connection.execute("COMMIT")
        assert len(rows) == count, "the queue has fewer tasks than were put in"
        return [*rows]

    def complete(self, rows: list[Row]) -> None:
        """Move tasks to history."""
        now_ms = wall_ms()
        self.connection.execute("BEGIN IMMEDIATE")
        finished = [(row[0], row[1], OUTPUT, now_ms) for row in rows]
        self.connection.executemany(SQL["insert_history"], finished)
        self.connection.executemany(SQL["delete_tasks"], [(row[0], row[1]) for row in rows])
        self.connection.execute("COMMIT")

    def live(self, ids: list[bytes], *, direct: bool) -> None:
        """Take a batch through its whole life: three commits, or two with ``direct``."""
        rows = self.insert(ids, direct=direct)
        if not direct:
            rows = self.claim(len(ids))
        self.complete(rows)

    def close(self, *, task_count: int) -> None:
        """End, and check that every task came to its end."""
        finished = self.connection.execute("SELECT count(*) FROM history").get
        assert finished == task_count, f"{finished} of {task_count} tasks are in history"
        self.connection.close()


def sqlite_rate(path: Path, *, seconds: float, direct: bool = False) -> float:
    """Tasks per second on a new database, checkpoints included, the making of ids not."""
    task_count, spent = 0, 0.0
    floor = Floor(path)
    while spent < seconds:
        ids = new_ids(BATCH_SIZE)
        started = time.perf_counter()
        floor.live(ids, direct=direct)
        spent += time.perf_counter() - started
        task_count += BATCH_SIZE
    floor.close(task_count=task_count)
    return task_count / spent


def sqlite_single_commit_us(path: Path, *, count: int) -> dict[str, float]:
    """Medians of one insert, one claim and one completion per transaction, nothing beside them."""
    floor = Floor(path)
    medians = commit_medians_us(floor, count=count)
    floor.close(task_count=count)
    return medians


def commit_medians_us(floor: Floor, *, count: int) -> dict[str, float]:
    """Medians of the single commits of one turn."""
    times: list[tuple[float, float, float, float]] = []
    for _ in range(count):
        ids = new_ids(1)
        begun = time.perf_counter()
        floor.insert(ids, direct=False)
        inserted = time.perf_counter()
        rows = floor.claim(1)
        claimed = time.perf_counter()
        floor.complete(rows)
        times.append((begun, inserted, claimed, time.perf_counter()))
    return medians_us(times)


def new_ids(count: int) -> list[bytes]:
    """Return ids in the order of their making, as a client makes them."""
    return [uuid_utils.uuid7().bytes for _ in range(count)]
