"""The rows that the commands for seats need."""

from __future__ import annotations

from typing import Final

from tenure.engine.seat import command as c
from tenure.store.table.lock_order import RowSets

_ALL: Final = 2**31 - 1


def take_seat(needs: RowSets, command: c.TakeSeat) -> None:
    """Lock the worker, which protects its seat, and all its tasks."""
    needs.workers.wanted.add(command.worker_id)
    needs.leases.wanted.add(command.worker_id)
    needs.seats.wanted.add(command.worker_id)
    needs.tasks.held_of[command.worker_id] = _ALL


def apply_set(needs: RowSets, command: c.ApplySet) -> None:
    """Lock the worker, all its tasks, and all tasks that it reports."""
    needs.workers.wanted.add(command.worker_id)
    needs.tasks.held_of[command.worker_id] = _ALL
    needs.stops.of_workers.add(command.worker_id)
    for ref in command.running:
        needs.tasks.wanted.add((command.namespace, ref.task_id))
