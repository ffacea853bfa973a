"""What commands about runs need to have loaded: pure, one function per kind of need."""

from __future__ import annotations

from tenure.engine.run import command as c
from tenure.engine.task import needs as task_needs
from tenure.store.table.journal import StepRef
from tenure.store.table.lock_order import RowSets


def start_run(needs: RowSets, command: c.StartRun) -> None:
    """Look up key and id as for every new task, and who has its external id."""
    task_needs.enqueue_tasks(needs, command.request)
    if command.external_id:
        needs.external_ids.wanted.add((command.namespace, command.external_id))


def record_steps(needs: RowSets, command: c.RecordSteps) -> None:
    """Want runs and the ends of their journals; what is remembered will do, the insert tells."""
    namespace = command.namespace
    for item in command.items:
        key = (namespace, item.task_id)
        needs.tasks.wanted.add(key)
        needs.journals.of_runs.add(key)
        needs.journals.reports.append(StepRef(key, item.attempt, item.first_no))
    if command.speaker is not None:
        needs.workers.spoken_for.add(command.worker_id)


def signal_run(needs: RowSets, command: c.SignalRun) -> None:
    """Lock the run, whose row may stay as it is, and read the key of a signal with an id."""
    key = (command.namespace, command.run_id)
    needs.tasks.locked.add(key)
    needs.journals.of_runs.add(key)
    if command.signal.signal_id:
        needs.keys.wanted.add((command.namespace, signal_key(command)))


def change_run(needs: RowSets, command: c.CancelRun | c.ResumeRun | c.TerminateRun) -> None:
    """Lock the run, and read where its journal ends."""
    key = (command.namespace, command.run_id)
    needs.tasks.wanted.add(key)
    needs.journals.of_runs.add(key)


def retry_run(needs: RowSets, command: c.RetryRun) -> None:
    """Read the finished run, and look up the new one and who has the external id."""
    namespace = command.namespace
    needs.namespaces.wanted.add(namespace)
    needs.tasks.wanted.add((namespace, command.run_id))
    needs.tasks.births.add((namespace, command.new_run_id))
    if command.external_id:
        needs.external_ids.wanted.add((namespace, command.external_id))


def signal_key(command: c.SignalRun) -> str:
    """Return the idempotency key of a signal with an id; nobody gives such a key by chance."""
    return f"\x01signal {command.run_id} {command.signal.signal_id}"
