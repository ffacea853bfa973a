"""Deadlines: which run in which state, and when each may be judged."""

from __future__ import annotations

import pytest

from tenure.core.task import deadline
from tenure.core.task.deadline import Deadline, DeadlineKind
from tenure.core.task.record import TERMINAL, Task
from tests.core.task.tasks import (
    STATES,
    T0,
    cancelled,
    cancelling,
    cancelling_told,
    failed_once,
    fresh,
    handed,
    pausing,
    running,
    waiting_async,
    waiting_run,
)

TIMEOUTS = {
    "schedule_to_start_ms": 100,
    "start_to_close_ms": 2_000,
    "schedule_to_close_ms": 9_000,
    "heartbeat_timeout_ms": 300,
    "cancel_grace_ms": 400,
    "delivery_timeout_ms": 500,
}
CLOSE = (DeadlineKind.SCHEDULE_TO_CLOSE, 9_000)
START_TO_CLOSE = (DeadlineKind.START_TO_CLOSE, 2_000)
HEARTBEAT = (DeadlineKind.HEARTBEAT, 300)


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        (fresh(**TIMEOUTS), [(DeadlineKind.SCHEDULE_TO_START, 100), CLOSE]),
        (
            failed_once(**TIMEOUTS),
            [(DeadlineKind.START, 1_000), (DeadlineKind.SCHEDULE_TO_START, 1_100), CLOSE],
        ),
        (handed(fresh(**TIMEOUTS)), [(DeadlineKind.DELIVERY, 500), START_TO_CLOSE, CLOSE]),
        (running(**TIMEOUTS), [START_TO_CLOSE, HEARTBEAT, CLOSE]),
        (cancelling(**TIMEOUTS), [START_TO_CLOSE, HEARTBEAT, CLOSE]),
        (
            cancelling_told(**TIMEOUTS),
            [START_TO_CLOSE, HEARTBEAT, (DeadlineKind.CANCEL_GRACE, 400), CLOSE],
        ),
        (waiting_async(**TIMEOUTS), [START_TO_CLOSE, HEARTBEAT, CLOSE]),
        (waiting_run(T0 + 700, schedule_to_close_ms=9_000), [(DeadlineKind.WAKE, 700), CLOSE]),
        (waiting_run(), []),
        (pausing(fresh(**TIMEOUTS)), [CLOSE]),
        (pausing(fresh()), []),
    ],
)
def test_each_state_has_its_deadlines(task: Task, expected: list[tuple[DeadlineKind, int]]) -> None:
    found = [(each.kind, each.at_ms - T0) for each in deadline.deadlines(task)]
    assert found == expected


@pytest.mark.parametrize("state", STATES)
def test_every_row_is_armed_for_its_earliest_deadline(state: str) -> None:
    task = STATES[state]()
    if task.state in TERMINAL:
        assert task.due_at_ms is None
    else:
        instants = [each.at_ms for each in deadline.deadlines(task)]
        assert task.due_at_ms == min(instants, default=None) == deadline.next_due_ms(task)


@pytest.mark.parametrize(
    "limits",
    [
        {},
        {"start_to_close_ms": 0},
        {"start_to_close_ms": 100},
        {"schedule_to_close_ms": 50},
        {"start_to_close_ms": 0, "schedule_to_close_ms": 10**6},
    ],
)
def test_the_short_way_for_a_dispatched_task_finds_the_same_instant(limits: dict[str, int]) -> None:
    task = handed(fresh(**limits), T0 + 10)
    short_ms = deadline.dispatched_due_ms(task.spec, T0 + 10)
    assert short_ms == min(each.at_ms for each in deadline.deadlines(task)) == task.due_at_ms


def test_what_needs_no_hearing_is_judged_at_its_instant() -> None:
    found = Deadline(DeadlineKind.START_TO_CLOSE, 500, 400)
    assert found.judged_at_ms(now_ms=900, sighted_ms=0) == 500


@pytest.mark.parametrize(
    ("now_ms", "sighted_ms", "judged_at_ms"),
    [(900, 400, 500), (900, 399, 901), (900, 0, 1_300), (200, 350, 500), (200, 0, 600)],
)
def test_what_needs_hearing_is_judged_after_a_period_of_sight(
    now_ms: int, sighted_ms: int, judged_at_ms: int
) -> None:
    found = Deadline(DeadlineKind.HEARTBEAT, 500, 400)
    assert found.judged_at_ms(now_ms=now_ms, sighted_ms=sighted_ms) == judged_at_ms


def test_the_earliest_of_several_expired_deadlines_is_named() -> None:
    task = cancelled(waiting_async(cancel_grace_ms=400, start_to_close_ms=300))
    expired = deadline.first_expired(task, now_ms=T0 + 900, sighted_ms=10**9)
    assert expired is DeadlineKind.START_TO_CLOSE


def test_nothing_is_expired_before_its_instant() -> None:
    task = running(start_to_close_ms=300)
    assert deadline.first_expired(task, now_ms=T0 + 299, sighted_ms=10**9) is None


def test_a_row_without_deadlines_is_never_due() -> None:
    assert deadline.next_due_ms(waiting_run()) is None
    assert deadline.next_due_ms(waiting_run(), now_ms=T0, sighted_ms=0) is None


@pytest.mark.parametrize(
    ("close_ms", "at_ms", "is_after"),
    [(0, 10**12, False), (500, T0 + 499, False), (500, T0 + 500, True)],
)
def test_the_end_of_everything_bounds_what_may_still_start(
    close_ms: int, at_ms: int, is_after: bool
) -> None:
    assert deadline.is_after_close(fresh(schedule_to_close_ms=close_ms), at_ms) is is_after
