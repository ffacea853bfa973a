"""The rows that worker commands need: pure, one function per kind of need."""

from __future__ import annotations

from functools import partial
from typing import Final

from tenure.engine.worker import command as c
from tenure.engine.worker.judgement import reason_to_end
from tenure.store.table.lock_order import RowSets

_ALL: Final = 2**31 - 1


def register_worker(needs: RowSets, command: c.RegisterWorker) -> None:
    """Find earlier incarnations by instance key and by name."""
    needs.namespaces.wanted.add(command.namespace)
    new = command.new
    needs.workers.registrations.add((command.namespace, new.instance_key, new.name))


def one_worker(
    needs: RowSets, command: c.DrainWorker | c.DeregisterWorker | c.EvictWorker | c.FailCall
) -> None:
    """Lock one worker."""
    needs.workers.wanted.add(command.worker_id)


def open_session(needs: RowSets, command: c.OpenSession) -> None:
    """Lock the worker, its lease, all its tasks and all tasks that it reports."""
    needs.namespaces.wanted.add(command.namespace)
    needs.workers.wanted.add(command.worker_id)
    needs.leases.wanted.add(command.worker_id)
    needs.tasks.held_of[command.worker_id] = _ALL
    needs.stops.of_workers.add(command.worker_id)
    for ref in command.held:
        needs.tasks.wanted.add((command.namespace, ref.task_id))


def close_session(needs: RowSets, command: c.CloseSession) -> None:
    """Lock the worker and its lease."""
    needs.workers.wanted.add(command.worker_id)
    needs.leases.wanted.add(command.worker_id)


def spare_workers(needs: RowSets, command: c.SpareWorkers) -> None:
    """Lock the leases."""
    needs.leases.wanted |= command.worker_ids


def report_held(needs: RowSets, command: c.ReportHeld) -> None:
    """Lock the named tasks; with a full set, all tasks of the worker."""
    refs = (*command.bound, *command.unbound)
    if command.held is not None:
        needs.workers.wanted.add(command.worker_id)
        needs.tasks.held_of[command.worker_id] = _ALL
        needs.stops.of_workers.add(command.worker_id)
        refs = (*refs, *command.held)
    for ref in refs:
        needs.tasks.wanted.add((command.namespace, ref.task_id))


def stops_told(needs: RowSets, command: c.StopsTold) -> None:
    """Read the worker: it may have another session by now."""
    needs.workers.spoken_for.add(command.worker_id)


def judge_leases(needs: RowSets, command: c.JudgeLeases) -> None:
    """Lock the leases that have ended, as far as a scan can see."""
    needs.workers.judged_max = command.amount
    needs.leases.reason_to_end = partial(reason_to_end, command)


def release_held(needs: RowSets, command: c.ReleaseHeldTasks) -> None:
    """Lock the worker, and some of its tasks."""
    needs.workers.wanted.add(command.worker_id)
    needs.leases.ended_wanted.add(command.worker_id)
    needs.tasks.held_of[command.worker_id] = command.amount
    needs.stops.of_workers.add(command.worker_id)
