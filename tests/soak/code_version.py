"""One workflow in the code that a run begins with, and in versions that were deployed after it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from tenure import Workflow, WorkflowContext, workflow
from tenure import signal as make_signal
from tests.soak.sdk_activity import note
from tests.soak.sdk_workflow import go_on

# Nobody waits for it: it only wakes a run up, so that it is run again.
nudge = make_signal("nudge")
STEPS: Final = ("charge", "pack", "label", "courier")
Body = Callable[[WorkflowContext], Awaitable[list[str]]]


def charge() -> str:
    note("charge")
    return "charge"


def debit() -> str:
    note("debit")
    return "debit"


def check_fraud() -> str:
    note("check_fraud")
    return "check_fraud"


def pack() -> str:
    note("pack")
    return "pack"


def label() -> str:
    note("label")
    return "label"


def bring() -> str:
    note("courier")
    return "courier"


@workflow
async def courier(ctx: WorkflowContext) -> str:
    """Be open for as long as the parent waits."""
    name = await ctx.step(bring)
    await ctx.wait_signal(go_on)
    return name


@workflow
async def drone(ctx: WorkflowContext) -> str:
    return await ctx.step(bring)


async def _one(ctx: WorkflowContext, step: Callable[[], str]) -> str:
    return await ctx.step(step)


async def _end(ctx: WorkflowContext, *found: str) -> list[str]:
    """Call the child, wait, and let it end."""
    child = ctx.child(courier.with_options(queue=ctx.info.queue))
    await ctx.wait_signal(go_on)
    await child.signal(go_on, 1)
    return [*found, await child]


async def base(ctx: WorkflowContext) -> list[str]:
    """Charge, pack and label at once, and send a courier."""
    first = await ctx.step(charge)
    both = await asyncio.gather(_one(ctx, pack), _one(ctx, label))
    return await _end(ctx, first, *both)


async def added(ctx: WorkflowContext) -> list[str]:
    await ctx.step(check_fraud)
    return await base(ctx)


async def removed(ctx: WorkflowContext) -> list[str]:
    both = await asyncio.gather(_one(ctx, pack), _one(ctx, label))
    return await _end(ctx, "charge", *both)


async def renamed(ctx: WorkflowContext) -> list[str]:
    first = await ctx.step(debit)
    both = await asyncio.gather(_one(ctx, pack), _one(ctx, label))
    return await _end(ctx, first, *both)


async def moved(ctx: WorkflowContext) -> list[str]:
    both = await asyncio.gather(_one(ctx, pack), _one(ctx, label))
    return await _end(ctx, await ctx.step(charge), *both)


async def other_branch(ctx: WorkflowContext) -> list[str]:
    first = await ctx.step(charge)
    both = await asyncio.gather(_one(ctx, label), _one(ctx, pack))
    return await _end(ctx, first, *both)


async def no_branch(ctx: WorkflowContext) -> list[str]:
    first = await ctx.step(charge)
    both = await asyncio.gather(ctx.step(pack), ctx.step(label))
    return await _end(ctx, first, *both)


async def no_child(ctx: WorkflowContext) -> list[str]:
    first = await ctx.step(charge)
    both = await asyncio.gather(_one(ctx, pack), _one(ctx, label))
    await ctx.wait_signal(go_on)
    return [first, *both, "courier"]


async def other_child(ctx: WorkflowContext) -> list[str]:
    first = await ctx.step(charge)
    both = await asyncio.gather(_one(ctx, pack), _one(ctx, label))
    child = ctx.child(drone.with_options(queue=ctx.info.queue))
    await ctx.wait_signal(go_on)
    return [first, *both, await child]


async def longer(ctx: WorkflowContext) -> list[str]:
    """Change only what comes after all that was recorded."""
    found = await base(ctx)
    return [*found, await ctx.step(check_fraud)]


async def patched(ctx: WorkflowContext) -> list[str]:
    """Check for fraud first, in runs that begin with this code."""
    if not ctx.patched("fraud"):
        return await base(ctx)
    return [await ctx.step(check_fraud), *await base(ctx)]


# By what was changed: the code, and what the run says of it. Nothing: it goes on.
VERSIONS: Final[dict[str, tuple[Body, tuple[str, ...]]]] = {
    "added": (added, ("charge", "check_fraud")),
    "removed": (removed, ("charge",)),
    "renamed": (renamed, ("charge", "debit")),
    "moved": (moved, ("charge",)),
    "other_branch": (other_branch, ("pack", "label")),
    "no_branch": (no_branch, ("pack",)),
    "no_child": (no_child, ("courier",)),
    "other_child": (other_child, ("courier", "drone")),
    "longer": (longer, ()),
    "patched": (patched, ()),
}


def sale(body: Body) -> Workflow[[], list[str]]:
    """Return the workflow ``sale`` with this code."""

    async def run(ctx: WorkflowContext) -> list[str]:
        return await body(ctx)

    made: Workflow[..., Any] = workflow(name="sale")(run)
    return made
