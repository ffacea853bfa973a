"""Runs from their start to their end: a real server and a real worker."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import Any

import pytest

from tenure import ApplicationError, PayloadError, RetryPolicy, Worker, activity
from tenure.engine.read.run import get_run
from tenure.sdk.activity.context import Info
from tenure.sdk.failure import StepFailed
from tenure.sdk.workflow.context import WorkflowContext
from tenure.sdk.workflow.definition import workflow
from tenure.sdk.workflow.signal import signal
from tenure.sdk.workflow.step import step
from tenure.v1 import task_pb2
from tests.polling import eventually
from tests.sdk.worker.rig import messages
from tests.sdk.worker.run.stage import NAMESPACE, RunStage

approve = signal("approve", int)
QUICK = RetryPolicy(initial_interval="1ms", max_attempts=3)


async def double(number: int) -> int:
    return 2 * number


def triple(number: int) -> int:
    return 3 * number


async def test_steps_run_on_the_loop_and_in_threads(stage: RunStage) -> None:
    threads: set[str] = set()

    def in_thread() -> str:
        threads.add(threading.current_thread().name)
        return "thread"

    async def on_loop() -> str:
        threads.add(threading.current_thread().name)
        return "loop"

    @workflow
    async def body(ctx: WorkflowContext, number: int) -> list[Any]:
        for _ in range(5):
            number = await ctx.step(double, number)
        both = await asyncio.gather(ctx.step(in_thread), ctx.step(on_loop))
        return [await ctx.step(triple, number), *both]

    async with stage.worker(body):
        assert await stage.run(body, number=1) == [96, "thread", "loop"]
    assert threading.current_thread().name in threads
    assert len(threads) == 2


async def test_many_runs_at_a_time_end_as_they_should(stage: RunStage) -> None:
    @workflow
    async def body(ctx: WorkflowContext, number: int) -> int:
        for _ in range(5):
            number = await ctx.step(double, number)
        return number

    async with stage.worker(body, max_concurrent=20):
        runs = [await stage.start(body, number=each) for each in range(50)]
        assert [await stage.result(each) for each in runs] == [32 * each for each in range(50)]


async def test_a_step_is_tried_three_times_and_its_last_failure_is_recorded(
    stage: RunStage,
) -> None:
    infos: list[Info] = []

    @step(retry=QUICK)
    def fail() -> None:
        infos.append(activity.info())
        raise ValueError("no")

    @workflow
    async def body(ctx: WorkflowContext) -> str:
        try:
            await ctx.step(fail)
        except StepFailed as error:
            return f"{error.key}: {error.error}"
        return "unreachable"

    async with stage.worker(body):
        run_id = await stage.start(body)
        assert await stage.result(run_id) == "fail: ValueError: no"
    assert [each.attempt for each in infos] == [1, 2, 3]
    assert {each.idempotency_key for each in infos} == {f"{run_id}:0:fail"}
    assert len({each.attempt_key for each in infos}) == 3
    assert await stage.keys(run_id) == ["step fail"]


async def test_a_failure_that_is_not_retryable_is_recorded_at_once(stage: RunStage) -> None:
    attempts: list[int] = []

    async def fail() -> None:
        attempts.append(1)
        raise ApplicationError("blocked", non_retryable=True)

    @workflow
    async def body(ctx: WorkflowContext) -> None:
        await ctx.step(fail)

    async with stage.worker(body):
        task = await stage.ended(await stage.start(body))
    assert task.state == task_pb2.TASK_STATE_FAILED
    assert "Step fail failed: ApplicationError: blocked" in task.error.message
    assert attempts == [1]


async def test_a_long_wait_for_the_next_attempt_is_a_timer_and_takes_no_slot(
    stage: RunStage,
) -> None:
    def fail() -> None:
        raise ApplicationError("later", next_retry_delay="1h")

    @workflow
    async def body(ctx: WorkflowContext) -> None:
        await ctx.step(fail)

    async with stage.worker(body) as worker:
        run_id = await stage.start(body)
        await stage.rig.until(run_id, "WAITING")
        await eventually(lambda: worker.active_count == 0)
    assert await stage.keys(run_id) == ["retry fail"]


async def test_a_step_knows_what_it_is_and_has_no_heartbeat(stage: RunStage) -> None:
    infos: list[Info] = []

    async def look() -> str:
        infos.append(activity.info())
        try:
            activity.heartbeat(1)
        except RuntimeError as error:
            return str(error)
        return "unreachable"

    @workflow
    async def body(ctx: WorkflowContext) -> str:
        return await ctx.step(look)

    async with stage.worker(body) as worker:
        run_id = await stage.start(body)
        answer = await stage.result(run_id)
        assert infos[0].worker_id == worker.worker_id
    assert "has no heartbeat" in str(answer)
    assert infos[0].is_local
    assert infos[0].run_id == infos[0].task_id == run_id
    assert infos[0].type == "look"


@pytest.mark.parametrize("result", [object(), "x" * 3_000_000])
async def test_a_result_that_cannot_be_sent_fails_its_step_at_once(
    stage: RunStage, result: object
) -> None:
    calls: list[int] = []

    def make() -> Any:
        calls.append(1)
        return result

    @workflow
    async def body(ctx: WorkflowContext) -> str:
        try:
            await ctx.step(make)
        except StepFailed as error:
            return str(error)
        return "unreachable"

    async with stage.worker(body):
        answer = await stage.run(body)
    assert "The step ran, but its result cannot be sent." in str(answer)
    assert calls == [1]


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_step_that_takes_too_long_is_stopped(stage: RunStage, is_async: bool) -> None:
    released = threading.Event()
    one = RetryPolicy(max_attempts=1)

    @step(timeout="50ms", retry=one)
    async def hang() -> None:
        await asyncio.Event().wait()

    @step(timeout="50ms", retry=one)
    def block() -> None:
        while not released.wait(0.01):
            pass

    @workflow
    async def body(ctx: WorkflowContext) -> str:
        try:
            await (ctx.step(hang) if is_async else ctx.step(block))
        except StepFailed as error:
            return str(error)
        return "unreachable"

    async with stage.worker(body):
        answer = await stage.run(body)
    assert "TimedOut: The step took longer than its timeout of 0.05 s" in str(answer)


async def test_a_step_that_takes_long_is_shown_while_it_runs(stage: RunStage) -> None:
    gate = asyncio.Event()

    async def wait() -> None:
        await gate.wait()

    @workflow
    async def body(ctx: WorkflowContext) -> None:
        await ctx.step(wait)

    async with stage.worker(body):
        run_id = await stage.start(body)

        async def is_begun() -> bool:
            return await stage.keys(run_id) == ["begun wait"]

        await eventually(is_begun)
        gate.set()
        await stage.result(run_id)


async def test_steps_side_by_side_use_the_slots_that_are_free(stage: RunStage) -> None:
    running: list[int] = []
    most: list[int] = [0]

    async def count(number: int) -> int:
        running.append(number)
        most[0] = max(most[0], len(running))
        await asyncio.sleep(0.01)
        running.remove(number)
        return number

    @workflow
    async def body(ctx: WorkflowContext) -> list[int]:
        return list(await asyncio.gather(*(ctx.step(count, each) for each in range(20))))

    async with stage.worker(body, max_concurrent=4):
        assert await stage.run(body) == list(range(20))
    assert most[0] == 4


async def test_a_sleep_and_a_signal_hold_no_slot_and_a_warm_run_goes_on_where_it_was(
    stage: RunStage,
) -> None:
    begun: list[int] = []

    @workflow
    async def body(ctx: WorkflowContext) -> int:
        begun.append(1)
        await ctx.sleep(0.05)
        return await ctx.wait_signal(approve)

    async with stage.worker(body) as worker:
        run_id = await stage.start(body)

        async def has_slept() -> bool:
            keys = await stage.keys(run_id)
            return keys == ["timer sleep"] and not worker.active_count

        await eventually(has_slept)
        await stage.rig.until(run_id, "WAITING")
        await stage.signal(run_id, "approve", 7)
        assert await stage.result(run_id) == 7
    assert begun == [1]


async def test_a_run_that_is_not_kept_is_run_again_from_its_journal(
    stage: RunStage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tenure.workflow")
    calls: list[str] = []
    begun: list[int] = []

    def note(text: str) -> None:
        calls.append(text)

    @workflow
    async def body(ctx: WorkflowContext) -> str:
        begun.append(1)
        try:
            await ctx.step(note, "work")
            for _ in range(5):
                await ctx.sleep(0.01)
            ctx.log.info("slept")
        finally:
            await ctx.step(note, "clean up")
        return "done"

    async with stage.worker(body, warm_runs=0):
        assert await stage.run(body) == "done"
    assert calls == ["work", "clean up"]
    assert len(begun) > 1
    logged = [each for each in caplog.records if each.name in ("tenure.workflow", "asyncio")]
    assert [each.getMessage().rpartition(" ")[2] for each in logged] == ["slept"]


async def test_a_cancel_reaches_a_run_in_a_step_and_its_code_cleans_up(stage: RunStage) -> None:
    is_running = asyncio.Event()
    stopped: list[str] = []

    async def work() -> None:
        is_running.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append("work")

    @workflow
    async def body(ctx: WorkflowContext) -> None:
        try:
            await ctx.step(work)
        finally:
            await ctx.step(double, 1)

    async with stage.worker(body):
        run_id = await stage.start(body)
        await is_running.wait()
        await stage.cancel(run_id)
        task = await stage.ended(run_id)
    assert task.state == task_pb2.TASK_STATE_CANCELLED
    assert stopped == ["work"]
    assert (await stage.keys(run_id))[-1] == "step double"


async def test_a_terminated_run_is_put_aside_without_a_report(
    stage: RunStage, caplog: pytest.LogCaptureFixture
) -> None:
    is_running = asyncio.Event()
    calls: list[int] = []

    async def work() -> None:
        is_running.set()
        await asyncio.Event().wait()

    def clean_up() -> None:
        calls.append(1)

    @workflow
    async def body(ctx: WorkflowContext) -> None:
        try:
            await ctx.step(work)
        finally:
            await ctx.step(clean_up)

    async with stage.worker(body) as worker:
        run_id = await stage.start(body)
        await is_running.wait()
        await stage.terminate(run_id)
        await eventually(lambda: worker.active_count == 0)
    assert not calls
    assert not [each for each in caplog.records if each.name == "asyncio"]


async def test_an_input_that_does_not_fit_parks_the_run(
    stage: RunStage, caplog: pytest.LogCaptureFixture
) -> None:
    @workflow
    async def body(ctx: WorkflowContext, number: int) -> int:
        return await ctx.step(double, number)

    async with stage.worker(body):
        run_id = await stage.start(body, number="seven")
        await stage.rig.until(run_id, "WAITING")
        await eventually(lambda: any("is parked" in each for each in messages(caplog)))
    (text,) = [each for each in messages(caplog) if "is parked" in each]
    assert "The input does not fit workflow body: parameter number must be int, not str" in text


async def test_an_activity_with_the_name_of_a_workflow_fails(stage: RunStage) -> None:
    @workflow(name="mail")
    async def body(_ctx: WorkflowContext) -> None: ...

    async with stage.worker(body):
        (task_id,) = await stage.rig.enqueue()
        task = await stage.rig.until(task_id, "FAILED")
    assert "mail is a workflow here" in task.error.message


async def test_a_result_that_is_no_json_fails_the_run(stage: RunStage) -> None:
    @workflow
    async def body(_ctx: WorkflowContext) -> Any:
        return object()

    async with stage.worker(body):
        task = await stage.ended(await stage.start(body))
    assert task.state == task_pb2.TASK_STATE_FAILED
    assert "The workflow ran, but its result cannot be sent." in task.error.message


async def test_a_run_shows_its_progress(stage: RunStage) -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> None:
        ctx.progress(50, "half")
        await ctx.wait_signal(approve)

    async with stage.worker(body):
        run_id = await stage.start(body)
        task = await stage.rig.until(run_id, "WAITING")
        assert (task.progress_percent, task.progress_message) == (50, "half")
        await stage.signal(run_id, "approve", 1)
        await stage.ended(run_id)


async def test_a_body_that_does_not_come_to_rest_is_named_with_its_line(
    stage: RunStage, caplog: pytest.LogCaptureFixture
) -> None:
    is_over: list[int] = []

    @workflow
    async def body(_ctx: WorkflowContext) -> None:
        while not is_over:  # noqa: ASYNC110 (that is the point)
            await asyncio.sleep(0)

    async with stage.worker(body) as worker:
        run_id = await stage.start(body)
        await eventually(lambda: any("come to rest" in each for each in messages(caplog)))
        is_over.append(1)
        await stage.ended(run_id)
        assert worker.active_count == 0
    (text,) = [each for each in messages(caplog) if "come to rest" in each]
    assert f"The body of run {run_id} (body) does not come to rest" in text
    assert "test_run.py:" in text


async def test_a_body_that_blocks_the_loop_is_named(
    stage: RunStage, caplog: pytest.LogCaptureFixture
) -> None:
    @workflow
    async def body(_ctx: WorkflowContext) -> None:
        time.sleep(2)  # noqa: ASYNC251 (that is the point)

    async with stage.worker(body, guard="off"):
        run_id = await stage.start(body)
        await stage.ended(run_id)
        await eventually(lambda: any("blocked at" in each for each in messages(caplog)))
    (text,) = [each for each in messages(caplog) if "blocked at" in each]
    assert f"Running: body (run {run_id})" in text
    assert "test_run.py" in text


async def test_a_body_that_blocks_is_refused_with_its_line(stage: RunStage) -> None:
    @workflow
    async def body(_ctx: WorkflowContext) -> None:
        time.sleep(2)  # noqa: ASYNC251 (that is the point)

    async with stage.worker(body):
        task = await stage.ended(await stage.start(body))
    assert task.state == task_pb2.TASK_STATE_FAILED
    assert "blocks the thread (time.sleep): await ctx.sleep(…) instead" in task.error.message


async def test_a_state_is_published_and_one_that_is_too_large_is_refused(stage: RunStage) -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> str:
        ctx.set_state({"at": "start"})
        try:
            ctx.set_state("x" * 70_000)
        except PayloadError as error:
            ctx.set_state({"at": "end"})
            await ctx.wait_signal(approve)
            return str(error)
        return "unreachable"

    async with stage.worker(body):
        run_id = await stage.start(body)
        await stage.rig.until(run_id, "WAITING")
        view = await get_run(stage.rig.store, namespace=NAMESPACE, run_id=run_id)
        assert view.task.progress.details == b'{"at":"end"}'
        await stage.signal(run_id, "approve", 1)
        assert "The state has 70,002 bytes" in str(await stage.result(run_id))


async def test_a_step_that_a_body_leaves_open_is_named(
    stage: RunStage, caplog: pytest.LogCaptureFixture
) -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> str:
        ctx.step(double, 1)
        return "done"

    async with stage.worker(body):
        run_id = await stage.start(body)
        assert await stage.result(run_id) == "done"
    assert await stage.keys(run_id) == ["step double"]
    (text,) = [each.getMessage() for each in caplog.records if each.name == "tenure.workflow"]
    said = (
        f"The body of run {run_id} (body) returned while 1 call was open: double, called at test_"
    )
    assert text.startswith(said)
    assert text.endswith(" (it is waited for). Await what it starts.")


async def test_a_step_that_a_body_has_cancelled_is_not_said_to_be_open(
    stage: RunStage, caplog: pytest.LogCaptureFixture
) -> None:
    is_running = asyncio.Event()

    async def work() -> None:
        is_running.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)

    @workflow
    async def body(ctx: WorkflowContext) -> str:
        working = ctx.step(work)
        await ctx.wait_signal(approve)
        working.cancel()
        return "done"

    async with stage.worker(body):
        run_id = await stage.start(body)
        await is_running.wait()
        await stage.signal(run_id, "approve", 1)
        assert await stage.result(run_id) == "done"
    assert not [each for each in caplog.records if each.name == "tenure.workflow"]


async def test_a_journal_of_several_pages_is_run_again(stage: RunStage) -> None:
    calls: list[int] = []

    async def note(number: int) -> int:
        calls.append(number)
        return number

    @workflow
    async def body(ctx: WorkflowContext) -> int:
        total = sum(await asyncio.gather(*(ctx.step(note, each) for each in range(1_500))))
        return total + await ctx.wait_signal(approve)

    async with stage.worker(body, warm_runs=0):
        run_id = await stage.start(body)
        await stage.rig.until(run_id, "WAITING")
        await stage.signal(run_id, "approve", 1)
        assert await stage.result(run_id) == sum(range(1_500)) + 1
    assert sorted(calls) == list(range(1_500))


async def test_a_run_of_a_type_that_is_an_activity_here_is_parked(
    stage: RunStage, caplog: pytest.LogCaptureFixture
) -> None:
    @activity(start_to_close="1m")
    async def mail() -> None: ...

    @workflow(name="mail")
    async def elsewhere(_ctx: WorkflowContext) -> None: ...

    @workflow
    async def body(_ctx: WorkflowContext) -> None: ...

    async with stage.worker(body, activities=[mail]):
        run_id = await stage.start(elsewhere)
        await stage.rig.until(run_id, "WAITING")
    assert any("This worker has no workflow mail" in each for each in messages(caplog))


def test_two_workflows_and_activities_need_names_of_their_own() -> None:
    @activity(start_to_close="1m")
    async def mail() -> None: ...

    @workflow(name="mail")
    async def first(_ctx: WorkflowContext) -> None: ...

    @workflow(name="mail")
    async def second(_ctx: WorkflowContext) -> None: ...

    with pytest.raises(ValueError, match="is the name of an activity and of a workflow"):
        Worker(activities=[mail], workflows=[first])
    with pytest.raises(ValueError, match="Two workflows are named 'mail'"):
        Worker(workflows=[first, second])
    with pytest.raises(TypeError, match="is not a workflow"):
        Worker(workflows=[double])
    with pytest.raises(ValueError, match="at least one activity"):
        Worker()
    with pytest.raises(ValueError, match="warm_runs must be 0 to"):
        Worker(workflows=[first], warm_runs=-1)
    with pytest.raises(ValueError, match="guard must be one of refuse, warn, off"):
        Worker(workflows=[first], guard="maybe")  # type: ignore[arg-type]
