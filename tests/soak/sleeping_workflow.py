"""A workflow that sleeps, and says when it goes on."""

from __future__ import annotations

from datetime import UTC, datetime

from tenure import WorkflowContext, step, workflow
from tests.soak.sdk_activity import note


@step
async def wake() -> None:
    note("woke")


@workflow
async def nap_until(ctx: WorkflowContext, until_s: float) -> None:
    await ctx.sleep_until(datetime.fromtimestamp(until_s, UTC))
    await ctx.step(wake)


WORKFLOWS = [nap_until]
