"""Async activities run on the user's loop, each as a task of its own."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import json
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tenure import Activity, ApplicationError, Info, StopReason, activity
from tenure.sdk.worker.execution.settings import ExecutionSettings
from tenure.v1 import task_pb2
from tests.polling import eventually
from tests.sdk.execution.rig import Rig

GATES: dict[str, asyncio.Event] = {}
SEEN: list[object] = []
TINT: contextvars.ContextVar[str] = contextvars.ContextVar("tint", default="none")


@pytest.fixture(autouse=True)
def _fresh() -> None:
    SEEN.clear()
    GATES.clear()
    GATES.update(entered=asyncio.Event(), leave=asyncio.Event())


@activity(start_to_close="30s")
async def double(number: int, factor: int = 2) -> int:
    return number * factor


@activity(start_to_close="30s")
async def echo(data: bytes) -> bytes:
    return data


@activity(start_to_close="30s")
async def fail(kind: str) -> None:
    kinds: dict[str, BaseException] = {
        "value": ValueError("no such number"),
        "exit": SystemExit(3),
        "interrupt": KeyboardInterrupt(),
        "cancelled": asyncio.CancelledError(),
        "application": ApplicationError("blocked", {"card": 7}, type="Card", non_retryable=True),
    }
    raise kinds[kind]


@activity(start_to_close="30s")
async def bad_result(kind: str) -> object:
    return object() if kind == "object" else "x" * 3_000_000


@activity(start_to_close="30s", cancel_grace="60s")
async def wait(kind: str = "give way") -> str:
    GATES["entered"].set()
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        SEEN.append(activity.stop_reason())
        SEEN.append(activity.is_cancelled())
        activity.heartbeat("last")
        match kind:
            case "return":
                return "done all the same"
            case "fail":
                raise ValueError("while cleaning up") from None
            case "stay":
                await GATES["leave"].wait()
                return "late"
            case _:
                pass
        raise
    return ""


@activity(start_to_close="30s")
async def shielded() -> str:
    with activity.shield(), activity.shield():
        GATES["entered"].set()
        await eventually(activity.is_cancelled)
        # A cancellation would have been raised here.
        await asyncio.sleep(0)
        SEEN.append("saved")
    await asyncio.Event().wait()
    return ""


@activity(start_to_close="30s", exclusive=True)
async def only_one() -> None:
    GATES["entered"].set()
    await asyncio.Event().wait()


@activity(start_to_close="30s")
async def tinted(name: str) -> str:
    before = TINT.get()
    TINT.set(name)
    await asyncio.sleep(0)
    return f"{before}>{TINT.get()}"


@activity(start_to_close="30s")
async def look() -> None:
    SEEN.append(activity.info())
    SEEN.append(await asyncio.create_task(_info_of_a_helper()))


async def _info_of_a_helper() -> Info:
    return activity.info()


@activity(start_to_close="30s", completes_later=True)
async def approve() -> bool:
    SEEN.append(activity.info().token)
    activity.heartbeat("asked")
    activity.complete_later()


ALL = (double, echo, fail, bad_result, wait, shielded, only_one, tinted, look, approve)


def output_of(finish: task_pb2.TaskFinish) -> Any:
    assert finish.kind == task_pb2.FINISH_KIND_SUCCEEDED, finish
    return json.loads(finish.output)


async def test_a_result_is_encoded_and_reported_once() -> None:
    async with Rig(*ALL) as rig:
        finish = await rig.run(double, 21)
        assert output_of(finish) == 42
        assert finish.output_encoding == ""
        assert rig.executor.active_count == 0


async def test_many_attempts_that_arrive_together_are_all_executed() -> None:
    async with Rig(*ALL) as rig:
        tasks = [rig.task(double, number) for number in range(500)]
        await rig.start_all(tasks)
        await eventually(lambda: len(rig.reporter.finishes()) == 500)
        results = {each.task_id: output_of(each) for each in rig.reporter.finishes()}
        assert [results[each.task_id] for each in tasks] == [2 * each for each in range(500)]


async def test_bytes_stay_bytes_and_name_their_encoding_when_the_input_was_another() -> None:
    async with Rig(*ALL) as rig:
        finish = await rig.run(echo, b"\x00\xff")
        assert (finish.output, finish.output_encoding) == (b"\x00\xff", "")

        as_json = await rig.start(echo, b"x", input=b'{"data": "AAE="}', encoding="json")
        finish = await rig.finish_of(as_json)
        assert (finish.output, finish.output_encoding) == (b"\x00\x01", "bytes")


async def test_an_exception_is_a_failure_with_the_trace_of_the_users_code() -> None:
    async with Rig(*ALL) as rig:
        finish = await rig.run(fail, "value")
        assert finish.kind == task_pb2.FINISH_KIND_FAILED
        assert finish.error.type == "ValueError"
        assert finish.error.message == "no such number"
        assert finish.error.category == task_pb2.ERROR_CATEGORY_USER_CODE
        assert not finish.error.HasField("retryable")
        assert "in fail" in finish.error.stack_trace
        assert "async_runner" not in finish.error.stack_trace


async def test_an_application_error_keeps_its_details() -> None:
    async with Rig(*ALL) as rig:
        error = (await rig.run(fail, "application")).error
        assert (error.type, error.retryable) == ("Card", False)
        assert rig.converter.decode_details(error.details, dict[str, int]) == ({"card": 7},)


@pytest.mark.parametrize(
    ("kind", "type_name"),
    [("exit", "SystemExit"), ("interrupt", "KeyboardInterrupt"), ("cancelled", "CancelledError")],
)
async def test_what_ends_programs_ends_only_the_activity(kind: str, type_name: str) -> None:
    async with Rig(*ALL) as rig:
        finish = await rig.run(fail, kind)
        assert finish.kind == task_pb2.FINISH_KIND_FAILED
        assert finish.error.type == type_name
        assert output_of(await rig.run(double, 1)) == 2


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        (b'{"number": "one"}', "json"),
        (b"{", "json"),
        (b"null", "json"),
        (b"", "json"),
        (b'{"number": 1, "other": 2}', "json"),
        (b"\xff", "bytes"),
        (b"secret", "aes+json"),
    ],
)
async def test_input_that_does_not_fit_fails_for_good_and_says_why(
    data: bytes, encoding: str
) -> None:
    async with Rig(*ALL) as rig:
        finish = await rig.run(double, 1, input=data, encoding=encoding)
        assert finish.kind == task_pb2.FINISH_KIND_FAILED
        assert finish.error.category == task_pb2.ERROR_CATEGORY_DATA_QUALITY
        assert finish.error.HasField("retryable")
        assert not finish.error.retryable
        assert finish.error.type == "BadInput"
        assert "double" in finish.error.message


@pytest.mark.parametrize("kind", ["object", "large"])
async def test_a_result_that_cannot_be_sent_is_a_failure_that_is_not_retried(kind: str) -> None:
    async with Rig(*ALL) as rig:
        finish = await rig.run(bad_result, kind)
        assert finish.kind == task_pb2.FINISH_KIND_FAILED
        assert finish.error.type == "BadResult"
        assert not finish.error.retryable
        assert "ran, but its result cannot be sent" in finish.error.message


async def test_a_cancelled_activity_sees_it_and_is_reported_as_cancelled() -> None:
    async with Rig(*ALL) as rig:
        task = await rig.start(wait)
        await GATES["entered"].wait()
        await rig.stop(task)
        assert (await rig.finish_of(task)).kind == task_pb2.FINISH_KIND_CANCELLED
        assert SEEN == [StopReason.CANCELLED, True]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("return", task_pb2.FINISH_KIND_SUCCEEDED), ("fail", task_pb2.FINISH_KIND_FAILED)],
)
async def test_an_activity_that_ends_otherwise_after_a_cancel_is_reported_so(
    kind: str, expected: int
) -> None:
    async with Rig(*ALL) as rig:
        task = await rig.start(wait, kind)
        await GATES["entered"].wait()
        await rig.stop(task)
        assert (await rig.finish_of(task)).kind == expected


async def test_a_stop_before_the_first_step_keeps_the_activity_from_running() -> None:
    async with Rig(*ALL) as rig:
        task = rig.task(wait)

        def start_and_stop() -> None:
            rig.executor.start(task)
            rig.executor.stop(task.task_id, 1, StopReason.CANCELLED)

        rig.call_and_block(start_and_stop)
        assert (await rig.finish_of(task)).kind == task_pb2.FINISH_KIND_CANCELLED
        assert not GATES["entered"].is_set()


async def test_a_shield_postpones_the_cancellation() -> None:
    async with Rig(*ALL) as rig:
        task = await rig.start(shielded)
        await GATES["entered"].wait()
        await rig.stop(task)
        assert (await rig.finish_of(task)).kind == task_pb2.FINISH_KIND_CANCELLED
        assert SEEN == ["saved"]


async def test_an_activity_that_stays_is_abandoned_and_its_late_result_dropped() -> None:
    async with Rig(*ALL) as rig:
        task = await rig.start(wait, "stay", cancel_grace_period_ms=200)
        await GATES["entered"].wait()
        await rig.stop(task)
        await eventually(lambda: rig.reporter.stuck_counts == [1])
        # The server says CANCEL_TIMEOUT; the slot stays taken as long as the code runs.
        assert rig.executor.active_count == 1
        GATES["leave"].set()
        await eventually(lambda: rig.reporter.stuck_counts == [1, 0])
        assert rig.executor.active_count == 0
        assert rig.reporter.finishes() == []


async def test_an_attempt_that_takes_too_long_is_stopped_and_reported_as_timed_out() -> None:
    async with Rig(*ALL) as rig:
        task = await rig.start(wait, start_to_close_ms=100)
        finish = await rig.finish_of(task)
        assert SEEN[0] is StopReason.TIMED_OUT
        assert finish.kind == task_pb2.FINISH_KIND_FAILED
        assert finish.error.category == task_pb2.ERROR_CATEGORY_TIMEOUT
        (beat,) = rig.reporter.beats(task.task_id)
        assert beat.details == b'["last"]'


@pytest.mark.parametrize(
    ("failure_count", "level", "after"),
    [(1, "WARNING", "and is retried"), (2, "ERROR", "and is not retried")],
)
async def test_a_timed_out_attempt_leaves_a_line(
    caplog: pytest.LogCaptureFixture, failure_count: int, level: str, after: str
) -> None:
    fields = {"start_to_close_ms": 100, "maximum_attempts": 3, "failure_count": failure_count}
    async with Rig(*ALL) as rig:
        task = await rig.start(wait, **fields)
        # By its own clock, or because the server has said so: one line.
        await rig.stop(task, StopReason.TIMED_OUT)
        await eventually(lambda: rig.executor.active_count == 0)
    (line,) = [each for each in caplog.records if "timed out" in each.getMessage()]
    assert line.levelname == level
    said = line.getMessage()
    assert said.startswith(f"Task {task.task_id} (wait) timed out in attempt 1 after 0.")
    assert said.endswith(f"s {after}: start_to_close is 100ms.")


async def test_a_timed_out_attempt_without_heartbeats_leaves_a_line_that_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Rig(*ALL) as rig:
        task = await rig.start(wait, start_to_close_ms=60_000, heartbeat_timeout_ms=2_000)
        await rig.stop(task, StopReason.TIMED_OUT)
        await eventually(lambda: rig.executor.active_count == 0)
    (line,) = [each for each in caplog.records if "timed out" in each.getMessage()]
    assert line.getMessage().endswith("and is retried: heartbeat_timeout is 2s.")


async def test_the_deadline_of_all_attempts_counts_as_well() -> None:
    async with Rig(*ALL) as rig:
        task = await rig.start(wait, handed_at_ms=5_000, deadline_at_ms=5_100)
        finish = await rig.finish_of(task)
        assert finish.error.category == task_pb2.ERROR_CATEGORY_TIMEOUT


@pytest.mark.parametrize("reason", [StopReason.TIMED_OUT, StopReason.LOST_LEASE])
async def test_what_the_server_has_ended_is_stopped_without_a_report(reason: StopReason) -> None:
    async with Rig(*ALL) as rig:
        task = await rig.start(wait)
        await GATES["entered"].wait()
        await rig.stop(task, reason)
        await eventually(lambda: rig.executor.active_count == 0)
        assert SEEN[0] is reason
        assert rig.reporter.finishes() == []


@pytest.mark.parametrize("kind", ["give way", "fail"])
async def test_a_hand_back_releases_what_runs_with_its_last_details(kind: str) -> None:
    async with Rig(*ALL) as rig:
        task = await rig.start(wait, kind)
        await GATES["entered"].wait()
        await rig.call(rig.executor.hand_back)
        assert (await rig.finish_of(task)).kind == task_pb2.FINISH_KIND_RELEASED
        assert SEEN[0] is StopReason.WORKER_SHUTDOWN
        assert [type(each) for each in rig.reporter.heard] == [
            task_pb2.TaskBeat,
            task_pb2.TaskFinish,
        ]
        # What still arrives goes back at once.
        late = await rig.start(double, 1)
        assert (await rig.finish_of(late)).kind == task_pb2.FINISH_KIND_RELEASED


async def test_a_hand_back_takes_a_result_that_comes_in_time() -> None:
    async with Rig(*ALL) as rig:
        task = await rig.start(wait, "return")
        await GATES["entered"].wait()
        await rig.call(rig.executor.hand_back)
        assert output_of(await rig.finish_of(task)) == "done all the same"


async def test_a_hand_back_does_not_wait_for_what_does_not_give_way() -> None:
    settings = ExecutionSettings(hand_back_grace_ms=100)
    async with Rig(*ALL, settings=settings) as rig:
        task = await rig.start(wait, "stay")
        await GATES["entered"].wait()
        await rig.call(rig.executor.hand_back)
        assert (await rig.finish_of(task)).kind == task_pb2.FINISH_KIND_RELEASED
        GATES["leave"].set()
        await eventually(lambda: rig.executor.active_count == 0)
        assert len(rig.reporter.finishes()) == 1


async def test_only_exclusive_activities_stop_when_the_lease_may_be_over() -> None:
    async with Rig(*ALL) as rig:
        other = await rig.start(wait)
        await GATES["entered"].wait()
        GATES["entered"].clear()
        task = await rig.start(only_one)
        await GATES["entered"].wait()
        await rig.call(rig.executor.stop_exclusive)
        assert (await rig.finish_of(task)).kind == task_pb2.FINISH_KIND_RELEASED
        assert rig.executor.active_count == 1
        await rig.stop(other)
        await rig.finish_of(other)


async def test_context_variables_do_not_leak_from_one_activity_to_the_next() -> None:
    TINT.set("worker")
    async with Rig(*ALL) as rig:
        for name in ("red", "blue"):
            assert output_of(await rig.run(tinted, name)).endswith(f">{name}")
        assert TINT.get() == "worker"


async def test_info_shows_the_attempt_also_in_tasks_that_the_activity_makes() -> None:
    async with Rig(*ALL) as rig:
        task = await rig.start(
            look,
            attempt=3,
            failure_count=2,
            labels={"team": "mail"},
            idempotency_key="order-7",
            start_to_close_ms=30_000,
            heartbeat_timeout_ms=9_000,
            deadline_at_ms=90_000,
            handed_at_ms=60_000,
        )
        await rig.finish_of(task)
        info, again = SEEN
        assert info is again
        assert isinstance(info, Info)
        assert (info.task_id, info.attempt, info.failure_count) == (task.task_id, 3, 2)
        assert (info.namespace, info.queue, info.worker_id) == ("shop", "default", "worker-1")
        assert (info.start_to_close, info.heartbeat_timeout) == (
            timedelta(seconds=30),
            timedelta(seconds=9),
        )
        assert (info.deadline_at, info.handed_at) == (
            datetime(1970, 1, 1, 0, 1, 30, tzinfo=UTC),
            datetime(1970, 1, 1, 0, 1, tzinfo=UTC),
        )
        assert (info.schedule_to_close, info.created_at) == (None, None)
        assert info.labels == {"team": "mail"}
        assert info.idempotency_key == "order-7"
        assert info.attempt_key == f"{task.task_id}:3"


async def test_a_queued_step_has_the_key_of_its_call_in_each_attempt() -> None:
    async with Rig(*ALL) as rig:
        for attempt in (1, 2):
            task = await rig.start(look, attempt=attempt, step_key="first:1:2/look", run_id="run")
            await rig.finish_of(task)
        first, _, second, _ = SEEN
        assert isinstance(first, Info)
        assert isinstance(second, Info)
        assert first.idempotency_key == second.idempotency_key == "first:1:2/look"
        assert first.attempt_key != second.attempt_key
        assert (first.run_id, first.is_local) == ("run", False)


async def test_an_activity_that_completes_later_is_deferred_with_its_details() -> None:
    async with Rig(*ALL) as rig:
        task = await rig.start(approve, task_token="t0ken")
        assert (await rig.finish_of(task)).kind == task_pb2.FINISH_KIND_DEFERRED
        assert SEEN == ["t0ken"]
        assert rig.reporter.beats()[-1].details == b'["asked"]'


async def test_an_activity_without_a_token_is_told_how_to_get_one() -> None:
    async with Rig(*ALL) as rig:
        finish = await rig.run(approve)
        assert finish.error.type == "LookupError"
        assert "completes_later=True" in finish.error.message


async def test_a_task_of_an_unknown_type_is_released(caplog: pytest.LogCaptureFixture) -> None:
    async with Rig(*ALL) as rig:
        task = await rig.start(double, 1, type="unheard-of")
        assert (await rig.finish_of(task)).kind == task_pb2.FINISH_KIND_RELEASED
        assert "unheard-of" in caplog.text


async def test_an_alias_is_executed_like_the_name() -> None:
    @activity(start_to_close="1s", name="new-name", aliases=("old-name",))
    async def renamed() -> str:
        return activity.info().type

    async with Rig(renamed) as rig:
        assert output_of(await rig.run(renamed, type="old-name")) == "old-name"


async def test_the_same_delivery_once_more_changes_nothing() -> None:
    async with Rig(*ALL) as rig:
        task = await rig.start(wait, "return")
        await GATES["entered"].wait()
        await rig.call(rig.executor.start, task)
        assert rig.executor.active_count == 1
        await rig.stop(task)
        await rig.finish_of(task)


async def test_a_stop_of_what_is_not_here_changes_nothing() -> None:
    async with Rig(*ALL) as rig:
        await rig.call(rig.executor.stop, "nobody", 1, StopReason.CANCELLED)
        assert output_of(await rig.run(double, 4)) == 8


@pytest.mark.parametrize(
    "ask",
    [
        activity.info,
        activity.heartbeat,
        activity.progress,
        activity.has_heartbeat_details,
        activity.heartbeat_details,
        activity.is_cancelled,
        activity.stop_reason,
        activity.shield,
        activity.idempotency_key,
        activity.attempt_key,
        activity.complete_later,
    ],
)
def test_outside_of_an_activity_everything_says_so(ask: Any) -> None:
    with pytest.raises(RuntimeError, match="inside an activity"):
        ask()


async def test_methods_of_an_instance_use_what_it_holds() -> None:
    class Payments:
        def __init__(self, currency: str) -> None:
            self.currency = currency

        @activity(start_to_close="1s")
        async def price(self, amount: int) -> str:
            return f"{amount} {self.currency} {sys.getrefcount(self) > 0}"

    payments = Payments("EUR")
    async with Rig(payments) as rig:
        method: Activity[..., str] = payments.price
        assert output_of(await rig.run(method, 3)) == "3 EUR True"


@activity(start_to_close="30s", exclusive=True)
async def only_one_that_stays() -> None:
    GATES["entered"].set()
    while not GATES["leave"].is_set():
        with contextlib.suppress(asyncio.CancelledError):
            await GATES["leave"].wait()


@pytest.mark.parametrize("reason", [StopReason.LOST_LEASE, StopReason.TIMED_OUT])
async def test_exclusive_work_that_does_not_stop_is_handed_back_when_it_has_ended(
    reason: StopReason,
) -> None:
    async with Rig(only_one_that_stays) as rig:
        task = await rig.start(only_one_that_stays)
        await GATES["entered"].wait()
        if reason is StopReason.LOST_LEASE:
            await rig.call(rig.executor.stop_exclusive)
        else:
            await rig.call(rig.executor.time_out, task.task_id, task.attempt)
        await eventually(lambda: rig.reporter.stuck_counts == [1])
        assert rig.executor.exclusive_count == 1
        assert rig.reporter.finishes() == []
        GATES["leave"].set()
        # It came to its end in spite of the stop.
        assert (await rig.finish_of(task)).kind == task_pb2.FINISH_KIND_SUCCEEDED
        assert rig.executor.exclusive_count == 0


@activity(start_to_close="30s", exclusive=True)
async def step_by_step(times: int) -> int:
    for number in range(times):
        SEEN.append(number)
        GATES["entered"].set()
        await GATES["leave"].wait()
    return times


async def test_exclusive_work_takes_no_step_when_the_lease_may_be_over() -> None:
    async with Rig(step_by_step) as rig:
        task = await rig.start(step_by_step, 2)
        await GATES["entered"].wait()
        rig.executor.is_fenced = lambda: True
        GATES["leave"].set()
        assert (await rig.finish_of(task)).kind == task_pb2.FINISH_KIND_RELEASED
        assert SEEN == [0]


async def test_exclusive_work_with_a_certain_lease_returns_its_result() -> None:
    async with Rig(step_by_step, only_one) as rig:
        GATES["leave"].set()
        assert output_of(await rig.run(step_by_step, 3)) == 3
        stopped = await rig.start(only_one)
        await rig.stop(stopped)
        assert (await rig.finish_of(stopped)).kind == task_pb2.FINISH_KIND_CANCELLED


async def test_exclusive_work_that_is_not_this_workers_any_more_gets_no_grace() -> None:
    async with Rig(only_one_that_stays) as rig:
        task = await rig.start(only_one_that_stays)
        await GATES["entered"].wait()
        await rig.stop(task, StopReason.LOST_LEASE)
        await eventually(lambda: rig.reporter.stuck_counts == [1])
        GATES["leave"].set()
        await eventually(lambda: rig.executor.active_count == 0)
        assert rig.reporter.finishes() == []
