from __future__ import annotations

from tenure.v1.task_pb2 import TASK_STATE_PENDING, TASK_STATE_SUCCEEDED, Task
from tenure.v1.task_service_pb2 import TaskResult
from tests.wire import checker
from tests.wire.journal import Line


def line(event: str, *, task: str = "t", attempt: int = 1, text: str = "") -> Line:
    return Line(
        event=event, worker_id="w", task_id=task, attempt=attempt, text=text, mono_s=1.0, wall_ms=1
    )


def test_a_task_that_was_started_twice_is_noticed() -> None:
    lines = [line("start"), line("start", attempt=2)]
    assert checker.check_once(lines, ["t"]) == ["task t was started 2 times"]


def test_a_task_that_was_never_started_is_noticed() -> None:
    assert checker.check_once([], ["t"]) == ["task t was started 0 times"]


def test_a_task_that_was_started_once_is_fine() -> None:
    assert checker.check_once([line("start")], ["t"]) == []


def test_a_worker_that_was_judged_is_noticed() -> None:
    lines = [line("over", text="lease_expired"), line("over", text="deregistered")]
    assert checker.check_calm(lines) == ["worker w: over lease_expired"]


def test_an_answer_that_nothing_explains_is_noticed() -> None:
    assert checker.check_calm([line("odd", text="INTERNAL")]) == ["worker w: odd INTERNAL"]


def test_two_accepted_ends_are_noticed() -> None:
    lines = [line(event, attempt=n) for n in (1, 2) for event in ("end", "accepted")]
    assert checker.check_accepted(lines) == ["2 ends of t"]


def test_an_accepted_end_that_did_not_run_is_noticed() -> None:
    assert checker.check_accepted([line("accepted")]) == ["('t', 1) ended before it ran"]


def test_an_accepted_end_is_compared_with_what_is_stored() -> None:
    lines = [line("accepted", text="mine")]
    stored = {"t": TaskResult(task_id="t", attempt=1, output=b"other")}
    assert checker.check_outputs(lines, stored)
    assert checker.check_outputs(lines, {})
    stored["t"].output = b"mine"
    assert checker.check_outputs(lines, stored) == []


def test_a_task_that_was_charged_or_did_not_succeed_is_noticed() -> None:
    good = Task(task_id="a", state=TASK_STATE_SUCCEEDED, attempt=1)
    charged = Task(task_id="b", state=TASK_STATE_SUCCEEDED, attempt=1, failure_count=1)
    waiting = Task(task_id="c", state=TASK_STATE_PENDING, attempt=1)
    assert checker.check_succeeded([good]) == []
    assert checker.check_succeeded([charged]) == ["task b was charged 1 failures"]
    assert checker.check_succeeded([waiting]) == ["task c is TASK_STATE_PENDING with attempt 1"]
