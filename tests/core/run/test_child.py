"""Children of a run: where they belong, what their ends say, and how they are closed."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tenure.core.journal.entry import JSON, EntryBody, EntryKind
from tenure.core.limits import RUN_DEPTH_MAX
from tenure.core.run import child
from tenure.core.run.child import Call
from tenure.core.run.record import (
    NO_ORIGIN,
    NOT_BEGUN,
    ClosePolicy,
    Origin,
    RunLink,
    RunProgress,
    encode_origin,
)
from tenure.core.task.event import AttemptFailed, AttemptSucceeded, CancelRequested, Terminated
from tenure.core.task.record import Task, TaskKind, TaskState
from tenure.core.task.retry import ErrorCategory, ErrorInfo
from tests.core.task.tasks import (
    FATAL,
    FAULT,
    JOURNAL_ID,
    NAMESPACE,
    NEXT_JOURNAL_ID,
    OTHER_ID,
    T0,
    TASK_ID,
    after,
    confirmed,
    fresh,
    fresh_run,
    handed,
    new,
    report,
    running,
    running_run,
)

GROUP_ID = "0190a000-0000-7000-8000-000000000009"


def made(parent: Task | None = None, call: Call | None = None, **changes: Any) -> Task:
    """Return a child with another id than its run."""
    is_run = changes.get("kind") is TaskKind.WORKFLOW
    times = {"start_to_close_ms": 0} if is_run else {}
    return child.create(
        new(id=OTHER_ID, **{**times, **changes}),
        parent or running_run(),
        call or Call(key="2/resize", index=4),
        now_ms=T0,
        journal_id=NEXT_JOURNAL_ID,
        external_id="order-1" if is_run else "",
    )


def failed() -> Task:
    held = running()
    return after(held, report(AttemptFailed, held, error=FATAL))


def placed(run: Task, **place: Any) -> Task:
    """Return a run that is a child itself."""
    assert run.link is not None
    return replace(run, link=replace(run.link, origin=encode_origin(Origin(**place))))


def test_an_activity_belongs_to_its_run_and_call() -> None:
    task = made()
    assert task.link is not None
    assert (task.link.parent_id, task.link.journal_id, task.link.external_id) == (
        TASK_ID,
        None,
        None,
    )
    assert task.namespace == NAMESPACE
    assert child.place_of(task) == Origin(
        run_id=TASK_ID,
        journal_id=JOURNAL_ID,
        key="2/resize",
        index=4,
        root_run_id=TASK_ID,
        depth=1,
        step_key=f"{TASK_ID}:0:2/resize",
    )


def test_a_run_has_a_journal_and_an_id_of_its_user() -> None:
    task = made(kind=TaskKind.WORKFLOW)
    assert task.link is not None
    assert (task.link.journal_id, task.link.external_id) == (NEXT_JOURNAL_ID, "order-1")
    assert task.progress.run == NOT_BEGUN
    assert child.place_of(task).step_key == ""


def test_an_item_belongs_to_its_group() -> None:
    call = Call(key="map:x", index=1, group_id=GROUP_ID, item=7)
    task = made(call=call)
    assert task.link is not None
    assert task.link.parent_id == GROUP_ID
    place = child.place_of(task)
    assert (place.run_id, place.group_id, place.item) == (TASK_ID, GROUP_ID, 7)
    assert place.step_key == f"{TASK_ID}:0:map:x:7"


def test_a_child_below_a_child_knows_the_first_run_and_how_deep_it_is() -> None:
    root, first = "0190a000-0000-7000-8000-0000000000aa", "0190a000-0000-7000-8000-0000000000bb"
    parent = placed(running_run(), root_run_id=root, depth=3, first_run_id=first)
    progress = replace(parent.progress, run=RunProgress(generation=2))
    place = child.place_of(made(replace(parent, progress=progress)))
    assert (place.root_run_id, place.depth) == (root, 4)
    assert place.step_key == f"{first}:2:2/resize"


def test_a_run_of_an_earlier_version_is_in_its_first_generation() -> None:
    parent = running_run()
    progress = replace(parent.progress, run=None)
    place = child.place_of(made(replace(parent, progress=progress)))
    assert place.step_key == f"{TASK_ID}:0:2/resize"


def test_runs_may_be_so_deep_and_no_deeper() -> None:
    assert child.too_deep(placed(running_run(), depth=RUN_DEPTH_MAX - 1)) is None
    refusal = child.too_deep(placed(running_run(), depth=RUN_DEPTH_MAX))
    assert refusal is not None
    assert refusal.code == "invalid_argument"
    assert "Begin anew with ctx.continue_as_new" in refusal.message


def test_a_plain_task_and_damaged_origins_know_no_place() -> None:
    assert child.place_of(fresh()) == NO_ORIGIN
    for data in (b"\xff", b"\x81\xa1i\xa1x"):
        link = RunLink(parent_id=TASK_ID, origin=data)
        assert child.place_of(replace(fresh(), link=link)) == NO_ORIGIN


def test_a_run_waits_for_children_of_its_present_journal_only() -> None:
    run = running_run()
    place = Origin(run_id=TASK_ID, journal_id=JOURNAL_ID)
    assert child.is_of(run, place)
    assert not child.is_of(run, Origin(run_id=TASK_ID, journal_id=NEXT_JOURNAL_ID))
    assert not child.is_of(None, place)
    assert not child.is_of(fresh(), place)
    assert not child.is_of(after(run, report(AttemptSucceeded, run)), place)


def test_a_success_stands_with_output_and_times() -> None:
    held = confirmed(handed(made()))
    task = after(held, report(AttemptSucceeded, held, output=b"1"), T0 + 30)
    entry = child.ended(task, key="2/resize", index=4)
    assert (entry.kind, entry.key) == (EntryKind.CHILD, "2/resize")
    assert entry.body == EntryBody(
        index=4,
        output=b"1",
        encoding=task.output_encoding or JSON,
        attempts=1,
        started_at_ms=T0,
        took_ms=30,
        task_id=OTHER_ID,
        type="mail",
        state="succeeded",
    )


def test_a_failure_stands_with_its_error_and_reason() -> None:
    body = child.ended(failed(), key="k", index=0).body
    assert (body.state, body.reason, body.error) == ("failed", "NON_RETRYABLE", FATAL)


def test_a_failure_without_an_error_has_an_empty_one() -> None:
    task = failed()
    bare = replace(task, progress=replace(task.progress, error=None))
    error = child.ended(bare, key="k", index=0).body.error
    assert error == ErrorInfo(ErrorCategory.USER_CODE, "")


@pytest.mark.parametrize(
    ("reason", "error", "message"),
    [("enough", None, "enough"), ("", None, "The task was cancelled."), ("enough", FAULT, "boom")],
)
def test_a_cancelled_child_has_an_error_of_that_kind(
    reason: str, error: ErrorInfo | None, message: str
) -> None:
    task = after(fresh(), CancelRequested(reason=reason))
    task = replace(task, progress=replace(task.progress, error=error))
    body = child.ended(task, key="k", index=0).body
    assert (body.state, body.reason, body.took_ms) == ("cancelled", "", 0)
    assert body.error is not None
    assert (body.error.category, body.error.message) == (ErrorCategory.CANCELLED, message)


def test_a_run_began_when_its_generation_did() -> None:
    held = running_run()
    run = after(held, report(AttemptSucceeded, held), T0 + 50)
    run = replace(run, progress=replace(run.progress, run=RunProgress(begun_at_ms=T0 + 10)))
    body = child.ended(run, key="k", index=0).body
    assert (body.started_at_ms, body.took_ms) == (T0 + 10, 40)


def test_a_child_run_whose_external_id_is_taken_has_failed_at_once() -> None:
    task = child.refused(made(kind=TaskKind.WORKFLOW), "order-1", TASK_ID, T0)
    body = child.ended(task, key="k", index=0).body
    assert (task.state, task.attempt) == (TaskState.FAILED, 0)
    assert (body.state, body.reason) == ("failed", "already_exists")
    assert body.error is not None
    assert TASK_ID in body.error.message


def test_each_policy_closes_in_its_way() -> None:
    assert child.closing(ClosePolicy.CANCEL) == CancelRequested(reason=child.CLOSE_REASON)
    assert child.closing(ClosePolicy.TERMINATE) == Terminated(message=child.CLOSE_REASON)
    assert child.closing(ClosePolicy.ABANDON) is None


def test_a_run_that_nobody_has_had_is_closed_at_once() -> None:
    event = child.closing(ClosePolicy.CANCEL)
    assert event is not None
    assert after(fresh_run(), event).state is TaskState.CANCELLED
