"""The chain of heartbeats, on a clock that the test moves."""

from __future__ import annotations

import math
import random

import pytest

from tenure.sdk.worker.connection.worker_heartbeat import Heart, boot_time_s


class Time:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def heart(time: Time) -> Heart:
    made = Heart(time, random.Random(1))
    made.begin("1", lease_ms=15_000, interval_ms=5_000, sent_at_s=time.now_s)
    return made


def accept(heart: Heart, token: str = "2") -> None:  # noqa: S107 (no secret)
    heart.accepted(token, lease_ms=15_000, interval_ms=5_000)


def is_due(heart: Heart) -> bool:
    return heart.is_due


def test_a_beat_is_due_a_little_before_each_interval(heart: Heart, time: Time) -> None:
    assert 0.85 * 5 <= heart.due_in_s() <= 5

    time.now_s += 4.2
    assert not is_due(heart)

    time.now_s += 0.8
    assert is_due(heart)
    assert heart.due_in_s() == 0


def test_one_beat_is_in_flight_at_a_time(heart: Heart, time: Time) -> None:
    time.now_s += 5
    heart.send()

    assert not heart.is_due
    assert heart.due_in_s() == math.inf


def test_the_lease_counts_from_the_moment_of_sending(heart: Heart, time: Time) -> None:
    time.now_s += 5
    heart.send()
    time.now_s += 4
    accept(heart)

    # 15 s after the sending, less the margin of 1 s.
    assert heart.fenced_in_s == pytest.approx(15 - 4 - 1)
    assert heart.token == "2"


def test_the_worker_is_fenced_a_second_before_its_lease_may_be_over(
    heart: Heart, time: Time
) -> None:
    time.now_s += 13.9
    assert heart.fenced_in_s == pytest.approx(0.1)

    time.now_s += 0.2
    assert heart.is_fenced
    assert heart.fenced_in_s == 0


def test_an_accepted_beat_ends_the_fence(heart: Heart, time: Time) -> None:
    time.now_s += 20
    assert heart.is_fenced
    heart.send()
    accept(heart)

    assert not heart.is_fenced


def test_a_short_lease_is_not_all_margin(time: Time) -> None:
    heart = Heart(time)
    heart.begin("1", lease_ms=200, interval_ms=66, sent_at_s=time.now_s)

    assert heart.fenced_in_s == pytest.approx(0.15)


def test_a_welcome_renews_nothing_and_lets_the_next_beat_come_in_time(
    heart: Heart, time: Time
) -> None:
    fence_at_s = heart.fence_at_s
    time.now_s += 12
    heart.resume("7", interval_ms=5_000)

    assert heart.fence_at_s == fence_at_s
    assert heart.token == "7"
    assert heart.is_due
    # It has not been answered yet because it has not been sent yet.
    assert heart.overdue_in_s() == pytest.approx(5)


def test_a_registration_whose_first_request_is_long_ago_is_renewed_at_once(time: Time) -> None:
    heart = Heart(time)
    heart.begin("1", lease_ms=15_000, interval_ms=5_000, sent_at_s=time.now_s - 20)

    assert heart.is_fenced
    assert heart.is_due


def test_after_a_mismatch_the_full_set_goes_out_at_once_with_the_current_token(
    heart: Heart, time: Time
) -> None:
    time.now_s += 5
    heart.send()
    heart.mismatched("9")

    assert heart.token == "9"
    assert heart.is_full
    assert heart.is_due

    heart.send()
    accept(heart, "10")
    assert not heart.is_full


def test_a_beat_that_nobody_answered_is_repeated_with_the_same_token(
    heart: Heart, time: Time
) -> None:
    time.now_s += 5
    heart.send()
    heart.unanswered()

    assert heart.token == "1"
    assert 0 < heart.due_in_s() <= 5 / 4


def test_an_answer_that_comes_after_a_beat_was_given_up_changes_nothing(
    heart: Heart, time: Time
) -> None:
    time.now_s += 5
    heart.send()
    heart.unanswered()
    fence_at_s = heart.fence_at_s
    accept(heart, "2")

    assert heart.token == "1"
    assert heart.fence_at_s == fence_at_s


def test_a_connection_without_answers_is_overdue_after_an_interval(
    heart: Heart, time: Time
) -> None:
    time.now_s += 5
    heart.send()
    assert heart.overdue_in_s() == pytest.approx(5)

    time.now_s += 5
    assert heart.overdue_in_s() == 0


def test_time_in_which_the_thread_could_not_run_is_not_held_against_the_server(
    heart: Heart, time: Time
) -> None:
    time.now_s += 5
    heart.send()
    time.now_s += 5
    heart.starved(2.5)
    assert heart.overdue_in_s() == pytest.approx(2.5)

    # But not beyond the lease: then somebody else is asked.
    heart.starved(30)
    assert heart.overdue_in_s() == pytest.approx(heart.fenced_in_s)

    accept(heart)
    time.now_s += 5
    heart.send()
    assert heart.overdue_in_s() == pytest.approx(5)


def test_a_beat_that_cannot_be_sent_is_overdue_as_well(heart: Heart, time: Time) -> None:
    time.now_s = heart.next_at_s + 4.9
    assert heart.overdue_in_s() == pytest.approx(0.1)

    time.now_s += 0.2
    assert heart.overdue_in_s() == 0


def test_the_clock_of_the_lease_does_not_stand_still() -> None:
    before = boot_time_s()
    assert boot_time_s() >= before
