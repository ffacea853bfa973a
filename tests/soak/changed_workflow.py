"""The workflows of a later version: one of them does something first that it did not do before."""

from __future__ import annotations

from tenure import WorkflowContext, workflow
from tests.soak.sdk_workflow import go_on, nap_until, take_step, wait_often


def check_fraud(number: int) -> int:
    raise AssertionError(number)


@workflow
async def sleep_and_wait(ctx: WorkflowContext, milliseconds: int) -> list[int]:
    """Check first, then do what was done before."""
    await ctx.step(check_fraud, 1)
    found = [await ctx.step(take_step, 1)]
    await ctx.sleep(milliseconds / 1_000)
    await ctx.wait_signal(go_on)
    return found


__all__ = ["nap_until", "sleep_and_wait", "wait_often"]
