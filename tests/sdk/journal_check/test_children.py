"""Children, groups and patches in a re-run: nothing is made, and what differs is told."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tenure import Payload, WorkflowContext, activity, workflow
from tenure.sdk.journal_check.finding import Finding, Verdict
from tenure.sdk.journal_check.recorded import RecordedRun
from tenure.sdk.journal_check.rerun import rerun
from tenure.v1 import task_pb2
from tests.sdk.journal_check.journal import entries, mark, recorded, step

SAFE = Finding(verdict=Verdict.SAFE)


@activity(start_to_close="1m")
def pack(item: str) -> str:
    raise AssertionError(item)


def one() -> int:
    raise AssertionError


@workflow
async def report(_ctx: WorkflowContext, name: str = "") -> str:
    return name


@workflow
async def ship(ctx: WorkflowContext) -> str:
    parcel = await ctx.execute(pack, "lamp")
    return await ctx.child(report, parcel)


@workflow
async def ship_all(ctx: WorkflowContext) -> int:
    packed = await ctx.map(pack, ["a", "b", "c"], on_error="collect")
    return len(await packed.list())


def child(key: str, index: int, output: bytes = b'"packed"') -> task_pb2.NewEntry:
    made = mark(task_pb2.ENTRY_KIND_CHILD, key)
    made.index, made.output, made.encoding = index, output, "json"
    return made


def of_type(run: RecordedRun, *types: str) -> RecordedRun:
    """Name the types of children, entry by entry."""
    for entry, type in zip(run.entries, types, strict=True):
        entry.child.task_id, entry.child.type = "c", type
        entry.child.state = task_pb2.TASK_STATE_SUCCEEDED
    return run


def with_open(run: RecordedRun, key: str, type: str, index: int = 0) -> RecordedRun:
    kind = task_pb2.TASK_KIND_ACTIVITY
    call = task_pb2.OpenChild(task_id="o", key=key, index=index, type=type, kind=kind)
    return replace(run, open_children=[call])


def test_children_that_are_open_or_have_ended_are_met() -> None:
    assert rerun(ship, recorded("ship")) == SAFE
    assert rerun(ship, with_open(recorded("ship"), "pack", "pack")) == SAFE
    ended = of_type(recorded("ship", child("pack", 0)), "pack")
    assert rerun(ship, ended) == SAFE
    assert rerun(ship, with_open(ended, "child:report", "report", 1)) == SAFE


def test_an_open_child_that_is_not_called_would_park() -> None:
    found = rerun(ship, with_open(recorded("ship"), "wrap", "wrap", 5))
    assert found.verdict is Verdict.PARKS
    assert "the journal has wrap (open child), the code does not call it" in found.message


def test_a_child_of_another_type_would_park() -> None:
    found = rerun(ship, with_open(recorded("ship"), "pack", "pack_twice"))
    assert found.verdict is Verdict.PARKS
    assert "changed" in found.message


def test_an_open_child_with_other_arguments_is_a_warning() -> None:
    def given(text: bytes) -> Any:
        run = with_open(recorded("ship"), "pack", "pack")
        return replace(run, child_input=lambda _: Payload("json", text))

    assert rerun(ship, given(b'{"item":"lamp"}')) == SAFE
    (warning,) = rerun(ship, given(b'{"item":"rug"}')).warnings
    assert warning.startswith("pack is open and called with other arguments now (test_children.py")
    assert warning.endswith("it goes on with those it has")


def test_a_group_is_met_and_its_results_are_read_in_pages() -> None:
    asked: list[tuple[str, int]] = []

    def results(key: str, after: int) -> task_pb2.JournalPage:
        asked.append((key, after))
        items = [child(str(item), 0) for item in range(3)]
        return task_pb2.JournalPage(entries=entries(items)[after : after + 2], end=3)

    ended = recorded("ship_all", mark(task_pb2.ENTRY_KIND_GROUP, "map:pack"))
    ended.entries[0].group.total, ended.entries[0].group.succeeded = 3, 3
    assert rerun(ship_all, replace(ended, results=results)) == SAFE
    assert asked == [("map:pack", 0), ("map:pack", 2)]
    group = task_pb2.OpenGroup(group_id="g", key="map:pack", type="pack", total=3, spawned=3)
    assert rerun(ship_all, replace(recorded("ship_all"), open_groups=[group])) == SAFE
    group.total = 4
    found = rerun(ship_all, replace(recorded("ship_all"), open_groups=[group]))
    assert found.verdict is Verdict.PARKS
    assert "of 4 items" in found.message


def test_a_run_that_begins_anew_is_safe() -> None:
    @workflow
    async def again(ctx: WorkflowContext) -> None:
        await ctx.step(one)
        ctx.continue_as_new()

    assert rerun(again, recorded("again", step("one", 0, 1))) == SAFE


def test_patches_are_told_with_their_answers() -> None:
    @workflow
    async def patched(ctx: WorkflowContext) -> None:
        if ctx.patched("twice"):
            await ctx.step(one)
        await ctx.step(one)

    old = rerun(patched, recorded("patched", step("one", 0, 1)))
    assert old == Finding(verdict=Verdict.SAFE, patches=(("twice", False),))
    marker = mark(task_pb2.ENTRY_KIND_PATCH, "twice")
    new = rerun(patched, recorded("patched", marker, step("one", 0, 1), step("one#2", 1, 1)))
    assert new == Finding(verdict=Verdict.SAFE, patches=(("twice", True),))
    assert rerun(patched, recorded("patched")).patches == (("twice", True),)


def test_code_that_tolerates_changes_is_checked_as_it_will_run() -> None:
    @workflow(changes="tolerate")
    async def tolerant(ctx: WorkflowContext) -> None:
        await ctx.step(one)

    assert rerun(tolerant, recorded("tolerant", step("two", 0, 1))) == SAFE
    parked = rerun(tolerant, recorded("tolerant", step("one", 0, "no number")))
    assert parked.verdict is Verdict.PARKS
