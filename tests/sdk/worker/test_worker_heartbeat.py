"""The chain of heartbeats, on a clock that the test moves."""

from __future__ import annotations

import math
import random

import pytest

from tenure.sdk.worker.connection.worker_heartbeat import WorkerHeartbeat, boot_time_s


class Time:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def heartbeat(time: Time) -> WorkerHeartbeat:
    made = WorkerHeartbeat(time, random.Random(1))
    made.begin("1", lease_ms=15_000, interval_ms=5_000, sent_at_s=time.now_s)
    return made


def accept(heartbeat: WorkerHeartbeat, token: str = "2") -> None:  # noqa: S107 (no secret)
    heartbeat.accepted(token, lease_ms=15_000, interval_ms=5_000)


def is_due(heartbeat: WorkerHeartbeat) -> bool:
    return heartbeat.is_due


def test_a_beat_is_due_a_little_before_each_interval(
    heartbeat: WorkerHeartbeat, time: Time
) -> None:
    assert 0.85 * 5 <= heartbeat.due_in_s() <= 5

    time.now_s += 4.2
    assert not is_due(heartbeat)

    time.now_s += 0.8
    assert is_due(heartbeat)
    assert heartbeat.due_in_s() == 0


def test_one_beat_is_in_flight_at_a_time(heartbeat: WorkerHeartbeat, time: Time) -> None:
    time.now_s += 5
    heartbeat.send()

    assert not heartbeat.is_due
    assert heartbeat.due_in_s() == math.inf


def test_the_lease_counts_from_the_moment_of_sending(
    heartbeat: WorkerHeartbeat, time: Time
) -> None:
    time.now_s += 5
    heartbeat.send()
    time.now_s += 4
    accept(heartbeat)

    # 15 s after the sending, less the margin of 1 s.
    assert heartbeat.fenced_in_s == pytest.approx(15 - 4 - 1)
    assert heartbeat.token == "2"


def test_the_worker_is_fenced_a_second_before_its_lease_may_be_over(
    heartbeat: WorkerHeartbeat, time: Time
) -> None:
    time.now_s += 13.9
    assert heartbeat.fenced_in_s == pytest.approx(0.1)

    time.now_s += 0.2
    assert heartbeat.is_fenced
    assert heartbeat.fenced_in_s == 0


def test_an_accepted_beat_ends_the_fence(heartbeat: WorkerHeartbeat, time: Time) -> None:
    time.now_s += 20
    assert heartbeat.is_fenced
    heartbeat.send()
    accept(heartbeat)

    assert not heartbeat.is_fenced


def test_a_short_lease_is_not_all_margin(time: Time) -> None:
    heartbeat = WorkerHeartbeat(time)
    heartbeat.begin("1", lease_ms=200, interval_ms=66, sent_at_s=time.now_s)

    assert heartbeat.fenced_in_s == pytest.approx(0.15)


def test_a_welcome_renews_nothing_and_lets_the_next_beat_come_in_time(
    heartbeat: WorkerHeartbeat, time: Time
) -> None:
    fence_at_s = heartbeat.fence_at_s
    time.now_s += 12
    heartbeat.resume("7", interval_ms=5_000)

    assert heartbeat.fence_at_s == fence_at_s
    assert heartbeat.token == "7"
    assert heartbeat.is_due
    # It has not been answered yet because it has not been sent yet.
    assert heartbeat.overdue_in_s() == pytest.approx(5)


def test_a_registration_whose_first_request_is_long_ago_is_renewed_at_once(time: Time) -> None:
    heartbeat = WorkerHeartbeat(time)
    heartbeat.begin("1", lease_ms=15_000, interval_ms=5_000, sent_at_s=time.now_s - 20)

    assert heartbeat.is_fenced
    assert heartbeat.is_due


def test_after_a_mismatch_the_full_set_goes_out_at_once_with_the_current_token(
    heartbeat: WorkerHeartbeat, time: Time
) -> None:
    time.now_s += 5
    heartbeat.send()
    heartbeat.mismatched("9")

    assert heartbeat.token == "9"
    assert heartbeat.is_full
    assert heartbeat.is_due

    heartbeat.send()
    accept(heartbeat, "10")
    assert not heartbeat.is_full


def test_a_beat_that_nobody_answered_is_repeated_with_the_same_token(
    heartbeat: WorkerHeartbeat, time: Time
) -> None:
    time.now_s += 5
    heartbeat.send()
    heartbeat.unanswered()

    assert heartbeat.token == "1"
    assert 0 < heartbeat.due_in_s() <= 5 / 4


def test_an_answer_that_comes_after_a_beat_was_given_up_changes_nothing(
    heartbeat: WorkerHeartbeat, time: Time
) -> None:
    time.now_s += 5
    heartbeat.send()
    heartbeat.unanswered()
    fence_at_s = heartbeat.fence_at_s
    accept(heartbeat, "2")

    assert heartbeat.token == "1"
    assert heartbeat.fence_at_s == fence_at_s


def test_a_connection_without_answers_is_overdue_after_an_interval(
    heartbeat: WorkerHeartbeat, time: Time
) -> None:
    time.now_s += 5
    heartbeat.send()
    assert heartbeat.overdue_in_s() == pytest.approx(5)

    time.now_s += 5
    assert heartbeat.overdue_in_s() == 0


def test_time_in_which_the_thread_could_not_run_is_not_held_against_the_server(
    heartbeat: WorkerHeartbeat, time: Time
) -> None:
    time.now_s += 5
    heartbeat.send()
    time.now_s += 5
    heartbeat.starved(2.5)
    assert heartbeat.overdue_in_s() == pytest.approx(2.5)

    # But not beyond the lease: then somebody else is asked.
    heartbeat.starved(30)
    assert heartbeat.overdue_in_s() == pytest.approx(heartbeat.fenced_in_s)

    accept(heartbeat)
    time.now_s += 5
    heartbeat.send()
    assert heartbeat.overdue_in_s() == pytest.approx(5)


def test_a_beat_that_cannot_be_sent_is_overdue_as_well(
    heartbeat: WorkerHeartbeat, time: Time
) -> None:
    time.now_s = heartbeat.next_at_s + 4.9
    assert heartbeat.overdue_in_s() == pytest.approx(0.1)

    time.now_s += 0.2
    assert heartbeat.overdue_in_s() == 0


def test_the_clock_of_the_lease_does_not_stand_still() -> None:
    before = boot_time_s()
    assert boot_time_s() >= before
