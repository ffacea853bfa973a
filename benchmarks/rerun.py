"""How long the body of a workflow takes to come to where it was, from a journal in memory."""

from __future__ import annotations

import time

from tenure.sdk.workflow.context import WorkflowContext
from tenure.sdk.workflow.definition import workflow
from tests.sdk.workflow.model import Model

ROUNDS = 5


async def _one() -> int:
    return 1


@workflow
async def _many(ctx: WorkflowContext, count: int) -> int:
    return sum([await ctx.step(_one) for _ in range(count)])


def rerun_ms(*, entries: int) -> float:
    """Return the best time of some re-runs of a journal with so many entries."""
    first = Model(_many, entries)
    first.play()
    return min(_again_ms(first) for _ in range(ROUNDS))


def _again_ms(first: Model) -> float:
    again = Model(_many, *first.arguments.values())
    again.journal = first.journal
    began = time.perf_counter()
    again.play()
    return (time.perf_counter() - began) * 1e3
