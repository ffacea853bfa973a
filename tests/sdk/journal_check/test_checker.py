"""Runs of equal shape are re-run once, and counted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tenure import WorkflowContext, workflow
from tenure.sdk.journal_check.checker import RunChecker
from tenure.sdk.journal_check.recorded import RecordedRun
from tenure.v1 import task_pb2
from tenure.v1.workflow_service_pb2 import WorkflowRun
from tests.sdk.journal_check import journal
from tests.sdk.journal_check.journal import recorded, step

begun: list[str] = []


def one() -> int:
    return 1


@workflow
async def short(ctx: WorkflowContext, name: str = "") -> None:
    begun.append(name)
    await ctx.step(one)
    await ctx.sleep("1h")


class Source:
    """Runs in memory; the pages of their journals have one entry each."""

    def __init__(self, *runs: RecordedRun) -> None:
        self.runs = {each.run.run_id: each for each in runs}
        self.reads: list[str] = []

    def get_run(self, run_id: str) -> WorkflowRun:
        self.reads.append(run_id)
        return self.runs[run_id].run

    def pages(self, run_id: str) -> Iterator[task_pb2.JournalPage]:
        for entry in self.runs[run_id].entries:
            yield task_pb2.JournalPage(entries=[entry])

    def results(self, run_id: str, group_key: str, after: int) -> task_pb2.JournalPage:
        raise AssertionError(run_id, group_key, after)

    def child_input(self, task_id: str) -> None:
        raise AssertionError(task_id)


def named(run_id: str, type: str, *contents: Any) -> RecordedRun:
    made = recorded(type, *contents, input={"name": run_id})
    made.run.run_id = run_id
    return made


def check(*runs: RecordedRun, **options: Any) -> tuple[RunChecker, Source]:
    begun.clear()
    checker, source = RunChecker([short], **options), Source(*runs)
    for each in runs:
        listed = WorkflowRun()
        listed.CopyFrom(each.run)
        listed.ClearField("input")
        checker.check(source, listed)
    return checker, source


def test_runs_of_equal_shape_are_run_again_once_and_counted() -> None:
    good = step("one", 0, 1)
    failing = named("d", "short", step("one", 0, error="no"))
    failing.run.status = journal.RUNNING
    checker, source = check(
        named("a", "short", good),
        named("b", "short", good),
        # Values do not count, errors do.
        named("c", "short", step("one", 0, 2)),
        failing,
        named("e", "short"),
        named("f", "short", step("other", 0, 1)),
        named("g", "short", step("other", 0, 1)),
    )
    assert begun == ["a", "d", "e", "f"] == source.reads
    report = checker.summary.report(is_whole=True)
    assert (report.runs, report.shapes, report.would_park, report.is_broken) == (7, 4, 2, True)
    parked, safe = report.groups
    assert (parked.verdict, parked.runs, parked.shapes, parked.example) == ("would park", 2, 1, "f")
    assert (safe.verdict, safe.runs, safe.shapes, safe.example) == ("safe", 5, 3, "a")


def test_each_run_is_run_again_if_that_is_wanted() -> None:
    runs = [named(name, "short", step("one", 0, 1)) for name in "abc"]
    checker, _ = check(*runs, is_each=True)
    assert begun == ["a", "b", "c"]
    report = checker.summary.report(is_whole=True)
    assert (report.runs, report.shapes) == (3, 1)


def test_a_type_that_the_code_does_not_have_is_counted_and_breaks_nothing() -> None:
    checker, source = check(named("a", "gone", step("one", 0, 1)), named("b", "gone"))
    (group,) = checker.summary.report(is_whole=True).groups
    assert (group.verdict, group.runs) == ("no such type", 2)
    assert group.message == "the code has no workflow gone"
    assert not checker.summary.report(is_whole=True).is_broken
    assert source.reads == []


def test_a_run_that_begins_anew_while_it_is_read_is_read_again() -> None:
    checker, source = RunChecker([short]), Source(named("a", "short", step("other", 0, 1)))
    listed = source.runs["a"].run
    now = named("a", "short", step("one", 0, 1))
    now.run.generation = 2

    def get_run(run_id: str) -> WorkflowRun:
        source.runs[run_id] = now
        return now.run

    source.get_run = get_run  # type: ignore[method-assign]  # (the moment between two reads)
    checker.check(source, listed)
    (group,) = checker.summary.report(is_whole=True).groups
    assert (group.verdict, group.runs) == ("safe", 1)


def test_a_patch_that_every_run_has_is_told_as_not_needed() -> None:
    @workflow
    async def changed(ctx: WorkflowContext, name: str = "") -> str:
        if ctx.patched("twice"):
            await ctx.step(one)
        await ctx.step(one)
        return name

    patch = task_pb2.NewEntry(kind=task_pb2.ENTRY_KIND_PATCH, key="twice")
    new = named("a", "changed", patch, step("one", 0, 1))
    old = named("b", "changed", step("one", 0, 1))

    def warnings(*runs: RecordedRun, is_whole: bool = True) -> list[str]:
        checker, source = RunChecker([changed]), Source(*runs)
        for each in runs:
            checker.check(source, each.run)
        return [each.message for each in checker.summary.report(is_whole=is_whole).warnings]

    assert warnings(new) == ["no run needs the code from before the patch twice: delete it"]
    assert warnings(new, is_whole=False) == []
    assert warnings(new, old) == []
