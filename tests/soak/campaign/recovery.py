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
# Kills that are planned for one instant are this close.
TOGETHER_S: Final = 0.5
WORKER_LOST: Final = "worker_lost"
OUTAGES: Final = (Part.SERVER, Part.DATABASE)


class Case(StrEnum):
    """What a time is told for."""

    WORKER = "worker killed alone"
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


def recoveries(history: History) -> dict[Case, Times]:
    """Return the times from the kills to what came next, by what was killed.

    Of a worker or a child: to the next start of each task that it held. Of a server or a database:
    to the first start of a task whose enqueue was acknowledged when it was dead. A database has
    several processes and works on for a moment.
    """
    found: dict[Case, list[float]] = {case: [] for case in Case}
    lost = _lost_attempts(history)
    for runs in history.executions_by_task().values():
        for run, following in itertools.pairwise(runs):
            death = history.death_of(run) if run.ended_s is None else None
            if death is not None:
                case = _case(history, death, lost, run, following)
                found[case].append(following.started_s - death.at_s)
    for kill in history.kills:
        if kill.part in OUTAGES:
            case = Case.SERVER if kill.part is Part.SERVER else Case.DATABASE
            found[case] += _first_starts(history, kill)
    return {case: Times(sorted(seconds)) for case, seconds in found.items()}


def _lost_attempts(history: History) -> set[tuple[str, int]]:
    return {
        (outcome.task_id, number)
        for outcome in history.outcomes
        for number, ending in outcome.attempts
        if ending == WORKER_LOST
    }


def _case(
    history: History,
    death: Kill,
    lost: set[tuple[str, int]],
    run: Execution,
    following: Execution,
) -> Case:
    outages = [each for each in history.kills if each.part in OUTAGES]
    if death.part is Part.WORKER and any(_is_together(death, each) for each in outages):
        return Case.TOGETHER
    if any(_is_near(death, each) for each in outages):
        return Case.OUTAGE
    if death.part is Part.CHILD:
        return Case.CHILD
    if following.attempt > run.attempt + 1:
        return Case.INTERRUPTED
    # Also when the code of the former attempt had not begun.
    if (run.task_id, run.attempt - 1) in lost:
        return Case.WORKER_AGAIN
    return Case.WORKER


def _is_together(death: Kill, outage: Kill) -> bool:
    return outage.part is Part.SERVER and abs(outage.at_s - death.at_s) <= TOGETHER_S


def _is_near(death: Kill, outage: Kill) -> bool:
    return outage.at_s <= death.at_s + ALONE_S and death.at_s <= outage.back_s + SETTLED_S


def _first_starts(history: History, kill: Kill) -> list[float]:
    acknowledged_s = {each.task_id: each.at_s for each in history.acknowledged}
    starts_s = sorted(
        run.started_s
        for run in history.executions
        if acknowledged_s.get(run.task_id, 0.0) > kill.dead_s
    )
    return [starts_s[0] - kill.at_s] if starts_s else []
