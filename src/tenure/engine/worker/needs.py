"""What worker commands need to have loaded: pure, one function per kind of need."""

from __future__ import annotations

from typing import Final

from tenure.engine.batch.row_needs import Needs
from tenure.engine.worker import command as c

_ALL: Final = 2**31 - 1


def register_worker(needs: Needs, command: c.RegisterWorker) -> None:
    """Find earlier incarnations by instance key and by name."""
    needs.namespaces.add(command.namespace)
    new = command.new
    needs.registrations.append((command.namespace, new.instance_key, new.name))


def one_worker(
    needs: Needs,
    command: c.DrainWorker | c.DeregisterWorker | c.EvictWorker | c.FailCall,
) -> None:
    """Lock one worker."""
    needs.workers.add(command.worker_id)


def open_session(needs: Needs, command: c.OpenSession) -> None:
    """Lock the worker, its lease, all it holds and all it says it holds."""
    needs.namespaces.add(command.namespace)
    needs.workers.add(command.worker_id)
    needs.leases.add(command.worker_id)
    needs.held_of[command.worker_id] = _ALL
    for ref in command.held:
        needs.tasks.add((command.namespace, ref.task_id))


def close_session(needs: Needs, command: c.CloseSession) -> None:
    """Lock the worker and its lease."""
    needs.workers.add(command.worker_id)
    needs.leases.add(command.worker_id)


def spare_workers(needs: Needs, command: c.SpareWorkers) -> None:
    """Lock the leases."""
    needs.leases |= command.worker_ids


def report_held(needs: Needs, command: c.ReportHeld) -> None:
    """Lock the tasks that are named; with a full set, all that the worker holds."""
    refs = (*command.bound, *command.unbound)
    if command.held is not None:
        needs.workers.add(command.worker_id)
        needs.held_of[command.worker_id] = _ALL
        refs = (*refs, *command.held)
    for ref in refs:
        needs.tasks.add((command.namespace, ref.task_id))


def judge_leases(needs: Needs, command: c.JudgeLeases) -> None:
    """Take leases that are over."""
    needs.judge = command


def release_held(needs: Needs, command: c.ReleaseHeldTasks) -> None:
    """Lock the worker, and some of what it held."""
    needs.workers.add(command.worker_id)
    needs.ended_leases.add(command.worker_id)
    needs.held_of[command.worker_id] = command.amount
