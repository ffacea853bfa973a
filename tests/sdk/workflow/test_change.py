"""Code that changes under a live run: patches, tolerance, and beginning anew."""

from __future__ import annotations

import asyncio
import functools
import uuid
from typing import Any, get_args

import pytest

from tenure.sdk.activity.decorator import activity
from tenure.sdk.workflow.context import WorkflowContext
from tenure.sdk.workflow.definition import Changes, workflow
from tenure.sdk.workflow.ending import Parked, Raised, Returned
from tenure.sdk.workflow.journal import Entry, Kind
from tenure.sdk.workflow.port import RunIdentity
from tenure.sdk.workflow.signal import signal
from tests.sdk.workflow.model import Model

go = signal("go", int)
HOUR_MS = 3_600_000


def one() -> int:
    return 1


def two() -> int:
    return 2


@activity(start_to_close="30s")
def charge(number: int) -> int:
    return number


def keys(model: Model) -> list[str]:
    return [each.key for each in model.journal]


# -- Patches


def patched_body(is_new: list[bool]) -> Any:
    @workflow
    async def body(ctx: WorkflowContext) -> str:
        way = "old"
        if is_new[0] and ctx.patched("p"):
            await ctx.step(two)
            way = "new"
        await ctx.step(one)
        await ctx.wait_signal(go)
        return way

    return body


def test_a_new_run_takes_the_new_way_and_records_it_before_its_steps() -> None:
    model = Model(patched_body([True]))
    model.on_recorded = lambda entry: model.crash() if entry.kind is not Kind.SIGNAL else None
    model.at(model.now_ms + HOUR_MS, lambda: model.signal("go", 1))

    assert model.result() == "new"
    assert keys(model) == ["p", "two", "one", "go"]


def test_no_step_of_the_new_way_begins_before_it_is_recorded() -> None:
    begun: list[bool] = []

    def look() -> None:
        begun.append("p" in keys(model))

    @workflow
    async def body(ctx: WorkflowContext) -> None:
        if ctx.patched("p"):
            await ctx.step(look)

    model = Model(body)
    model.result()

    assert begun == [True]


def test_a_run_that_came_past_it_keeps_to_the_old_way_on_every_re_run() -> None:
    is_new = [False]
    model = Model(patched_body(is_new))

    def change() -> None:
        is_new[0] = True
        model.hand_out(is_cold=True)

    for hour in (1, 2, 3):
        model.at(model.now_ms + hour * HOUR_MS, change)
    model.at(model.now_ms + 4 * HOUR_MS, lambda: model.signal("go", 1))

    assert model.result() == "old"
    assert keys(model) == ["one", "go"]


def test_a_run_with_a_child_that_the_code_has_not_called_keeps_to_the_old_way() -> None:
    is_new = [False]

    @workflow
    async def body(ctx: WorkflowContext) -> str:
        way = "new" if is_new[0] and ctx.patched("p") else "old"
        await ctx.execute(charge, 1)
        return way

    model = Model(body, code=(charge,))
    model.children.is_slow = True

    def change() -> None:
        is_new[0] = True
        model.hand_out(is_cold=True)

    model.at(model.now_ms + HOUR_MS, change)
    model.at(model.now_ms + 2 * HOUR_MS, model.children.end_all)

    assert model.result() == "old"


def test_signals_that_came_with_the_start_do_not_make_a_run_an_old_one() -> None:
    model = Model(patched_body([True]))
    model.append(Entry(Kind.SIGNAL, "go", output=b"1", encoding="json"))

    assert model.result() == "new"


def test_signals_do_not_make_a_run_an_old_one_in_a_later_attempt() -> None:
    model = Model(patched_body([True]))
    model.append(Entry(Kind.SIGNAL, "go", output=b"1", encoding="json"))
    model.attempt = 3
    model.hand_out()

    assert model.result() == "new"


def test_a_patch_that_the_code_has_dropped_is_ignored() -> None:
    is_new = [True]

    @workflow
    async def body(ctx: WorkflowContext) -> None:
        if is_new[0]:
            ctx.patched("p")
        await ctx.step(one)
        await ctx.wait_signal(go)

    model = Model(body)

    def change() -> None:
        is_new[0] = False
        model.hand_out(is_cold=True)

    model.at(model.now_ms + HOUR_MS, change)
    model.at(model.now_ms + 2 * HOUR_MS, lambda: model.signal("go", 1))

    assert isinstance(model.play(), Returned)


# -- Tolerance


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ([one], [two, one], "changed"),
        ([one, two], [two], "changed"),
        ([one, two], [one], "removed"),
        ([one, two], [two, one], "changed"),
    ],
)
def test_added_removed_and_moved_steps_park_unless_changes_are_tolerated(
    before: list[Any], after: list[Any], problem: str
) -> None:
    steps = [before]

    async def code(ctx: WorkflowContext) -> list[int]:
        found = [await ctx.step(each) for each in steps[0]]
        await ctx.wait_signal(go)
        return found

    for changes in get_args(Changes):
        steps[0] = before
        model = Model(workflow(name="body", changes=changes)(code))

        def change(model: Model = model) -> None:
            steps[0] = after
            model.hand_out(is_cold=True)

        model.at(model.now_ms + HOUR_MS, change)
        model.at(model.now_ms + 2 * HOUR_MS, functools.partial(model.signal, "go", 1))
        ending = model.play()
        if changes == "park":
            assert isinstance(ending, Parked)
            assert ending.mismatch.problem == problem
        else:
            assert isinstance(ending, Returned)
            assert ending.value == [each() for each in after]
            # Nothing that was recorded is carried out again.
            assert not model.repeated
            assert max(model.executions.values()) == 1


def test_a_tolerant_workflow_still_parks_for_another_kind() -> None:
    is_new = [False]

    @workflow(changes="tolerate")
    async def body(ctx: WorkflowContext) -> None:
        def charge_here(number: int) -> int:
            return number

        charge_here.__name__ = "charge"
        await (ctx.step(charge_here, 1) if is_new[0] else ctx.execute(charge, 1))

    model = Model(body, code=(charge,))
    model.children.is_slow = True

    def change() -> None:
        is_new[0] = True
        model.hand_out(is_cold=True)

    model.at(model.now_ms + HOUR_MS, change)

    assert isinstance(model.play(), Parked)


def test_only_two_ways_to_treat_changes_are_known() -> None:
    async def body(_ctx: WorkflowContext) -> None: ...

    with pytest.raises(ValueError, match='"park" or "tolerate"'):
        workflow(changes="ignore")(body)  # type: ignore[call-overload]


# -- Beginning anew


@workflow
async def count_to(ctx: WorkflowContext, goal: int, at: int = 0) -> int:
    try:
        at += await ctx.step(one)
        if at < goal:
            ctx.continue_as_new(goal, at=at)
    finally:
        await ctx.step(two)
    return at


def test_a_run_begins_anew_with_other_arguments_and_an_empty_journal() -> None:
    model = Model(count_to, 5)
    generations: list[tuple[int, int]] = []
    begin_anew = model._begin_anew  # noqa: SLF001 (to look at it)

    def note(ending: Any) -> None:
        generations.append((model.identity.generation, len(model.journal)))
        begin_anew(ending)

    model._begin_anew = note  # type: ignore[method-assign]  # noqa: SLF001 (the same)

    assert model.result() == 5
    assert generations == [(1, 2), (2, 2), (3, 2), (4, 2)]


def test_signals_that_nobody_has_taken_are_kept_in_their_order() -> None:
    @workflow
    async def body(ctx: WorkflowContext, got: list[int]) -> list[int]:
        got = [*got, await ctx.wait_signal(go)]
        if len(got) < 4:
            ctx.continue_as_new(got)
        return got

    model = Model(body, [])
    for number in range(4):
        model.append(Entry(Kind.SIGNAL, "go", output=str(number).encode(), encoding="json"))

    assert model.result() == [0, 1, 2, 3]


def test_it_ends_a_body_through_a_task_group() -> None:
    @workflow
    async def body(ctx: WorkflowContext, turn: int = 0) -> int:
        async with asyncio.TaskGroup() as group:
            group.create_task(again(ctx, turn))
        return turn

    async def again(ctx: WorkflowContext, turn: int) -> None:
        if turn < 3:
            ctx.continue_as_new(turn + 1)

    assert Model(body).result() == 3


def test_arguments_that_do_not_fit_are_refused_where_it_begins_anew() -> None:
    @workflow
    async def body(ctx: WorkflowContext, number: int) -> int:
        if number == 1:
            ctx.continue_as_new("one")
        return number

    ending = Model(body, 1).play()

    assert isinstance(ending, Raised)
    assert "workflow body: parameter number must be int, not str" in str(ending.error)


def test_keys_outside_differ_between_generations_and_not_between_retries_of_a_run() -> None:
    first = RunIdentity(run_id="a")
    anew = RunIdentity(run_id="a", generation=2)
    retried = RunIdentity(run_id="b", first_run_id="a")

    assert first.step_key("charge") == "a:1:charge" == retried.step_key("charge")
    assert anew.step_key("charge") == "a:2:charge"
    assert len({each.child_id("charge", 0, 1_000) for each in (first, anew, retried)}) == 3


def test_the_id_of_a_child_is_a_uuid_of_version_7_with_the_time_of_its_call() -> None:
    made = uuid.UUID(RunIdentity(run_id="a").child_id("charge", 3, 1_800_000_000_000))

    assert made.version == 7
    assert made.variant == uuid.RFC_4122
    assert made.int >> 80 == 1_800_000_000_000
