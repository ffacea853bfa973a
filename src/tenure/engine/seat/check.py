"""Checks of the commands for seats."""

from __future__ import annotations

from tenure.core import check as checks
from tenure.engine.check import check_namespace, check_refs
from tenure.engine.seat import command as c


def take_seat(command: c.TakeSeat) -> None:
    """Check the worker by its id."""
    check_namespace(command.namespace)
    checks.worker_id(command.worker_id)


def apply_set(command: c.ApplySet) -> None:
    """Check the worker, and all attempts that are named."""
    for refs in (command.running, command.done, command.carried):
        check_refs(command.namespace, command.worker_id, refs)
