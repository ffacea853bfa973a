"""The invariants, checked from what was acknowledged, what is stored, and an audit of all writes.

The simulation's checker looks at the rows after each commit; with real processes on a real server
nobody can. So a trigger writes down every version of every task in the transaction that makes it,
and the chain is checked afterwards by the same rules.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import apsw
import asyncpg
import msgspec

from tenure.core.task.record import TaskState
from tests.chaos.journal import Acknowledged

COMPLAINTS_MAX: Final = 20
AUDIT_SQL: Final = """
CREATE TABLE task_audit (
    seq bigint GENERATED ALWAYS AS IDENTITY, op text, id uuid, version integer, attempt integer,
    state text, worker_id uuid
);
CREATE FUNCTION audit_task() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        INSERT INTO task_audit (op, id, version, attempt, state, worker_id)
        VALUES ('gone', OLD.id, OLD.version, OLD.attempt, OLD.state, OLD.worker_id);
        RETURN OLD;
    END IF;
    INSERT INTO task_audit (op, id, version, attempt, state, worker_id)
    VALUES (TG_TABLE_NAME, NEW.id, NEW.version, NEW.attempt, NEW.state, NEW.worker_id);
    RETURN NEW;
END $$;
CREATE TRIGGER audit_live AFTER INSERT OR UPDATE OR DELETE ON tasks
    FOR EACH ROW EXECUTE FUNCTION audit_task();
"""


class Stored(msgspec.Struct):
    """What is in the database: live ids, finished tasks, and the numbers of ended attempts."""

    live: set[str] = msgspec.field(default_factory=set)
    finished: dict[str, list[tuple[str, int, str]]] = msgspec.field(
        default_factory=lambda: defaultdict(list)
    )
    attempts: dict[str, list[int]] = msgspec.field(default_factory=lambda: defaultdict(list))


def _stored(live: Iterable[Any], finished: Iterable[Any], attempts: Iterable[Any]) -> Stored:
    found = Stored({str(row[0]) for row in live})
    for task_id, state, attempt, output in finished:
        text = "" if output is None else bytes(output).decode()
        found.finished[str(task_id)].append((state, attempt, text))
    for task_id, number in attempts:
        found.attempts[str(task_id)].append(number)
    return found


_LIVE: Final = "SELECT id FROM tasks"
_FINISHED: Final = "SELECT id, state, attempt, output FROM history"
_ATTEMPTS: Final = "SELECT task_id, number FROM attempts ORDER BY number"


def read_sqlite(path: str) -> tuple[Stored, str]:
    """Read a file that no server works on; return also what its integrity check says."""
    connection = apsw.Connection(path)
    try:
        verdict = str(connection.pragma("integrity_check"))
        tables = [list(connection.execute(sql)) for sql in (_LIVE, _FINISHED, _ATTEMPTS)]
    finally:
        connection.close()
    return _stored(*tables), verdict


async def read_postgres(dsn: str) -> Stored:
    """Read a database in one snapshot."""
    connection = await asyncpg.connect(dsn)
    try:
        async with connection.transaction(isolation="repeatable_read"):
            tables = [await connection.fetch(sql) for sql in (_LIVE, _FINISHED, _ATTEMPTS)]
    finally:
        await connection.close()
    return _stored(*tables)


def check(told: Acknowledged, stored: Stored) -> list[str]:
    """Return every broken promise: invariants 1, 2 and 3."""
    complaints = [
        f"task {task_id} was acknowledged and is not stored"
        for task_id in sorted(told.enqueued)
        if task_id not in stored.live and task_id not in stored.finished
    ]
    for task_id, ends in stored.finished.items():
        if len(ends) > 1 or task_id in stored.live:
            complaints.append(f"task {task_id} has {len(ends)} ends and lives on")
        state, attempt, output = ends[0]
        if state != TaskState.SUCCEEDED:
            complaints.append(f"task {task_id} ended as {state}")
        complaints += [
            f"{done} was accepted, but {(attempt, output)} is stored"
            for done in told.done.get(task_id, ())
            if (done.attempt, done.output) != (attempt, output)
        ]
        numbers = [*stored.attempts.get(task_id, []), attempt]
        if numbers != list(range(1, attempt + 1)):
            complaints.append(f"task {task_id} has attempts {numbers}")
    complaints += [
        f"{done} was accepted and is not stored"
        for task_id, ends in told.done.items()
        if task_id not in stored.finished
        for done in ends
    ]
    return complaints[:COMPLAINTS_MAX]


async def read_audit(dsn: str) -> dict[str, list[Mapping[str, Any]]]:
    """Return the versions of each task in the order in which they were made."""
    connection = await asyncpg.connect(dsn)
    try:
        rows = await connection.fetch("SELECT * FROM task_audit ORDER BY seq")
    finally:
        await connection.close()
    found: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        found[str(row["id"])].append(dict(row))
    return found


def check_audit(audit: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    """Check each task's chain of versions: none skipped, attempts by one, one birth, one end."""
    complaints = []
    for task_id, versions in audit.items():
        words = [f"{row['state']}#{row['attempt']}v{row['version']}" for row in versions]
        complaints += [f"task {task_id} {each}: {' '.join(words)}" for each in _problems(versions)]
    return complaints[:COMPLAINTS_MAX]


def _problems(versions: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    if versions[0]["version"] != 0 or versions[0]["attempt"] > 1:
        yield "was not born new"
    if [row["op"] for row in versions].count("gone") > 1:
        yield "ended twice"
    for old, new in itertools.pairwise(versions):
        if old["op"] == "gone":
            yield "lived on after its end"
        elif new["op"] == "gone":
            if new["version"] != old["version"]:
                yield "ended from a version that never was"
        else:
            yield from _step_problems(old, new)


def _step_problems(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterable[str]:
    if new["version"] != old["version"] + 1:
        yield "skipped a version"
    is_handed = new["attempt"] == old["attempt"] + 1
    if new["attempt"] != old["attempt"] and not is_handed:
        yield "skipped an attempt"
    if is_handed and (old["state"], new["state"]) != ("pending", "dispatched"):
        yield "was handed out while it was held"
    if not is_handed and new["state"] == "dispatched" != old["state"]:
        yield "was handed out under a number that was used"
