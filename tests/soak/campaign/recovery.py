"""How long work was held up by each kind of kill."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import msgspec

from tests.soak.campaign.history import Execution, History, Kill, Part

# After an outage workers come back, and a server that has started judges nobody at first.
SETTLED_S: Final = 10.0
# For so long after its worker's death nothing else may go wrong, or it was not killed alone.
ALONE_S: Final = 5.0
# What is exclusive is held until the lease is over, and is started by then.
AFTER_LEASE_S: Final = 1.0
# Kills that are planned for one instant are this close.
TOGETHER_S: Final = 0.5
WORKER_LOST: Final = "worker_lost"
OUTAGES: Final = (Part.SERVER, Part.DATABASE)


class Case(StrEnum):
    """What a time is told for."""

    WORKER = "worker killed alone"
    EXCLUSIVE = "worker killed alone, exclusive task"
    WORKER_AGAIN = "worker killed, the second time in a row for its task"
    TOGETHER = "worker killed together with a server"
    OUTAGE = "worker or child killed around an outage of server or database"
    INTERRUPTED = "worker killed, and the next holder before it began"
    CHILD = "child killed alone"
    SERVER = "server killed, to the first start of a new task"
    DATABASE = "database killed, to the first start of a new task"


class Times(msgspec.Struct, frozen=True):
    """Some times, sorted."""

    seconds: Sequence[float]

    def share(self, share: float) -> float:
        """Return the time that a share of them does not exceed."""
        return self.seconds[max(math.ceil(len(self.seconds) * share), 1) - 1]

    def __str__(self) -> str:
        if not self.seconds:
            return "none"
        return (
            f"p50 {self.share(0.5):.2f} s, p99 {self.share(0.99):.2f} s, "
            f"max {self.seconds[-1]:.2f} s of {len(self.seconds)}"
        )


def recoveries(history: History, lease_s: float) -> dict[Case, Times]:
    """Return the times from the kills to what came next, by what was killed.

    Of a worker or a child: to the next start of each task that it held. Of a server or a database:
    to the first start of a task that was acknowledged and started when it was dead. A database has
    several processes and works on for a moment.
    """
    found: dict[Case, list[float]] = {case: [] for case in Case}
    lost = _lost_attempts(history)
    tasks = history.executions_by_task()
    outages = [each for each in history.kills if each.part in OUTAGES]
    for runs in tasks.values():
        for run, following in itertools.pairwise(runs):
            death = history.death_of(run) if run.ended_s is None else None
            if death is not None:
                alone_s = lease_s + AFTER_LEASE_S if run.is_exclusive else ALONE_S
                near = [each for each in outages if _is_near(death, each, alone_s)]
                case = _outage_case(death, near) or _case(death, lost, run, following)
                found[case].append(following.started_s - death.at_s)
    acknowledged_s: dict[str, float] = {}
    for each in history.acknowledged:
        acknowledged_s.setdefault(each.task_id, each.at_s)
    # Only of the first start of a task: a later one may be due to another kill.
    first_s = {
        runs[0].started_s: acknowledged_s.get(task_id, 0.0) for task_id, runs in tasks.items()
    }
    for kill in outages:
        starts_s = [each for each, known_s in first_s.items() if min(each, known_s) > kill.dead_s]
        case = Case.SERVER if kill.part is Part.SERVER else Case.DATABASE
        found[case] += [min(starts_s) - kill.at_s] if starts_s else []
    return {case: Times(sorted(seconds)) for case, seconds in found.items()}


def _lost_attempts(history: History) -> set[tuple[str, int]]:
    return {
        (outcome.task_id, number)
        for outcome in history.outcomes
        for number, ending in outcome.attempts
        if ending == WORKER_LOST
    }


def _outage_case(death: Kill, outages: Sequence[Kill]) -> Case | None:
    if death.part is Part.WORKER and any(_is_together(death, each) for each in outages):
        return Case.TOGETHER
    return Case.OUTAGE if outages else None


def _case(death: Kill, lost: set[tuple[str, int]], run: Execution, following: Execution) -> Case:
    if death.part is Part.CHILD:
        return Case.CHILD
    if following.attempt > run.attempt + 1:
        return Case.INTERRUPTED
    # Also when the code of the former attempt had not begun.
    if (run.task_id, run.attempt - 1) in lost:
        return Case.WORKER_AGAIN
    return Case.EXCLUSIVE if run.is_exclusive else Case.WORKER


def _is_together(death: Kill, outage: Kill) -> bool:
    return outage.part is Part.SERVER and abs(outage.at_s - death.at_s) <= TOGETHER_S


def _is_near(death: Kill, outage: Kill, alone_s: float) -> bool:
    return outage.at_s <= death.at_s + alone_s and death.at_s <= outage.back_s + SETTLED_S
