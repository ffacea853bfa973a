"""How much of the journal of a finished run a new one keeps."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.core.journal.entry import EntryBody, EntryKind, NewEntry
from tenure.core.journal.numbering import JournalEnd, append
from tenure.core.run import retry
from tenure.core.run.retry import JournalOutline
from tenure.core.run.wake_up import run_of
from tenure.core.task.event import AttemptFailed, AttemptSucceeded
from tenure.core.task.record import Task, TaskState
from tenure.core.task.retry import RetryPolicy
from tenure.errors import InvalidArgument, NotFound
from tests.core.task.tasks import (
    FAULT,
    JOURNAL_ID,
    NEXT_JOURNAL_ID,
    T0,
    TASK_ID,
    after,
    cancelled,
    failed_run,
    fresh_run,
    report,
    running_run,
)

NEW_ID = "0190a000-0000-7000-8000-0000000000ff"


def ended() -> Task:
    run = running_run(retry=RetryPolicy(maximum_attempts=1))
    return after(run, report(AttemptFailed, run, error=FAULT, new_journal_id=NEXT_JOURNAL_ID))


def succeeded() -> Task:
    run = running_run()
    return after(run, report(AttemptSucceeded, run))


def call(key: str, kind: EntryKind = EntryKind.STEP, *, fails: bool = False) -> NewEntry:
    return NewEntry(kind, key, EntryBody(error=FAULT if fails else None))


def outline(*entries: NewEntry) -> JournalOutline:
    made = JournalOutline()
    for entry in append(JournalEnd(JOURNAL_ID), entries, at_ms=T0)[0]:
        made.show(entry)
    return made


JOURNAL = (
    call("reserve"),
    call("go", EntryKind.SIGNAL),
    call("charge", EntryKind.RETRY, fails=True),
    call("pack"),
    call("charge", fails=True),
    call("undo"),
)


@pytest.mark.parametrize(
    ("how", "kept"),
    [
        ({}, 0),
        ({"from_step": "reserve"}, 0),
        # What was tried of it goes with it.
        ({"from_step": "charge"}, 2),
        ({"from_step": "last"}, 2),
        ({"from_step": "undo"}, 5),
        ({"from_position": 1}, 0),
        ({"from_position": 4}, 3),
        ({"from_position": 7}, 6),
    ],
)
def test_what_comes_before_the_place_is_kept(how: dict[str, Any], kept: int) -> None:
    assert outline(*JOURNAL).kept(ended(), **how) == kept


@pytest.mark.parametrize("kind", [EntryKind.CHILD, EntryKind.GROUP])
def test_a_failed_child_or_group_is_a_failure_too(kind: EntryKind) -> None:
    made = outline(call("a"), call("b", kind, fails=True), call("c"))
    assert made.kept(ended(), from_step="last") == 1


def test_a_run_whose_code_failed_by_itself_keeps_everything() -> None:
    assert outline(call("a"), call("b")).kept(ended(), from_step="last") == 2


def test_a_cancelled_run_goes_on_before_it_was_asked() -> None:
    made = outline(call("a", fails=True), call("b"), call("cancel", EntryKind.CANCEL), call("c"))
    assert made.kept(cancelled(fresh_run()), from_step="last") == 2
    for how in ({"from_position": 4}, {"from_step": "c"}):
        with pytest.raises(InvalidArgument, match="asked to cancel at position 3"):
            made.kept(ended(), **how)
    assert made.kept(ended(), from_position=3) == 2


@pytest.mark.parametrize(
    ("how", "field"),
    [
        ({"from_step": "nothing"}, "fromStep"),
        # A signal is no call.
        ({"from_step": "go"}, "fromStep"),
        ({"from_position": 8}, "fromPosition"),
    ],
)
def test_a_place_that_is_not_there_is_named(how: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidArgument) as refusal:
        outline(*JOURNAL).kept(ended(), **how)
    assert refusal.value.fields["field"] == field


def test_a_run_that_succeeded_has_no_last_failure() -> None:
    assert succeeded().state is TaskState.SUCCEEDED
    with pytest.raises(InvalidArgument, match="has succeeded"):
        outline(*JOURNAL).kept(succeeded(), from_step="last")
    assert outline(*JOURNAL).kept(succeeded(), from_step="pack") == 3


def test_without_a_journal_only_the_start_is_left() -> None:
    assert outline().kept(ended()) == 0
    with pytest.raises(NotFound, match="Retry it without a step"):
        outline().kept(ended(), from_step="last")


def make(old: Task, task_id: str = NEW_ID, kept: int = 0) -> Task:
    return retry.create(old, task_id=task_id, now_ms=T0 + 9, journal_id=NEXT_JOURNAL_ID, kept=kept)


def test_a_new_run_knows_the_first_of_its_line_and_the_generation() -> None:
    old = ended()
    first = make(old)
    assert first.link is not None
    assert (first.link.journal_id, first.link.place.first_run_id) == (NEXT_JOURNAL_ID, TASK_ID)
    assert (first.spec.retry_of, first.state) == (TASK_ID, TaskState.PENDING)
    assert run_of(first).begun_at_ms == 0
    again = make(first, "0190a000-0000-7000-8000-0000000000fe")
    assert again.link is not None
    assert (again.link.place.first_run_id, again.spec.retry_of) == (TASK_ID, NEW_ID)


def test_the_time_of_what_is_kept_goes_on() -> None:
    old = failed_run()
    assert run_of(make(old, kept=1)).generation == run_of(old).generation
    begun = ended()
    assert run_of(make(begun, kept=1)).begun_at_ms == run_of(begun).begun_at_ms == T0
