"""What a client is told of runs that wait: the line of the code, and the cause behind it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tenure import Client, RunExplanation, WorkflowContext, activity, signal, workflow
from tenure.core.run.status import RunStatus
from tenure.sdk.client import stalled_wait
from tests.polling import eventually
from tests.sdk.worker.run.stage import RunStage

go = signal("go")


@activity(start_to_close="1m")
async def resize(image: str) -> str:
    raise AssertionError(f"no worker of these tests offers it: {image}")


@workflow
async def naps(ctx: WorkflowContext) -> None:
    await ctx.sleep("30d")


@workflow
async def asks(ctx: WorkflowContext) -> None:
    async with asyncio.timeout(86_400):
        await ctx.wait_signal(go)


@workflow
async def shrinks(ctx: WorkflowContext) -> str:
    return await ctx.execute(resize, "a.png")


@workflow
async def albums(ctx: WorkflowContext) -> str:
    return await ctx.child(shrinks)


@pytest.fixture
async def client(stage: RunStage) -> AsyncIterator[Client]:
    async with Client(stage.rig.proxy.address) as made:
        yield made


async def rested(client: Client, run_id: str, status: RunStatus) -> RunExplanation:
    """Return the explanation of a run that rests."""
    found = await client.run_handle(run_id).explain()

    async def has_come() -> bool:
        nonlocal found
        found = await client.run_handle(run_id).explain()
        return found.status is status

    await eventually(has_come)
    return found


async def followed(client: Client, run_id: str) -> RunExplanation:
    """Return the explanation of a run whose children all wait."""
    found = await client.run_handle(run_id).explain()

    async def is_followed() -> bool:
        nonlocal found
        found = await client.run_handle(run_id).explain()
        return found.reasons[0].cause.code == "no_worker_for_type"

    await eventually(is_followed)
    return found


def place(body: Callable[..., Any], number: int) -> str:
    return f"test_explained.py:{body.__code__.co_firstlineno + number}"


async def test_a_sleep_is_explained_with_its_line(stage: RunStage, client: Client) -> None:
    async with stage.worker(naps):
        run_id = await stage.start(naps)
        found = await rested(client, run_id, RunStatus.SLEEPING)
    (reason,) = found.reasons
    line = place(naps.function, 2)
    assert reason.message.startswith("It sleeps until ")
    assert reason.message.endswith(f", at {line}.")
    assert (reason.evidence["for"], reason.evidence["site"]) == ("timer", line)
    assert str(found).startswith(f"Run {run_id} is sleeping.")


async def test_a_signal_and_its_timeout_are_explained_with_their_lines(
    stage: RunStage, client: Client
) -> None:
    async with stage.worker(asks):
        found = await rested(client, await stage.start(asks), RunStatus.WAITING)
    signal_, timeout = found.reasons
    assert signal_.message.startswith("It waits for the signal go since ")
    assert signal_.evidence["site"] == place(asks.function, 3)
    assert timeout.evidence["site"] == place(asks.function, 2)


async def test_a_run_is_explained_down_to_the_activity_that_nobody_offers(
    stage: RunStage, client: Client
) -> None:
    async with stage.worker(albums, shrinks):
        run_id = await stage.start(albums)
        found = await followed(client, run_id)
    reason = found.reasons[0]
    assert (reason.evidence["key"], reason.evidence["site"]) == (
        "child:shrinks",
        place(albums.function, 2),
    )
    (child,) = reason.tasks
    assert (child.type, child.is_run, child.status) == ("shrinks", True, "WAITING")
    inner = child.reasons[0]
    assert inner.evidence["site"] == place(shrinks.function, 2)
    (task,) = inner.tasks
    assert (task.type, task.is_run, task.status) == ("resize", False, "PENDING")
    assert inner.cause is task.reasons[0]
    assert "without offering resize" in inner.cause.message
    assert f"      no_worker_for_type: {inner.cause.message}" not in str(found)
    assert f"    no_worker_for_type: {inner.cause.message}" in str(found)


async def test_who_waits_for_a_run_is_told_what_is_in_the_way_of_its_child(
    stage: RunStage,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(stalled_wait, "STALLED_S", 0.05)
    monkeypatch.setattr(stalled_wait, "LOOK_S", 0.02)

    def told() -> list[str]:
        return [each.getMessage() for each in caplog.records if each.name == "tenure.client"]

    async with stage.worker(albums, shrinks):
        run_id = await stage.start(albums)
        await followed(client, run_id)
        waiting = asyncio.ensure_future(client.run_handle(run_id).result())
        await eventually(told)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    (line,) = told()
    assert f"{run_id}, which does not run. no_worker_for_type: " in line
    assert "without offering resize" in line
