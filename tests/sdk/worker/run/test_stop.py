"""Steps that are stopped: by their bodies, by timeouts and by the end of their worker."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from tenure import RetryPolicy, activity
from tenure.sdk.failure import StepFailed
from tenure.sdk.workflow.context import WorkflowContext
from tenure.sdk.workflow.definition import workflow
from tenure.sdk.workflow.signal import signal
from tenure.sdk.workflow.step import step
from tests.polling import eventually
from tests.sdk.worker.rig import messages
from tests.sdk.worker.run.stage import RunStage

approve = signal("approve", int)


async def test_steps_that_wait_for_a_slot_or_for_another_attempt_can_be_cancelled(
    stage: RunStage,
) -> None:
    calls: Counter[str] = Counter()

    async def work(name: str) -> None:
        calls[name] += 1
        await asyncio.Event().wait()

    @step(retry=RetryPolicy(initial_interval="4s"))
    async def fail() -> None:
        calls["fail"] += 1
        raise ValueError("no")

    @workflow
    async def body(ctx: WorkflowContext) -> str:
        failing = ctx.step(fail)
        working = [ctx.step(work, name) for name in ("first", "second")]
        await ctx.wait_signal(approve)
        for each in (failing, *working):
            each.cancel()
        return "done"

    async with stage.worker(body, max_concurrent=1):
        run_id = await stage.start(body)
        await eventually(lambda: calls["fail"] and calls["first"])
        await stage.signal(run_id, "approve", 1)
        assert await stage.result(run_id) == "done"
    assert calls == {"fail": 1, "first": 1}
    assert await stage.keys(run_id) == ["signal approve"]


async def test_a_shield_delays_the_stop_of_a_step(stage: RunStage) -> None:
    ends: list[str] = []

    @step(timeout="10ms", retry=RetryPolicy(max_attempts=1))
    async def work() -> None:
        with activity.shield():
            while not activity.is_cancelled():  # noqa: ASYNC110 (nobody tells of it)
                await asyncio.sleep(0.001)
            ends.append("shielded")
        await asyncio.Event().wait()

    @workflow
    async def body(ctx: WorkflowContext) -> str:
        try:
            await ctx.step(work)
        except StepFailed as error:
            return str(error)
        return "unreachable"

    async with stage.worker(body):
        assert "TimedOut" in str(await stage.run(body))
    assert ends == ["shielded"]


async def test_a_step_cannot_be_completed_later(stage: RunStage) -> None:
    async def work() -> None:
        activity.complete_later()

    @workflow
    async def body(ctx: WorkflowContext) -> str:
        try:
            await ctx.step(work)
        except StepFailed as error:
            return str(error)
        return "unreachable"

    async with stage.worker(body):
        assert "is for queued activities" in str(await stage.run(body))


async def test_a_worker_that_ends_at_once_hands_its_runs_back(stage: RunStage) -> None:
    calls: Counter[str] = Counter()

    async def work() -> str:
        calls["work"] += 1
        if calls["work"] == 1:
            await asyncio.Event().wait()
        return "done"

    @workflow
    async def body(ctx: WorkflowContext) -> str:
        return await ctx.step(work)

    async with stage.worker(body) as first:
        run_id = await stage.start(body)
        await eventually(lambda: calls["work"])
        first.request_shutdown("1ms")
        await eventually(lambda: first.has_ended)
    async with stage.worker(body):
        assert await stage.result(run_id) == "done"
    assert await stage.rig.outcomes(run_id) == ["released", "succeeded"]


async def test_a_body_that_does_not_end_when_it_is_put_aside_is_named(
    stage: RunStage, caplog: pytest.LogCaptureFixture
) -> None:
    @workflow
    async def body(_ctx: WorkflowContext) -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                # Nobody should do that.
                continue

    async with stage.worker(body, warm_runs=0):
        run_id = await stage.start(body)
        await stage.rig.until(run_id, "WAITING")
    (text,) = [each for each in messages(caplog) if "put aside" in each]
    assert f"The body of run {run_id} (body) does not end" in text


async def test_code_that_does_not_fit_the_journal_parks_the_run(
    stage: RunStage, caplog: pytest.LogCaptureFixture
) -> None:
    names = ["old"]

    def old() -> None: ...

    def new() -> None: ...

    @workflow
    async def body(ctx: WorkflowContext) -> None:
        await ctx.step(old if names[0] == "old" else new)
        await ctx.wait_signal(approve)

    async with stage.worker(body, warm_runs=0):
        run_id = await stage.start(body)
        await stage.rig.until(run_id, "WAITING")
        names[0] = "new"
        await stage.signal(run_id, "approve", 1)
        await eventually(lambda: any("is parked" in each for each in messages(caplog)))
    (text,) = [each for each in messages(caplog) if "is parked" in each]
    assert "changed at position 1: at 0 the journal has old (step), the code calls new" in text
    assert "test_stop.py:" in text
