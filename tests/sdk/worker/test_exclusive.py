"""Exclusive work in the SDK: it starts with the server's word and stops by the worker's clock."""

from __future__ import annotations

import math

import pytest

from tenure.sdk.activity.context import StopReason
from tenure.sdk.worker.connection.held_attempts import HeldAttempt, HeldAttempts
from tenure.v1 import session_service_pb2 as pb
from tenure.v1 import task_pb2
from tenure.v1.error_pb2 import ErrorDetail
from tests.polling import eventually
from tests.sdk.worker.rig import TYPE, FakeExecutor, Rig, messages
from tests.sdk.worker.scripted_worker import worker

REF = ("a", 1)
RELEASED = task_pb2.FINISH_KIND_RELEASED
CANCELLED = task_pb2.FINISH_KIND_CANCELLED


def ask(held_attempts: HeldAttempts, **fields: int) -> HeldAttempt:
    task = task_pb2.AssignedTask(task_id="a", attempt=1, **fields)  # type: ignore[arg-type]
    held = held_attempts.deliver(task, 0)
    assert held is not None
    held_attempts.ask(held)
    return held


def running(**fields: int) -> HeldAttempts:
    """Return a held set with exclusive work that was asked for at 10 and accepted at 11."""
    held_attempts = HeldAttempts()
    ask(held_attempts, **fields)
    held_attempts.take(10)
    assert held_attempts.accept(REF, 11) is not None
    return held_attempts


def beat() -> task_pb2.TaskBeat:
    return task_pb2.TaskBeat(task_id="a", attempt=1)


def fence_at_s(held_attempts: HeldAttempts) -> float:
    return held_attempts.exclusives.fence_at_s()


# -- The held set


def test_the_question_says_that_the_attempt_is_exclusive_and_is_asked_once() -> None:
    held_attempts = HeldAttempts()
    ask(held_attempts)
    reports = held_attempts.take(0)
    assert reports is not None
    assert [each.exclusive for each in reports.started] == [True]
    assert held_attempts.take(9) is None


def test_its_time_counts_from_the_accepted_question() -> None:
    held_attempts = running(start_to_close_ms=5_000)
    assert fence_at_s(held_attempts) == 15
    assert held_attempts.exclusives.overdue(14.9) == []
    assert held_attempts.exclusives.overdue(15) == [REF]


def test_a_heartbeat_counts_from_when_it_was_sent_once_it_is_accepted() -> None:
    held_attempts = running(start_to_close_ms=60_000, heartbeat_timeout_ms=2_000)
    held_attempts.beat(beat(), 11)
    held_attempts.take(11.5)
    assert fence_at_s(held_attempts) == 12
    held_attempts.exclusives.beat_accepted(REF)
    assert fence_at_s(held_attempts) == 13.5


def test_a_heartbeat_that_was_refused_or_not_answered_does_not_count() -> None:
    held_attempts = running(heartbeat_timeout_ms=2_000)
    held_attempts.beat(beat(), 11)
    held_attempts.take(11)
    held_attempts.refused(REF, ErrorDetail(code="unavailable"), 11)
    held_attempts.exclusives.beat_accepted(REF)
    assert fence_at_s(held_attempts) == 12
    held_attempts.beat(beat(), 11.2)
    lost = held_attempts.take(11.2)
    assert lost is not None
    held_attempts.restart(lost)
    held_attempts.take(11.4)
    held_attempts.exclusives.beat_accepted(REF)
    assert fence_at_s(held_attempts) == pytest.approx(13.4)
    held_attempts.beat(beat(), 12)
    held_attempts.take(12)
    held_attempts.send_again()
    held_attempts.exclusives.beat_accepted(REF)
    assert fence_at_s(held_attempts) == pytest.approx(13.4)


def test_a_word_that_comes_too_late_is_asked_for_again() -> None:
    held_attempts = HeldAttempts()
    ask(held_attempts, start_to_close_ms=1_000)
    held_attempts.take(10)
    assert held_attempts.accept(REF, 11) is None
    again = held_attempts.take(11)
    assert again is not None
    assert [each.task_id for each in again.started] == ["a"]
    assert held_attempts.accept(REF, 11.5) is not None
    assert fence_at_s(held_attempts) == 12


def test_a_word_for_what_runs_or_is_gone_starts_nothing() -> None:
    held_attempts = running()
    assert held_attempts.accept(REF, 12) is None
    assert HeldAttempts().accept(REF, 12) is None


def test_after_a_new_connection_it_is_asked_again() -> None:
    held_attempts = HeldAttempts()
    ask(held_attempts)
    held_attempts.take(0)
    held_attempts.send_again()
    again = held_attempts.take(1)
    assert again is not None
    assert again.started[0].exclusive


def test_what_waits_for_the_word_and_is_cancelled_or_stopped_never_ran() -> None:
    held_attempts = HeldAttempts()
    ask(held_attempts)
    assert not held_attempts.cancel(REF)
    reports = held_attempts.take(0)
    assert reports is not None
    assert [each.kind for each in reports.finished] == [CANCELLED]
    other = HeldAttempts()
    ask(other)
    assert other.stop(REF, 0) is None
    assert len(other) == 0


def test_what_waits_for_the_word_is_handed_back_or_forgotten_with_the_rest() -> None:
    held_attempts = HeldAttempts()
    ask(held_attempts)
    held_attempts.hand_back_waiting()
    reports = held_attempts.take(0)
    assert reports is not None
    assert not reports.started
    assert [each.kind for each in reports.finished] == [RELEASED]
    other = HeldAttempts()
    ask(other)
    assert other.abandon() == []
    assert len(other) == 0


def test_a_word_that_is_refused_for_good_hands_it_back() -> None:
    held_attempts = HeldAttempts()
    ask(held_attempts)
    held_attempts.take(0)
    assert held_attempts.refused(REF, ErrorDetail(code="invalid_argument"), 0) is None
    reports = held_attempts.take(0)
    assert reports is not None
    assert [each.kind for each in reports.finished] == [RELEASED]


def test_what_has_ended_has_no_time_any_more() -> None:
    held_attempts = running(start_to_close_ms=5_000)
    held_attempts.release(REF)
    assert fence_at_s(held_attempts) == math.inf
    assert not held_attempts.exclusives.is_any_running
    for call in (held_attempts.exclusives.beat_accepted, held_attempts.exclusives.beat_refused):
        call(REF)


# -- Against a real server


@pytest.mark.parametrize("mode", ["session", "poll"])
async def test_it_starts_after_the_server_has_confirmed_it_as_exclusive(
    rig: Rig, mode: str
) -> None:
    _, executor = rig.connect(mode=mode)
    executor.exclusive_types = frozenset({TYPE})
    (task_id,) = await rig.enqueue()
    await executor.has_started(1)
    assert (await rig.task(task_id)).state == task_pb2.TASK_STATE_RUNNING
    executor.succeed(task_id)
    await rig.until(task_id, "SUCCEEDED")
    assert await rig.outcomes(task_id) == ["succeeded"]


@pytest.mark.parametrize("mode", ["session", "poll"])
async def test_without_accepted_heartbeats_it_stops_by_its_own_clock(rig: Rig, mode: str) -> None:
    _, executor = rig.connect(mode=mode)
    executor.exclusive_types = frozenset({TYPE})
    (task_id,) = await rig.enqueue(heartbeat_timeout_ms=1_000)
    await executor.has_started(1)
    rig.proxy.is_muted = True
    executor.reporter.beat(task_pb2.TaskBeat(task_id=task_id, attempt=1))
    await eventually(lambda: executor.timed_out == [(task_id, 1)])
    assert (await rig.task(task_id)).attempt == 1
    rig.proxy.is_muted = False
    rig.proxy.cut()


@pytest.mark.parametrize("mode", ["session", "poll"])
async def test_an_evicted_worker_keeps_it_until_the_lease_would_have_been_over(
    rig: Rig, mode: str
) -> None:
    connection, executor = rig.connect(mode=mode)
    executor.exclusive_types = frozenset({TYPE})
    (task_id,) = await rig.enqueue()
    await executor.has_started(1)
    worker_id = connection.status().worker_id
    await rig.evict(worker_id)
    await rig.ended(connection)
    assert executor.stopped == [(task_id, 1, StopReason.LOST_LEASE)]
    assert (await rig.task(task_id)).state == task_pb2.TASK_STATE_RUNNING


async def test_a_server_that_does_not_know_of_it_gets_no_question(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = FakeExecutor()
    made.exclusive_types = frozenset({TYPE})
    async with worker(executor=made) as (_, session, executor, _):
        task = task_pb2.AssignedTask(task_id="a", attempt=1, type=TYPE)
        await session.send(tasks=[task])
        await executor.has_started(1)
        frame = await session.until(lambda each: each.started)
        assert [each.exclusive for each in frame.started] == [False]
        executor.succeed("a")
        await session.until(lambda each: each.finished)
        ack = pb.Ack(task_id="a", attempt=1, kind=pb.REPORT_KIND_FINISHED)
        await session.send(acks=[ack])
    assert any("too old for exclusive activities" in each for each in messages(caplog))
