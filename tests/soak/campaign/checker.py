"""Which promises a history breaks. Every check returns complaints, none if all is well."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Final

from tests.soak.campaign.history import Acknowledged, Execution, History, Outcome

SUCCEEDED: Final = "succeeded"
FAILED: Final = "failed"


def check_lost(history: History) -> list[str]:
    """Every acknowledged enqueue has ended as its activity says."""
    outcomes = {each.task_id: each for each in history.outcomes}
    complaints = []
    for asked in history.acknowledged:
        outcome = outcomes.get(asked.task_id)
        if outcome is None:
            complaints.append(f"task {asked.task_id} was acknowledged and has not ended")
        else:
            complaints += _check_ending(asked, outcome)
    return complaints


def _check_ending(asked: Acknowledged, outcome: Outcome) -> list[str]:
    read = outcome.first
    wanted = (FAILED, asked.reason) if asked.reason else (SUCCEEDED, "")
    if (read.state, read.reason) != wanted:
        return [f"task {asked.task_id} is {read.state} {read.reason}, not {' '.join(wanted)}"]
    if not asked.reason and (read.value is None or read.value[0] != asked.number):
        return [f"task {asked.task_id} of number {asked.number} returned {read.value}"]
    return []


def check_outcomes(history: History) -> list[str]:
    """Each task has one outcome: that of the attempt which was accepted, whoever reads it."""
    runs = history.executions_by_task()
    complaints = []
    for outcome in history.outcomes:
        complaints += _check_reads(outcome)
        complaints += _check_accepted(outcome, runs.get(outcome.task_id, []))
    return complaints


def _check_reads(outcome: Outcome) -> list[str]:
    name = f"task {outcome.task_id}"
    complaints = []
    if outcome.first != outcome.second:
        complaints.append(f"{name} was read as {outcome.first}, then as {outcome.second}")
    value = outcome.first.value
    if value is not None and value[1] != outcome.attempt:
        complaints.append(f"{name} has the result of attempt {value[1]}, not {outcome.attempt}")
    successes = [number for number, ending in outcome.attempts if ending == SUCCEEDED]
    if len(successes) > 1:
        complaints.append(f"{name} has succeeded in the attempts {successes}")
    return complaints


def _check_accepted(outcome: Outcome, runs: list[Execution]) -> list[str]:
    name = f"task {outcome.task_id}"
    wanted = "returned" if outcome.first.state == SUCCEEDED else "raised"
    complaints = []
    if not any(each.attempt == outcome.attempt and each.ending == wanted for each in runs):
        complaints.append(f"{name}: no execution of attempt {outcome.attempt} has {wanted}")
    later = [each.attempt for each in runs if each.attempt > outcome.attempt]
    if later:
        complaints.append(f"{name} ended with attempt {outcome.attempt} and was run as {later}")
    return complaints


def check_enqueued_once(history: History) -> list[str]:
    """One request makes one task, also when it was sent again."""
    tasks: dict[int, set[str]] = {}
    for asked in history.acknowledged:
        tasks.setdefault(asked.number, set()).add(asked.task_id)
    for run in history.executions:
        tasks.setdefault(run.number, set()).add(run.task_id)
    return [
        f"request {number} has become the tasks {', '.join(sorted(ids))}"
        for number, ids in tasks.items()
        if len(ids) > 1
    ]


def check_attempts(history: History) -> list[str]:
    """Attempts rise from start to start, and those that are stored have no gaps."""
    complaints = []
    for task_id, runs in history.executions_by_task().items():
        numbers = [each.attempt for each in runs]
        if any(former >= latter for former, latter in itertools.pairwise(numbers)):
            complaints.append(f"the attempts of task {task_id} were started as {numbers}")
    for outcome in history.outcomes:
        numbers = [number for number, _ in outcome.attempts]
        if numbers and numbers != list(range(1, outcome.attempt + 1)):
            complaints.append(f"the attempts of task {outcome.task_id} are stored as {numbers}")
    return complaints


def check_overlap(history: History) -> list[str]:
    """Nothing that is not exclusive runs beside a holder that lives."""
    return _overlaps(history, is_exclusive=False)


def check_exclusive(history: History) -> list[str]:
    """No two executions of an exclusive task ever overlap."""
    return _overlaps(history, is_exclusive=True)


def _overlaps(history: History, *, is_exclusive: bool) -> list[str]:
    complaints = []
    for task_id, runs in history.executions_by_task().items():
        if runs[0].is_exclusive is not is_exclusive:
            continue
        for former, latter in itertools.combinations(runs, 2):
            end_s = _end_s(history, former)
            if latter.started_s < end_s:
                complaints.append(
                    f"attempt {latter.attempt} of task {task_id} was started in worker "
                    f"{latter.worker_pid} at {latter.started_s:.3f} s; attempt {former.attempt} "
                    f"ran in worker {former.worker_pid} from {former.started_s:.3f} s "
                    f"to {end_s:.3f} s ({former.ending or 'killed'})"
                )
    return complaints


def _end_s(history: History, run: Execution) -> float:
    """Return when an execution was over: by its own line, or by the death of its process."""
    if run.ended_s is not None:
        return run.ended_s
    death = history.death_of(run)
    return float("inf") if death is None else max(death.at_s, run.started_s)


def check_ended(history: History) -> list[str]:
    """Code that was started ends, unless its process is killed."""
    return [
        f"attempt {run.attempt} of task {run.task_id} in process {run.pid} of worker "
        f"{run.worker_pid} has neither ended nor been killed"
        for run in history.executions
        if run.ended_s is None and history.death_of(run) is None
    ]


def check_blame(history: History) -> list[str]:
    """Nothing here kills its worker, so nothing is blamed for it."""
    blamed = ("POISONED", "INTERRUPTIONS_EXHAUSTED")
    return [
        f"task {outcome.task_id} failed with {outcome.first.reason}; attempts: {outcome.attempts}"
        for outcome in history.outcomes
        if outcome.first.reason in blamed
    ]


CHECKS: Final[dict[str, Callable[[History], list[str]]]] = {
    "every acknowledged task ends, as its activity says": check_lost,
    "one outcome, of the attempt that was accepted": check_outcomes,
    "one task for each request": check_enqueued_once,
    "attempts rise": check_attempts,
    "nothing runs beside a live holder": check_overlap,
    "exclusive tasks never overlap": check_exclusive,
    "what was started ends or is killed": check_ended,
    "nobody innocent is blamed": check_blame,
}
