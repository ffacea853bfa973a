"""Runs while connections, servers and workers are lost: each recorded step runs once."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from tenure import RetryPolicy
from tenure.sdk.worker.connection.connection import WorkerConnection
from tenure.sdk.workflow.context import WorkflowContext
from tenure.sdk.workflow.definition import Workflow, workflow
from tenure.sdk.workflow.signal import signal
from tenure.sdk.workflow.step import step
from tests.polling import eventually
from tests.sdk.worker.rig import messages
from tests.sdk.worker.run.stage import RunStage

approve = signal("approve", int)
MODES = pytest.mark.parametrize("mode", ["session", "poll"])


def counting(calls: Counter[int]) -> Workflow[[int], int]:
    """Return a workflow of many steps that says how often each was called."""

    async def count(number: int) -> int:
        calls[number] += 1
        return number

    @workflow
    async def body(ctx: WorkflowContext, steps: int) -> int:
        total = 0
        for number in range(steps):
            total += await ctx.step(count, number)
        return total

    return body


@MODES
async def test_answers_that_are_lost_cost_no_step(stage: RunStage, mode: str) -> None:
    calls: Counter[int] = Counter()
    body = counting(calls)
    async with stage.worker(body, mode=mode):
        stage.rig.proxy.loss = 0.1
        runs = [await stage.start(body, steps=20) for _ in range(3)]
        try:
            for each in runs:
                assert await stage.result(each) == 190
        finally:
            stage.rig.proxy.loss = 0.0
    assert stage.rig.proxy.lost_count > 3
    assert set(calls.values()) == {3}
    assert len(await stage.keys(runs[0])) == 20


@MODES
async def test_a_server_that_is_killed_in_a_step_and_in_a_sleep_is_waited_for(
    stage: RunStage, mode: str
) -> None:
    calls: Counter[str] = Counter()
    gate, is_there = asyncio.Event(), asyncio.Event()

    async def work(name: str) -> None:
        calls[name] += 1
        is_there.set()
        await gate.wait()

    @workflow
    async def body(ctx: WorkflowContext) -> str:
        await ctx.step(work, "first")
        await ctx.sleep(0.2)
        await ctx.step(work, "second")
        return "done"

    async with stage.worker(body, mode=mode):
        run_id = await stage.start(body)
        await is_there.wait()
        await stage.rig.kill_server()
        gate.set()
        await stage.rig.start_server()

        async def sleeps() -> bool:
            return await stage.keys(run_id) == ["step work"]

        await eventually(sleeps)
        await stage.rig.kill_server()
        await stage.rig.start_server()
        assert await stage.result(run_id) == "done"
    assert calls == {"first": 1, "second": 1}
    assert await stage.keys(run_id) == ["step work", "timer sleep", "step work#2"]


async def test_a_signal_that_came_without_a_session_is_heard_after_it(stage: RunStage) -> None:
    gate, is_there = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        is_there.set()
        await gate.wait()

    @workflow
    async def body(ctx: WorkflowContext) -> int:
        working = ctx.step(work)
        got = await ctx.wait_signal(approve)
        working.cancel()
        return got

    async with stage.worker(body):
        run_id = await stage.start(body)
        await is_there.wait()
        target, stage.rig.proxy.target = stage.rig.proxy.target, "127.0.0.1:1"
        stage.rig.proxy.cut()
        await stage.signal(run_id, "approve", 7)
        stage.rig.proxy.target = target
        assert await stage.result(run_id) == 7


async def test_another_worker_goes_on_with_the_run_of_one_that_is_killed(fast: RunStage) -> None:
    calls: Counter[str] = Counter()
    is_there = asyncio.Event()

    async def work(name: str) -> str:
        calls[name] += 1
        if name == "last" and calls[name] == 1:
            is_there.set()
            await asyncio.Event().wait()
        return name

    @workflow
    async def body(ctx: WorkflowContext) -> list[str]:
        return [await ctx.step(work, name) for name in ("first", "second", "last")]

    async with fast.worker(body) as first:
        run_id = await fast.start(body)
        await is_there.wait()
        async with fast.worker(body):
            abort(first)
            assert await fast.result(run_id) == ["first", "second", "last"]
    assert calls == {"first": 1, "second": 1, "last": 2}


def abort(worker: object) -> None:
    """End the connection of a worker without telling anybody, like a killed process."""
    connection: WorkerConnection = worker._connection  # type: ignore[attr-defined]  # noqa: SLF001
    connection.abort()


async def test_nothing_is_begun_while_the_lease_may_be_over(
    fast: RunStage, caplog: pytest.LogCaptureFixture
) -> None:
    calls: Counter[str] = Counter()
    gate, is_there = asyncio.Event(), asyncio.Event()

    async def work(name: str) -> None:
        calls[name] += 1
        if name == "first" and calls[name] == 1:
            is_there.set()
            await gate.wait()

    @workflow
    async def body(ctx: WorkflowContext) -> str:
        first = ctx.step(work, "first")
        await ctx.wait_signal(approve)
        await ctx.step(work, "second")
        await first
        return "done"

    async with fast.worker(body):
        run_id = await fast.start(body)
        await is_there.wait()
        fast.rig.proxy.is_muted = True
        await eventually(lambda: any("its lease may be over" in each for each in messages(caplog)))
        gate.set()
        await fast.signal(run_id, "approve", 1)
        assert calls["second"] == 0
        fast.rig.proxy.is_muted = False
        fast.rig.proxy.cut()
        assert await fast.result(run_id) == "done"
    assert calls["second"] == 1


async def test_a_drain_lets_steps_end_and_another_worker_goes_on(stage: RunStage) -> None:
    calls: Counter[str] = Counter()
    gate, is_there = asyncio.Event(), asyncio.Event()

    async def work(name: str) -> None:
        calls[name] += 1
        is_there.set()
        await gate.wait()

    @workflow
    async def body(ctx: WorkflowContext) -> str:
        await ctx.step(work, "first")
        await ctx.step(work, "second")
        return "done"

    async with stage.worker(body) as first:
        run_id = await stage.start(body)
        await is_there.wait()
        first.request_shutdown("1h")
        async with stage.worker(body):
            gate.set()
            await eventually(lambda: first.has_ended)
            assert await stage.result(run_id) == "done"
    assert calls == {"first": 1, "second": 1}
    assert await stage.rig.outcomes(run_id) == ["released", "succeeded"]


async def test_a_drain_turns_the_wait_for_another_attempt_into_a_timer(stage: RunStage) -> None:
    calls: Counter[str] = Counter()

    @step(retry=RetryPolicy(initial_interval="5s", maximum_interval="5s", max_attempts=2))
    def fail() -> str:
        calls["fail"] += 1
        raise ValueError("no")

    @workflow
    async def body(ctx: WorkflowContext) -> None:
        await ctx.step(fail)

    async with stage.worker(body) as worker:
        run_id = await stage.start(body)
        await eventually(lambda: calls["fail"])
        worker.request_shutdown("1h")
        await eventually(lambda: worker.has_ended)
        task = await stage.rig.until(run_id, "WAITING")
    assert calls["fail"] == 1
    assert await stage.keys(run_id) == ["retry fail"]
    assert task.attempt == 1


async def test_a_run_that_waits_does_not_keep_its_worker_from_ending(stage: RunStage) -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> int:
        return await ctx.wait_signal(approve)

    async with stage.worker(body) as first:
        run_id = await stage.start(body)
        await stage.rig.until(run_id, "WAITING")
        first.request_shutdown("1h")
        await eventually(lambda: first.has_ended)
    async with stage.worker(body):
        await stage.signal(run_id, "approve", 3)
        assert await stage.result(run_id) == 3


async def test_a_body_evicted_fifty_times_cleans_up_once_and_silently(
    stage: RunStage, caplog: pytest.LogCaptureFixture
) -> None:
    calls: Counter[str] = Counter()

    def note(name: str) -> None:
        calls[name] += 1

    @workflow
    async def body(ctx: WorkflowContext) -> int:
        got = 0
        try:
            for _ in range(50):
                got += await ctx.wait_signal(approve)
        finally:
            await ctx.step(note, "clean up")
        return got

    async with stage.worker(body, warm_runs=0):
        run_id = await stage.start(body)
        for number in range(50):
            await stage.rig.until(run_id, "WAITING")
            await stage.signal(run_id, "approve", number)
        assert await stage.result(run_id) == 1_225
    assert calls == {"clean up": 1}
    assert [each for each in caplog.records if each.name in {"asyncio", "tenure.workflow"}] == []
    assert not [each for each in messages(caplog) if "put aside" in each]
