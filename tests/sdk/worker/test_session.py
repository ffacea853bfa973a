"""Frames of a session, against a server that answers as the test says."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

import tenure
from tenure.errors import InvalidArgument, TenureError, Unauthenticated, Unavailable, WorkerInactive
from tenure.sdk.activity.context import StopReason
from tenure.sdk.worker.connection import incarnation
from tenure.sdk.worker.connection.timed_event import TimedEvent
from tenure.v1 import error_pb2, task_pb2
from tenure.v1 import session_service_pb2 as pb
from tests.bounds import WAIT_S
from tests.polling import eventually
from tests.sdk.worker.rig import TYPE, FakeExecutor, finish, messages
from tests.sdk.worker.scripted import open_script
from tests.sdk.worker.scripted_worker import connect, end, worker

SUCCEEDED = task_pb2.FINISH_KIND_SUCCEEDED
BEATS = 100


class Broken(FakeExecutor):
    """Cannot start anything."""

    def start(self, task: task_pb2.AssignedTask) -> None:
        raise RuntimeError(task.task_id)


def held(items: Any) -> list[str]:
    return sorted(each.task_id for each in items)


async def test_a_mismatch_is_answered_at_once_with_the_current_token_and_the_full_set() -> None:
    async with worker(interval_ms=BEATS) as (_, session, executor, _connection):
        await session.give("a", "b")
        await eventually(lambda: len(executor.running) == 2)
        executor.succeed("b")
        await session.until(lambda frame: frame.finished)
        beat = await session.beat()
        assert beat.token == "t1"
        assert not beat.HasField("held")

        await session.refuse_beat("token_mismatch", current_token="t9")
        beat = await session.beat()

        assert beat.token == "t9"
        # What has ended and was not acknowledged is held as well.
        assert held(beat.held.items) == ["a", "b"]
        await session.grant("t10")
        beat = await session.beat()
        assert beat.token == "t10"
        assert not beat.HasField("held")


async def test_a_beat_that_the_server_could_not_take_is_sent_again_with_its_token() -> None:
    async with worker(interval_ms=BEATS) as (_, session, _executor, _connection):
        await session.beat()
        await session.refuse_beat("unavailable")

        assert (await session.beat()).token == "t1"


async def test_totals_lag_and_stuck_threads_are_in_the_beat() -> None:
    async with worker(interval_ms=BEATS) as (_, session, executor, _connection):
        await session.give("a", "b", "c")
        await eventually(lambda: len(executor.running) == 3)
        executor.succeed("a")
        executor.end(finish("b", 1, task_pb2.FINISH_KIND_FAILED))
        executor.reporter.loop_lag(1_700)
        executor.reporter.stuck(2)
        window = await session.until(lambda frame: frame.HasField("window"))
        assert window.window == 98
        beat = window.beat if window.HasField("beat") else await session.beat()

        assert (beat.total_completed, beat.total_failed) == (1, 1)
        assert (beat.active_count, beat.loop_lag_ms, beat.stuck_count) == (1, 1_700, 2)


async def test_a_new_session_says_all_that_was_not_acknowledged() -> None:
    async with worker() as (script, first, executor, _connection):
        assert first.hello.session_no == 1
        await first.give("runs", "ended", "acknowledged")
        await eventually(lambda: len(executor.running) == 3)
        executor.reporter.beat(task_pb2.TaskBeat(task_id="runs", attempt=1, details=b"[1]"))
        executor.succeed("ended")
        executor.succeed("acknowledged")
        told: set[str] = set()
        while told != {"runs", "ended", "acknowledged"}:
            frame = await first.read()
            told |= {*held(frame.task_beats), *held(frame.finished)}
        await first.ack("acknowledged")
        await first.give("seen")
        await eventually(lambda: executor.runs("seen"))
        first.over.set()

        second = await script.session()

        assert second.hello.session_no == 2
        assert held(second.hello.held) == ["ended", "runs", "seen"]
        frame = await second.until(lambda each: each.finished)
        assert held(frame.finished) == ["ended"]
        assert [each.details for each in frame.task_beats] == [b"[1]"]


async def test_what_has_run_for_a_while_is_confirmed_and_stopped_when_that_is_refused() -> None:
    async with worker() as (_, session, executor, _connection):
        await session.give("a")
        frame = await session.until(lambda each: each.started)
        assert held(frame.started) == ["a"]

        error = error_pb2.ErrorDetail(code="attempt_mismatch")
        kind = pb.REPORT_KIND_STARTED
        await session.send(acks=[pb.Ack(task_id="a", attempt=1, kind=kind, error=error)])

        await eventually(lambda: executor.stopped)
        assert executor.stopped == [("a", 1, StopReason.LOST_LEASE)]


async def test_a_higher_attempt_stops_the_lower_one_and_starts_when_that_has_ended() -> None:
    async with worker() as (_, session, executor, _connection):
        executor.keeps_stopped = True
        await session.give("a")
        await executor.has_started(1)

        await session.give("a", attempt=2)
        await session.give("b")
        await executor.has_started(2)
        assert executor.stopped == [("a", 1, StopReason.LOST_LEASE)]
        assert attempts(executor) == [("a", 1), ("b", 1)]

        del executor.running["a", 1]
        await executor.has_started(3)
        assert attempts(executor)[2:] == [("a", 2)]


async def test_only_the_highest_attempt_starts_when_the_lower_one_has_ended() -> None:
    async with worker() as (_, session, executor, _connection):
        executor.keeps_stopped = True
        await session.give("a")
        await executor.has_started(1)
        await session.give("a", attempt=2)
        await session.give("a", attempt=3)
        # One that comes late is over.
        await session.give("a", attempt=2)
        await session.give("b")
        await executor.has_started(2)

        del executor.running["a", 1]
        await executor.has_started(3)
        assert attempts(executor) == [("a", 1), ("b", 1), ("a", 3)]


async def test_a_waiting_attempt_is_given_up_for_a_higher_one_that_can_start_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Nobody looks whether the lower one has ended.
    monkeypatch.setattr(incarnation, "WATCH_CLOSELY_S", WAIT_S)
    monkeypatch.setattr(incarnation, "WATCH_S", WAIT_S)
    async with worker(interval_ms=BEATS) as (_, session, executor, _connection):
        executor.keeps_stopped = True
        await session.give("a")
        await executor.has_started(1)
        await session.give("a", attempt=2)
        await session.give("b")
        await executor.has_started(2)

        del executor.running["a", 1]
        await session.give("a", attempt=3)
        await executor.has_started(3)
        executor.succeed("a", attempt=3)
        # With the lease what waits is looked at again.
        await session.grant((await session.beat()).token)
        await session.give("c")
        await executor.has_started(4)
        assert attempts(executor) == [("a", 1), ("b", 1), ("a", 3), ("c", 1)]


async def test_an_attempt_that_waits_in_vain_for_a_lower_one_is_handed_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(incarnation, "BLOCKED_S", 0.2)
    async with worker() as (_, session, executor, _connection):
        executor.keeps_stopped = True
        await session.give("a")
        await executor.has_started(1)

        await session.give("a", attempt=2)

        frame = await session.until(lambda each: each.finished)
        (released,) = frame.finished
        assert (released.attempt, released.kind) == (2, task_pb2.FINISH_KIND_RELEASED)
        assert attempts(executor) == [("a", 1)]


@pytest.mark.parametrize("limits", [{"start_to_close_ms": 800}, {"heartbeat_timeout_ms": 800}])
async def test_an_attempt_that_waits_is_handed_back_before_its_own_time_is_over(
    monkeypatch: pytest.MonkeyPatch, limits: dict[str, int]
) -> None:
    monkeypatch.setattr(incarnation, "BLOCKED_S", WAIT_S)
    async with worker() as (_, session, executor, _connection):
        executor.keeps_stopped = True
        await session.give("a")
        await executor.has_started(1)

        await session.give("a", attempt=2, **limits)

        frame = await session.until(lambda each: each.finished)
        assert [each.kind for each in frame.finished] == [task_pb2.FINISH_KIND_RELEASED]


async def test_an_attempt_that_has_ended_is_never_started_again() -> None:
    async with worker() as (_, session, executor, _connection):
        await session.give("a")
        await executor.has_started(1)
        executor.succeed("a")
        await session.until(lambda each: each.finished)
        await session.ack("a")

        await session.give("a")
        await session.give("b")
        await executor.has_started(2)
        assert attempts(executor) == [("a", 1), ("b", 1)]


def attempts(executor: FakeExecutor) -> list[tuple[str, int]]:
    return [(each.task_id, each.attempt) for each in executor.started]


async def test_the_server_learns_when_it_refuses_every_end_of_an_attempt() -> None:
    async with worker(interval_ms=BEATS) as (_, session, executor, _connection):
        session.grants_all = True
        await session.give("a")
        await eventually(lambda: executor.runs("a"))
        executor.succeed("a")
        for kind in (SUCCEEDED, task_pb2.FINISH_KIND_FAILED):
            frame = await session.until(lambda each: each.finished)
            assert [each.kind for each in frame.finished] == [kind]
            await session.ack("a", "invalid_argument", message="no")
        frame = await session.until(lambda each: each.beat.unbound)

        assert held(frame.beat.unbound) == ["a"]


async def test_a_task_that_cannot_be_started_is_handed_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with worker(executor=Broken()) as (_, session, _executor, _connection):
        await session.give("a")
        frame = await session.until(lambda each: each.finished)

        assert [each.kind for each in frame.finished] == [task_pb2.FINISH_KIND_RELEASED]
        await session.ack("a")
    assert any("could not be started" in each for each in messages(caplog))


async def test_a_refused_heartbeat_of_a_task_is_worth_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with worker() as (_, session, executor, _connection):
        await session.give("a")
        await eventually(lambda: executor.runs("a"))
        error = error_pb2.ErrorDetail(code="payload_too_large", message="too much")
        kind = pb.REPORT_KIND_BEAT
        await session.send(acks=[pb.Ack(task_id="a", attempt=1, kind=kind, error=error)])
        executor.reporter.beat(
            task_pb2.TaskBeat(task_id="a", attempt=1, details=bytes(5 * 1024 * 1024))
        )

        await eventually(lambda: len(messages(caplog)) == 2)
        assert executor.runs("a")
    said = " ".join(messages(caplog))
    assert "too much" in said
    assert "too large" in said


async def test_a_server_that_answers_no_heartbeat_is_left() -> None:
    async with worker(interval_ms=BEATS) as (script, first, _executor, _connection):
        await first.beat()

        second = await script.session()

        assert second.hello.session_no == 2


async def test_the_registration_says_who_the_worker_is() -> None:
    fields: dict[str, Any] = {
        "name": "n",
        "version": "1.2",
        "labels": {"a": "b"},
        "lease_ms": 20_000,
    }
    async with worker(max_concurrent=7, wants_tokens=True, **fields) as (script, session, *_):
        (request,) = script.registrations

        assert (request.name, request.version) == ("n", "1.2")
        made_with = f"python/{tenure.__version__}"
        assert dict(request.labels) == {"a": "b", "tenure.sdk": made_with}
        assert request.lease_duration.ToMilliseconds() == 20_000
        assert list(request.workflow_types) == [TYPE]
        assert request.max_concurrent == session.hello.window == 7
        assert len(request.instance_key) == 32
        assert session.hello.wants_tokens


async def test_a_registration_whose_lease_is_over_is_made_again_with_a_new_key() -> None:
    async with open_script() as (script, target):
        script.refusals = [Unavailable(), WorkerInactive(reason="lease_expired")]
        connection, ended = connect(target)
        await script.session()

        first, again, new = (each.instance_key for each in script.registrations)
        assert first == again != new
        script.end_sessions()
        await end(script, connection, ended)


@pytest.mark.parametrize("refusal", [Unauthenticated(), InvalidArgument("no", field="queue")])
async def test_a_registration_that_is_refused_for_good_is_raised_at_once(
    refusal: TenureError,
) -> None:
    async with open_script() as (script, target):
        script.refusals = [refusal]
        _, ended = connect(target)

        with pytest.raises(type(refusal)):
            await ended
        assert len(script.registrations) == 1


async def test_an_end_of_the_incarnation_makes_a_new_one_that_spares_the_slots_of_the_old() -> None:
    async with worker(max_concurrent=10) as (script, first, executor, connection):
        await first.give("a", "b")
        await eventually(lambda: len(executor.running) == 2)
        executor.succeed("b")
        executor.keeps_stopped = True
        error = error_pb2.ErrorDetail(code="worker_inactive", reason="lease_expired")
        await first.send(end=pb.End(error=error))

        second = await script.session()

        assert executor.stopped == [("a", 1, StopReason.LOST_LEASE)]
        assert connection.status().worker_id == second.hello.worker_id == "worker-2"
        keys = {each.instance_key for each in script.registrations}
        assert len(keys) == 2
        # What had ended may still count; it is reported in the name of the old one.
        await eventually(lambda: held(script.finished) == ["b"])
        assert second.hello.window == 9
        executor.running.clear()
        frame = await second.until(lambda each: each.HasField("window"))
        assert frame.window == 10


async def test_tasks_that_arrive_after_the_drain_are_released_before_the_worker_deregisters() -> (
    None
):
    async with worker() as (script, session, executor, connection):
        connection.shut_down()
        await session.until(lambda each: each.HasField("goodbye"))
        await session.give("late")
        session.over.set()

        await eventually(lambda: len(script.deregistrations) == 2)

        assert executor.started == []
        assert [each.drain for each in script.deregistrations] == [True, False]
        assert [(each.task_id, each.kind) for each in script.finished] == [
            ("late", task_pb2.FINISH_KIND_RELEASED)
        ]


# -- The event


async def test_a_ring_is_heard_by_all_who_wait_and_kept_for_who_comes_next() -> None:
    changed = TimedEvent()
    waiting = [asyncio.ensure_future(changed.wait()) for _ in range(2)]
    await asyncio.sleep(0)
    changed.notify()
    await asyncio.gather(*waiting)

    changed.notify()
    await changed.wait(math.inf)
    await changed.wait(0.001)
