"""The ledger of held attempts: no I/O, no clock."""

from __future__ import annotations

import math

import pytest

from tenure.core.limits import FRAME_BYTES, PAYLOAD_BYTES_MAX
from tenure.sdk.activity.context import StopReason
from tenure.sdk.worker.connection.held_attempts import Held, Ledger, Reports
from tenure.v1 import task_pb2
from tenure.v1.error_pb2 import ErrorDetail

SUCCEEDED = task_pb2.FINISH_KIND_SUCCEEDED
FAILED = task_pb2.FINISH_KIND_FAILED
RELEASED = task_pb2.FINISH_KIND_RELEASED
CANCELLED = task_pb2.FINISH_KIND_CANCELLED
UNAVAILABLE = ErrorDetail(code="unavailable", retry_after_ms=500)
MISMATCH = ErrorDetail(code="attempt_mismatch")


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


def hold(ledger: Ledger, task_id: str = "a", now_s: float = 0.0, **fields: int) -> Held:
    held = ledger.deliver(
        task_pb2.AssignedTask(task_id=task_id, attempt=1, **fields),  # type: ignore[arg-type]
        now_s,
    )
    assert held is not None
    return held


def run(ledger: Ledger, task_id: str = "a", now_s: float = 0.0, **fields: int) -> None:
    task = task_pb2.AssignedTask(task_id=task_id, attempt=1, **fields)  # type: ignore[arg-type]
    assert ledger.begin(task, now_s)


def end(
    task_id: str = "a",
    kind: task_pb2.FinishKind.ValueType = SUCCEEDED,
    output: bytes = b"1",
) -> task_pb2.TaskFinish:
    return task_pb2.TaskFinish(task_id=task_id, attempt=1, kind=kind, output=output)


def beat(task_id: str = "a", details: bytes = b"[1]") -> task_pb2.TaskBeat:
    return task_pb2.TaskBeat(task_id=task_id, attempt=1, details=details)


def take(ledger: Ledger, now_s: float = 0.0) -> Reports:
    return ledger.take(now_s) or Reports([], [], [])


def ids(refs: list[task_pb2.TaskRef]) -> list[str]:
    return [each.task_id for each in refs]


# -- Delivery and confirmation


def test_an_attempt_that_is_delivered_twice_is_held_once(ledger: Ledger) -> None:
    hold(ledger)
    again = task_pb2.AssignedTask(task_id="a", attempt=1)

    assert ledger.deliver(again, 0) is None
    assert not ledger.begin(again, 0)
    assert len(ledger) == 1


def test_an_attempt_is_confirmed_once_when_it_has_run_for_half_a_second(ledger: Ledger) -> None:
    run(ledger)

    assert ledger.next_at_s() == 0.5
    assert ledger.take(0.49) is None
    assert ids(take(ledger, 0.5).started) == ["a"]
    assert ledger.take(10) is None
    assert ledger.next_at_s() == math.inf


def test_a_short_attempt_is_never_confirmed(ledger: Ledger) -> None:
    run(ledger)
    ledger.finish(end())
    assert take(ledger, 0.1).started == []
    ledger.acknowledge(("a", 1))

    assert ledger.next_at_s() == math.inf
    assert ledger.take(1) is None


def test_a_heartbeat_confirms_as_well(ledger: Ledger) -> None:
    run(ledger)
    ledger.beat(beat(), 0.1)

    reports = take(ledger, 0.6)
    assert reports.started == []
    assert len(reports.beats) == 1


def test_what_waits_for_the_lease_is_neither_confirmed_nor_forgotten(ledger: Ledger) -> None:
    held = hold(ledger)
    ledger.wait(held)

    assert ledger.take(5) is None
    assert ids(ledger.held_refs()) == ["a"]
    assert ledger.take_waiting() == [held]
    assert ledger.take_waiting() == []

    assert ledger.start(held, 6.0).task_id == "a"
    assert ids(take(ledger, 6.5).started) == ["a"]


# -- Ends


def test_an_end_is_kept_until_it_is_acknowledged(ledger: Ledger) -> None:
    run(ledger)
    ledger.finish(end())

    assert [each.task_id for each in take(ledger).finished] == ["a"]
    assert ledger.take(0) is None
    assert ids(ledger.held_refs()) == ["a"]

    ledger.acknowledge(("a", 1))
    assert len(ledger) == 0


def test_only_the_first_end_of_an_attempt_counts(ledger: Ledger) -> None:
    run(ledger)
    ledger.finish(end(output=b"1"))
    ledger.finish(end(output=b"2"))

    assert [each.output for each in take(ledger).finished] == [b"1"]
    assert ledger.completed_total == 1


def test_an_end_of_an_attempt_that_is_not_held_is_dropped(ledger: Ledger) -> None:
    ledger.finish(end())

    assert ledger.take(0) is None


def test_an_end_is_sent_again_on_a_new_connection(ledger: Ledger) -> None:
    run(ledger)
    ledger.finish(end())
    take(ledger)
    ledger.send_again()

    assert [each.task_id for each in take(ledger).finished] == ["a"]


def test_an_end_that_the_server_could_not_take_is_sent_again_when_it_says(ledger: Ledger) -> None:
    run(ledger)
    ledger.finish(end())
    take(ledger)
    ledger.answered(("a", 1), UNAVAILABLE, 1.0)

    assert ledger.next_at_s() == 1.5
    assert ledger.take(1.4) is None
    assert len(take(ledger, 1.5).finished) == 1


@pytest.mark.parametrize("code", ["attempt_mismatch", "task_already_terminal", "task_expired"])
def test_an_end_that_is_refused_for_good_is_forgotten(ledger: Ledger, code: str) -> None:
    run(ledger)
    ledger.finish(end())
    take(ledger)
    ledger.answered(("a", 1), ErrorDetail(code=code), 0)

    assert len(ledger) == 0
    assert ledger.take_unbound() == []


def test_an_end_that_the_server_finds_malformed_becomes_a_failure(ledger: Ledger) -> None:
    run(ledger)
    ledger.finish(end())
    take(ledger)
    ledger.answered(("a", 1), ErrorDetail(code="payload_too_large", message="3 MiB"), 0)

    (finish,) = take(ledger).finished
    assert finish.kind == FAILED
    assert "3 MiB" in finish.error.message
    assert finish.error.category == task_pb2.ERROR_CATEGORY_DATA_QUALITY
    assert (ledger.completed_total, ledger.failed_total) == (0, 1)


def test_when_even_the_failure_is_refused_the_server_is_told_that_nobody_works_on_it(
    ledger: Ledger,
) -> None:
    run(ledger)
    ledger.finish(end())
    take(ledger)
    for _ in range(2):
        ledger.answered(("a", 1), ErrorDetail(code="invalid_argument"), 0)

    assert len(ledger) == 0
    unbound = ledger.take_unbound()
    assert ids(unbound) == ["a"]
    ledger.put_unbound(unbound)
    assert ids(ledger.take_unbound()) == ["a"]


def test_a_result_beyond_every_limit_is_never_sent(ledger: Ledger) -> None:
    run(ledger)
    ledger.finish(end(output=bytes(2 * PAYLOAD_BYTES_MAX)))

    (finish,) = take(ledger).finished
    assert finish.kind == FAILED
    assert finish.error.type == "payload_too_large"


def test_a_frame_takes_no_more_than_fits(ledger: Ledger) -> None:
    for index in range(5):
        run(ledger, str(index))
        ledger.finish(end(str(index), output=bytes(FRAME_BYTES // 2)))

    assert len(take(ledger).finished) == 2
    assert len(take(ledger).finished) == 2
    assert len(take(ledger).finished) == 1
    assert ledger.take(0) is None


def test_totals_count_what_succeeded_and_what_failed(ledger: Ledger) -> None:
    for task_id, kind in {"a": SUCCEEDED, "b": FAILED, "c": RELEASED, "d": CANCELLED}.items():
        run(ledger, task_id)
        ledger.finish(end(task_id, kind))

    assert (ledger.completed_total, ledger.failed_total) == (1, 1)
    assert ledger.finished_count == 4


# -- Heartbeats


def test_the_last_heartbeat_wins_and_goes_before_the_end(ledger: Ledger) -> None:
    run(ledger)
    ledger.beat(beat(details=b"[1]"), 0)
    ledger.beat(beat(details=b"[2]"), 0)
    ledger.finish(end())

    reports = take(ledger)
    assert [each.details for each in reports.beats] == [b"[2]"]
    assert len(reports.finished) == 1


def test_ends_wait_while_heartbeats_fill_the_frame(ledger: Ledger) -> None:
    for index in range(3):
        run(ledger, str(index))
        ledger.beat(beat(str(index), details=bytes(FRAME_BYTES)), 0)
    ledger.finish(end("2"))

    assert [len(take(ledger).finished) for _ in range(4)] == [0, 0, 0, 1]


def test_a_heartbeat_after_the_end_is_dropped(ledger: Ledger) -> None:
    run(ledger)
    ledger.finish(end())
    ledger.beat(beat(), 0)

    assert take(ledger).beats == []


def test_a_heartbeat_that_may_be_lost_is_sent_again_on_a_new_connection(ledger: Ledger) -> None:
    run(ledger)
    ledger.beat(beat(details=b"[1]"), 0)
    take(ledger)
    ledger.send_again()

    assert [each.details for each in take(ledger).beats] == [b"[1]"]


def test_a_newer_heartbeat_is_not_replaced_by_one_that_may_be_lost(ledger: Ledger) -> None:
    run(ledger)
    ledger.beat(beat(details=b"[1]"), 0)
    take(ledger)
    ledger.beat(beat(details=b"[2]"), 0)
    ledger.send_again()

    assert [each.details for each in take(ledger).beats] == [b"[2]"]


def test_a_heartbeat_before_an_answered_beat_of_the_worker_has_arrived(ledger: Ledger) -> None:
    run(ledger)
    ledger.beat(beat(details=b"[1]"), 0)
    take(ledger)
    ledger.pass_beats()
    run(ledger, "b")
    ledger.beat(beat("b", details=b"[2]"), 0)
    take(ledger)
    ledger.settle_beats()
    ledger.send_again()

    assert [each.details for each in take(ledger).beats] == [b"[2]"]


def test_a_heartbeat_that_the_server_could_not_take_is_sent_again_later(ledger: Ledger) -> None:
    run(ledger)
    ledger.beat(beat(), 0)
    take(ledger)
    assert ledger.refused(("a", 1), UNAVAILABLE, 1.0) is None

    assert ledger.take(1.2) is None
    assert len(take(ledger, 1.5).beats) == 1


def test_a_confirmation_that_the_server_could_not_take_is_sent_again_later(ledger: Ledger) -> None:
    run(ledger)
    take(ledger, 0.5)
    assert ledger.refused(("a", 1), UNAVAILABLE, 1.0) is None

    assert ids(take(ledger, 1.5).started) == ["a"]


def test_a_heartbeat_beyond_every_limit_is_not_sent(ledger: Ledger) -> None:
    run(ledger)

    assert not ledger.beat(beat(details=bytes(2 * PAYLOAD_BYTES_MAX)), 0)
    assert ledger.take(0) is None


# -- What the server says


def test_a_running_attempt_is_told_of_a_cancel(ledger: Ledger) -> None:
    run(ledger)

    assert ledger.cancel(("a", 1))
    assert ("a", 1) in ledger


def test_a_waiting_attempt_is_cancelled_without_being_started(ledger: Ledger) -> None:
    ledger.wait(hold(ledger))

    assert not ledger.cancel(("a", 1))
    assert [each.kind for each in take(ledger).finished] == [CANCELLED]
    assert ledger.take_waiting() == []


def test_a_cancel_of_what_has_ended_or_is_not_held_changes_nothing(ledger: Ledger) -> None:
    run(ledger)
    ledger.finish(end())

    assert not ledger.cancel(("a", 1))
    assert not ledger.cancel(("b", 1))


def test_a_stopped_attempt_is_forgotten_and_its_late_end_dropped(ledger: Ledger) -> None:
    run(ledger)

    assert ledger.stop(("a", 1), 1.0) is StopReason.LOST_LEASE
    ledger.finish(end())
    assert len(ledger) == 0
    assert ledger.take(1) is None


def test_an_end_is_still_reported_when_its_attempt_is_stopped(ledger: Ledger) -> None:
    run(ledger)
    ledger.finish(end())

    assert ledger.stop(("a", 1), 1.0) is None
    assert len(take(ledger).finished) == 1


@pytest.mark.parametrize("name", ["start_to_close_ms", "heartbeat_timeout_ms"])
def test_an_attempt_whose_time_is_over_is_stopped_as_timed_out(ledger: Ledger, name: str) -> None:
    run(ledger, "a", **{name: 10_000})
    run(ledger, "b", **{name: 10_000})

    assert ledger.stop(("a", 1), 5.0) is StopReason.LOST_LEASE
    assert ledger.stop(("b", 1), 10.0) is StopReason.TIMED_OUT


def test_a_heartbeat_moves_the_time_after_which_an_attempt_is_silent(ledger: Ledger) -> None:
    run(ledger, heartbeat_timeout_ms=10_000)
    ledger.beat(beat(), 8.0)

    assert ledger.stop(("a", 1), 12.0) is StopReason.LOST_LEASE


def test_a_refused_confirmation_stops_the_attempt(ledger: Ledger) -> None:
    run(ledger)
    run(ledger, "b")
    cancelled = ErrorDetail(code="task_already_terminal", state="CANCELLED")

    assert ledger.refused(("a", 1), MISMATCH, 1.0) is StopReason.LOST_LEASE
    assert ledger.refused(("b", 1), cancelled, 1.0) is StopReason.CANCELLED
    assert ledger.refused(("c", 1), MISMATCH, 1.0) is None
    assert len(ledger) == 0


def test_reports_that_nobody_answered_are_made_again(ledger: Ledger) -> None:
    for task_id in "abc":
        run(ledger, task_id)
    ledger.beat(beat("b"), 0)
    ledger.finish(end("c"))
    reports = take(ledger, 0.5)
    ledger.restart(reports)
    again = take(ledger, 0.6)

    assert ids(again.started) == ids(reports.started) == ["a"]
    assert again.beats == reports.beats
    assert again.finished == reports.finished


# -- The end of an incarnation


def test_what_was_not_started_is_handed_back(ledger: Ledger) -> None:
    ledger.wait(hold(ledger))
    ledger.hand_back_waiting()

    assert [each.kind for each in take(ledger).finished] == [RELEASED]


def test_an_incarnation_that_is_over_keeps_its_ends_and_names_what_runs(ledger: Ledger) -> None:
    run(ledger, "runs")
    run(ledger, "ended")
    ledger.finish(end("ended"))
    ledger.wait(hold(ledger, "waits"))

    assert ledger.abandon() == [("runs", 1)]
    assert ids(ledger.held_refs()) == ["ended"]
