"""Phase 2 of a batch: the loaded rows with all changes that its commands have made so far.

A later command sees what an earlier one did. Nothing here touches the database.
"""

from __future__ import annotations

from collections.abc import Sequence

from tenure.core.access.audit import AuditAction, AuditRecord
from tenure.core.journal import numbering
from tenure.core.journal.entry import NewEntry
from tenure.core.queue import namespace_disabled
from tenure.core.run.record import RunLink
from tenure.core.task import damage
from tenure.core.task import decide as task_rules
from tenure.core.task.effect import Decision, Effect, TellStop
from tenure.core.task.event import DamageFound, TaskEvent
from tenure.core.task.record import Task
from tenure.core.worker import decide as worker_rules
from tenure.core.worker import lease as lease_rules
from tenure.core.worker.decide import WorkerDecision, WorkerEffect, WorkerEvent
from tenure.core.worker.lease import Lease
from tenure.engine.clock import Clock
from tenure.engine.settings import Settings
from tenure.errors import Rejection
from tenure.store.table.closing import Closing
from tenure.store.table.lock_order import RowSets
from tenure.store.table.task import TaskKey

AnyEffect = Effect | WorkerEffect


class WorkingSet:
    """The rows of one batch and the changes to be saved."""

    def __init__(self, rows: RowSets, clock: Clock, server_id: str, settings: Settings) -> None:
        """Start from what was loaded."""
        self.rows = rows
        self.clock = clock
        self.server_id = server_id
        self.settings = settings
        self.now_ms = rows.now_ms
        self.tasks = rows.tasks
        self.groups = rows.groups
        self.journals = rows.journals
        self.closings = rows.closings
        self.stops = rows.stops
        self.attempts = rows.attempts
        self.workers = rows.workers
        self.leases = rows.leases
        self.keys = rows.keys
        self.queues = rows.queues
        self.namespaces = rows.namespaces
        self.access = rows.access
        self.effects: list[AnyEffect] = []
        self.doubtful: set[TaskKey] = set()
        self.damaged: list[Task] = []
        # Children that have ended, of which their parents have not heard yet.
        self.ended_children: list[TaskKey] = []
        # Workers with refused completions; the reason depends on whether they are live.
        self.refused_workers: set[str] = set()

    def apply(self, key: TaskKey, event: TaskEvent) -> Decision | Rejection:
        """Decide an event on a task that is in the set."""
        task = self.tasks[key]
        decision = task_rules.decide(task, event, self.now_ms)
        # Not isinstance(…, Rejection): a negative answer takes three times as long.
        if not isinstance(decision, Decision) or decision.task is task:
            self._note_unwritten(key, decision)
            return decision
        tasks = self.tasks
        changes = tasks.new if key in tasks.new else tasks.changed
        tasks[key] = changes[key] = decision.task
        if decision.ended is not None:
            self.attempts.add(decision.ended)
        link = decision.task.link
        if link is not None:
            self._note_link(key, task.link, decision.task)
        if decision.entries:
            self.append_entries(key, decision.entries)
        if decision.effects:
            self.effects += decision.effects
            self._note_stops(decision.effects)
        return self._spared(key, decision) if decision.task.damaged else decision

    def _note_unwritten(self, key: TaskKey, decision: Decision | Rejection) -> None:
        """Note a decision that changes no row."""
        if key in self.tasks.cached and key not in self.tasks.changed:
            # No write will show whether the copy was stale: it has to be read.
            self.doubtful.add(key)
        if isinstance(decision, Decision):
            self.effects += decision.effects

    def _note_link(self, key: TaskKey, old: RunLink | None, task: Task) -> None:
        """Note what follows elsewhere for what belongs to runs: of its end, or of a new journal."""
        link = task.link
        assert link is not None
        if link is not old and link.journal_id is not None:
            self.journals.renew(key, link.journal_id)
            if old is not None and old.journal_id is not None:
                self.close_children(key, old.journal_id)
        if task.finished_at_ms is None:
            return
        if link.parent_id is not None:
            self.ended_children.append(key)
        if link.journal_id is not None:
            self.close_children(key, link.journal_id)

    def close_children(self, key: TaskKey, journal_id: str, *, is_group: bool = False) -> None:
        """Let the live children of a run, or of a group, be closed after this batch.

        Of a run they are those of the generation that had this journal. If it has none, nothing is
        written.
        """
        self.closings.add(Closing(*key, journal_id, is_group, self.now_ms))

    def append_entries(self, key: TaskKey, entries: Sequence[NewEntry]) -> None:
        """Append entries of our own to the journal of a run, whose end was loaded.

        What an earlier version has stored as a run has no journal.
        """
        if entries and self.tasks[key].link is not None:
            placed, end = numbering.append(self.journals.ends[key], entries, at_ms=self.now_ms)
            self.journals.append(key, placed, end)

    def _note_stops(self, effects: tuple[Effect, ...]) -> None:
        """Keep the stop for a worker until it is sent: an effect can get lost."""
        for effect in effects:
            if isinstance(effect, TellStop):
                self.stops.add(effect)

    def _spared(self, key: TaskKey, decision: Decision) -> Decision | Rejection:
        """Let a damaged task continue if it can."""
        return self.fail_damaged(key) if damage.must_fail(decision.task) else decision

    def fail_damaged(self, key: TaskKey) -> Decision | Rejection:
        """End a task with a damaged part."""
        task = self.tasks[key]
        self.damaged.append(task)
        return self.apply(key, DamageFound(message=damage.describe(task.damaged)))

    def apply_worker(self, worker_id: str, event: WorkerEvent) -> WorkerDecision | Rejection:
        """Decide an event on a worker that is in the set."""
        worker = self.workers[worker_id]
        decision = worker_rules.decide(worker, event, self.now_ms)
        if isinstance(decision, Rejection) or decision.worker is worker:
            return decision
        self.workers.put(decision.worker)
        self.effects.extend(decision.effects)
        return decision

    def drop_lease(self, worker_id: str, *, is_kept: bool) -> None:
        """End the lease of a worker that goes offline; it is kept if exclusive work may go on."""
        leases = self.leases
        leases.pop(worker_id, None)
        if leases.new.pop(worker_id, None) is None:
            leases.dropped.add(worker_id)
            if is_kept:
                leases.kept.add(worker_id)

    def suspect(self, worker_id: str, event: lease_rules.SessionLost) -> None:
        """Start the grace of a worker whose connection was lost."""
        lease = lease_rules.decide(self.leases[worker_id], event, self.now_ms)
        assert isinstance(lease, Lease)
        self.leases[worker_id] = self.leases.suspected[worker_id] = lease

    def resume(self, worker_id: str) -> Lease:
        """End the suspicion of a worker that is connected again."""
        event = lease_rules.SessionResumed(server_id=self.server_id)
        lease = lease_rules.decide(self.leases[worker_id], event, self.now_ms)
        assert isinstance(lease, Lease)
        self.leases[worker_id] = self.leases.resumed[worker_id] = lease
        self.leases.suspected.pop(worker_id, None)
        return lease

    def check_enabled(self, name: str) -> None:
        """Refuse commands that a disabled namespace does not accept."""
        if name in self.namespaces.disabled:
            raise namespace_disabled(name).to_error()

    def record(
        self,
        action: AuditAction,
        actor: str,
        target: str,
        *,
        namespaces: tuple[str, ...],
        detail: str = "",
    ) -> str:
        """Note a change for the audit log, written with it or not at all; return the id."""
        record = AuditRecord(
            id=self.clock.new_id(),
            at_ms=self.now_ms,
            actor=actor,
            action=action,
            target=target,
            namespaces=namespaces,
            detail=detail,
        )
        self.rows.audit.add(record)
        return record.id
