"""The application of somebody who makes mistakes."""

from __future__ import annotations

import time
from typing import Any

from tenure import RetryPolicy, SyncWorkflowContext, WorkflowContext, activity, signal, workflow

once = RetryPolicy(max_attempts=1)


@activity(start_to_close="30s")
def greet(name: str) -> str:
    """Say hello."""
    return f"Hello, {name}!"


@activity(start_to_close="30s")
def total(numbers: dict[str, int]) -> int:
    """Add up."""
    return sum(numbers.values())


@activity(start_to_close="30s", retry=once)
def price(article: str) -> int:
    """Look up what is not there."""
    return {"tea": 3}[article]


@activity(start_to_close="500ms", retry=once)
def nap() -> None:
    """Take longer than allowed."""
    time.sleep(0.8)


@activity(start_to_close="30s")
async def freeze(seconds: float) -> None:
    """Block the event loop."""
    time.sleep(seconds)  # noqa: ASYNC251 (the mistake)


@activity(start_to_close="30s")
def upload(data: object) -> None:
    """Take anything."""


decide = signal("decide", bool)


async def pack(item: str) -> str:
    """Do a step."""
    return f"one {item}"


def look(ctx: WorkflowContext) -> None:
    """Use what a step must not use."""
    ctx.set_state("half of it")


@workflow
async def sell(ctx: WorkflowContext, item: str) -> str:
    """Do everything right."""
    return await ctx.step(pack, item)


@workflow
async def call_too_early(ctx: WorkflowContext) -> None:
    """Call the function of a step."""
    step: Any = ctx.step
    await step(pack("lamp"))


@workflow
async def use_a_lambda(ctx: WorkflowContext) -> None:
    """Give a step no name."""
    await ctx.step(lambda: 7)


@workflow
async def leak_the_context(ctx: WorkflowContext) -> None:
    """Give the context to a step."""
    await ctx.step(look, ctx)


@workflow
async def block(_ctx: WorkflowContext) -> None:
    """Block the thread."""
    time.sleep(1)  # noqa: ASYNC251 (the mistake)


@workflow
def block_plainly(_ctx: SyncWorkflowContext) -> None:
    """Block the thread of a plain body."""
    time.sleep(1)
