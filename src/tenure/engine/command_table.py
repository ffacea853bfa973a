"""Every command of the engine, by its type. A new room adds its list here."""

from __future__ import annotations

from typing import Any, Final

from tenure.engine.access.spec import ACCESS_SPECS
from tenure.engine.callback.spec import CALLBACK_SPECS
from tenure.engine.command import AnyCommand
from tenure.engine.command_spec import CommandSpec
from tenure.engine.endpoint.spec import ENDPOINT_SPECS
from tenure.engine.run.spec import RUN_SPECS
from tenure.engine.schedule.spec import SCHEDULE_SPECS
from tenure.engine.seat.spec import SEAT_SPECS
from tenure.engine.task.spec import TASK_SPECS
from tenure.engine.worker.spec import WORKER_SPECS

ALL_SPECS: Final[tuple[CommandSpec[Any], ...]] = (
    *TASK_SPECS,
    *RUN_SPECS,
    *SCHEDULE_SPECS,
    *WORKER_SPECS,
    *CALLBACK_SPECS,
    *SEAT_SPECS,
    *ENDPOINT_SPECS,
    *ACCESS_SPECS,
)
SPECS: Final[dict[type, CommandSpec[Any]]] = {each.kind: each for each in ALL_SPECS}


def weigh(command: AnyCommand) -> int:
    """Return the number of tasks of a command, one if it names none."""
    return SPECS[type(command)].weigh(command)


def payload_bytes(command: AnyCommand) -> int:
    """Return the size of the payloads of a command."""
    return SPECS[type(command)].payload_bytes(command)
