"""How much of a batch a command takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tenure.engine import command as c

_WEIGHTS: Final[dict[type, Callable[[Any], int]]] = {
    c.EnqueueTasks: lambda command: len(command.tasks),
    c.FinishTasks: lambda command: len(command.items),
    c.ConfirmTasks: lambda command: len(command.items),
    c.HeartbeatTasks: lambda command: len(command.items),
    c.ProcessDue: lambda command: command.amount,
    c.ReleaseHeldTasks: lambda command: command.amount,
}


def weigh(command: c.WorkCommand) -> int:
    """Return the tasks that a command is about; one if it names none."""
    weight_of = _WEIGHTS.get(type(command))
    return 1 if weight_of is None else weight_of(command)
