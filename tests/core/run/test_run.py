"""What only runs do: section 4 of the specification of workflows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from tenure.core.journal.entry import EntryBody, EntryKind, NewEntry
from tenure.core.limits import RUN_STATE_BYTES_MAX
from tenure.core.run import published
from tenure.core.run import start as run_start
from tenure.core.run.record import NOT_BEGUN, RunProgress, Wait, Yield
from tenure.core.run.status import ROWS, RunStatus, status_at, status_of
from tenure.core.run.wake_up import is_parked, run_of
from tenure.core.task.attempt import Outcome
from tenure.core.task.effect import TellCancel, TellRun, WakeQueue
from tenure.core.task.event import (
    AttemptCancelled,
    AttemptContinued,
    AttemptFailed,
    AttemptParked,
    AttemptReleased,
    AttemptSucceeded,
    AttemptYielded,
    CancelRequested,
    EntryAppended,
    HandedOut,
    ResumeRequested,
    StepsRecorded,
    TaskLost,
    Terminated,
    WorkerLost,
)
from tenure.core.task.record import Line, Reason, Task, TaskKind, TaskState
from tenure.core.task.retry import ErrorCategory, ErrorInfo, RetryPolicy
from tenure.errors import InvalidArgument
from tests.core.task.tasks import (
    FATAL,
    FAULT,
    JOURNAL_ID,
    NAMESPACE,
    NEXT_JOURNAL_ID,
    T0,
    TASK_ID,
    WORKER,
    after,
    cancelled,
    confirmed,
    decided,
    due,
    failed_run,
    fresh,
    fresh_run,
    handed,
    lost,
    new,
    parked_run,
    pausing,
    refused,
    report,
    running,
    running_run,
    start,
    succeeded,
    waiting_async,
    waiting_run,
    yielded,
    yielding,
)

TOLD = TellRun(WORKER, NAMESPACE, TASK_ID, 1)

# The start of a run.


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"kind": TaskKind.ACTIVITY}, "kind"),
        ({"start_to_close_ms": 5}, "startToCloseMs"),
        ({"heartbeat_timeout_ms": 5}, "heartbeatTimeoutMs"),
        ({"id": "x"}, "runId"),
        ({"cancel_grace_ms": -1}, "cancelGracePeriodMs"),
    ],
)
def test_what_a_run_cannot_have_is_named(changes: dict[str, Any], field: str) -> None:
    request = new(**{"kind": TaskKind.WORKFLOW, "start_to_close_ms": 0, **changes})
    with pytest.raises(InvalidArgument) as refusal:
        run_start.check_new(request)
    assert refusal.value.fields["field"] == field


def test_a_new_run_has_a_journal_and_its_timeout_runs() -> None:
    request = new(kind=TaskKind.WORKFLOW, start_to_close_ms=0, schedule_to_close_ms=900)
    run_start.check_new(request)
    run = run_start.create(request, namespace=NAMESPACE, now_ms=T0, journal_id=JOURNAL_ID)
    assert run.link is not None
    assert run.link.journal_id == JOURNAL_ID
    assert (run.state, run.line, run.due_at_ms) == (TaskState.PENDING, Line.FRESH, T0 + 900)


def test_a_run_has_begun_with_its_first_hand_out() -> None:
    first = handed(fresh_run(), T0 + 5)
    assert run_of(first).begun_at_ms == T0 + 5
    again = handed(after(first, report(AttemptReleased, first), T0 + 9), T0 + 9)
    assert run_of(again).begun_at_ms == T0 + 5


def test_a_run_knows_how_much_of_its_journal_it_was_handed_with() -> None:
    run = fresh_run()
    for end, at_ms in ((0, T0), (4, T0 + 5), (4, T0 + 9), (7, T0 + 12)):
        run = after(run, HandedOut(worker_id=WORKER, journal_end=end), at_ms)
        assert (run_of(run).handed_pos, run_of(run).begun_at_ms) == (end, T0)
        run = after(run, report(AttemptReleased, run), at_ms)


def test_an_activity_has_no_place_for_what_runs_have() -> None:
    assert handed(fresh(schedule_to_start_ms=5)).progress.run is None
    assert run_of(fresh()) == RunProgress()


# Steps.


@pytest.mark.parametrize("make", [handed, lambda task: confirmed(handed(task))])
def test_a_step_leaves_the_run_as_it_is(make: Callable[[Task], Task]) -> None:
    task = make(fresh_run())
    assert after(task, report(StepsRecorded, task), T0 + 9) is task


def test_only_a_run_records_steps() -> None:
    task = running()
    assert refused(task, report(StepsRecorded, task)).code == "wrong_state"
    assert refused(fresh(), EntryAppended(pos=1)).code == "wrong_state"


# Yield.


@pytest.mark.parametrize("make", [handed, lambda task: confirmed(handed(task))])
def test_only_a_run_can_give_up_its_slot(make: Callable[[Task], Task]) -> None:
    activity = make(fresh())
    for word in (yielding(activity), report(AttemptParked, activity, error=FATAL)):
        rejection = refused(activity, word)
        assert rejection.fields == {"state": activity.state.upper()}
    word = AttemptYielded(attempt=1, wish=Yield(seen=0), journal_end=0)
    assert refused(waiting_async(), word).code == "wrong_state"
    assert yielded(make(fresh_run())).state is TaskState.WAITING


def test_a_stale_word_of_the_wrong_kind_is_stale_first() -> None:
    stale = AttemptYielded(attempt=1, worker_id=WORKER, wish=Yield(seen=0), journal_end=0)
    assert refused(handed(lost(fresh())), stale).code == "attempt_mismatch"
    assert refused(succeeded(), stale).code == "task_already_terminal"


def test_a_run_that_has_seen_everything_waits_and_leaves_no_record() -> None:
    task = running_run()
    waits = (Wait("signal", "approve", T0, "orders.py:7"),)
    word = yielding(
        task,
        seen=7,
        journal_end=7,
        wake_at_ms=T0 + 500,
        wake_key="sleep",
        wake_index=3,
        patience_n=0,
        waits=waits,
        wait_count=9,
    )
    decision = decided(task, word)
    waiting, run = decision.task, run_of(decision.task)
    assert (waiting.state, waiting.due_at_ms) == (TaskState.WAITING, T0 + 500)
    assert (waiting.worker_id, waiting.last_outcome) == (None, Outcome.YIELDED)
    assert (run.seen, run.patience_n, run.home_worker_id) == (7, 1, WORKER)
    assert (run.waits, run.wait_count) == (waits, 9)
    assert decision.ended is None


@pytest.mark.parametrize(
    ("wish", "outcome"),
    [
        ({"wake_at_ms": T0 + 1}, Outcome.SLEPT),
        ({"wake_at_ms": T0 + 1, "waits": (Wait("timer", "sleep"),)}, Outcome.SLEPT),
        ({"wake_at_ms": T0 + 1, "waits": (Wait("retry", "charge"),)}, Outcome.SLEPT),
        ({"wake_at_ms": T0 + 1, "waits": (Wait("signal", "go"),)}, Outcome.YIELDED),
        # One that is not shown may be a signal.
        ({"wake_at_ms": T0 + 1, "waits": (Wait("timer", "a"),), "wait_count": 2}, Outcome.YIELDED),
        ({"waits": (Wait("signal", "go"),)}, Outcome.YIELDED),
        ({}, Outcome.YIELDED),
    ],
)
def test_a_run_sleeps_if_only_a_timer_wakes_it(wish: dict[str, Any], outcome: Outcome) -> None:
    wish = {"wait_count": len(wish.get("waits", ())), **wish}
    waiting = decided(running_run(), yielding(running_run(), **wish)).task
    assert waiting.last_outcome is outcome
    is_asleep = outcome is Outcome.SLEPT
    assert status_of(waiting) is (RunStatus.SLEEPING if is_asleep else RunStatus.WAITING)


def test_every_state_of_a_run_has_a_status() -> None:
    states = {state for rows in ROWS.values() for state in rows.states}
    assert states == set(TaskState)
    assert set(ROWS) == set(RunStatus)
    assert status_at(TaskState.DISPATCHED, None) is RunStatus.RUNNING
    assert status_at(TaskState.PENDING, Outcome.PARKED) is RunStatus.PENDING
    assert status_at(TaskState.WAITING, Outcome.PARKED) is RunStatus.PARKED


def test_a_run_is_started_again_with_its_request_and_an_empty_journal() -> None:
    ended = after(running_run(), Terminated())
    made = run_start.again(ended, task_id=WORKER, now_ms=T0 + 9, journal_id="other")
    assert (made.id, made.state, made.created_at_ms) == (WORKER, TaskState.PENDING, T0 + 9)
    assert made.link is not None
    assert (made.link.journal_id, run_of(made)) == ("other", NOT_BEGUN)
    assert made.spec.retry_of == ended.id


def test_a_run_that_missed_an_entry_is_pending_again() -> None:
    task = running_run()
    word = yielding(task, seen=2, journal_end=3)
    decision = decided(task, word)
    assert (decision.task.state, decision.task.line) == (TaskState.PENDING, Line.RETURNED)
    assert decision.ended is None
    assert decision.effects == (WakeQueue(NAMESPACE, "default"),)


def test_a_run_that_shall_be_paused_is_paused_when_it_yields() -> None:
    task = yielded(pausing(running_run()))
    assert (task.state, task.progress.pause_wanted) == (TaskState.PAUSED, False)


def test_a_yield_clears_what_interrupted_the_run_before() -> None:
    task = handed(start(lost(fresh_run())))
    assert (task.progress.interruption_count, task.progress.loss_count) == (1, 1)
    waiting = yielded(task)
    assert (waiting.progress.interruption_count, waiting.progress.loss_count) == (0, 0)


# Wake-up.


@pytest.mark.parametrize(
    ("pos", "is_urgent", "state"),
    [(5, False, TaskState.WAITING), (6, False, TaskState.PENDING), (5, True, TaskState.PENDING)],
)
def test_a_waiting_run_is_woken_when_it_has_no_more_patience(
    pos: int, state: TaskState, *, is_urgent: bool
) -> None:
    task = yielded(running_run(), seen=3, journal_end=3, patience_n=3, patience_ms=50)
    assert after(task, EntryAppended(pos=pos, is_urgent=is_urgent), T0 + 9).state is state


def test_news_wake_a_patient_run_in_time_and_leave_no_timer_behind() -> None:
    task = yielded(
        running_run(), patience_n=3, patience_ms=50, wake_at_ms=T0 + 900, wake_key="sleep"
    )
    heard = after(task, EntryAppended(pos=1), T0 + 9)
    assert heard.due_at_ms == T0 + 59
    again = after(heard, EntryAppended(pos=2), T0 + 40)
    assert again is heard
    decision = due(again, T0 + 59)
    assert (decision.task.state, decision.entries) == (TaskState.PENDING, ())
    assert (run_of(decision.task).wake_at_ms, run_of(decision.task).news_at_ms) == (0, 0)


def test_a_sleeping_run_wakes_at_its_instant_and_finds_its_timer_in_the_journal() -> None:
    task = yielded(running_run(), wake_at_ms=T0 + 500, wake_key="2/sleep#2", wake_index=4)
    assert due(task, T0 + 499).task == task
    decision = due(task, T0 + 502)
    body = EntryBody(fire_at_ms=T0 + 500, index=4)
    assert decision.entries == (NewEntry(EntryKind.TIMER, "2/sleep#2", body),)
    assert (decision.task.state, decision.task.due_at_ms) == (TaskState.PENDING, None)
    # It has its place by when it was to wake, not by when that was noticed.
    assert (decision.task.run_at_ms, decision.task.progress.ready_at_ms) == (T0 + 500, T0 + 500)


def test_a_timer_that_is_noticed_late_takes_no_time_from_the_workers() -> None:
    task = yielded(running_run(schedule_to_start_ms=100), wake_at_ms=T0 + 500, wake_key="sleep")
    woken = due(task, T0 + 9_000).task
    assert (woken.state, woken.due_at_ms) == (TaskState.PENDING, T0 + 9_100)


@pytest.mark.parametrize(
    "task",
    [running_run(), handed(fresh_run()), fresh_run(), pausing(waiting_run()), parked_run()],
    ids=["running", "dispatched", "pending", "paused", "parked"],
)
def test_news_change_nothing_but_a_run_that_waits(task: Task) -> None:
    assert after(task, EntryAppended(pos=9, is_urgent=True), T0 + 9) is task


# Parking.


def test_a_parked_run_waits_and_is_tried_again_later_and_later() -> None:
    task = running_run()
    waits = []
    for _ in range(9):
        decision = decided(task, report(AttemptParked, task, error=FATAL))
        parked = decision.task
        assert is_parked(parked)
        assert decision.ended is not None
        assert (decision.ended.outcome, decision.ended.error) == (Outcome.PARKED, FATAL)
        assert parked.due_at_ms is not None
        waits.append((parked.due_at_ms - T0) // 60_000)
        woken = due(parked, parked.due_at_ms)
        assert woken.entries == ()
        task = handed(woken.task)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert run_of(yielded(task)).park_count == 0
    assert (task.progress.failure_count, task.progress.interruption_count) == (0, 0)


def test_a_parked_run_is_tried_at_once_when_somebody_resumes_it() -> None:
    task = after(parked_run(), ResumeRequested(), T0 + 9)
    assert (task.state, task.line, run_of(task).park) == (TaskState.PENDING, Line.RETURNED, None)
    assert refused(waiting_run(), ResumeRequested()).code == "wrong_state"


def test_a_parked_run_is_woken_by_a_cancel() -> None:
    assert cancelled(parked_run()).state is TaskState.PENDING


def test_a_run_that_shall_be_paused_is_paused_when_it_parks() -> None:
    task = pausing(running_run())
    paused = after(task, report(AttemptParked, task, error=FATAL))
    assert paused.state is TaskState.PAUSED
    assert after(paused, ResumeRequested()).state is TaskState.PENDING


def test_a_run_that_parks_in_its_clean_up_is_cancelled() -> None:
    task = cancelled(running_run())
    ended = after(task, report(AttemptParked, task, error=FATAL))
    assert (ended.state, ended.progress.error) == (TaskState.CANCELLED, FATAL)


# Cancel.


def test_a_running_run_is_told_and_finds_the_cancel_in_its_journal() -> None:
    decision = decided(running_run(), CancelRequested(reason="enough"))
    assert decision.task.state is TaskState.CANCELLING
    assert decision.effects == (TellCancel(WORKER, TASK_ID, 1), TOLD)
    (entry,) = decision.entries
    assert (entry.kind, entry.key) == (EntryKind.CANCEL, "cancel")
    assert entry.body.error == ErrorInfo(ErrorCategory.CANCELLED, "enough")
    assert decided(decision.task, CancelRequested()).entries == ()


def test_a_run_that_was_just_handed_out_keeps_its_delivery_check() -> None:
    task = handed(fresh_run())
    decision = decided(task, CancelRequested())
    assert (decision.task.state, decision.task.due_at_ms) == (task.state, task.due_at_ms)
    assert decision.effects == (TellCancel(WORKER, TASK_ID, 1), TOLD)
    assert [each.kind for each in decision.entries] == [EntryKind.CANCEL]


def test_a_run_that_nobody_ever_had_is_cancelled_at_once() -> None:
    decision = decided(fresh_run(), CancelRequested())
    assert (decision.task.state, decision.entries) == (TaskState.CANCELLED, ())


def test_a_run_has_no_grace_for_its_clean_up() -> None:
    task = confirmed(handed(cancelled(waiting_run(cancel_grace_ms=500))))
    assert (task.state, task.due_at_ms) == (TaskState.CANCELLING, None)


@pytest.mark.parametrize("is_confirmed", [False, True])
def test_a_clean_up_that_is_lost_or_handed_back_goes_on_elsewhere(*, is_confirmed: bool) -> None:
    task = handed(cancelled(waiting_run()))
    task = confirmed(task) if is_confirmed else task
    for event in (
        report(TaskLost, task),
        WorkerLost(worker_id=WORKER),
        report(AttemptReleased, task),
    ):
        again = after(task, event)
        assert (again.state, again.is_cancel_requested) == (TaskState.PENDING, True)
    for end in (
        report(AttemptCancelled, task),
        report(AttemptFailed, task, error=FAULT, new_journal_id=NEXT_JOURNAL_ID),
    ):
        assert after(task, end).state is TaskState.CANCELLED
    assert after(task, report(AttemptSucceeded, task)).state is TaskState.SUCCEEDED


def test_a_body_that_cancels_itself_has_failed() -> None:
    task = running_run()
    failed = after(task, report(AttemptCancelled, task))
    assert (failed.state, failed.progress.reason) == (TaskState.FAILED, Reason.NON_RETRYABLE)
    assert failed.progress.error is not None
    assert failed.progress.error.category is ErrorCategory.CANCELLED


# Failures.


def test_a_run_begins_anew_with_an_empty_journal_if_its_policy_says_so() -> None:
    task = failed_run()
    assert task.link is not None
    assert (task.state, task.link.journal_id) == (TaskState.PENDING, NEXT_JOURNAL_ID)
    run = run_of(task)
    assert (run.generation, run.seen, run.begun_at_ms) == (1, 0, 0)
    again = handed(start(task), T0 + 5_000)
    assert (run_of(again).begun_at_ms, run_of(again).generation) == (T0 + 5_000, 1)


def test_a_run_that_may_not_begin_anew_has_failed_with_its_journal() -> None:
    task = running_run(retry=RetryPolicy(maximum_attempts=1))
    word = report(AttemptFailed, task, error=FAULT, new_journal_id=NEXT_JOURNAL_ID)
    failed = after(task, word)
    assert failed.link is not None
    assert (failed.state, failed.link.journal_id) == (TaskState.FAILED, JOURNAL_ID)
    assert failed.progress.reason is Reason.RETRIES_EXHAUSTED


def test_the_timeout_of_a_run_ends_it_while_it_waits() -> None:
    task = waiting_run(schedule_to_close_ms=1_000)
    ended = due(task, T0 + 1_000).task
    assert (ended.state, ended.progress.reason) == (TaskState.FAILED, Reason.SCHEDULE_TO_CLOSE)
    assert ended.progress.error is not None
    # The option of a workflow is called timeout.
    assert ended.progress.error.message == "The run did not end within its timeout."


def test_what_an_earlier_version_stored_as_a_run_begins_anew_without_a_journal() -> None:
    task = replace(running_run(), link=None)
    word = report(AttemptFailed, task, error=FAULT)
    assert after(task, word).link is None


# What its holder is told.


@pytest.mark.parametrize("make", [lambda: handed(fresh_run()), running_run])
def test_the_holder_of_a_run_is_told_what_others_append(make: Callable[[], Task]) -> None:
    task = make()
    decision = decided(task, EntryAppended(pos=3, is_urgent=True))
    assert decision.task is task
    assert decision.effects == (TOLD,)


def test_nobody_is_told_of_a_run_that_nobody_holds() -> None:
    for task in (fresh_run(), parked_run()):
        assert decided(task, EntryAppended(pos=3, is_urgent=True)).effects == ()


# What a run publishes.


@pytest.mark.parametrize(
    ("make", "details", "is_refused"),
    [
        (running_run, None, False),
        (running_run, bytes(RUN_STATE_BYTES_MAX), False),
        (running_run, bytes(RUN_STATE_BYTES_MAX + 1), True),
        (running, bytes(RUN_STATE_BYTES_MAX + 1), False),
    ],
)
def test_a_published_state_is_limited_and_the_details_of_an_activity_are_not(
    make: Callable[[], Task], details: bytes | None, is_refused: bool
) -> None:
    refusal = published.too_large(make(), details)
    assert (refusal is not None) == is_refused
    if refusal is not None:
        assert (refusal.code, refusal.fields) == (
            "payload_too_large",
            {"limit": RUN_STATE_BYTES_MAX},
        )


def test_a_refusal_says_run_of_a_run() -> None:
    assert f"while run {TASK_ID} is waiting" in refused(waiting_run(), ResumeRequested()).message
    ended = decided(waiting_run(), Terminated()).task
    assert f"Run {TASK_ID} has already ended" in refused(ended, CancelRequested()).message
    assert f"Task {TASK_ID} has already ended" in refused(succeeded(), CancelRequested()).message


# Beginning anew.

SIGNAL = NewEntry(EntryKind.SIGNAL, "approve", EntryBody(output=b"1", signal_id="s1"))
CANCEL = NewEntry(EntryKind.CANCEL, "cancel")


def continued(task: Task, **fields: Any) -> Task:
    return after(task, continuing(task, **fields), T0 + 9)


def continuing(task: Task, **fields: Any) -> AttemptContinued:
    given = {"new_journal_id": NEXT_JOURNAL_ID, "input": b"2", **fields}
    return report(AttemptContinued, task, **given)


@pytest.mark.parametrize("make", [handed, lambda task: confirmed(handed(task))])
def test_a_run_begins_anew_with_another_input_and_journal(make: Callable[[Task], Task]) -> None:
    task = make(fresh_run(schedule_to_close_ms=900))
    task = replace(task, progress=replace(task.progress, interruption_count=3, details=b"state"))
    decision = decided(task, continuing(task, kept=(SIGNAL,)), T0 + 9)
    again = decision.task
    assert again.link is not None
    assert (again.state, again.input, again.link.journal_id) == (
        TaskState.PENDING,
        b"2",
        NEXT_JOURNAL_ID,
    )
    assert run_of(again) == RunProgress(generation=1)
    assert (again.progress.interruption_count, again.progress.details) == (0, b"state")
    assert (again.line, again.run_at_ms, again.due_at_ms) == (Line.RETURNED, T0 + 9, T0 + 900)
    assert again.last_outcome is Outcome.CONTINUED
    assert (decision.ended, decision.entries) == (None, (SIGNAL,))
    assert decision.effects == (WakeQueue(NAMESPACE, task.queue),)


def test_the_encoding_of_the_next_input_is_kept_unless_it_is_named() -> None:
    task = running_run(encoding="json")
    assert continued(task).spec is task.spec
    assert continued(task, encoding="json").spec is task.spec
    assert continued(task, encoding="bytes").spec == replace(task.spec, encoding="bytes")


def test_a_run_that_shall_be_paused_is_paused_between_its_generations() -> None:
    task = pausing(running_run())
    decision = decided(task, continuing(task), T0 + 9)
    assert (decision.task.state, decision.ended) == (TaskState.PAUSED, None)
    assert run_of(decision.task).generation == 1
    assert not decision.task.progress.pause_wanted


def test_a_cancel_that_was_not_seen_goes_along() -> None:
    asked = cancelled(running_run())
    assert asked.state is TaskState.CANCELLING
    again = continued(asked, kept=(CANCEL,))
    assert (again.state, again.is_cancel_requested) == (TaskState.PENDING, True)


def test_a_cancel_after_which_the_code_goes_on_is_done_with() -> None:
    again = continued(cancelled(running_run()))
    assert (again.is_cancel_requested, again.progress.cancel_reason) == (False, "")
    assert cancelled(again).is_cancel_requested
