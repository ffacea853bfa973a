"""Made-up histories, each with one broken promise: exactly that one is complained about."""

from __future__ import annotations

from typing import Final

import msgspec
import pytest

from tests.soak.campaign import checker
from tests.soak.campaign.history import (
    Acknowledged,
    Execution,
    History,
    Kill,
    Outcome,
    Part,
    Read,
    read_acknowledged,
    read_executions,
)
from tests.wire.journal import Line

TASK: Final = "task-1"
WORKER: Final = 100
OTHER_WORKER: Final = 200
CHILD: Final = 101


def ran(
    attempt: int, *instants_s: float, ending: str = "returned", worker: int = WORKER, pid: int = 0
) -> Execution:
    """Return an execution; with one instant only it has no end."""
    return Execution(
        task_id=TASK,
        number=1,
        attempt=attempt,
        worker_pid=worker,
        pid=pid or worker,
        started_s=instants_s[0],
        ended_s=instants_s[1] if len(instants_s) > 1 else None,
        ending=ending if len(instants_s) > 1 else "",
    )


def ended(attempt: int, state: str = "succeeded", reason: str = "") -> Outcome:
    read = Read(state, reason, (1, attempt) if state == "succeeded" else None)
    attempts = ((number, "worker_lost") for number in range(1, attempt))
    return Outcome(TASK, read, read, attempt, (*attempts, (attempt, state)))


def killed(at_s: float, pid: int = WORKER, part: Part = Part.WORKER) -> Kill:
    return Kill(part, at_s, at_s + 0.01, at_s + 2, pid)


ASKED: Final = Acknowledged(TASK, 1, 9.0)
# A worker was killed at 11 s, and another one ran the task again.
GOOD: Final = History(
    acknowledged=[ASKED],
    executions=[ran(1, 10), ran(2, 13, 14, worker=OTHER_WORKER)],
    kills=[killed(11)],
    outcomes=[ended(2)],
)
REFUSED: Final = History(
    acknowledged=[Acknowledged(TASK, 1, 9.0, "NON_RETRYABLE")],
    executions=[ran(1, 10, 11, ending="raised")],
    kills=[],
    outcomes=[ended(1, "failed", "NON_RETRYABLE")],
)
# A child was killed at 11 s; its worker lives and ran the task again.
CHILD_KILLED: Final = History(
    acknowledged=[ASKED],
    executions=[ran(1, 10, pid=CHILD), ran(2, 11.2, 12, pid=CHILD + 1)],
    kills=[killed(11, CHILD, Part.CHILD)],
    outcomes=[ended(2)],
)
# The first attempt had returned, and its worker was killed before it could say so.
UNTOLD: Final = History(
    acknowledged=[ASKED],
    executions=[ran(1, 10, 10.9), ran(2, 13, 14, worker=OTHER_WORKER)],
    kills=[killed(11)],
    outcomes=[ended(2)],
)


def changed(history: History = GOOD, **parts: object) -> History:
    return msgspec.structs.replace(history, **parts)


def outcome(**fields: object) -> list[Outcome]:
    return [msgspec.structs.replace(GOOD.outcomes[0], **fields)]


def broken(history: History) -> set[str]:
    """Return the names of the checks that complain."""
    return {check.__name__ for check in checker.CHECKS.values() if check(history)}


@pytest.mark.parametrize("history", [GOOD, REFUSED, CHILD_KILLED, UNTOLD])
def test_a_history_without_a_broken_promise_is_accepted(history: History) -> None:
    assert broken(history) == set()


BROKEN: Final = {
    "an acknowledged task has not ended": (changed(outcomes=[]), {"check_lost"}),
    "an acknowledged task never started and has not ended": (
        changed(executions=[], outcomes=[]),
        {"check_lost"},
    ),
    "a task failed that should have succeeded": (
        changed(
            executions=[ran(1, 10), ran(2, 13, 14, ending="raised", worker=OTHER_WORKER)],
            outcomes=[ended(2, "failed", "RETRIES_EXHAUSTED")],
        ),
        {"check_lost"},
    ),
    "a task succeeded that should have failed": (
        changed(acknowledged=[Acknowledged(TASK, 1, 9.0, "NON_RETRYABLE")]),
        {"check_lost"},
    ),
    "a task has the result of another one": (
        changed(
            outcomes=outcome(
                first=Read("succeeded", "", (7, 2)), second=Read("succeeded", "", (7, 2))
            )
        ),
        {"check_lost"},
    ),
    "a result is another one when it is read again": (
        changed(outcomes=outcome(second=Read("succeeded", "", (1, 1)))),
        {"check_outcomes"},
    ),
    "the result is that of an attempt which was not accepted": (
        changed(
            UNTOLD,
            outcomes=outcome(
                first=Read("succeeded", "", (1, 1)), second=Read("succeeded", "", (1, 1))
            ),
        ),
        {"check_outcomes"},
    ),
    "two attempts are stored as succeeded": (
        changed(UNTOLD, outcomes=outcome(attempts=((1, "succeeded"), (2, "succeeded")))),
        {"check_outcomes"},
    ),
    "a task succeeded with an attempt that nobody ran": (
        changed(executions=[ran(1, 10)]),
        {"check_outcomes"},
    ),
    "a task was handed out again after it had ended": (
        changed(executions=[*GOOD.executions, ran(3, 15, 16)]),
        {"check_outcomes"},
    ),
    "a request that was sent again has become two tasks": (
        changed(
            acknowledged=[ASKED, Acknowledged("task-2", 1, 9.5)],
            outcomes=[*GOOD.outcomes, msgspec.structs.replace(GOOD.outcomes[0], task_id="task-2")],
            executions=[
                *GOOD.executions,
                msgspec.structs.replace(GOOD.executions[1], task_id="task-2"),
            ],
        ),
        {"check_enqueued_once"},
    ),
    "a request has become a second task that nobody was told of": (
        changed(
            executions=[
                *GOOD.executions,
                msgspec.structs.replace(GOOD.executions[1], task_id="task-2"),
            ]
        ),
        {"check_enqueued_once"},
    ),
    "an attempt was started twice": (
        changed(executions=[ran(2, 10), ran(2, 13, 14, worker=OTHER_WORKER)]),
        {"check_attempts"},
    ),
    "a former attempt was started after a later one": (
        changed(executions=[ran(2, 10, 10.5, worker=OTHER_WORKER), ran(1, 10.6)]),
        {"check_attempts"},
    ),
    "an attempt is missing in the store": (
        changed(outcomes=outcome(attempts=((2, "succeeded"),))),
        {"check_attempts"},
    ),
    "a task ran beside a worker that lived": (
        changed(executions=[ran(1, 10, 13.5), ran(2, 13, 14, worker=OTHER_WORKER)], kills=[]),
        {"check_overlap"},
    ),
    "a task was given away before its worker was killed": (
        changed(kills=[killed(13.5)]),
        {"check_overlap"},
    ),
    "a child was killed after its task was given away": (
        changed(CHILD_KILLED, kills=[killed(11.5, CHILD, Part.CHILD)]),
        {"check_overlap"},
    ),
    "a task overlaps with the last but one of its attempts": (
        changed(
            executions=[ran(1, 10, 15), ran(2, 10.1), ran(3, 13, 14, worker=OTHER_WORKER)],
            kills=[killed(10.2)],
            outcomes=[ended(3)],
        ),
        {"check_overlap"},
    ),
    "two executions of an exclusive task overlap": (
        changed(
            executions=[
                msgspec.structs.replace(each, is_exclusive=True)
                for each in (ran(1, 10, 13.1), ran(2, 13, 14, worker=OTHER_WORKER))
            ]
        ),
        {"check_exclusive"},
    ),
    "an execution has vanished from a worker that lives": (
        changed(executions=[ran(1, 12), *GOOD.executions[1:]], kills=[killed(11)]),
        {"check_ended", "check_overlap"},
    ),
    "the last execution has vanished": (
        changed(executions=[*GOOD.executions[:1], ran(2, 13, worker=OTHER_WORKER)], outcomes=[]),
        {"check_ended", "check_lost"},
    ),
    "a task was blamed for the death of its workers": (
        changed(
            acknowledged=[],
            executions=[ran(5, 13, 14, ending="raised", worker=OTHER_WORKER)],
            outcomes=[ended(5, "failed", "POISONED")],
        ),
        {"check_blame"},
    ),
    "the budget of interruptions was used up": (
        changed(
            acknowledged=[],
            executions=[ran(5, 13, 14, ending="raised", worker=OTHER_WORKER)],
            outcomes=[ended(5, "failed", "INTERRUPTIONS_EXHAUSTED")],
        ),
        {"check_blame"},
    ),
}


@pytest.mark.parametrize(("history", "checks"), BROKEN.values(), ids=BROKEN)
def test_a_broken_promise_is_found_by_its_own_check(history: History, checks: set[str]) -> None:
    assert broken(history) == checks


def test_every_check_is_shown_to_complain() -> None:
    shown = {name for _, checks in BROKEN.values() for name in checks}
    assert shown == {check.__name__ for check in checker.CHECKS.values()}


def line(event: str, mono_s: float, text: str = "", pid: int = WORKER, attempt: int = 1) -> Line:
    return Line(
        event=event, mono_s=mono_s, wall_ms=0, task_id=TASK, attempt=attempt, text=text, pid=pid
    )


def test_lines_of_activities_are_read_as_executions() -> None:
    lines = [
        line("start", 10, "in_loop 1"),
        line("start", 11, "sole_in_process 1", pid=CHILD, attempt=2),
        line("stopped", 12),
        # A stop that came before the code began.
        line("stopped", 13, attempt=3),
    ]
    found = read_executions(lines, WORKER, frozenset({"sole_in_process"}))
    assert found == [
        ran(1, 10, 12, ending="stopped"),
        msgspec.structs.replace(ran(2, 11, pid=CHILD), is_exclusive=True),
    ]


def test_an_attempt_that_is_started_twice_in_one_process_is_two_executions() -> None:
    lines = [line("start", 10, "in_loop 1"), line("start", 11, "in_loop 1")]
    found = read_executions(lines, WORKER, frozenset())
    assert found == [ran(1, 10), ran(1, 11)]


def test_lines_of_a_producer_are_read_as_what_was_acknowledged() -> None:
    lines = [
        line("acknowledged", 9, "in_loop 1"),
        line("given_up", 10, "2 unavailable"),
        line("acknowledged", 11, "refusing 3"),
    ]
    assert read_acknowledged(lines, {"refusing": "NON_RETRYABLE"}) == [
        Acknowledged(TASK, 1, 9),
        Acknowledged(TASK, 3, 11, "NON_RETRYABLE"),
    ]
