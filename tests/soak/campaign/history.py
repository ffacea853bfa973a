"""What happened in a campaign, as those who took part have written it down.

All instants are seconds of the machine's monotonic clock, which is the same in all processes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

from tests.wire.journal import Line


class Part(StrEnum):
    """What can be killed."""

    WORKER = "worker"
    CHILD = "child"
    SERVER = "server"
    DATABASE = "database"


class Acknowledged(msgspec.Struct, frozen=True):
    """An enqueue that a server has acknowledged; ``reason`` is how its task fails, if it must."""

    task_id: str
    number: int
    at_s: float
    reason: str = ""


class Execution(msgspec.Struct, frozen=True):
    """One run of an activity's code; without an ``ending`` its process died."""

    task_id: str
    number: int
    attempt: int
    worker_pid: int
    pid: int
    started_s: float
    ended_s: float | None = None
    ending: str = ""
    is_exclusive: bool = False


class Kill(msgspec.Struct, frozen=True):
    """One kill -9: sent at ``at_s``, dead by ``dead_s``, and started again by ``back_s``."""

    part: Part
    at_s: float
    dead_s: float
    back_s: float
    pid: int = 0


class Read(msgspec.Struct, frozen=True):
    """How a task has ended, as one client read it."""

    state: str
    reason: str = ""
    # Number and attempt of what was returned.
    value: tuple[int, int] | None = None


class Outcome(msgspec.Struct, frozen=True):
    """How a task has ended: read twice, and what the server has stored of its attempts."""

    task_id: str
    first: Read
    second: Read
    attempt: int
    # Number and outcome of each; empty if nobody looked.
    attempts: tuple[tuple[int, str], ...] = ()


class History(msgspec.Struct, frozen=True):
    """Everything that the checker needs."""

    acknowledged: Sequence[Acknowledged]
    executions: Sequence[Execution]
    kills: Sequence[Kill]
    outcomes: Sequence[Outcome]

    def executions_by_task(self) -> dict[str, list[Execution]]:
        """Return the executions of each task in the order of their starts."""
        found: dict[str, list[Execution]] = {}
        for each in sorted(self.executions, key=lambda execution: execution.started_s):
            found.setdefault(each.task_id, []).append(each)
        return found

    def death_of(self, execution: Execution) -> Kill | None:
        """Return the kill that ended an execution: of its own process, or of its worker's."""
        pids = {execution.pid, execution.worker_pid}
        deaths = (
            kill for kill in self.kills if kill.pid in pids and kill.dead_s >= execution.started_s
        )
        return min(deaths, key=lambda kill: kill.at_s, default=None)


def read_acknowledged(lines: Iterable[Line], reasons: dict[str, str]) -> list[Acknowledged]:
    """Read what a producer has written."""
    found = []
    for line in lines:
        if line.event == "acknowledged":
            type_, number = line.text.split(" ")
            reason = reasons.get(type_, "")
            found.append(Acknowledged(line.task_id, int(number), line.mono_s, reason))
    return found


def read_executions(
    lines: Iterable[Line], worker_pid: int, exclusive: frozenset[str]
) -> list[Execution]:
    """Read what the activities of one worker process have written."""
    found: dict[tuple[str, int, int], Execution] = {}
    repeated: list[Execution] = []
    for line in lines:
        key = (line.task_id, line.attempt, line.pid)
        if line.event == "start":
            type_, number = line.text.split(" ")
            if key in found:
                repeated.append(found[key])
            found[key] = Execution(
                task_id=line.task_id,
                number=int(number),
                attempt=line.attempt,
                worker_pid=worker_pid,
                pid=line.pid,
                started_s=line.mono_s,
                is_exclusive=type_ in exclusive,
            )
        elif key in found:
            found[key] = msgspec.structs.replace(found[key], ended_s=line.mono_s, ending=line.event)
    return [*repeated, *found.values()]
