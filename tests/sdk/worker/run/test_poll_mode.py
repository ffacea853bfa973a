"""Runs of workers that poll: nothing is pushed to them, so they ask."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, Final

import pytest

from tenure import activity
from tenure.api.rpc.service.task_service import TaskService
from tenure.engine.command import Command
from tenure.engine.run.command import RecordSteps
from tenure.errors import PayloadTooLarge
from tenure.sdk.workflow.context import WorkflowContext
from tenure.sdk.workflow.definition import workflow
from tenure.sdk.workflow.signal import signal
from tenure.sdk.workflow.step import step
from tenure.v1 import task_pb2
from tenure.v1 import task_service_pb2 as pb
from tests.polling import eventually
from tests.sdk.worker.run.stage import RunStage

approve = signal("approve", int)
LOSSES: Final = 3


@activity(start_to_close="30s")
async def double(number: int) -> int:
    return 2 * number


async def test_a_signal_is_heard_while_a_step_goes_on(fast: RunStage) -> None:
    gate, is_there = asyncio.Event(), asyncio.Event()

    @step(timeout="10m")
    async def work() -> None:
        is_there.set()
        await gate.wait()

    @workflow
    async def body(ctx: WorkflowContext) -> int:
        working = ctx.step(work)
        await ctx.sleep("1s")
        got = await ctx.wait_signal(approve)
        working.cancel()
        return got

    async with fast.worker(body, mode="poll"):
        run_id = await fast.start(body)
        await is_there.wait()

        async def is_past_the_sleep() -> bool:
            return "timer sleep" in await fast.keys(run_id)

        await eventually(is_past_the_sleep)
        await fast.signal(run_id, "approve", 7)
        assert await fast.result(run_id) == 7


async def test_a_child_that_ends_is_heard_of_while_a_step_goes_on(fast: RunStage) -> None:
    gate, is_there = asyncio.Event(), asyncio.Event()

    @activity(start_to_close="30s", queue="elsewhere")
    async def wait() -> int:
        await gate.wait()
        return 3

    @step(timeout="10m")
    async def work() -> None:
        is_there.set()
        await asyncio.Event().wait()

    @workflow
    async def body(ctx: WorkflowContext) -> int:
        working = ctx.step(work)
        got = await ctx.execute(wait)
        working.cancel()
        return got

    async with fast.worker(body, mode="poll"), fast.worker(activities=[wait], queue="elsewhere"):
        run_id = await fast.start(body)
        await is_there.wait()

        async def has_begun() -> bool:
            return "begun work" in await fast.keys(run_id)

        await eventually(has_begun)
        gate.set()
        assert await fast.result(run_id) == 3


async def test_a_cancel_is_heard_and_cleaned_up_after(fast: RunStage) -> None:
    calls: Counter[str] = Counter()
    is_there = asyncio.Event()

    async def note(name: str) -> None:
        calls[name] += 1

    @step(timeout="10m")
    async def work() -> None:
        is_there.set()
        await asyncio.Event().wait()

    @workflow
    async def body(ctx: WorkflowContext) -> None:
        try:
            await ctx.step(work)
        except asyncio.CancelledError:
            await ctx.step(note, "first")
            await ctx.sleep("300ms")
            await ctx.execute(double, 1)
            await ctx.step(note, "last")
            raise

    async with fast.worker(body, activities=[double], mode="poll"):
        run_id = await fast.start(body)
        await is_there.wait()
        await fast.cancel(run_id)
        task = await fast.ended(run_id)
    assert task.state == task_pb2.TASK_STATE_CANCELLED
    assert calls == {"first": 1, "last": 1}


async def test_a_lost_answer_to_steps_is_repeated_and_records_nothing_twice(
    stage: RunStage,
) -> None:
    calls: Counter[int] = Counter()
    losses: Counter[str] = Counter()
    submit = stage.rig.engine.submit

    def lose_after(command: Command[Any]) -> Any:
        answer = submit(command)
        if isinstance(command, RecordSteps) and losses["steps"] < LOSSES:
            losses["steps"] += 1
            stage.rig.proxy.is_muted = True
            answer.add_done_callback(lose)
        return answer

    def lose(_: Any) -> None:
        stage.rig.proxy.cut()
        stage.rig.proxy.is_muted = False

    async def count(number: int) -> int:
        calls[number] += 1
        return number

    @workflow
    async def body(ctx: WorkflowContext) -> list[int]:
        some = await asyncio.gather(*(ctx.step(count, each) for each in range(5)))
        return [*some, *[await ctx.step(count, each) for each in range(5, 10)]]

    stage.rig.engine.submit = lose_after  # type: ignore[method-assign]
    async with stage.worker(body, mode="poll"):
        run_id = await stage.start(body)
        assert await stage.result(run_id) == list(range(10))
    assert losses["steps"] == LOSSES
    assert set(calls.values()) == {1}
    assert len(await stage.keys(run_id)) == 10


async def test_a_run_begins_anew_and_keeps_its_signals(stage: RunStage) -> None:
    @workflow
    async def body(ctx: WorkflowContext, rounds: int = 0, total: int = 0) -> list[int]:
        if rounds == 3:
            return [ctx.info.generation, total]
        total += await ctx.wait_signal(approve)
        return ctx.continue_as_new(rounds + 1, total)

    async with stage.worker(body, mode="poll"):
        run_id = await stage.start(body)
        for number in (1, 10, 100):
            await stage.signal(run_id, "approve", number)
        assert await stage.result(run_id) == [3, 111]


@pytest.mark.parametrize("is_taken", [True, False])
async def test_what_runs_report_at_a_time_is_one_call_unless_that_is_refused(
    stage: RunStage, monkeypatch: pytest.MonkeyPatch, *, is_taken: bool
) -> None:
    together: list[pb.ReportRunsRequest] = []
    record = TaskService.ReportRuns

    async def watched(
        self: TaskService, request: pb.ReportRunsRequest, context: Any
    ) -> pb.ReportRunsResponse:
        if request.steps and request.spawns:
            together.append(request)
            if not is_taken:
                raise PayloadTooLarge("this is too much together")
        return await record(self, request, context)

    @workflow
    async def body(ctx: WorkflowContext) -> int:
        total = 0
        for number in range(10):
            ctx.log.info("double %s", number)
            total += await ctx.execute(double, number)
        return total

    monkeypatch.setattr(TaskService, "ReportRuns", watched)
    await stage.rig.stop_server()
    await stage.rig.start_server()
    async with stage.worker(body, activities=[double], mode="poll"):
        assert await stage.run(body) == 90
    assert together
