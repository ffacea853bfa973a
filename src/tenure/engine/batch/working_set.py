"""Phase 2 of a batch: what its commands have made of the loaded rows so far.

A later command sees what an earlier one did. Nothing here touches the database.
"""

from __future__ import annotations

from tenure.core.access.api_key import ApiKey
from tenure.core.access.audit import AuditAction, AuditRecord
from tenure.core.queue import Namespace, Queue, namespace_disabled
from tenure.core.task import damage
from tenure.core.task import decide as task_rules
from tenure.core.task.attempt import Attempt
from tenure.core.task.effect import Decision, Effect, FollowUp
from tenure.core.task.event import DamageFound, TaskEvent
from tenure.core.task.record import Task
from tenure.core.worker import decide as worker_rules
from tenure.core.worker import lease as lease_rules
from tenure.core.worker.decide import WorkerDecision, WorkerEffect, WorkerEvent
from tenure.core.worker.lease import Lease
from tenure.core.worker.record import Worker
from tenure.engine.batch.load import Rows
from tenure.engine.clock import Clock
from tenure.engine.settings import Settings
from tenure.errors import Rejection
from tenure.store.table.idempotency import Key
from tenure.store.table.task import TaskKey

AnyEffect = Effect | WorkerEffect


class WorkingSet:
    """The rows of one batch and the changes to be saved."""

    def __init__(self, rows: Rows, clock: Clock, server_id: str, settings: Settings) -> None:
        """Start from what was loaded."""
        self.rows = rows
        self.clock = clock
        self.server_id = server_id
        self.settings = settings
        self.now_ms = rows.now_ms
        self.tasks: dict[TaskKey, Task] = dict(rows.tasks)
        self.changed_tasks: dict[TaskKey, Task] = {}
        self.new_tasks: dict[TaskKey, Task] = {}
        self.ended: list[Attempt] = []
        self.effects: list[AnyEffect] = []
        self.follow_ups: list[FollowUp] = []
        self.doubtful: set[TaskKey] = set()
        self.damaged: list[Task] = []
        self.workers: dict[str, Worker] = dict(rows.workers)
        self.changed_workers: dict[str, Worker] = {}
        self.new_workers: dict[str, Worker] = {}
        self.explained_ends: set[str] = set()
        self.leases: dict[str, Lease] = dict(rows.leases)
        self.new_leases: dict[str, Lease] = {}
        self.dropped_leases: set[str] = set()
        self.kept_leases: set[str] = set()
        self.forgotten_leases: set[str] = set()
        self.suspected_leases: dict[str, Lease] = {}
        self.resumed_leases: dict[str, Lease] = {}
        self.failed_leases: list[str] = []
        self.keys: dict[tuple[str, str], Key] = dict(rows.keys)
        self.new_keys: dict[tuple[str, str], tuple[str, str, str, bytes, int]] = {}
        self.old_keys: list[tuple[str, str, str]] = []
        self.queues: dict[tuple[str, str], Queue] = dict(rows.queues)
        self.changed_queues: dict[tuple[str, str], Queue] = {}
        self.new_namespaces: dict[str, int] = {}
        self.disabled: set[str] = rows.disabled.copy()
        self.administered: dict[str, Namespace] = dict(rows.administered)
        self.changed_namespaces: dict[str, Namespace] = {}
        self.api_keys: dict[str, ApiKey] = dict(rows.api_keys)
        self.new_api_keys: list[ApiKey] = []
        self.revoked_api_keys: list[ApiKey] = []
        self.live_key_count = rows.live_key_count
        self.access_version = rows.access_version
        self.audit: list[AuditRecord] = []

    def add_task(self, task: Task) -> None:
        """Take in a task that is not stored yet."""
        key = (task.namespace, task.id)
        self.tasks[key] = task
        self.new_tasks[key] = task

    def apply(self, key: TaskKey, event: TaskEvent) -> Decision | Rejection:
        """Decide an event on a task that is in the set."""
        task = self.tasks[key]
        decision = task_rules.decide(task, event, self.now_ms)
        # Not whether it is a rejection: the answer no takes three times as long.
        if not isinstance(decision, Decision) or decision.task is task:
            if key in self.rows.cached and key not in self.changed_tasks:
                # No write will tell whether the copy was stale: it has to be read.
                self.doubtful.add(key)
            return decision
        changes = self.new_tasks if key in self.new_tasks else self.changed_tasks
        self.tasks[key] = changes[key] = decision.task
        if decision.ended is not None:
            self.ended.append(decision.ended)
        if decision.effects:
            self.effects += decision.effects
        if decision.follow_ups:
            self.follow_ups += decision.follow_ups
        return self._spared(key, decision) if decision.task.damaged else decision

    def _spared(self, key: TaskKey, decision: Decision) -> Decision | Rejection:
        """Let a damaged task go on if it can."""
        return self.fail_damaged(key) if damage.must_fail(decision.task) else decision

    def fail_damaged(self, key: TaskKey) -> Decision | Rejection:
        """End a task of which a stored part is damaged."""
        task = self.tasks[key]
        self.damaged.append(task)
        return self.apply(key, DamageFound(message=damage.describe(task.damaged)))

    def find_ended(self, key: TaskKey, number: int) -> Attempt | None:
        """Return the record of an attempt that this batch has ended: a report may come twice."""
        for each in self.ended:
            if (each.namespace, each.task_id) == key and each.number == number:
                return each
        return None

    def apply_worker(self, worker_id: str, event: WorkerEvent) -> WorkerDecision | Rejection:
        """Decide an event on a worker that is in the set."""
        worker = self.workers[worker_id]
        decision = worker_rules.decide(worker, event, self.now_ms)
        if isinstance(decision, Rejection) or decision.worker is worker:
            return decision
        self.workers[worker_id] = decision.worker
        if worker_id in self.new_workers:
            self.new_workers[worker_id] = decision.worker
        else:
            self.changed_workers[worker_id] = decision.worker
        self.effects.extend(decision.effects)
        return decision

    def add_worker(self, worker: Worker, lease: Lease) -> None:
        """Take in a new incarnation with its lease."""
        self.workers[worker.id] = worker
        self.new_workers[worker.id] = worker
        self.leases[worker.id] = lease
        self.new_leases[worker.id] = lease

    def drop_lease(self, worker_id: str, *, is_kept: bool) -> None:
        """End the lease of a worker that goes offline; it is kept in mind if work may go on."""
        self.leases.pop(worker_id, None)
        if self.new_leases.pop(worker_id, None) is None:
            self.dropped_leases.add(worker_id)
            if is_kept:
                self.kept_leases.add(worker_id)

    def suspect(self, worker_id: str, event: lease_rules.SessionLost) -> None:
        """Start the grace of a worker whose connection broke."""
        lease = lease_rules.decide(self.leases[worker_id], event, self.now_ms)
        assert isinstance(lease, Lease)
        self.leases[worker_id] = self.suspected_leases[worker_id] = lease

    def resume(self, worker_id: str) -> Lease:
        """End the suspicion of a worker that is here again."""
        event = lease_rules.SessionResumed(server_id=self.server_id)
        lease = lease_rules.decide(self.leases[worker_id], event, self.now_ms)
        assert isinstance(lease, Lease)
        self.leases[worker_id] = self.resumed_leases[worker_id] = lease
        self.suspected_leases.pop(worker_id, None)
        return lease

    def has_namespace(self, name: str) -> bool:
        """Tell whether a namespace exists."""
        return name in self.rows.namespaces or name in self.new_namespaces

    def find_namespace(self, name: str) -> Namespace | None:
        """Return a namespace that is administered in this batch."""
        if name in self.new_namespaces:
            return self.administered.get(name, Namespace(name, self.new_namespaces[name]))
        return self.administered.get(name)

    def set_namespace(self, namespace: Namespace) -> None:
        """Take in that a namespace was disabled or enabled; what follows in the batch obeys."""
        self.administered[namespace.name] = self.changed_namespaces[namespace.name] = namespace
        if namespace.is_disabled:
            self.disabled.add(namespace.name)
        else:
            self.disabled.discard(namespace.name)

    def check_enabled(self, name: str) -> None:
        """Refuse what a disabled namespace does not take."""
        if name in self.disabled:
            raise namespace_disabled(name).to_error()

    def add_api_key(self, key: ApiKey) -> None:
        """Take in a new key."""
        self.api_keys[key.id] = key
        self.new_api_keys.append(key)
        self.live_key_count += 1

    def revoke_api_key(self, key: ApiKey) -> None:
        """Take in that a key was revoked, which may be one that this batch has made."""
        self.api_keys[key.id] = key
        self.revoked_api_keys.append(key)

    def record(
        self,
        action: AuditAction,
        actor: str,
        target: str,
        *,
        namespaces: tuple[str, ...],
        detail: str = "",
    ) -> None:
        """Note a change for the audit log; it is written with the change or not at all."""
        self.audit.append(
            AuditRecord(
                id=self.clock.new_id(),
                at_ms=self.now_ms,
                actor=actor,
                action=action,
                target=target,
                namespaces=namespaces,
                detail=detail,
            ),
        )
