"""Exclusive attempts are given away later than their worker has stopped them by its own clock."""

from __future__ import annotations

from typing import Final

import pytest

from tenure.core.limits import CLOCK_DRIFT_PARTS, EXCLUSIVE_KILL_MS, EXCLUSIVE_MARGIN_MS
from tenure.core.task.attempt import Outcome
from tenure.core.task.event import (
    AttemptDeferred,
    AttemptSucceeded,
    CancelRequested,
    Confirmed,
    Heartbeaten,
    WorkerLost,
)
from tenure.core.task.record import TaskState
from tests.core.task.tasks import (
    T0,
    WORKER,
    after,
    decided,
    due,
    fresh,
    handed,
    held_exclusively,
    report,
    running,
    running_exclusively,
    waiting_async,
)

LEASE_MS: Final = 15_000
UNTIL_MS: Final = T0 + 9_000
RELEASE_MS: Final = UNTIL_MS + EXCLUSIVE_KILL_MS + LEASE_MS // CLOCK_DRIFT_PARTS
MARGIN_MS: Final = EXCLUSIVE_MARGIN_MS + EXCLUSIVE_KILL_MS
LOST: Final = WorkerLost(worker_id=WORKER, lease_until_ms=UNTIL_MS, lease_ms=LEASE_MS)


def test_a_lost_worker_keeps_its_exclusive_attempt_until_its_lease_would_have_been_over() -> None:
    held = after(running_exclusively(), LOST)
    assert (held.state, held.worker_id) == (TaskState.RUNNING, WORKER)
    assert held.due_at_ms == RELEASE_MS
    assert due(held, RELEASE_MS - 1).task.state is TaskState.RUNNING
    back = due(held, RELEASE_MS)
    assert back.task.state is TaskState.PENDING
    assert back.ended is not None
    assert back.ended.outcome is Outcome.WORKER_LOST
    assert back.task.progress.interruption_count == 1
    assert back.task.progress.release_at_ms == 0
    assert back.task.progress.exclusive_at_ms == 0


@pytest.mark.parametrize("sighted_ms", [0, LEASE_MS - 1])
def test_who_was_blind_within_a_lease_waits_before_it_gives_exclusive_work_away(
    sighted_ms: int,
) -> None:
    held = due(held_exclusively(UNTIL_MS, LEASE_MS), RELEASE_MS, sighted_ms=sighted_ms).task
    assert held.state is TaskState.RUNNING
    assert held.due_at_ms == RELEASE_MS + LEASE_MS - sighted_ms


def test_an_attempt_that_is_not_exclusive_goes_back_at_once() -> None:
    assert after(running(), LOST).state is TaskState.PENDING


def test_an_exclusive_attempt_that_was_not_confirmed_has_not_begun_and_goes_back_at_once() -> None:
    assert after(handed(fresh()), LOST).state is TaskState.PENDING


def test_a_worker_that_has_said_goodbye_keeps_nothing() -> None:
    assert after(running_exclusively(), WorkerLost(worker_id=WORKER)).state is TaskState.PENDING


def test_losing_the_same_worker_twice_changes_nothing() -> None:
    held = after(running_exclusively(), LOST)
    later = WorkerLost(worker_id=WORKER, lease_until_ms=UNTIL_MS + 99, lease_ms=LEASE_MS)
    assert decided(held, later).task is held


def test_a_result_of_a_lost_worker_counts_while_its_attempt_is_held() -> None:
    held = held_exclusively(UNTIL_MS)
    done = after(held, report(AttemptSucceeded, held, output=b"1"), RELEASE_MS - 1)
    assert done.state is TaskState.SUCCEEDED


def test_what_a_lost_worker_defers_is_not_taken_from_whoever_completes_it() -> None:
    held = held_exclusively(UNTIL_MS, LEASE_MS)
    deferred = after(held, report(AttemptDeferred, held), RELEASE_MS - 1)
    assert (deferred.state, deferred.worker_id) == (TaskState.WAITING, None)
    waiting = due(deferred, RELEASE_MS).task
    assert (waiting.state, waiting.attempt) == (TaskState.WAITING, 1)


def test_a_held_attempt_that_is_to_be_cancelled_ends_with_the_lease() -> None:
    cancelling = after(held_exclusively(UNTIL_MS, LEASE_MS), CancelRequested())
    assert cancelling.state is TaskState.CANCELLING
    assert due(cancelling, RELEASE_MS).task.state is TaskState.CANCELLED


def test_start_to_close_of_exclusive_work_counts_from_its_confirmation_with_a_margin() -> None:
    task = handed(fresh(start_to_close_ms=60_000))
    task = after(task, report(Confirmed, task, is_exclusive=True), T0 + 5_000)
    at_ms = T0 + 5_000 + 60_000 + MARGIN_MS + 60_000 // CLOCK_DRIFT_PARTS
    assert task.due_at_ms == at_ms
    assert due(task, at_ms - 1).task.state is TaskState.RUNNING
    assert due(task, at_ms).task.last_outcome is Outcome.TIMED_OUT


def test_a_server_that_was_blind_meanwhile_does_not_end_exclusive_work_by_start_to_close() -> None:
    task = running_exclusively(start_to_close_ms=60_000)
    assert task.due_at_ms is not None
    assert due(task, task.due_at_ms, sighted_ms=59_999).task.state is TaskState.RUNNING
    plain = running(start_to_close_ms=60_000)
    assert due(plain, T0 + 60_000, sighted_ms=0).task.last_outcome is Outcome.TIMED_OUT


def test_the_heartbeat_timeout_of_exclusive_work_has_the_margin_too() -> None:
    task = running_exclusively(heartbeat_timeout_ms=10_000, start_to_close_ms=600_000)
    margin_ms = MARGIN_MS + 10_000 // CLOCK_DRIFT_PARTS
    assert task.due_at_ms == T0 + 10_000 + margin_ms
    beaten = after(task, report(Heartbeaten, task), T0 + 4_000)
    assert due(beaten, T0 + 14_000 + margin_ms - 1).task.state is TaskState.RUNNING
    late = due(beaten, T0 + 14_000 + margin_ms).task
    assert late.last_outcome is Outcome.TIMED_OUT


def test_who_asks_again_counts_from_its_last_question() -> None:
    task = running_exclusively(start_to_close_ms=60_000)
    again = after(task, report(Confirmed, task, is_exclusive=True), T0 + 3_000)
    assert task.due_at_ms is not None
    assert again.due_at_ms == task.due_at_ms + 3_000


def test_what_is_completed_from_elsewhere_is_nobodys_exclusive_work() -> None:
    task = waiting_async()
    same = after(task, Confirmed(attempt=task.attempt, is_exclusive=True))
    assert same.progress.exclusive_at_ms == 0
    deferred = running_exclusively()
    deferred = after(deferred, report(AttemptDeferred, deferred))
    assert deferred.state is TaskState.WAITING
