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
from tenure.engine.schedule.command import EndedFire
from tenure.engine.settings import Settings
from tenure.errors import Rejection
from tenure.store.table.access import AccessRows
from tenure.store.table.closing import Closing, ClosingRows
from tenure.store.table.group import GroupRows
from tenure.store.table.idempotency import KeyRows
from tenure.store.table.journal import JournalRows
from tenure.store.table.lease import LeaseRows
from tenure.store.table.lock_order import RowSets
from tenure.store.table.queue import QueueRows
from tenure.store.table.schedule import ScheduleRows
from tenure.store.table.stop import StopRows
from tenure.store.table.task import AttemptRows, TaskKey

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
        self.workers = rows.workers
        self.namespaces = rows.namespaces
        self.effects: list[AnyEffect] = []
        self.doubtful: set[TaskKey] = set()
        self.damaged: list[Task] = []
        # Children that have ended, of which their parents have not heard yet.
        self.ended_children: list[TaskKey] = []
        # Tasks of schedules that have ended; what follows is another batch's.
        self.ended_fires: list[EndedFire] = []
        # Workers with refused completions; the reason depends on whether they are live.
        self.refused_workers: set[str] = set()

    # Rows that few batches have are made when they are asked for.

    @property
    def access(self) -> AccessRows:
        """Return the API keys."""
        return self.rows.access

    @property
    def attempts(self) -> AttemptRows:
        """Return the ended attempts."""
        return self.rows.attempts

    @property
    def closings(self) -> ClosingRows:
        """Return the owners whose children have to be closed."""
        return self.rows.closings

    @property
    def groups(self) -> GroupRows:
        """Return the groups of runs."""
        return self.rows.groups

    @property
    def journals(self) -> JournalRows:
        """Return the journals of runs."""
        return self.rows.journals

    @property
    def keys(self) -> KeyRows:
        """Return the idempotency keys."""
        return self.rows.keys

    @property
    def leases(self) -> LeaseRows:
        """Return the leases."""
        return self.rows.leases

    @property
    def queues(self) -> QueueRows:
        """Return the queues that are changed."""
        return self.rows.queues

    @property
    def schedules(self) -> ScheduleRows:
        """Return the schedules, and their fires."""
        return self.rows.schedules

    @property
    def stops(self) -> StopRows:
        """Return the stops for workers."""
        return self.rows.stops

    def apply(self, key: TaskKey, event: TaskEvent) -> Decision | Rejection:
        """Decide an event on a task that is in the set."""
        tasks = self.tasks
        task = tasks[key]
        decision = task_rules.decide(task, event, self.now_ms)
        # Not isinstance(…, Rejection): a negative answer takes three times as long.
        if not isinstance(decision, Decision) or decision.task is task:
            self._note_unwritten(key, decision)
            return decision
        after = decision.task
        changes = tasks.new if key in tasks.new else tasks.changed
        tasks[key] = changes[key] = after
        if decision.ended is not None:
            self.attempts.add(decision.ended)
        if after.link is not None:
            self._note_link(key, task.link, after)
        if after.spec.fire is not None:
            self._note_fire(after)
        if decision.entries:
            self.append_entries(key, decision.entries)
        if decision.effects:
            self.effects += decision.effects
            self._note_stops(decision.effects)
        return self._spared(key, decision) if after.damaged else decision

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

    def _note_fire(self, task: Task) -> None:
        """Note that the task of a fire has ended."""
        fire = task.spec.fire
        if fire is not None and task.finished_at_ms is not None:
            self.ended_fires.append(EndedFire(task.namespace, fire.schedule_id, task.id))

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
