"""Held attempts: no I/O, no clock."""

from __future__ import annotations

import math

import pytest

from tenure.core.limits import FRAME_BYTES, PAYLOAD_BYTES_MAX
from tenure.sdk.activity.context import StopReason
from tenure.sdk.worker.connection.held_attempts import HeldAttempt, HeldAttempts, Reports
from tenure.v1 import task_pb2
from tenure.v1.error_pb2 import ErrorDetail

SUCCEEDED = task_pb2.FINISH_KIND_SUCCEEDED
FAILED = task_pb2.FINISH_KIND_FAILED
RELEASED = task_pb2.FINISH_KIND_RELEASED
CANCELLED = task_pb2.FINISH_KIND_CANCELLED
UNAVAILABLE = ErrorDetail(code="unavailable", retry_after_ms=500)
MISMATCH = ErrorDetail(code="attempt_mismatch")


@pytest.fixture
def held_attempts() -> HeldAttempts:
    return HeldAttempts()


def hold(
    held_attempts: HeldAttempts, task_id: str = "a", now_s: float = 0.0, **fields: int
) -> HeldAttempt:
    held = held_attempts.deliver(
        task_pb2.AssignedTask(task_id=task_id, attempt=1, **fields),  # type: ignore[arg-type]
        now_s,
    )
    assert held is not None
    return held


def run(held_attempts: HeldAttempts, task_id: str = "a", now_s: float = 0.0, **fields: int) -> None:
    task = task_pb2.AssignedTask(task_id=task_id, attempt=1, **fields)  # type: ignore[arg-type]
    assert held_attempts.begin(task, now_s)


def end(
    task_id: str = "a", kind: task_pb2.FinishKind.ValueType = SUCCEEDED, output: bytes = b"1"
) -> task_pb2.TaskFinish:
    return task_pb2.TaskFinish(task_id=task_id, attempt=1, kind=kind, output=output)


def beat(task_id: str = "a", details: bytes = b"[1]") -> task_pb2.TaskBeat:
    return task_pb2.TaskBeat(task_id=task_id, attempt=1, details=details)


def take(held_attempts: HeldAttempts, now_s: float = 0.0) -> Reports:
    return held_attempts.take(now_s) or Reports([], [], [])


def ids(refs: list[task_pb2.TaskRef]) -> list[str]:
    return [each.task_id for each in refs]


# -- Delivery and confirmation


def test_an_attempt_that_is_delivered_twice_is_held_once(held_attempts: HeldAttempts) -> None:
    hold(held_attempts)
    again = task_pb2.AssignedTask(task_id="a", attempt=1)

    assert held_attempts.deliver(again, 0) is None
    assert not held_attempts.begin(again, 0)
    assert len(held_attempts) == 1


def test_an_attempt_is_confirmed_once_when_it_has_run_for_half_a_second(
    held_attempts: HeldAttempts,
) -> None:
    run(held_attempts)

    assert held_attempts.next_at_s() == 0.5
    assert held_attempts.take(0.49) is None
    assert ids(take(held_attempts, 0.5).started) == ["a"]
    assert held_attempts.take(10) is None
    assert held_attempts.next_at_s() == math.inf


def test_a_short_attempt_is_never_confirmed(held_attempts: HeldAttempts) -> None:
    run(held_attempts)
    held_attempts.finish(end())
    assert take(held_attempts, 0.1).started == []
    held_attempts.acknowledge(("a", 1))

    assert held_attempts.next_at_s() == math.inf
    assert held_attempts.take(1) is None


def test_a_heartbeat_confirms_as_well(held_attempts: HeldAttempts) -> None:
    run(held_attempts)
    held_attempts.beat(beat(), 0.1)

    reports = take(held_attempts, 0.6)
    assert reports.started == []
    assert len(reports.beats) == 1


def test_what_waits_for_the_lease_is_neither_confirmed_nor_forgotten(
    held_attempts: HeldAttempts,
) -> None:
    held = hold(held_attempts)
    held_attempts.wait(held)

    assert held_attempts.take(5) is None
    assert ids(held_attempts.held_refs()) == ["a"]
    assert held_attempts.take_waiting() == [held]
    assert held_attempts.take_waiting() == []

    assert held_attempts.start(held, 6.0).task_id == "a"
    assert ids(take(held_attempts, 6.5).started) == ["a"]


# -- Ends


def test_an_end_is_kept_until_it_is_acknowledged(held_attempts: HeldAttempts) -> None:
    run(held_attempts)
    held_attempts.finish(end())

    assert [each.task_id for each in take(held_attempts).finished] == ["a"]
    assert held_attempts.take(0) is None
    assert ids(held_attempts.held_refs()) == ["a"]

    held_attempts.acknowledge(("a", 1))
    assert len(held_attempts) == 0


def test_only_the_first_end_of_an_attempt_counts(held_attempts: HeldAttempts) -> None:
    run(held_attempts)
    held_attempts.finish(end(output=b"1"))
    held_attempts.finish(end(output=b"2"))

    assert [each.output for each in take(held_attempts).finished] == [b"1"]
    assert held_attempts.completed_total == 1


def test_an_end_of_an_attempt_that_is_not_held_is_dropped(held_attempts: HeldAttempts) -> None:
    held_attempts.finish(end())

    assert held_attempts.take(0) is None


def test_an_end_is_sent_again_on_a_new_connection(held_attempts: HeldAttempts) -> None:
    run(held_attempts)
    held_attempts.finish(end())
    take(held_attempts)
    held_attempts.send_again()

    assert [each.task_id for each in take(held_attempts).finished] == ["a"]


def test_an_end_that_the_server_could_not_take_is_sent_again_when_it_says(
    held_attempts: HeldAttempts,
) -> None:
    run(held_attempts)
    held_attempts.finish(end())
    take(held_attempts)
    held_attempts.answered(("a", 1), UNAVAILABLE, 1.0)

    assert held_attempts.next_at_s() == 1.5
    assert held_attempts.take(1.4) is None
    assert len(take(held_attempts, 1.5).finished) == 1


@pytest.mark.parametrize("code", ["attempt_mismatch", "task_already_terminal", "task_expired"])
def test_an_end_that_is_refused_for_good_is_forgotten(
    held_attempts: HeldAttempts, code: str
) -> None:
    run(held_attempts)
    held_attempts.finish(end())
    take(held_attempts)
    held_attempts.answered(("a", 1), ErrorDetail(code=code), 0)

    assert len(held_attempts) == 0
    assert held_attempts.take_unbound() == []


def test_an_end_is_forgotten_with_its_incarnation_and_kept_while_its_key_is_replaced(
    held_attempts: HeldAttempts,
) -> None:
    run(held_attempts)
    held_attempts.finish(end())
    take(held_attempts)
    other_key = ErrorDetail(code="worker_inactive", reason="other_key")
    held_attempts.answered(("a", 1), other_key, 0)
    assert len(take(held_attempts, 1.5).finished) == 1
    over = ErrorDetail(code="worker_inactive", reason="lease_expired")
    held_attempts.answered(("a", 1), over, 2)
    assert len(held_attempts) == 0


def test_an_end_that_the_server_finds_malformed_becomes_a_failure(
    held_attempts: HeldAttempts,
) -> None:
    run(held_attempts)
    held_attempts.finish(end())
    take(held_attempts)
    held_attempts.answered(("a", 1), ErrorDetail(code="payload_too_large", message="3 MiB"), 0)

    (finish,) = take(held_attempts).finished
    assert finish.kind == FAILED
    assert "3 MiB" in finish.error.message
    assert finish.error.category == task_pb2.ERROR_CATEGORY_DATA_QUALITY
    assert (held_attempts.completed_total, held_attempts.failed_total) == (0, 1)


def test_when_even_the_failure_is_refused_the_server_is_told_that_nobody_works_on_it(
    held_attempts: HeldAttempts,
) -> None:
    run(held_attempts)
    held_attempts.finish(end())
    take(held_attempts)
    for _ in range(2):
        held_attempts.answered(("a", 1), ErrorDetail(code="invalid_argument"), 0)

    assert len(held_attempts) == 0
    unbound = held_attempts.take_unbound()
    assert ids(unbound) == ["a"]
    held_attempts.put_unbound(unbound)
    assert ids(held_attempts.take_unbound()) == ["a"]


def test_a_result_beyond_every_limit_is_never_sent(held_attempts: HeldAttempts) -> None:
    run(held_attempts)
    held_attempts.finish(end(output=bytes(2 * PAYLOAD_BYTES_MAX)))

    (finish,) = take(held_attempts).finished
    assert finish.kind == FAILED
    assert finish.error.type == "payload_too_large"


def test_a_frame_takes_no_more_than_fits(held_attempts: HeldAttempts) -> None:
    for index in range(5):
        run(held_attempts, str(index))
        held_attempts.finish(end(str(index), output=bytes(FRAME_BYTES // 2)))

    assert len(take(held_attempts).finished) == 2
    assert len(take(held_attempts).finished) == 2
    assert len(take(held_attempts).finished) == 1
    assert held_attempts.take(0) is None


def test_totals_count_what_succeeded_and_what_failed(held_attempts: HeldAttempts) -> None:
    for task_id, kind in {"a": SUCCEEDED, "b": FAILED, "c": RELEASED, "d": CANCELLED}.items():
        run(held_attempts, task_id)
        held_attempts.finish(end(task_id, kind))

    assert (held_attempts.completed_total, held_attempts.failed_total) == (1, 1)
    assert held_attempts.finished_count == 4


# -- Heartbeats


def test_the_last_heartbeat_wins_and_goes_before_the_end(held_attempts: HeldAttempts) -> None:
    run(held_attempts)
    held_attempts.beat(beat(details=b"[1]"), 0)
    held_attempts.beat(beat(details=b"[2]"), 0)
    held_attempts.finish(end())

    reports = take(held_attempts)
    assert [each.details for each in reports.beats] == [b"[2]"]
    assert len(reports.finished) == 1


def test_ends_wait_while_heartbeats_fill_the_frame(held_attempts: HeldAttempts) -> None:
    for index in range(3):
        run(held_attempts, str(index))
        held_attempts.beat(beat(str(index), details=bytes(FRAME_BYTES)), 0)
    held_attempts.finish(end("2"))

    assert [len(take(held_attempts).finished) for _ in range(4)] == [0, 0, 0, 1]


def test_a_heartbeat_after_the_end_is_dropped(held_attempts: HeldAttempts) -> None:
    run(held_attempts)
    held_attempts.finish(end())
    held_attempts.beat(beat(), 0)

    assert take(held_attempts).beats == []


def test_a_heartbeat_that_may_be_lost_is_sent_again_on_a_new_connection(
    held_attempts: HeldAttempts,
) -> None:
    run(held_attempts)
    held_attempts.beat(beat(details=b"[1]"), 0)
    take(held_attempts)
    held_attempts.send_again()

    assert [each.details for each in take(held_attempts).beats] == [b"[1]"]


def test_a_newer_heartbeat_is_not_replaced_by_one_that_may_be_lost(
    held_attempts: HeldAttempts,
) -> None:
    run(held_attempts)
    held_attempts.beat(beat(details=b"[1]"), 0)
    take(held_attempts)
    held_attempts.beat(beat(details=b"[2]"), 0)
    held_attempts.send_again()

    assert [each.details for each in take(held_attempts).beats] == [b"[2]"]


def test_a_heartbeat_before_an_answered_beat_of_the_worker_has_arrived(
    held_attempts: HeldAttempts,
) -> None:
    run(held_attempts)
    held_attempts.beat(beat(details=b"[1]"), 0)
    take(held_attempts)
    held_attempts.pass_beats()
    run(held_attempts, "b")
    held_attempts.beat(beat("b", details=b"[2]"), 0)
    take(held_attempts)
    held_attempts.settle_beats()
    held_attempts.send_again()

    assert [each.details for each in take(held_attempts).beats] == [b"[2]"]


def test_a_heartbeat_that_the_server_could_not_take_is_sent_again_later(
    held_attempts: HeldAttempts,
) -> None:
    run(held_attempts)
    held_attempts.beat(beat(), 0)
    take(held_attempts)
    assert held_attempts.refused(("a", 1), UNAVAILABLE, 1.0) is None

    assert held_attempts.take(1.2) is None
    assert len(take(held_attempts, 1.5).beats) == 1


def test_a_confirmation_that_the_server_could_not_take_is_sent_again_later(
    held_attempts: HeldAttempts,
) -> None:
    run(held_attempts)
    take(held_attempts, 0.5)
    assert held_attempts.refused(("a", 1), UNAVAILABLE, 1.0) is None

    assert ids(take(held_attempts, 1.5).started) == ["a"]


def test_a_heartbeat_beyond_every_limit_is_not_sent(held_attempts: HeldAttempts) -> None:
    run(held_attempts)

    assert not held_attempts.beat(beat(details=bytes(2 * PAYLOAD_BYTES_MAX)), 0)
    assert held_attempts.take(0) is None


# -- What the server says


def test_a_running_attempt_is_told_of_a_cancel(held_attempts: HeldAttempts) -> None:
    run(held_attempts)

    assert held_attempts.cancel(("a", 1))
    assert ("a", 1) in held_attempts


def test_a_waiting_attempt_is_cancelled_without_being_started(held_attempts: HeldAttempts) -> None:
    held_attempts.wait(hold(held_attempts))

    assert not held_attempts.cancel(("a", 1))
    assert [each.kind for each in take(held_attempts).finished] == [CANCELLED]
    assert held_attempts.take_waiting() == []


def test_a_cancel_of_what_has_ended_or_is_not_held_changes_nothing(
    held_attempts: HeldAttempts,
) -> None:
    run(held_attempts)
    held_attempts.finish(end())

    assert not held_attempts.cancel(("a", 1))
    assert not held_attempts.cancel(("b", 1))


def test_a_stopped_attempt_is_forgotten_and_its_late_end_dropped(
    held_attempts: HeldAttempts,
) -> None:
    run(held_attempts)

    assert held_attempts.stop(("a", 1), 1.0) is StopReason.LOST_LEASE
    held_attempts.finish(end())
    assert len(held_attempts) == 0
    assert held_attempts.take(1) is None


def test_an_end_is_still_reported_when_its_attempt_is_stopped(held_attempts: HeldAttempts) -> None:
    run(held_attempts)
    held_attempts.finish(end())

    assert held_attempts.stop(("a", 1), 1.0) is None
    assert len(take(held_attempts).finished) == 1


@pytest.mark.parametrize("name", ["start_to_close_ms", "heartbeat_timeout_ms"])
def test_an_attempt_whose_time_is_over_is_stopped_as_timed_out(
    held_attempts: HeldAttempts, name: str
) -> None:
    run(held_attempts, "a", **{name: 10_000})
    run(held_attempts, "b", **{name: 10_000})

    assert held_attempts.stop(("a", 1), 5.0) is StopReason.LOST_LEASE
    assert held_attempts.stop(("b", 1), 10.0) is StopReason.TIMED_OUT


def test_a_heartbeat_moves_the_time_after_which_an_attempt_is_silent(
    held_attempts: HeldAttempts,
) -> None:
    run(held_attempts, heartbeat_timeout_ms=10_000)
    held_attempts.beat(beat(), 8.0)

    assert held_attempts.stop(("a", 1), 12.0) is StopReason.LOST_LEASE


def test_a_refused_confirmation_stops_the_attempt(held_attempts: HeldAttempts) -> None:
    run(held_attempts)
    run(held_attempts, "b")
    cancelled = ErrorDetail(code="task_already_terminal", state="CANCELLED")

    assert held_attempts.refused(("a", 1), MISMATCH, 1.0) is StopReason.LOST_LEASE
    assert held_attempts.refused(("b", 1), cancelled, 1.0) is StopReason.CANCELLED
    assert held_attempts.refused(("c", 1), MISMATCH, 1.0) is None
    assert len(held_attempts) == 0


def test_reports_that_nobody_answered_are_made_again(held_attempts: HeldAttempts) -> None:
    for task_id in "abc":
        run(held_attempts, task_id)
    held_attempts.beat(beat("b"), 0)
    held_attempts.finish(end("c"))
    reports = take(held_attempts, 0.5)
    held_attempts.restart(reports)
    again = take(held_attempts, 0.6)

    assert ids(again.started) == ids(reports.started) == ["a"]
    assert again.beats == reports.beats
    assert again.finished == reports.finished


# -- The end of an incarnation


def test_what_was_not_started_is_handed_back(held_attempts: HeldAttempts) -> None:
    held_attempts.wait(hold(held_attempts))
    held_attempts.hand_back_waiting()

    assert [each.kind for each in take(held_attempts).finished] == [RELEASED]


def test_an_incarnation_that_is_over_keeps_its_ends_and_names_what_runs(
    held_attempts: HeldAttempts,
) -> None:
    run(held_attempts, "runs")
    run(held_attempts, "ended")
    held_attempts.finish(end("ended"))
    held_attempts.wait(hold(held_attempts, "waits"))

    assert held_attempts.abandon() == [("runs", 1)]
    assert ids(held_attempts.held_refs()) == ["ended"]
