"""What the entries of a journal and the rows of children say about the attempts of steps."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tenure.core.group.record import Group
from tenure.core.journal.entry import Entry, EntryBody, EntryKind, encode_body
from tenure.core.run import step_attempt as rules
from tenure.core.run.record import Origin, RunLink, encode_origin
from tenure.core.run.step_attempt import (
    MapCounts,
    StepAttempt,
    StepKind,
    StepRef,
    StepsOf,
    StepStatus,
)
from tenure.core.task.attempt import Attempt, Outcome
from tenure.core.task.event import AttemptFailed, AttemptSucceeded
from tenure.core.task.record import Task, TaskState
from tenure.core.task.retry import ErrorCategory, ErrorInfo
from tenure.errors import InvalidArgument
from tests.core.task.tasks import (
    FAULT,
    JOURNAL_ID,
    OTHER_ID,
    T0,
    TASK_ID,
    WORKER,
    after,
    cancelled,
    fresh,
    fresh_run,
    handed,
    parked_run,
    report,
    running,
    running_run,
    waiting_async,
    yielded,
    yielding,
)

STOPPED = ErrorInfo(ErrorCategory.CANCELLED, "stopped")
BAD_IDS = (
    *("", ".", ".0", ".0.", ".0.0", ".0.x", ".x.1", ".-1.1", ".0.1.", ".0.1.2.3"),
    *(".0.99999999999", ".0.²", ".0.1.2147483648", ".0.1-2", ".0.+1", ".0. 1"),
)
CHILD = RunLink(
    parent_id=OTHER_ID, origin=encode_origin(Origin(journal_id=JOURNAL_ID, key="2/resize"))
)


def of(run: Task | None = None) -> StepsOf:
    return StepsOf(run or running_run(), JOURNAL_ID)


def entry(kind: EntryKind, pos: int = 7, attempt: int = 1, **content: Any) -> Entry:
    body = encode_body(EntryBody(**content), T0)
    return Entry(JOURNAL_ID, pos, T0, attempt, attempt and pos, kind, "2/charge#3", body, 100)


def told(kind: EntryKind, **content: Any) -> StepAttempt:
    found = rules.recorded(of(), entry(kind, **content))
    assert found is not None
    return found


def begun(following: Entry | None, run: Task | None = None, **content: Any) -> StepAttempt | None:
    return rules.begun(of(run), entry(EntryKind.BEGUN, 3, **content), following)


def child(task: Task) -> StepAttempt:
    return rules.of_child(of(), replace(task, link=CHILD))


def test_a_local_step_is_told_by_its_end() -> None:
    found = told(EntryKind.STEP, output=b"12", attempts=2, started_at_ms=T0 - 5, site="orders.py:3")
    assert (found.id, found.step_id) == (f"{TASK_ID}.0.7", "2/charge#3")
    assert (found.number, found.kind, found.status) == (2, StepKind.LOCAL, StepStatus.COMPLETED)
    assert (found.output, found.encoding, found.site) == (b"12", "json", "orders.py:3")
    assert (found.started_at_ms, found.finished_at_ms, found.size) == (T0 - 5, T0, 2)


@pytest.mark.parametrize(
    ("error", "status"), [(FAULT, StepStatus.FAILED), (STOPPED, StepStatus.CANCELLED)]
)
def test_a_local_step_that_raised_has_failed_or_was_cancelled(
    error: ErrorInfo, status: StepStatus
) -> None:
    found = told(EntryKind.STEP, error=error)
    assert (found.status, found.error, found.number) == (status, error, 1)
    assert found.size == len(error.message)


def test_an_attempt_that_is_tried_again_has_failed() -> None:
    found = told(EntryKind.RETRY, error=FAULT, attempts=2, next_at_ms=T0 + 9)
    assert (found.status, found.number, found.retry_at_ms) == (StepStatus.FAILED, 2, T0 + 9)
    assert rules.recorded(of(), entry(EntryKind.RETRY, next_at_ms=T0 + 9)) is None


@pytest.mark.parametrize("kind", [EntryKind.TIMER, EntryKind.SIGNAL, EntryKind.NOTE])
def test_other_entries_are_no_attempts(kind: EntryKind) -> None:
    assert rules.recorded(of(), entry(kind)) is None


def test_a_step_that_has_begun_runs_as_long_as_its_worker_holds_the_run() -> None:
    found = begun(None, started_at_ms=T0 - 600)
    assert found is not None
    assert (found.status, found.worker_id) == (StepStatus.RUNNING, WORKER)
    assert (found.place, found.started_at_ms, found.finished_at_ms) == ("3", T0 - 600, 0)
    for run in (replace(running_run(), attempt=2), yielded(running_run())):
        left = begun(None, run)
        assert left is not None
        assert (left.status, left.worker_id) == (StepStatus.INTERRUPTED, "")


def test_a_sleep_that_has_begun_is_no_attempt() -> None:
    assert begun(None, fire_at_ms=T0 + 9) is None


def test_a_step_that_has_ended_is_told_once() -> None:
    for kind in (EntryKind.STEP, EntryKind.RETRY):
        assert begun(entry(kind, attempts=1), attempts=1) is None


def test_an_attempt_before_one_that_began_at_once_has_failed() -> None:
    for kind in (EntryKind.STEP, EntryKind.BEGUN):
        found = begun(entry(kind, attempts=2), attempts=1)
        assert found is not None
        assert (found.status, found.number) == (StepStatus.FAILED, 1)


def test_an_attempt_that_began_twice_was_interrupted() -> None:
    found = begun(entry(EntryKind.BEGUN, attempts=1), attempts=1)
    assert found is not None
    assert found.status is StepStatus.INTERRUPTED


@pytest.mark.parametrize(
    ("state", "status"),
    [
        ("succeeded", StepStatus.COMPLETED),
        ("failed", StepStatus.FAILED),
        ("cancelled", StepStatus.CANCELLED),
    ],
)
def test_a_queued_step_is_told_by_the_end_of_its_task(state: str, status: StepStatus) -> None:
    found = told(EntryKind.CHILD, state=state, task_id=OTHER_ID, attempts=3, output=b"1")
    assert (found.status, found.task_id, found.kind) == (status, OTHER_ID, StepKind.CHILD)
    assert (found.place, found.number) == ("7.3", 3)


def test_a_map_is_one_step_with_counts() -> None:
    ended = told(EntryKind.GROUP, total=5, succeeded=3, failed=1, cancelled=1)
    assert (ended.status, ended.kind) == (StepStatus.COMPLETED, StepKind.MAP)
    assert ended.counts == MapCounts(total=5, succeeded=3, failed=1, cancelled=1)
    assert told(EntryKind.GROUP, error=FAULT).status is StepStatus.FAILED
    group = Group(
        group_id=OTHER_ID,
        namespace="a/b",
        run_id=TASK_ID,
        journal_id=JOURNAL_ID,
        key="map:resize",
        call_index=1,
        type="resize",
        fails_fast=True,
        total=5,
        spawned=4,
        open_count=2,
        failed_count=1,
    )
    found = rules.of_map(of(), group)
    assert (found.status, found.place, found.step_id) == (
        StepStatus.RUNNING,
        OTHER_ID,
        "map:resize",
    )
    assert found.counts == MapCounts(total=5, succeeded=1, failed=1, cancelled=0)


def test_earlier_attempts_of_a_queued_step_are_told_by_their_outcome() -> None:
    last = told(EntryKind.CHILD, state="succeeded", task_id=OTHER_ID, attempts=9)
    statuses = {}
    for outcome in Outcome:
        ended = Attempt("a/b", OTHER_ID, 2, outcome, WORKER, T0, T0 + 5, "pending", FAULT)
        found = rules.ended_before(last, ended)
        assert (found.place, found.number, found.worker_id) == ("7.2", 2, WORKER)
        assert (found.started_at_ms, found.finished_at_ms) == (T0, T0 + 5)
        assert (found.step_id, found.task_id, found.error) == (last.step_id, OTHER_ID, FAULT)
        statuses[outcome] = found.status
    assert statuses[Outcome.TIMED_OUT] is StepStatus.FAILED
    assert statuses[Outcome.WORKER_LOST] is StepStatus.INTERRUPTED
    assert statuses[Outcome.CANCEL_TIMEOUT] is StepStatus.CANCELLED


def test_a_queued_step_that_no_worker_has_is_pending_with_its_next_attempt() -> None:
    first = child(fresh())
    assert (first.status, first.number, first.place) == (StepStatus.PENDING, 1, f"{TASK_ID}.1")
    assert (first.step_id, first.started_at_ms) == ("2/resize", 0)
    failed = running()
    again = child(after(failed, report(AttemptFailed, failed, error=FAULT)))
    assert (again.status, again.number, again.retry_at_ms > T0) == (StepStatus.PENDING, 2, True)
    parked = child(parked_run())
    assert (parked.status, parked.number) == (StepStatus.PENDING, 2)


def test_a_queued_step_that_a_worker_has_is_running() -> None:
    for task in (handed(fresh()), running(), running_run(), waiting_async()):
        found = child(task)
        assert (found.status, found.number, found.error) == (StepStatus.RUNNING, 1, None)
        assert found.started_at_ms == task.handed_at_ms


def test_a_child_run_that_waits_goes_on_with_its_last_attempt() -> None:
    waiting = yielded(running_run())
    woken = after(running_run(), yielding(running_run(), journal_end=1))
    assert woken.state is TaskState.PENDING
    for task in (waiting, woken):
        found = child(task)
        assert (found.status, found.number) == (StepStatus.RUNNING, 1)
    assert child(fresh_run()).status is StepStatus.PENDING


def test_a_queued_step_that_has_ended_is_told_by_its_own_row_too() -> None:
    held = running()
    done = after(held, report(AttemptSucceeded, held, output=b"12"))
    found = child(done)
    assert (found.status, found.number, found.output) == (StepStatus.COMPLETED, 1, b"12")
    assert (found.finished_at_ms, found.retry_at_ms) == (done.finished_at_ms, 0)
    gone = child(cancelled(fresh()))
    assert (gone.status, gone.number) == (StepStatus.CANCELLED, 0)


@pytest.mark.parametrize(
    ("text", "ref"),
    [
        (f"{TASK_ID}.0.7", StepRef(TASK_ID, 0, 7)),
        (f"{TASK_ID}.2.7.0", StepRef(TASK_ID, 2, 7, number=0)),
        (f"{TASK_ID}.0.{OTHER_ID}.3", StepRef(TASK_ID, 0, task_id=OTHER_ID, number=3)),
        (f"{TASK_ID}.0.{OTHER_ID}", StepRef(TASK_ID, 0, task_id=OTHER_ID)),
    ],
)
def test_an_id_says_which_attempt_is_meant(text: str, ref: StepRef) -> None:
    assert rules.read_id(text) == ref


@pytest.mark.parametrize("rest", [*BAD_IDS, f".0.{OTHER_ID}.x"])
def test_another_text_is_no_id(rest: str) -> None:
    for text in (f"{TASK_ID}{rest}", f"external:a{rest}", rest):
        with pytest.raises(InvalidArgument) as refusal:
            rules.read_id(text)
        assert refusal.value.fields["field"] == "stepAttemptId"
