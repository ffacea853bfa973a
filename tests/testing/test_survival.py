"""Crashes at every point: what survives, what does not, and what is said about it."""

from __future__ import annotations

import ast
import asyncio
import re
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from tenure import (
    RetryPolicy,
    SyncWorkflowContext,
    TaskCancelled,
    TaskFailed,
    WorkflowContext,
    activity,
    signal,
    step,
    workflow,
)
from tenure.testing import SyncTestEngine, TestEngine, assert_survives

PAGE: Final = (Path(__file__).parents[2] / "docs/guide/testing.md").read_text()
go = signal("go", int)
# How often a body was begun, by run: what a body must not know.
begun: Counter[str] = Counter()
ran: Counter[str] = Counter()


async def one(number: int) -> int:
    ran["one"] += 1
    return number + 1


def two(number: int) -> int:
    ran["two"] += 1
    return number * 2


@step(retry=RetryPolicy(initial_interval="1m", max_attempts=3))
def flaky(run_id: str) -> int:
    ran[run_id] += 1
    if ran[run_id] < 2:
        raise ValueError("not yet")
    return 7


@pytest.fixture(autouse=True)
def _forget() -> None:
    begun.clear()
    ran.clear()


@workflow
async def everything(ctx: WorkflowContext) -> list[int]:
    ctx.log.info("begun")
    first = await ctx.step(one, 1)
    both = await asyncio.gather(ctx.step(two, first), ctx.step(one, first), ctx.sleep("1h"))
    await ctx.sleep("3d")
    async with asyncio.TaskGroup() as group:
        left = group.create_task(_branch(ctx.branch("left"), 1))
        right = group.create_task(_branch(ctx.branch("right"), 2))
    return [first, *both[:2], left.result(), right.result(), await ctx.wait_signal(go)]


async def _branch(ctx: WorkflowContext, number: int) -> int:
    await ctx.sleep("10m")
    return await ctx.step(two, number)


@workflow
async def toss(ctx: WorkflowContext) -> str:
    begun[ctx.info.run_id] += 1
    await ctx.step(one, 1)
    return "ab"[begun[ctx.info.run_id] - 1]


@workflow
async def other_calls(ctx: WorkflowContext) -> None:
    begun[ctx.info.run_id] += 1
    await ctx.step(one if begun[ctx.info.run_id] == 1 else two, 1)


@workflow
async def ask(ctx: WorkflowContext) -> int:
    return await ctx.wait_signal(go)


@workflow
async def fail(ctx: WorkflowContext) -> None:
    await ctx.step(one, 1)
    raise KeyError("card")


@workflow
async def clean_up(ctx: WorkflowContext) -> None:
    try:
        await ctx.sleep("1d")
    except asyncio.CancelledError:
        await ctx.step(one, 1)
        await ctx.sleep("1h")
        await ctx.step(two, 1)
        raise


@workflow
async def retried(ctx: WorkflowContext) -> int:
    return await ctx.step(flaky, ctx.info.run_id)


@workflow
async def told(ctx: WorkflowContext, name: str, *, loud: bool = False) -> dict[str, str]:
    said = await ctx.step(str.upper, name) if loud else name
    return {"said": said, "id": str(ctx.uuid4())}


@activity(start_to_close="30s")
async def half(number: int) -> int:
    ran["half"] += 1
    return number // 2


@workflow
async def grown(ctx: WorkflowContext, number: int) -> int:
    await ctx.sleep("1h")
    return await ctx.execute(half, number) + 10


@workflow
async def family(ctx: WorkflowContext) -> list[int]:
    first = await ctx.execute(half, 8)
    child = ctx.child(grown, first)
    both = await asyncio.gather(ctx.execute(half, 6), ctx.step(one, first))
    items = await ctx.map(half, [2, 4, 6])
    return [first, *both, *await items.list(), await child]


@workflow
def plain_family(ctx: SyncWorkflowContext) -> list[int]:
    begun, child = ctx.begin(half, 6), ctx.begin(grown, ctx.execute(half, 8))
    ctx.sleep("1h")
    left = ctx.branch("left").step(one, begun.result())
    items = ctx.map(half, [2, 4])
    return [left, *items.list(), child.result(), ctx.wait_signal(go)]


@workflow
def plain_clean_up(ctx: SyncWorkflowContext) -> None:
    try:
        ctx.sleep("1d")
    except asyncio.CancelledError:
        ctx.step(one, 1)
        ctx.sleep("1h")
        ctx.step(two, 1)
        raise


@workflow
def plain_other_calls(ctx: SyncWorkflowContext) -> None:
    begun[ctx.info.run_id] += 1
    ctx.step(one if begun[ctx.info.run_id] == 1 else two, 1)


async def test_plain_functions_survive_a_crash_at_every_point(tenure_engine: TestEngine) -> None:
    ended = await assert_survives(
        plain_family, engine=tenure_engine, code=[half, grown], act=lambda run: run.signal(go, 5)
    )
    assert ended == [4, 1, 2, 12, 5]
    # The step of the branch, once undisturbed and once for each crash.
    assert ran["one"] > 12
    with pytest.raises(TaskCancelled, match="sold out"):
        await assert_survives(
            plain_clean_up, engine=tenure_engine, act=lambda run: run.cancel("sold out")
        )
    assert ran["two"] > 5


async def test_other_calls_of_a_plain_function_are_shown(tenure_engine: TestEngine) -> None:
    with pytest.raises(AssertionError, match=r"the code calls two \(test_survival\.py:"):
        await assert_survives(plain_other_calls, engine=tenure_engine)


async def test_children_survive_a_crash_at_every_point(tenure_engine: TestEngine) -> None:
    ended = await assert_survives(family, engine=tenure_engine, code=[half, grown])
    assert ended == [4, 3, 5, 1, 2, 3, 12]
    # Before and after the start and the end of each child, at least.
    assert ran["half"] > 6 * 16


async def test_plain_asyncio_survives_a_crash_at_every_point(tenure_engine: TestEngine) -> None:
    ended = await assert_survives(
        everything, engine=tenure_engine, act=lambda run: run.signal(go, 5)
    )
    assert ended == [2, 4, 3, 2, 4, 5]
    # Once undisturbed, and once for each crash, before and after each of at least ten reports.
    assert ran["two"] > 20 * 3


async def test_a_result_that_differs_is_shown(tenure_engine: TestEngine) -> None:
    with pytest.raises(AssertionError) as caught:
        await assert_survives(toss, engine=tenure_engine)
    assert str(caught.value) == (
        "toss does not survive a crash right before step one is recorded. It returned 'b'; "
        "without the crash it returned 'a'."
    )
    assert f"`{caught.value}`" in PAGE


async def test_other_calls_after_a_crash_are_shown(tenure_engine: TestEngine) -> None:
    with pytest.raises(AssertionError) as caught:
        await assert_survives(other_calls, engine=tenure_engine)
    said, _, mismatch = str(caught.value).partition("is parked: ")
    assert said == "other_calls, after a crash right after step one is recorded, "
    told = "changed at position 1: at 0 the journal has one (step), the code calls two ("
    assert mismatch.startswith(f"{told}test_survival.py:")
    assert f"`{said}is parked: {told}" in PAGE


async def test_a_run_that_waits_for_ever_is_named(tenure_engine: TestEngine) -> None:
    with pytest.raises(AssertionError) as caught:
        await assert_survives(ask, engine=tenure_engine)
    assert f"`{caught.value}`" in PAGE


async def test_a_failure_survives_as_well_and_is_raised(tenure_engine: TestEngine) -> None:
    with pytest.raises(TaskFailed, match="KeyError"):
        await assert_survives(fail, engine=tenure_engine)
    assert ran["one"] > 3


async def test_clean_up_after_a_cancel_survives(tenure_engine: TestEngine) -> None:
    with pytest.raises(TaskCancelled, match="sold out"):
        await assert_survives(
            clean_up, engine=tenure_engine, act=lambda run: run.cancel("sold out")
        )
    assert ran["two"] > 5


async def test_retries_of_a_step_survive(tenure_engine: TestEngine) -> None:
    assert await assert_survives(retried, engine=tenure_engine) == 7


async def test_what_differs_by_nature_is_left_out_with_a_key(tenure_engine: TestEngine) -> None:
    ended = await assert_survives(
        told, "ho", loud=True, engine=tenure_engine, key=lambda value: value["said"]
    )
    assert ended["said"] == "HO"
    with pytest.raises(AssertionError, match="does not survive"):
        await assert_survives(told, "ho", loud=True, engine=tenure_engine)


async def test_the_engine_is_as_before_afterwards(tenure_engine: TestEngine) -> None:
    async with tenure_engine.worker([toss]):
        await assert_survives(fail_not, engine=tenure_engine)
        run = await tenure_engine.start(toss)
        assert await run.result() == "a"


@workflow
async def fail_not(ctx: WorkflowContext) -> int:
    return await ctx.step(one, 1)


async def test_only_a_workflow_can_be_tried(tenure_engine: TestEngine) -> None:
    with pytest.raises(TypeError, match="one is not a workflow"):
        await assert_survives(one, engine=tenure_engine)  # type: ignore[arg-type]


def test_the_sync_engine_has_it_too(tenure_sync_engine: SyncTestEngine) -> None:
    ended = tenure_sync_engine.assert_survives(ask, act=lambda run: run.signal(go, 7))
    assert ended == 7


def test_the_code_of_the_page_is_python() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) > 4
    for block in blocks:
        compile(block, "testing.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
