"""How much of a batch a command takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from tenure.core.limits import WORK_BATCH_BYTES_MAX, WORK_BATCH_MAX
from tenure.engine import command as c

_BYTES_OF_ONE: Final = WORK_BATCH_BYTES_MAX // WORK_BATCH_MAX


def _heavy(payloads: Sequence[bytes | None]) -> int:
    """Return how many there are, or more if they are large."""
    return max(len(payloads), sum([len(each or b"") for each in payloads]) // _BYTES_OF_ONE)


_WEIGHTS: Final[dict[type, Callable[[Any], int]]] = {
    c.EnqueueTasks: lambda command: _heavy([each.input for each in command.tasks]),
    c.FinishTasks: lambda command: _heavy([each.output for each in command.items]),
    c.ConfirmTasks: lambda command: len(command.items),
    c.HeartbeatTasks: lambda command: _heavy([each.details for each in command.items]),
    c.ProcessDue: lambda command: command.amount,
    c.ReleaseHeldTasks: lambda command: command.amount,
}


def weigh(command: c.WorkCommand) -> int:
    """Return the tasks that a command is about, one if it names none; large payloads count more."""
    weight_of = _WEIGHTS.get(type(command))
    return 1 if weight_of is None else weight_of(command)
