"""How much a command weighs: its share of a batch, and the bytes of its payloads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tenure.engine.command import AnyCommand
from tenure.engine.task.command import (
    CompleteById,
    ConfirmTasks,
    EnqueueTasks,
    FinishTasks,
    HeartbeatTasks,
    ProcessDue,
)
from tenure.engine.worker.command import ReleaseHeldTasks

# Each function takes the command type beside it; a table cannot say so to mypy.
_WEIGHTS: Final[dict[type, Callable[[Any], int]]] = {
    EnqueueTasks: lambda command: len(command.tasks),
    FinishTasks: lambda command: len(command.items),
    ConfirmTasks: lambda command: len(command.items),
    HeartbeatTasks: lambda command: len(command.items),
    ProcessDue: lambda command: command.amount,
    ReleaseHeldTasks: lambda command: command.amount,
}
_BYTES: Final[dict[type, Callable[[Any], int]]] = {
    EnqueueTasks: lambda command: sum([len(each.input or b"") for each in command.tasks]),
    FinishTasks: lambda command: sum([len(each.output or b"") for each in command.items]),
    HeartbeatTasks: lambda command: sum([len(each.details or b"") for each in command.items]),
    CompleteById: lambda command: len(command.finish.output or b""),
}


def weigh(command: AnyCommand) -> int:
    """Return the tasks that a command is about, one if it names none."""
    weight_of = _WEIGHTS.get(type(command))
    return 1 if weight_of is None else weight_of(command)


def payload_bytes(command: AnyCommand) -> int:
    """Return how large the payloads of a command are."""
    measure = _BYTES.get(type(command))
    return 0 if measure is None else measure(command)
