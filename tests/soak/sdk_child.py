"""Workflows with children, and the activities that they call; all write a journal."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from tenure import Results, Workflow, WorkflowContext, activity, workflow
from tests.soak.sdk_activity import note
from tests.soak.sdk_workflow import go_on

POLICIES: Final = ("cancel", "terminate", "abandon")


@activity(start_to_close="1h")
async def item(number: int, milliseconds: int) -> int:
    """Do something that must show how often it was done."""
    note("item", str(number))
    await asyncio.sleep(milliseconds / 1_000)
    note("item-done", str(number))
    return number


@activity(start_to_close="1h")
async def work(number: int) -> int:
    """Do the work of one of the items of a map."""
    note("item", str(number))
    await asyncio.sleep(0.001)
    return number


async def say(event: str) -> float:
    """Write down that a run has come so far, and when."""
    note(event)
    return time.time()


def add_up(results: Results[int]) -> int:
    return sum(value for _, value in results)


@workflow
async def map_many(ctx: WorkflowContext, count: int) -> int:
    """Map over many items and add up what comes back."""
    results = await ctx.map(work, range(count))
    return await ctx.step(add_up, results)


@workflow
async def gather_many(ctx: WorkflowContext, count: int, milliseconds: int) -> int:
    """Wait for many activities at once, as asyncio does."""
    calls = [ctx.execute(item, number, milliseconds) for number in range(count)]
    total = sum(await asyncio.gather(*calls))
    await ctx.step(say, "gathered")
    return total


@workflow
async def one_child(ctx: WorkflowContext, number: int) -> int:
    return await ctx.execute(item, number, 1)


@workflow
async def one_parent(ctx: WorkflowContext, number: int) -> int:
    """Wait for a child run, which waits for an activity."""
    return await ctx.child(one_child, number)


@workflow
async def mixed(ctx: WorkflowContext, rounds: int) -> int:
    """Record steps while activities end, again and again."""
    total = 0
    for number in range(rounds):
        calls = [ctx.execute(item, number, 1) for _ in range(3)]
        await ctx.step(say, "step")
        total += sum(await asyncio.gather(*calls))
    return total


@workflow
async def everything(ctx: WorkflowContext, number: int, count: int) -> int:
    """Map, have a child, wait for a signal, and undo it when it is cancelled."""
    child = ctx.child(one_child, number)
    total = await ctx.step(add_up, await ctx.map(work, range(count)))
    total += await child
    try:
        return total + await ctx.wait_signal(go_on)
    except asyncio.CancelledError:
        await ctx.execute(item, number, 1)
        await ctx.step(say, "undone")
        raise


async def _stay(ctx: WorkflowContext) -> None:
    try:
        await ctx.wait_signal(go_on)
    finally:
        await ctx.step(say, "cleaned-up")


@workflow
async def stay_cancel(ctx: WorkflowContext) -> None:
    """Wait until the parent closes it, and clean up."""
    await _stay(ctx)


@workflow
async def stay_terminate(ctx: WorkflowContext) -> None:
    await _stay(ctx)


@workflow
async def stay_abandon(ctx: WorkflowContext) -> None:
    await _stay(ctx)


STAYING: Final[dict[str, Workflow[[], None]]] = {
    "cancel": stay_cancel,
    "terminate": stay_terminate,
    "abandon": stay_abandon,
}


@workflow
async def keep_children(ctx: WorkflowContext, count: int) -> None:
    """Have children of all policies, and wait for nothing that comes."""
    for number in range(count // 3):
        del number
        ctx.child(stay_cancel, on_close="cancel")
        ctx.child(stay_terminate, on_close="terminate")
        ctx.child(stay_abandon, on_close="abandon")
    await ctx.wait_signal(go_on)


ACTIVITIES: Final = [item, work]
WORKFLOWS: Final = [
    *(map_many, gather_many, one_child, one_parent, mixed, everything),
    *(keep_children, *STAYING.values()),
]
