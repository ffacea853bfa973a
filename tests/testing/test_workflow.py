"""Workflows in the engine of the kit: their time passes when the test says so."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from tenure import (
    ApplicationError,
    Client,
    Payload,
    PayloadError,
    RetryPolicy,
    RunStatus,
    TaskFailed,
    TaskTimedOut,
    WorkflowContext,
    activity,
    signal,
    step,
    workflow,
)
from tenure.testing import SyncTestEngine, TestEngine, open_engine

outbox: list[str] = []
attempts: list[int] = []
stop = signal("stop")
tell = signal("tell", str)


def send(text: str) -> None:
    outbox.append(text)


async def take_a_while(number: int) -> int:
    await asyncio.sleep(0.1)
    return number


@step(retry=RetryPolicy(initial_interval="1h", max_attempts=3))
def fail_twice() -> int:
    attempts.append(len(attempts))
    if len(attempts) < 3:
        raise ValueError("not yet")
    return len(attempts)


@activity(start_to_close="30s")
def shout(text: str) -> str:
    return text.upper()


@workflow
async def weekly(ctx: WorkflowContext, weeks: int) -> datetime:
    for week in range(weeks):
        await ctx.step(send, f"week {week}")
        await ctx.sleep("7d")
    return ctx.now()


@workflow
async def beside(ctx: WorkflowContext) -> float:
    began = ctx.now()
    slow = ctx.step(take_a_while, 1)
    await ctx.sleep("50ms")
    slept = (ctx.now() - began).total_seconds()
    await slow
    return slept


@workflow
async def patient(ctx: WorkflowContext) -> int:
    return await ctx.step(fail_twice)


@workflow(timeout="2d")
async def bounded(ctx: WorkflowContext) -> None:
    await ctx.wait_signal(stop)


@workflow
async def loud(ctx: WorkflowContext, text: str) -> str:
    return await ctx.step(shout, text)


def fail_once() -> None:
    attempts.append(len(attempts))
    if len(attempts) == 1:
        raise ApplicationError("no", non_retryable=True)


@workflow
async def gamble(ctx: WorkflowContext) -> int:
    for number in range(20):
        if ctx.random().random() < 0.5:
            await ctx.step(send, f"heads {number}")
        else:
            await ctx.step(take_a_while, 0)
    await ctx.step(fail_once)
    return len(outbox)


@pytest.fixture(autouse=True)
def _forget() -> None:
    outbox.clear()
    attempts.clear()


async def test_weeks_of_sleep_pass_in_a_moment() -> None:
    start_at = datetime(2026, 3, 1, tzinfo=UTC)
    async with open_engine(start_at=start_at) as engine, engine.worker([weekly]):
        run = await engine.start(weekly, 4)
        await engine.advance("13d")
        assert outbox == ["week 0", "week 1"]
        assert await run.status() is RunStatus.SLEEPING
        await engine.advance("15d")
        assert len(outbox) == 4
        assert await run.result() == datetime(2026, 3, 29, tzinfo=UTC)


async def test_a_sleep_beside_a_running_step_waits_for_the_clock_of_the_test(
    tenure_engine: TestEngine,
) -> None:
    async with tenure_engine.worker([beside]):
        run = await tenure_engine.start(beside)
        assert await tenure_engine.advance_until(run.result()) == 0.05


async def test_late_retries_of_a_step_come_as_time_passes(tenure_engine: TestEngine) -> None:
    async with tenure_engine.worker([patient]):
        run = await tenure_engine.start(patient)
        await tenure_engine.advance("1m")
        assert len(attempts) == 1
        await tenure_engine.advance("4h")
        assert await run.result() == 3


async def test_a_retried_run_draws_the_numbers_of_the_first_one(tenure_engine: TestEngine) -> None:
    async with tenure_engine.worker([gamble]):
        run = await tenure_engine.start(gamble)
        with pytest.raises(TaskFailed):
            await tenure_engine.advance_until(run.result())
        drawn = len(outbox)
        again = await run.retry(from_step="last")
        # Steps before the failure are kept, and are called at the same places.
        assert await tenure_engine.advance_until(again.result()) == drawn
        assert len(attempts) == 2


async def test_the_timeout_of_a_run_ends_it(tenure_engine: TestEngine) -> None:
    async with tenure_engine.worker([bounded]):
        run = await tenure_engine.start(bounded)
        await tenure_engine.advance("47h")
        assert await run.status() is RunStatus.WAITING
        await tenure_engine.advance("2h")
        with pytest.raises(TaskTimedOut):
            await run.result()


async def test_a_worker_of_the_kit_runs_activities_and_workflows(
    tenure_engine: TestEngine, tenure_client: Client
) -> None:
    async with tenure_engine.worker([shout, loud]):
        assert await tenure_client.run(shout, "ho") == "HO"
        assert await (await tenure_engine.start(loud, "hey")).result() == "HEY"


async def test_a_run_goes_on_when_its_worker_was_killed(tenure_engine: TestEngine) -> None:
    async with tenure_engine.worker([weekly]) as victim:
        run = await tenure_engine.start(weekly, 2)
        await tenure_engine.advance("1d")
        await tenure_engine.kill_worker(victim)
        async with tenure_engine.worker([weekly]):
            await tenure_engine.advance_until(run.result())
    assert outbox == ["week 0", "week 1"]


def test_the_sync_engine_starts_runs_too(tenure_sync_engine: SyncTestEngine) -> None:
    with tenure_sync_engine.worker([weekly]):
        run = tenure_sync_engine.start(weekly, 2)
        tenure_sync_engine.advance("15d")
        assert run.result() is not None
    assert outbox == ["week 0", "week 1"]


class Reversed:
    """A codec that everybody has to use."""

    def encode(self, payload: Payload) -> Payload:
        return Payload(f"reversed:{payload.encoding}", payload.data[::-1])

    def decode(self, payload: Payload) -> Payload:
        kind, _, encoding = payload.encoding.partition(":")
        return Payload(encoding, payload.data[::-1]) if kind == "reversed" else payload


@workflow
async def secret(ctx: WorkflowContext, text: str) -> str:
    ctx.set_state({"heard": text})
    told = await ctx.wait_signal(tell)
    return await ctx.step(shout, text + told)


async def test_a_codec_sees_input_state_signals_and_results(tenure_engine: TestEngine) -> None:
    codec = Reversed()
    async with (
        tenure_engine.worker([secret], codec=codec),
        tenure_engine.client(codec=codec) as client,
        tenure_engine.client() as stranger,
    ):
        run = await client.start(secret, "ho")
        await tenure_engine.advance("1s")
        assert await run.state(dict[str, str]) == {"heard": "ho"}
        await run.signal(tell, "hey")
        assert await run.result() == "HOHEY"
        info = await run.describe()
        assert info.input is not None
        assert info.input == Payload("reversed:json", b'}"oh":"txet"{')
        with pytest.raises(PayloadError, match="The encoding 'reversed:json' is unknown"):
            await stranger.run_handle(run.run_id, result=str).result()


@activity(start_to_close="30s", retry=RetryPolicy(initial_interval="1d", max_attempts=3))
async def try_thrice(key: str) -> int:
    attempts.append(len(attempts))
    if len(attempts) < 3:
        raise ValueError(key)
    return len(attempts)


@workflow
async def monthly(ctx: WorkflowContext, name: str) -> str:
    await ctx.sleep("30d")
    return await ctx.execute(shout, name)


@workflow
async def parent(ctx: WorkflowContext) -> list[object]:
    tries = ctx.execute(try_thrice, "a")
    texts = await asyncio.gather(*(ctx.child(monthly, name) for name in ("a", "b")))
    return [await tries, *texts, *await (await ctx.map(shout, "xyz")).list()]


async def test_children_take_their_time_when_the_test_says_so(tenure_engine: TestEngine) -> None:
    attempts.clear()
    async with tenure_engine.worker([parent, monthly, shout, try_thrice]):
        run = await tenure_engine.start(parent)
        await tenure_engine.advance("29d")
        assert len(attempts) == 3
        assert await run.status() is RunStatus.WAITING
        await tenure_engine.advance("2d")
        assert await run.result() == [3, "A", "B", "X", "Y", "Z"]
