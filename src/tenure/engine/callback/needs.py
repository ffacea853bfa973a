"""The rows that callbacks need: those of the same reports of any worker."""

from __future__ import annotations

from tenure.engine.callback import command as c
from tenure.store.table.lock_order import RowSets


def report(needs: RowSets, command: c.StartCallback | c.BeatCallback) -> None:
    """Lock the task."""
    needs.tasks.wanted.add((command.namespace, command.item.task_id))


def complete(needs: RowSets, command: c.CompleteCallback) -> None:
    """Lock the task, and read its attempt if it has ended before."""
    key = (command.namespace, command.item.task_id)
    needs.tasks.wanted.add(key)
    needs.attempts.finishes.append((key, command.item.attempt))
