"""Looks at the rows after each commit and compares every change with the invariants.

A change needs evidence: a request that had reached a server, or a deadline that is over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import apsw

from tenure.core.journal.entry import Entry
from tenure.core.task.attempt import Attempt, Outcome
from tenure.core.task.record import Task, TaskKind, TaskState
from tenure.engine.task import command as c
from tenure.store.table import codec
from tenure.store.table import journal as journal_table
from tests.sim.journal_rule import JournalRules
from tests.sim.task_rule import TaskRules
from tests.sim.trace import Violation, short
from tests.sim.worker_rule import WorkerRules

if TYPE_CHECKING:
    from tests.sim.server import Server
    from tests.sim.world import World

TASKS, WORKERS, LEASES, JOURNALS = 1, 2, 4, 8
Key = tuple[str, str]
_TASK: Final = (
    "SELECT id, namespace, queue, type, state, line, priority, created_at_ms, run_at_ms, attempt,"
    " version, worker_id, handed_at_ms, session_no, last_outcome, due_at_ms, is_guarded, labels,"
    " spec, progress, input, input_checksum, progress_checksum, journal_id, parent_id,"
    " external_id, origin FROM tasks WHERE namespace = ? AND id = ?"
)
_FINISHED: Final = (
    "SELECT id, namespace, queue, type, state, 0, priority, created_at_ms, run_at_ms, attempt,"
    " version, worker_id, handed_at_ms, session_no, last_outcome, NULL, 0, labels, spec, progress,"
    " input, input_checksum, progress_checksum, output, output_checksum, finished_at_ms,"
    " journal_id, parent_id, external_id, origin FROM history WHERE namespace = ? AND id = ?"
)
_ATTEMPT: Final = (
    "SELECT namespace, task_id, number, outcome, worker_id, handed_at_ms, ended_at_ms,"
    " state_after, error, error_checksum, callback, callback_checksum FROM attempts"
    " WHERE namespace = ? AND task_id = ? AND number = ?"
)
_WORKER: Final = (
    "SELECT id, namespace, queue, types, instance_key, registered_at_ms, status, mode, slots,"
    " name, hostname, pid, software_version, labels, session_no, end_reason, drain_at_ms,"
    " ended_at_ms, release_pending, version, key_id FROM workers WHERE id = ?"
)
_ENTRIES: Final = (
    "SELECT journal_id, pos, at_ms, total_bytes, attempt, no, kind, key, body FROM journal"
    " WHERE journal_id = ? AND pos > ? ORDER BY pos"
)
_LEASES: Final = (
    "SELECT worker_id, namespace, server_id, lease_until_ms, lease_ms, token, beat_at_ms,"
    " previous_beat_at_ms, total_completed, total_failed, active_count, loop_lag_ms, stuck_count,"
    " suspect_until_ms, failures FROM leases"
)


class Checker:
    """An observer with its own connection; it also keeps the database in memory alive."""

    def __init__(self, world: World) -> None:
        self._world = world
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
        self._connection = apsw.Connection(world.path, flags=flags)
        self.live: dict[Key, Task] = {}
        self.finished: dict[Key, Task] = {}
        self.workers = WorkerRules(world, self)
        self.tasks = TaskRules(world, self)
        self.journals = JournalRules(world, self._read_entries)

    def close(self) -> None:
        """Let the database go."""
        self._connection.close()

    def committed(self, server: Server, dirty: int) -> None:
        """Look at what a commit has changed."""
        try:
            if dirty & WORKERS:
                self._look_at_workers(server)
            if dirty & (LEASES | WORKERS):
                self._look_at_leases()
            if dirty & TASKS:
                self._look_at_tasks(server)
            elif dirty & JOURNALS:
                self.journals.committed((), self.live.values())
        except Violation as violation:
            self._world.fail(violation)

    def _look_at_workers(self, server: Server) -> None:
        known = self.workers.rows
        for worker_id, version in self._connection.execute("SELECT id, version FROM workers"):
            old = known.get(worker_id)
            if old is None or old.version != version:
                (row,) = self._connection.execute(_WORKER, (worker_id,))
                self.workers.worker_changed(old, codec.worker_from(row), server)

    def _look_at_leases(self) -> None:
        rows = [codec.lease_from(row) for row in self._connection.execute(_LEASES)]
        self.workers.leases_seen({each.worker_id: each for each in rows})

    def _look_at_tasks(self, server: Server) -> None:
        live = self.live
        versions: dict[Key, int] = {
            (namespace, id_): version
            for namespace, id_, version in self._connection.execute(
                "SELECT namespace, id, version FROM tasks"
            )
        }
        gone = [key for key in live if key not in versions]
        changes: list[tuple[Task | None, Task]] = [
            (live.pop(key), self._finish(key)) for key in gone
        ]
        for key, version in versions.items():
            old = live.get(key)
            if old is None or old.version != version:
                (row,) = self._connection.execute(_TASK, key)
                new = live[key] = codec.task_from(row)
                changes.append((old, new))
        self.journals.committed(changes, live.values())
        for old, new in changes:
            self.tasks.changed(old, new, server)
        self.tasks.assigned(changes)

    def _finish(self, key: Key) -> Task:
        row = self._connection.execute(_FINISHED, key).fetchone()
        if row is None:
            raise Violation(f"task {short(key[1])} is gone without a trace", key[1])
        task = self.finished[key] = codec.finished_from(row)
        return task

    def _read_entries(self, journal_id: str, after: int) -> list[Entry]:
        rows = self._connection.execute(_ENTRIES, (journal_id, after))
        return [journal_table.entry_from(row) for row in rows]

    # -- What others ask -----------------------------------------------------------------------

    def find(self, key: Key, complaint: str) -> Task:
        """Return a task that must be there, live or finished."""
        task = self.live.get(key) or self.finished.get(key)
        if task is None:
            row = self._connection.execute(_FINISHED, key).fetchone()
            if row is None:
                raise Violation(f"{complaint}: {short(key[1])}", key[1])
            task = self.finished[key] = codec.finished_from(row)
        return task

    def ended(self, key: Key, number: int) -> Attempt | None:
        """Return the record of an ended attempt."""
        row = self._connection.execute(_ATTEMPT, (*key, number)).fetchone()
        return None if row is None else codec.attempt_from(row)

    def is_kept(self, namespace: str, item: c.Finish) -> bool:
        """Tell whether the end of an attempt is stored as it was reported."""
        key = (namespace, item.task_id)
        task = self.find(key, "a report names no task")
        ended = self.ended(key, item.attempt)
        if ended is not None:
            return ended.outcome is _OUTCOMES.get(item.kind) and ended.error == item.error
        if task.attempt != item.attempt:
            return False
        is_same = task.finished_at_ms is not None and task.last_outcome is _OUTCOMES[item.kind]
        if item.kind is c.FinishKind.SUCCEEDED:
            return is_same and task.output == item.output
        if item.kind is c.FinishKind.FAILED:
            return is_same and task.progress.error == item.error
        return is_same

    def status(self, worker_id: str) -> str:
        """Return the status of a worker."""
        worker = self.workers.rows.get(worker_id)
        return "unknown" if worker is None else worker.status.value

    def seat_owner(self, worker_id: str) -> str | None:
        """Return which server drives a served worker."""
        sql = "SELECT server_id FROM seats WHERE worker_id = ?"
        row = self._connection.execute(sql, (worker_id,)).fetchone()
        return None if row is None else row[0]

    def brakes(self, namespace: str, queue: str) -> tuple[bool, int]:
        """Return whether a queue is paused, and how many attempts it lets out at a time."""
        sql = "SELECT is_paused, concurrency_max FROM queues WHERE namespace = ? AND name = ?"
        row = self._connection.execute(sql, (namespace, queue)).fetchone()
        return (False, 0) if row is None else (bool(row[0]), row[1])

    def verify_history(self) -> None:
        """Check that no finished task was changed or lost since it finished."""
        for key, task in self.finished.items():
            row = self._connection.execute(_FINISHED, key).fetchone()
            if row is None or codec.finished_from(row) != task:
                raise Violation(f"finished task {short(key[1])} was changed", key[1])
            if key in self.live:
                raise Violation(f"finished task {short(key[1])} lives again", key[1])
            if task.kind is TaskKind.WORKFLOW and task.link is not None:
                self._world.runs.verify(task)
        self.journals.verify()

    def stuck(self) -> list[Task]:
        """Return what is not finished."""
        return [task for task in self.live.values() if task.state is not TaskState.PAUSED]


_OUTCOMES: Final = {
    c.FinishKind.SUCCEEDED: Outcome.SUCCEEDED,
    c.FinishKind.FAILED: Outcome.FAILED,
    c.FinishKind.CANCELLED: Outcome.CANCELLED,
    c.FinishKind.RELEASED: Outcome.RELEASED,
    c.FinishKind.PARKED: Outcome.PARKED,
    c.FinishKind.CONTINUED: Outcome.CONTINUED,
}
