"""What it means that a worker does not name what it holds."""

from __future__ import annotations

from msgspec.structs import replace

from tenure.core.task.event import DeliveryMissed, TaskLost
from tenure.core.worker.reconcile import counted_from_ms, missing, uncarried
from tests.core.task.tasks import T0, WORKER, fresh, handed, running


def test_a_confirmed_attempt_that_is_not_named_is_lost() -> None:
    task = running()
    confirmed_at_ms = task.progress.confirmed_at_ms
    lost = TaskLost(attempt=task.attempt, worker_id=WORKER)
    assert missing(task, heard_at_ms=confirmed_at_ms, session_no=None) == lost
    assert missing(task, heard_at_ms=confirmed_at_ms, session_no=3) == lost


def test_a_confirmation_that_may_have_crossed_the_set_keeps_its_attempt() -> None:
    task = running()
    heard_at_ms = task.progress.confirmed_at_ms - 1
    assert missing(task, heard_at_ms=heard_at_ms, session_no=None) is None


def test_only_the_set_that_opens_a_session_misses_what_an_earlier_one_was_given() -> None:
    task = replace(handed(fresh()), session_no=2)
    missed = DeliveryMissed(attempt=task.attempt, worker_id=WORKER)
    assert missing(task, heard_at_ms=T0, session_no=3) == missed
    assert missing(task, heard_at_ms=T0, session_no=2) is None
    assert missing(task, heard_at_ms=T0, session_no=None) is None


def test_after_the_clock_went_back_no_confirmation_is_older_than_a_heartbeat() -> None:
    assert counted_from_ms(T0, now_ms=T0) == T0
    assert counted_from_ms(T0 + 1, now_ms=T0) == 0


def test_an_attempt_in_a_call_and_not_in_its_answer_is_undelivered_or_lost() -> None:
    missed = uncarried(handed(fresh()))
    assert missed == DeliveryMissed(attempt=1, worker_id=WORKER)
    assert uncarried(running()) == TaskLost(attempt=1, worker_id=WORKER)
