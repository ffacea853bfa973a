"""Runs: delivery, the frontier, sleeps, signals, cancel, and code that does not fit."""

from __future__ import annotations

import asyncio

import pytest

from tenure.sdk.failure import StepFailed
from tenure.sdk.workflow.context import WorkflowContext
from tenure.sdk.workflow.definition import workflow
from tenure.sdk.workflow.ending import Parked, Raised, Returned
from tenure.sdk.workflow.journal import Entry, Kind
from tenure.sdk.workflow.signal import signal
from tenure.sdk.workflow.step import Step
from tests.sdk.workflow.model import Model

approve = signal("approve", int)
stop = signal("stop")


async def double(number: int) -> int:
    return 2 * number


def fail(text: str) -> None:
    raise ValueError(text)


def test_steps_run_one_after_the_other_and_once() -> None:
    @workflow
    async def body(ctx: WorkflowContext, number: int) -> int:
        for _ in range(3):
            number = await ctx.step(double, number)
        return number

    model = Model(body, 1)

    assert model.result() == 8
    assert model.executions == {"double": 1, "double#2": 1, "double#3": 1}


def test_a_failed_step_raises_its_failure_with_the_key() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> str:
        try:
            await ctx.step(fail, "no")
        except StepFailed as error:
            return f"{error.key}: {error.error and error.error.type}"
        return "unreachable"

    assert Model(body).result() == "fail: ValueError"


def test_a_sleep_holds_no_worker() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> float:
        before = ctx.now()
        await ctx.sleep("3d")
        await asyncio.sleep(60)
        return (ctx.now() - before).total_seconds()

    model = Model(body)

    assert model.result() == pytest.approx(3 * 86_400 + 60, abs=1)
    assert [each.key for each in model.journal] == ["sleep", "sleep#2"]


def test_a_timeout_ends_a_wait_for_a_signal() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> list[int]:
        got = []
        try:
            got.append(await ctx.wait_signal(approve, timeout="1h"))
        except TimeoutError:
            got.append(-1)
        got.append(await ctx.wait_signal(approve))
        return got

    model = Model(body)
    model.at(model.now_ms + 2 * 3_600_000, lambda: model.signal("approve", 7))

    assert model.result() == [-1, 7]


@pytest.mark.parametrize("output", [None, b""])
def test_a_signal_without_a_payload_has_the_value_none(output: bytes | None) -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> bool:
        await ctx.wait_signal(stop)
        return True

    model = Model(body)
    model.at(
        model.now_ms, lambda: model.tell(model.append(Entry(Kind.SIGNAL, "stop", output=output)))
    )

    assert model.result() is True


def test_a_cancel_can_be_cleaned_up_with_steps_and_sleeps() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> None:
        try:
            await ctx.sleep("30d")
        finally:
            await ctx.step(double, 1)
            await ctx.sleep("1h")
            await ctx.step(double, 2)

    model = Model(body)
    model.at(model.now_ms + 1_000, model.cancel)
    ending = model.play()

    assert isinstance(ending, Raised)
    assert ending.is_cancel
    assert [each.key for each in model.journal] == ["cancel", "double", "sleep#2", "double#2"]


@pytest.mark.parametrize("crash_after", range(1, 11))
def test_a_worker_that_dies_after_any_entry_loses_nothing(crash_after: int) -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> int:
        total = 0
        for number in range(10):
            total += await ctx.step(double, number)
        return total

    model = Model(body, seed=crash_after)
    model.on_recorded = lambda entry: model.crash() if entry.pos == crash_after else None

    assert model.result() == 90
    assert not model.repeated
    assert sum(model.executions.values()) == 10


def test_another_step_in_the_place_of_a_recorded_one_parks_the_run() -> None:
    names = ["double"]

    @workflow
    async def body(ctx: WorkflowContext) -> None:
        if names[0] == "double":
            await ctx.step(double, 1)
        else:
            await ctx.step(fail, "other")
        await ctx.sleep("1h")

    model = Model(body, seed=3)

    def change() -> None:
        names[0] = "fail"
        model.hand_out(is_cold=True)

    model.at(model.now_ms + 60_000, change)
    ending = model.play()

    assert isinstance(ending, Parked)
    assert ending.mismatch.problem == "changed"
    assert "at 0 the journal has double (step), the code calls fail" in ending.mismatch.message
    assert "test_run.py:" in ending.mismatch.message


def test_a_removed_step_parks_the_run() -> None:
    is_there = [True]

    @workflow
    async def body(ctx: WorkflowContext) -> None:
        if is_there[0]:
            await ctx.step(double, 1)
        await ctx.wait_signal(approve)

    model = Model(body, seed=3)

    def change() -> None:
        is_there[0] = False
        model.hand_out(is_cold=True)

    model.at(model.now_ms + 60_000, change)
    ending = model.play()

    assert isinstance(ending, Parked)
    assert ending.mismatch.problem == "removed"


def test_a_body_that_returns_waits_for_its_open_steps() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> str:
        ctx.step(double, 1)
        return "done"

    model = Model(body)

    assert isinstance(model.play(), Returned)
    assert [each.key for each in model.journal] == ["double"]


def test_the_end_of_a_step_is_delivered_at_its_position_and_not_before() -> None:
    seen: list[str] = []

    @workflow
    async def body(ctx: WorkflowContext) -> None:
        async def stepping() -> None:
            await ctx.step(double, 1)
            seen.append("step")

        async def listening() -> None:
            await ctx.wait_signal(approve)
            seen.append("signal")

        await asyncio.gather(stepping(), listening())

    model = Model(body)
    model.hand_out()
    assert model.holder is not None
    send = model.holder.send

    def overtaken(entry: Entry) -> None:
        # The signal is recorded while the end of the step is on its way.
        model.signal("approve", 1)
        send(entry)

    model.holder.send = overtaken  # type: ignore[method-assign]
    model.play()

    assert [each.key for each in model.journal] == ["approve", "1/double"]
    assert seen == ["signal", "step"]


def test_a_step_that_somebody_else_has_finished_is_not_tried_again() -> None:
    started: list[str] = []

    @workflow
    async def body(ctx: WorkflowContext) -> int:
        return await ctx.step(double, 1)

    model = Model(body)
    model.hand_out()
    holder = model.holder
    assert holder is not None

    def put_off(step: Step[int], _retries: Entry | None) -> None:
        started.append(step.key)
        late_ms = model.now_ms + 60_000
        retry = Entry(Kind.RETRY, step.key, attempts=1, next_at_ms=late_ms)
        model.at(model.now_ms, lambda: holder.run.step_put_off(step, retry))

    def finish_elsewhere() -> None:
        # The worker keeps the run in its memory; another one had it in between.
        model.warm = holder
        model.append(Entry(Kind.STEP, "double", output=b"2", encoding="json"))
        model.now_ms += 120_000
        model.hand_out()

    holder.start_step = put_off  # type: ignore[method-assign]
    model.at(model.now_ms + 1_000, finish_elsewhere)

    assert model.result() == 2
    assert started == ["double"]
