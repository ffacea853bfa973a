"""``ctx.map``: one step for many items, and results that are read in pages."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from tenure.sdk.activity.decorator import activity
from tenure.sdk.failure import TaskFailed
from tenure.sdk.workflow.context import WorkflowContext
from tenure.sdk.workflow.definition import workflow
from tenure.sdk.workflow.ending import Parked, Raised
from tenure.sdk.workflow.journal import Kind
from tenure.sdk.workflow.results import Results
from tests.sdk.workflow.model import Model


@activity(start_to_close="30s")
def double(number: int) -> int:
    if number < 0:
        raise ValueError(f"{number} is negative")
    return 2 * number


async def total_of(results: Results[int]) -> int:
    return sum([value async for _, value in results])


def total_in_a_thread(results: Results[int]) -> int:
    return sum(value for _, value in results)


@pytest.mark.parametrize("seed", range(6))
def test_a_map_is_one_entry_however_many_items_it_has(seed: int) -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> Any:
        done = await ctx.map(double, range(20))
        pairs = [(item, value) async for item, value in done]
        return done.total, done.succeeded, done.failed, pairs

    model = Model(body, seed=seed, code=(double,))

    assert model.result() == (20, 20, 0, [(number, 2 * number) for number in range(20)])
    assert [(each.kind, each.key) for each in model.journal] == [(Kind.GROUP, "map:double")]


def test_the_values_of_a_map_can_be_had_as_a_list() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> list[int]:
        return await (await ctx.map(double, [3, 1, 2])).list()

    assert Model(body, code=(double,)).result() == [6, 2, 4]


def test_a_map_that_collects_gives_failures_as_values() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> Any:
        done = await ctx.map(double, [1, -2, 3], on_error="collect")
        values = await done.list()
        return (
            done.succeeded,
            done.failed,
            [str(each.error) if isinstance(each, TaskFailed) else each for each in values],
        )

    result = Model(body, code=(double,)).result()

    assert result == (2, 1, [2, "ValueError: -2 is negative", 6])


def test_a_map_that_fails_raises_its_first_failure() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> str:
        try:
            await ctx.map(double, [1, -2, 3])
        except TaskFailed as failed:
            return str(failed)
        return ""

    result = Model(body, code=(double,)).result()

    assert result == "An item of map:double failed: ValueError: -2 is negative"


def test_a_map_of_nothing_is_done_at_once_and_recorded() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> Any:
        done = await ctx.map(double, [])
        return done.total, await done.list()

    model = Model(body, code=(double,))

    assert model.result() == (0, [])
    assert [(each.kind, each.key) for each in model.journal] == [(Kind.STEP, "map:double")]
    assert not model.children.reports


@pytest.mark.parametrize("function", [total_of, total_in_a_thread])
def test_a_step_reads_the_results_that_it_gets(function: Any) -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> int:
        done = await ctx.map(double, range(10))
        return await ctx.step(function, done)

    assert Model(body, code=(double,)).result() == 90


def test_results_are_not_read_with_a_plain_for_in_a_body() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> int:
        return total_in_a_thread(await ctx.map(double, [1]))

    ending = Model(body, code=(double,)).play()

    assert isinstance(ending, Raised)
    assert "async for" in str(ending.error)


@pytest.mark.parametrize("seed", range(4))
def test_a_map_goes_on_behind_the_items_that_are_stored(seed: int) -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> int:
        return len(await (await ctx.map(double, range(2_500))).list())

    model = Model(body, seed=seed, code=(double,))
    model.on_spawned = model.crash
    model.children.is_slow = True
    model.at(model.now_ms + 10_000, model.children.end_all)

    assert model.result() == 2_500
    assert not model.children.repeated
    assert [len(each.children) for each in model.children.reports] == [1_000, 1_000, 500]


def test_nothing_is_delivered_while_a_body_waits_for_a_page() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> list[str]:
        story: list[str] = []
        done = await ctx.map(double, range(12))

        async def read() -> None:
            async for item, _ in done:
                story.append(f"item {item}")

        async def sleep() -> None:
            for number in range(30):
                await ctx.sleep("1ms")
                story.append(f"sleep {number}")

        await asyncio.gather(read(), sleep())
        return story

    first = Model(body, seed=1, code=(double,))
    story = first.result()
    again = Model(body, seed=5, code=(double,))
    again.journal = list(first.journal)
    ends = first.children.groups["map:double"].ends
    again.children.take_over({"map:double": [*ends.values()]})

    assert again.result() == story
    assert story[:12] == [f"item {number}" for number in range(12)]


def test_two_branches_read_the_same_results() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> list[list[int]]:
        done = await ctx.map(double, range(5))
        return list(await asyncio.gather(done.list(), done.list()))

    assert Model(body, code=(double,)).result() == [[0, 2, 4, 6, 8]] * 2


def test_an_item_that_does_not_fit_is_refused_at_the_call() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> None:
        ctx.map(double, [1, "two"])  # type: ignore[arg-type]

    model = Model(body, code=(double,))
    ending = model.play()

    assert isinstance(ending, Raised)
    assert str(ending.error).startswith("item 1: ")
    assert "parameter number must be int, not str" in str(ending.error)
    assert not model.children.reports


def test_options_of_a_map_are_checked() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> None:
        ctx.map(double, [1], on_error="ignore")  # type: ignore[call-overload]

    ending = Model(body, code=(double,)).play()

    assert isinstance(ending, Raised)
    assert "on_error must be one of fail, collect" in str(ending.error)


def test_items_without_an_end_are_refused_and_not_collected() -> None:
    read = itertools.count()

    @workflow
    async def body(ctx: WorkflowContext) -> None:
        await ctx.map(double, read)

    model = Model(body, code=(double,))
    ending = model.play()

    assert isinstance(ending, Raised)
    assert str(ending.error) == "map takes up to 100,000 items, and these are more: split them"
    assert next(read) == 100_001
    assert not model.children.reports


@pytest.mark.parametrize(("on_cancel", "ends"), [("try", 0), ("wait", 1), ("abandon", 0)])
def test_a_cancelled_map_asks_waits_or_abandons(on_cancel: Any, ends: int) -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> int:
        try:
            async with asyncio.timeout(1):
                await ctx.map(double, range(3), on_cancel=on_cancel)
        except TimeoutError:
            pass
        return sum(each.has_ended for each in model.children.groups.values())

    model = Model(body, code=(double,))
    model.children.is_slow = True

    assert model.result() == ends
    keys = [each.group_key for each in model.children.cancels]
    assert keys == ([] if on_cancel == "abandon" else ["map:double"])


def test_another_number_of_items_parks_the_run() -> None:
    items = [1, 2, 3]

    @workflow
    async def body(ctx: WorkflowContext) -> None:
        await ctx.map(double, items)

    model = Model(body, code=(double,))
    model.children.is_slow = True

    def change() -> None:
        items.append(4)
        model.hand_out(is_cold=True)

    model.at(model.now_ms + 60_000, change)
    ending = model.play()

    assert isinstance(ending, Parked)
    assert "map:double (open group of 3 items)" in ending.mismatch.message
    assert "calls map:double with 4 items (test_map.py:" in ending.mismatch.message


def test_a_result_that_does_not_fit_parks_the_run() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> None:
        done = await ctx.map(double, [1])
        await ctx.sleep("1h")
        await done.list()

    model = Model(body, code=(double,))

    def spoil() -> None:
        model.children.groups["map:double"].ends[0].output = b'"two"'

    model.at(model.now_ms + 60_000, spoil)
    ending = model.play()

    assert isinstance(ending, Parked)
    assert ending.mismatch.problem == "unreadable"
    assert "item 0 of map:double" in ending.mismatch.message
