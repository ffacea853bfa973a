"""What a handle tells of the steps of its run, done by a real worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime

import pytest

from tenure import (
    Client,
    RunStatus,
    RunStep,
    StepItems,
    StepKind,
    StepStatus,
    SyncClient,
    TaskFailed,
    Worker,
    WorkflowContext,
    activity,
    signal,
    workflow,
)
from tenure.errors import NotFound
from tests.bounds import WORK_S
from tests.polling import eventually
from tests.sdk.client.stage import ServerStage, double

go = signal("go")


async def load(order: str) -> str:
    return f"{order} loaded"


async def refuse() -> None:
    raise ValueError("no such card")


@activity(start_to_close="1m")
async def pack(number: int) -> int:
    return number


@activity(start_to_close="1m", queue="nowhere")
async def ship(order: str) -> str:
    return order


@workflow
async def order_of_steps(ctx: WorkflowContext, order: str) -> str:
    await ctx.step(load, order)
    await ctx.execute(pack, 7)
    await ctx.map(pack, range(3))
    shipped = ctx.execute(ship, order)
    await ctx.wait_signal(go)
    shipped.cancel()
    try:
        await ctx.step(refuse)
    except TaskFailed:
        return "refused"
    return "accepted"


@asynccontextmanager
async def working(stage: ServerStage) -> AsyncIterator[None]:
    worker = Worker(stage.target, workflows=[order_of_steps], activities=[pack])
    running = asyncio.ensure_future(worker.run(handle_signals=False))
    try:
        yield
    finally:
        await worker.shutdown("1s")
        await running


def shown(steps: list[RunStep]) -> list[tuple[str, StepKind, StepStatus]]:
    return [(each.key, each.kind, each.status) for each in steps]


async def test_the_steps_of_a_run_are_told_while_it_goes_on_and_after_its_end(
    any_stage: ServerStage,
) -> None:
    async with asyncio.timeout(WORK_S), Client(any_stage.target) as client, working(any_stage):
        run = await client.start(order_of_steps, "lamp")

        async def is_waiting() -> bool:
            return await run.status() is RunStatus.WAITING and len(await steps()) == 4

        async def steps(key: str = "") -> list[RunStep]:
            return [each async for each in run.steps(key=key)]

        await eventually(is_waiting)
        found = await steps()
        assert shown(found) == [
            ("load", StepKind.LOCAL, StepStatus.COMPLETED),
            ("pack", StepKind.CHILD, StepStatus.COMPLETED),
            ("map:pack", StepKind.MAP, StepStatus.COMPLETED),
            ("ship", StepKind.CHILD, StepStatus.PENDING),
        ]
        local, queued, mapped, waiting = found
        assert local.output is not None
        assert local.output.data == b'"lamp loaded"'
        assert (local.id, local.attempt) == (f"{run.run_id}.0.1", 1)
        assert local.site.startswith("test_steps.py:")
        assert isinstance(local.finished_at, datetime)
        assert (await client.handle(queued.task_id).describe()).parent_id == run.run_id
        assert mapped.items == StepItems(total=3, succeeded=3, failed=0, cancelled=0)
        assert (waiting.output, waiting.error, waiting.started_at) == (None, None, None)
        assert await steps("load") == [local]
        await run.signal(go)
        assert await run.result() == "refused"
        *_, refused = await steps("refuse")
        assert (refused.status, refused.attempt) == (StepStatus.FAILED, 3)
        assert refused.error is not None
        assert refused.error.message == "no such card"


async def test_the_synchronous_client_tells_the_same(stage: ServerStage) -> None:
    def work() -> list[RunStep]:
        with SyncClient(stage.target) as client:
            run = client.start(order_of_steps, "lamp")
            run.signal(go)
            run.result(timeout=WORK_S)
            return list(run.steps(key="load"))

    async with asyncio.timeout(WORK_S), working(stage):
        (found,) = await asyncio.to_thread(work)
    assert shown([found]) == [("load", StepKind.LOCAL, StepStatus.COMPLETED)]


async def test_a_task_has_no_steps(client: Client) -> None:
    task = await client.enqueue(double, 1)
    with pytest.raises(NotFound, match="Run"):
        _ = [each async for each in client.run_handle(task.task_id).steps()]
