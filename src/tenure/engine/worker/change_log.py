"""Notes the changes of workers in a batch; they are written with it or not at all."""

from __future__ import annotations

from tenure.core.worker.change import ChangeKind, WorkerChange
from tenure.core.worker.record import Worker
from tenure.engine.batch.working_set import WorkingSet
from tenure.store.table.worker_change import WorkerChangeRows


def note_change(
    ws: WorkingSet, worker: Worker, kind: ChangeKind, cause: str = "", audit_id: str = ""
) -> None:
    """Note that the status or the connection of a worker has changed."""
    ws.rows[WorkerChangeRows].add(
        WorkerChange(
            id=ws.clock.new_id(),
            namespace=worker.namespace,
            worker_id=worker.id,
            at_ms=ws.now_ms,
            kind=kind,
            cause=cause,
            audit_id=audit_id,
        )
    )
