"""What ends an attempt, what that costs, and what follows: section 4 of the design."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from tenure.core.task.attempt import Outcome
from tenure.core.task.crash_guard import Loss
from tenure.core.task.effect import Decision, Stop, StopCause, TellStop, WakeQueue
from tenure.core.task.event import (
    AttemptCancelled,
    AttemptDeferred,
    AttemptFailed,
    AttemptReleased,
    AttemptSucceeded,
    CancelRequested,
    Confirmed,
    DeliveryMissed,
    EntryAppended,
    HandedOut,
    Heartbeaten,
    PauseRequested,
    ResumeRequested,
    TaskEvent,
    TaskLost,
    Terminated,
    WorkerLost,
)
from tenure.core.task.record import NO_PROGRESS, Line, Reason, Task, TaskKind, TaskState
from tenure.core.task.retry import ErrorCategory, ErrorInfo, RetryPolicy
from tests.core.task.tasks import (
    FATAL,
    FAULT,
    NAMESPACE,
    OTHER,
    T0,
    TASK_ID,
    WORKER,
    after,
    confirmed,
    decided,
    due,
    failed_once,
    fresh,
    fresh_run,
    guarded,
    handed,
    lost,
    pausing,
    refused,
    report,
    running,
    start,
    succeeded,
    waiting_async,
    waiting_run,
    yielded,
    yielding,
)


def ending(task: Task, outcome: Outcome, at_ms: int = T0) -> Decision:
    """Return what ends the live attempt like this, but not the task."""
    events: dict[Outcome, TaskEvent] = {
        Outcome.FAILED: report(AttemptFailed, task, error=FAULT),
        Outcome.WORKER_LOST: WorkerLost(worker_id=WORKER),
        Outcome.LOST_TASK: report(TaskLost, task),
        Outcome.UNDELIVERED: report(DeliveryMissed, task),
        Outcome.RELEASED: report(AttemptReleased, task),
        Outcome.YIELDED: yielding(task, journal_end=1),
    }
    if outcome is Outcome.TIMED_OUT:
        return due(confirmed(task), task.handed_at_ms + task.spec.start_to_close_ms)
    return decided(task, events[outcome], at_ms)


def kind_for(outcome: Outcome) -> TaskKind:
    """Return which kind of task can have an attempt that ends like this."""
    return TaskKind.WORKFLOW if outcome is Outcome.YIELDED else TaskKind.ACTIVITY


def ended_by(task: Task, outcome: Outcome, at_ms: int = T0) -> Task:
    return ending(task, outcome, at_ms).task


RETURNING = [
    Outcome.FAILED,
    Outcome.TIMED_OUT,
    Outcome.WORKER_LOST,
    Outcome.LOST_TASK,
    Outcome.UNDELIVERED,
    Outcome.RELEASED,
    Outcome.YIELDED,
]


# Attempts.


def test_every_hand_out_raises_the_attempt_by_one() -> None:
    task = handed(fresh())
    assert task.attempt == 1
    again = handed(ended_by(task, Outcome.RELEASED))
    assert (again.attempt, again.worker_id, again.handed_at_ms) == (2, WORKER, T0)


def test_a_hand_out_notes_worker_session_and_instant() -> None:
    task = after(fresh(), HandedOut(worker_id=OTHER, session_no=7), T0 + 5)
    assert (task.state, task.line) == (TaskState.DISPATCHED, Line.NONE)
    assert (task.worker_id, task.session_no, task.handed_at_ms) == (OTHER, 7, T0 + 5)


def test_a_confirmed_attempt_runs() -> None:
    task = confirmed(handed(fresh()), T0 + 700)
    assert (task.state, task.progress.confirmed_at_ms) == (TaskState.RUNNING, T0 + 700)


def test_a_second_confirmation_changes_nothing() -> None:
    task = running()
    assert after(task, report(Confirmed, task), T0 + 9) is task


def test_a_heartbeat_confirms_too() -> None:
    task = handed(fresh())
    beaten = after(task, report(Heartbeaten, task, details=b"7"), T0 + 3)
    assert (beaten.state, beaten.progress.confirmed_at_ms) == (TaskState.RUNNING, T0 + 3)


STOP_REASONS = {Outcome.FAILED: "completed", Outcome.TIMED_OUT: "timed_out"}


@pytest.mark.parametrize("outcome", RETURNING)
def test_an_ended_attempt_is_stale_while_its_number_is_still_on_the_row(outcome: Outcome) -> None:
    task = handed(fresh(kind=kind_for(outcome)))
    ended = ended_by(task, outcome)
    assert (ended.attempt, ended.last_outcome, ended.worker_id) == (1, outcome, None)
    rejection = refused(ended, report(AttemptSucceeded, task))
    assert rejection.code == "attempt_mismatch"
    expected: dict[str, object] = {"expected_attempt": 2, "received_attempt": 1}
    if outcome in STOP_REASONS:
        expected["reason"] = STOP_REASONS[outcome]
    assert rejection.fields == expected


@pytest.mark.parametrize("outcome", [each for each in RETURNING if each is not Outcome.YIELDED])
def test_an_ended_attempt_leaves_a_record(outcome: Outcome) -> None:
    task = handed(fresh(kind=kind_for(outcome)), T0 - 9)
    decision = ending(task, outcome)
    record = decision.ended
    assert record is not None
    assert (record.namespace, record.task_id, record.number) == (NAMESPACE, TASK_ID, 1)
    assert (record.worker_id, record.handed_at_ms) == (WORKER, T0 - 9)
    assert record.outcome is outcome
    assert record.state_after == decision.task.state


def test_a_report_on_an_older_attempt_names_the_live_one() -> None:
    task = handed(ended_by(handed(fresh()), Outcome.RELEASED))
    rejection = refused(task, AttemptSucceeded(attempt=1, worker_id=WORKER))
    assert rejection.fields == {"expected_attempt": 2, "received_attempt": 1}


# What an outcome costs.


@pytest.mark.parametrize(
    ("outcome", "failures", "interruptions", "losses", "wait_ms"),
    [
        (Outcome.FAILED, 1, 0, 0, 1_000),
        (Outcome.TIMED_OUT, 1, 0, 0, 1_000),
        (Outcome.WORKER_LOST, 0, 1, 1, 0),
        (Outcome.LOST_TASK, 0, 1, 1, 0),
        (Outcome.UNDELIVERED, 0, 0, 0, 0),
        (Outcome.RELEASED, 0, 0, 0, 0),
        (Outcome.YIELDED, 0, 0, 0, 0),
    ],
)
def test_each_outcome_is_paid_for_by_its_own_budget(
    outcome: Outcome, failures: int, interruptions: int, losses: int, wait_ms: int
) -> None:
    at_ms = T0 + 60_000
    task = ended_by(handed(fresh(kind=kind_for(outcome))), outcome, at_ms)
    assert task.state is TaskState.PENDING
    assert task.progress.failure_count == failures
    assert task.progress.interruption_count == interruptions
    assert task.progress.loss_count == losses
    assert task.progress.ready_at_ms == at_ms + wait_ms
    assert task.line is (Line.NONE if wait_ms else Line.RETURNED)


def test_success_ends_the_task_with_its_output() -> None:
    task = running()
    decision = decided(task, report(AttemptSucceeded, task, output=b"done"), T0 + 9)
    done = decision.task
    assert (done.state, done.output, done.finished_at_ms) == (TaskState.SUCCEEDED, b"done", T0 + 9)
    assert (done.due_at_ms, done.worker_id, done.last_outcome) == (None, WORKER, Outcome.SUCCEEDED)
    assert decision.effects == ()


def test_a_short_task_may_succeed_without_ever_running() -> None:
    task = handed(fresh())
    assert after(task, report(AttemptSucceeded, task)).state is TaskState.SUCCEEDED


def test_a_worker_that_stopped_by_itself_ends_the_task_as_cancelled() -> None:
    task = running()
    assert after(task, report(AttemptCancelled, task)).state is TaskState.CANCELLED


@pytest.mark.parametrize("outcome", [Outcome.UNDELIVERED, Outcome.RELEASED, Outcome.WORKER_LOST])
def test_what_is_pending_at_once_keeps_its_place_in_the_line(outcome: Outcome) -> None:
    task = handed(fresh(), T0 + 500)
    assert ended_by(task, outcome, T0 + 900).run_at_ms == T0


def test_a_task_that_is_ready_again_wakes_its_queue() -> None:
    task = handed(fresh())
    decision = decided(task, report(AttemptReleased, task))
    assert decision.effects == (WakeQueue(NAMESPACE, "default"),)


def test_a_task_that_backs_off_wakes_nobody() -> None:
    task = running()
    assert decided(task, report(AttemptFailed, task, error=FAULT)).effects == ()


# The retry policy.


def test_failures_back_off_twice_as_long_each_time() -> None:
    task = fresh()
    waits = []
    for _ in range(4):
        task = handed(start(task), task.run_at_ms)
        at_ms = task.handed_at_ms
        task = after(task, report(AttemptFailed, task, error=FAULT), at_ms)
        waits.append(task.run_at_ms - at_ms)
    assert waits == [1_000, 2_000, 4_000, 8_000]
    assert task.progress.error == FAULT


def test_jitter_moves_the_retry() -> None:
    task = running()
    early = after(task, report(AttemptFailed, task, error=FAULT, jitter=0.0))
    assert early.run_at_ms == T0 + 800


def test_the_errors_own_delay_wins() -> None:
    task = running()
    error = replace(FAULT, next_delay_ms=77)
    assert after(task, report(AttemptFailed, task, error=error)).run_at_ms == T0 + 77


def test_an_own_delay_of_zero_is_pending_at_once() -> None:
    task = running()
    error = replace(FAULT, next_delay_ms=0)
    assert after(task, report(AttemptFailed, task, error=error)).line is Line.RETURNED


@pytest.mark.parametrize(
    "error",
    [
        FATAL,
        replace(FAULT, retryable=False),
        replace(FAULT, category=ErrorCategory.CONFIGURATION),
        replace(FAULT, type="KeyError"),
    ],
)
def test_what_cannot_be_retried_fails_at_once(error: ErrorInfo) -> None:
    task = running(retry=RetryPolicy(non_retryable_error_types=("KeyError",)))
    failed = after(task, report(AttemptFailed, task, error=error))
    assert (failed.state, failed.progress.reason) == (TaskState.FAILED, Reason.NON_RETRYABLE)
    assert failed.progress.error == error


def test_an_explicit_wish_to_retry_wins() -> None:
    task = running()
    error = replace(FATAL, retryable=True)
    assert after(task, report(AttemptFailed, task, error=error)).state is TaskState.PENDING


def test_the_last_allowed_attempt_ends_the_task() -> None:
    task = running(retry=RetryPolicy(maximum_attempts=1))
    failed = after(task, report(AttemptFailed, task, error=FAULT))
    assert (failed.state, failed.progress.reason) == (TaskState.FAILED, Reason.RETRIES_EXHAUSTED)


def test_interruptions_use_up_no_retry() -> None:
    task = handed(lost(fresh(retry=RetryPolicy(maximum_attempts=2))))
    assert after(task, report(AttemptFailed, task, error=FAULT)).state is TaskState.PENDING


# The crash guard.


def test_one_loss_is_forgiven() -> None:
    task = lost(fresh())
    assert (task.line, task.is_guarded, task.run_at_ms) == (Line.RETURNED, False, T0)


def test_two_losses_in_a_row_put_a_task_under_guard_and_back_it_off() -> None:
    task = lost(lost(fresh()))
    assert (task.is_guarded, task.line, task.run_at_ms) == (True, Line.NONE, T0 + 1_000)


def test_the_back_off_under_guard_doubles() -> None:
    task = lost(guarded(2))
    assert task.run_at_ms == T0 + 2_000
    assert lost(task).run_at_ms == T0 + 4_000


def test_a_suspect_in_a_group_of_one_is_handed_out_as_the_sole_one() -> None:
    assert handed(guarded()).progress.is_sole
    assert not handed(lost(fresh())).progress.is_sole
    task = guarded()
    shared = replace(task, progress=replace(task.progress, group_max=2))
    assert not handed(shared).progress.is_sole


def test_a_suspect_waits_in_a_line_of_its_own() -> None:
    task = guarded()
    assert (task.line, task.is_guarded) == (Line.SUSPECT, True)


def test_a_loss_in_a_group_does_not_count() -> None:
    task = handed(guarded())
    crowded = replace(task, progress=replace(task.progress, is_sole=False, group_max=4))
    loss = Loss(at_ms=T0, attempt_count=9, suspect_count=4)
    progress = after(crowded, WorkerLost(worker_id=WORKER, loss=loss)).progress
    assert (progress.loss_count, progress.counted_count, progress.group_max) == (3, 2, 2)
    assert progress.interruption_count == 3


def test_the_fifth_counted_loss_poisons_the_task() -> None:
    task = handed(guarded(4))
    assert task.progress.loss_count == 4
    decision = decided(task, WorkerLost(worker_id=WORKER), T0 + 9)
    poisoned = decision.task
    assert (poisoned.state, poisoned.progress.reason) == (TaskState.FAILED, Reason.POISONED)
    assert poisoned.progress.error is not None
    assert poisoned.progress.error.message.startswith("5 workers in a row")
    assert poisoned.progress.loss_count == 5
    assert not poisoned.is_guarded


@pytest.mark.parametrize("outcome", [Outcome.WORKER_LOST, Outcome.LOST_TASK])
def test_both_kinds_of_loss_count(outcome: Outcome) -> None:
    assert ended_by(handed(guarded(3)), outcome).progress.loss_count == 4


@pytest.mark.parametrize(
    "outcome",
    [Outcome.FAILED, Outcome.TIMED_OUT, Outcome.UNDELIVERED, Outcome.RELEASED, Outcome.YIELDED],
)
def test_any_other_outcome_resets_the_count(outcome: Outcome) -> None:
    task = ended_by(handed(guarded(4, kind=kind_for(outcome))), outcome)
    assert (task.progress.loss_count, task.is_guarded) == (0, False)


def test_a_run_that_waits_has_left_the_guard() -> None:
    task = handed(guarded(2, kind=TaskKind.WORKFLOW))
    waiting = yielded(task)
    assert waiting.progress.loss_count == 0
    assert not after(waiting, EntryAppended(pos=1)).is_guarded


def test_the_hundredth_interruption_ends_the_task() -> None:
    task = handed(fresh())
    task = replace(task, progress=replace(task.progress, interruption_count=98))
    once_more = after(task, report(TaskLost, task))
    assert (once_more.state, once_more.progress.interruption_count) == (TaskState.PENDING, 99)
    ended = lost(once_more)
    assert ended.progress.reason is Reason.INTERRUPTIONS_EXHAUSTED
    assert ended.progress.error is not None
    assert ended.progress.error.category is ErrorCategory.INFRASTRUCTURE


# Undelivered.


def undelivered(task: Task, at_ms: int = T0) -> Task:
    held = handed(start(task), at_ms)
    return after(held, report(DeliveryMissed, held), at_ms)


def test_after_three_undelivered_hand_outs_in_a_row_a_task_backs_off() -> None:
    task = fresh()
    waits = []
    for _ in range(10):
        task = undelivered(task)
        waits.append(task.progress.ready_at_ms - T0)
    seconds = [0, 0, 1, 2, 4, 8, 16, 32, 60, 60]
    assert waits == [1_000 * second for second in seconds]


def test_after_three_undelivered_hand_outs_a_task_prefers_another_worker() -> None:
    task = undelivered(undelivered(fresh()))
    assert task.progress.avoid_worker_id is None
    assert undelivered(task).progress.avoid_worker_id == WORKER


@pytest.mark.parametrize(
    "outcome", [Outcome.FAILED, Outcome.WORKER_LOST, Outcome.RELEASED, Outcome.YIELDED]
)
def test_any_other_outcome_breaks_the_row_of_undelivered_hand_outs(outcome: Outcome) -> None:
    task = undelivered(undelivered(undelivered(fresh(kind=kind_for(outcome)))))
    ended = ended_by(handed(start(task)), outcome)
    assert ended.progress.undelivered_count == 0
    assert ended.progress.avoid_worker_id is None


def test_a_confirmation_breaks_the_row_of_undelivered_hand_outs() -> None:
    assert confirmed(handed(undelivered(fresh()))).progress.undelivered_count == 0


def test_the_back_off_of_undelivered_hand_outs_never_overflows() -> None:
    task = handed(fresh())
    task = replace(task, progress=replace(task.progress, undelivered_count=10**6))
    assert after(task, report(DeliveryMissed, task)).run_at_ms == T0 + 60_000


# Pause.


def test_a_pending_task_is_held_at_once() -> None:
    task = pausing(fresh())
    assert (task.state, task.line, task.due_at_ms) == (TaskState.PAUSED, Line.NONE, None)


def test_a_waiting_run_is_held_at_once() -> None:
    task = pausing(waiting_run(T0 + 500))
    assert (task.state, task.due_at_ms) == (TaskState.PAUSED, None)


@pytest.mark.parametrize("outcome", RETURNING)
def test_a_held_task_is_paused_when_its_attempt_ends(outcome: Outcome) -> None:
    task = pausing(handed(fresh(kind=kind_for(outcome))))
    assert task.state is TaskState.DISPATCHED
    paused = ended_by(task, outcome)
    assert (paused.state, paused.worker_id, paused.line) == (TaskState.PAUSED, None, Line.NONE)
    assert not paused.progress.pause_wanted


def test_a_held_task_that_succeeds_is_not_paused() -> None:
    task = pausing(running())
    assert after(task, report(AttemptSucceeded, task)).state is TaskState.SUCCEEDED


def test_what_is_completed_from_elsewhere_is_paused_when_its_attempt_ends() -> None:
    task = pausing(waiting_async())
    assert task.state is TaskState.WAITING
    assert after(task, report(AttemptFailed, task, error=FAULT)).state is TaskState.PAUSED


def test_pausing_twice_is_pausing_once() -> None:
    task = pausing(fresh())
    assert pausing(task) == task


def test_a_resumed_task_is_ready_at_once() -> None:
    decision = decided(pausing(fresh()), ResumeRequested(), T0 + 9)
    assert (decision.task.state, decision.task.line) == (TaskState.PENDING, Line.RETURNED)
    assert decision.effects == (WakeQueue(NAMESPACE, "default"),)


def test_a_resumed_task_still_waits_for_its_run_at() -> None:
    task = after(pausing(fresh(run_at_ms=T0 + 500)), ResumeRequested(), T0 + 9)
    assert (task.line, task.run_at_ms, task.due_at_ms) == (Line.NONE, T0 + 500, T0 + 500)


def test_a_task_that_was_to_be_paused_goes_on_when_resumed() -> None:
    task = after(pausing(running()), ResumeRequested())
    assert task == running()


def test_a_task_that_nobody_paused_cannot_be_resumed() -> None:
    assert refused(running(), ResumeRequested()).code == "wrong_state"


def test_a_cancelling_task_cannot_be_paused() -> None:
    task = after(running(), CancelRequested())
    assert refused(task, PauseRequested()).code == "wrong_state"


# The encoding of an output.


def test_an_output_is_encoded_as_the_input_unless_its_worker_says_otherwise() -> None:
    task = running(encoding="json")
    plain = after(task, report(AttemptSucceeded, task, output=b"1"))
    assert (plain.progress.output_encoding, plain.output_encoding) == ("", "json")
    other = after(task, report(AttemptSucceeded, task, output=b"1", output_encoding="bytes"))
    assert (other.progress.output_encoding, other.output_encoding) == ("bytes", "bytes")


def test_naming_the_encoding_of_the_input_again_changes_nothing() -> None:
    task = handed(fresh(encoding="json"))
    named = after(task, report(AttemptSucceeded, task, output_encoding="json"))
    assert named.progress is NO_PROGRESS
    assert named == after(task, report(AttemptSucceeded, task))


def test_an_output_may_have_an_encoding_where_the_input_has_none() -> None:
    task = handed(fresh())
    assert task.output_encoding == ""
    done = after(task, report(AttemptSucceeded, task, output_encoding="json"))
    assert done.output_encoding == "json"


def test_the_encoding_of_an_output_goes_along_with_what_happened_before() -> None:
    task = after(waiting_async(), Heartbeaten(attempt=1, details=b"5"))
    done = after(task, AttemptSucceeded(attempt=1, output_encoding="bytes"))
    assert (done.progress.details, done.progress.is_async) == (b"5", False)
    assert done.output_encoding == "bytes"


# Asynchronous completion.


def test_a_deferred_activity_waits_without_a_worker() -> None:
    task = waiting_async()
    assert (task.state, task.worker_id) == (TaskState.WAITING, None)
    assert task.is_attempt_live


@pytest.mark.parametrize("kind", [AttemptSucceeded, AttemptCancelled])
def test_a_token_completes_a_deferred_activity(
    kind: type[AttemptSucceeded | AttemptCancelled],
) -> None:
    task = waiting_async()
    assert after(task, kind(attempt=1)).finished_at_ms == T0


def test_a_token_may_complete_before_the_confirmation() -> None:
    task = handed(fresh())
    assert after(task, AttemptSucceeded(attempt=1)).state is TaskState.SUCCEEDED


def test_an_id_may_not_complete_before_the_confirmation() -> None:
    event = AttemptSucceeded(attempt=1, needs_confirmed=True)
    assert refused(handed(fresh()), event).code == "wrong_state"
    assert after(running(), event).state is TaskState.SUCCEEDED


def test_the_deferral_behind_a_completion_is_told_that_the_task_is_over() -> None:
    task = running()
    done = after(task, AttemptSucceeded(attempt=1))
    rejection = refused(done, report(AttemptDeferred, task))
    assert rejection.code == "task_already_terminal"
    assert rejection.fields == {"state": "SUCCEEDED", "reason": "completed"}


def test_a_deferred_activity_that_fails_is_retried() -> None:
    task = after(waiting_async(), AttemptFailed(attempt=1, error=FAULT))
    assert (task.state, task.progress.is_async) == (TaskState.PENDING, False)


def test_a_deferred_activity_may_heartbeat() -> None:
    task = after(waiting_async(), Heartbeaten(attempt=1, details=b"5"), T0 + 9)
    assert (task.state, task.progress.details) == (TaskState.WAITING, b"5")


def test_deferring_twice_is_deferring_once() -> None:
    task = waiting_async()
    assert after(task, AttemptDeferred(attempt=1)) == task


@pytest.mark.parametrize("make", [handed, lambda task: confirmed(handed(task))])
def test_only_an_activity_can_be_completed_from_elsewhere(make: Callable[[Task], Task]) -> None:
    run = make(fresh_run())
    rejection = refused(run, report(AttemptDeferred, run))
    assert (rejection.code, rejection.fields) == ("wrong_state", {"state": run.state.upper()})
    assert refused(run, AttemptDeferred(attempt=1)).code == "wrong_state"
    activity = make(fresh())
    assert after(activity, report(AttemptDeferred, activity)).state is TaskState.WAITING


# Heartbeats.


@pytest.mark.parametrize("outcome", [each for each in RETURNING if each != Outcome.UNDELIVERED])
def test_heartbeat_details_reach_the_next_attempt_whatever_ended_the_last(outcome: Outcome) -> None:
    task = running(kind=kind_for(outcome))
    beat = report(Heartbeaten, task, details=b"7", percent=0.5, message="half")
    again = handed(start(ended_by(after(task, beat), outcome)))
    assert again.attempt == 2
    assert again.progress.details == b"7"
    assert (again.progress.confirmed_at_ms, again.progress.beat_at_ms) == (0, 0)


def test_a_heartbeat_without_details_keeps_the_last_ones() -> None:
    task = running()
    full = Heartbeaten(attempt=1, details=b"7", percent=0.5, message="half")
    task = after(after(task, full), Heartbeaten(attempt=1), T0 + 9)
    progress = task.progress
    assert (progress.details, progress.percent, progress.message) == (b"7", 0.5, "half")
    assert progress.beat_at_ms == T0 + 9


def test_a_heartbeat_does_not_move_the_timer() -> None:
    task = running(heartbeat_timeout_ms=1_000)
    assert after(task, Heartbeaten(attempt=1), T0 + 900).due_at_ms == T0 + 1_000


# The order of checks.


@pytest.mark.parametrize("outcome", [Outcome.TIMED_OUT, Outcome.WORKER_LOST, Outcome.LOST_TASK])
def test_a_heartbeat_of_an_attempt_that_timed_out_or_was_lost_has_expired(outcome: Outcome) -> None:
    held = running()
    task = ended_by(held, outcome)
    assert refused(task, report(Heartbeaten, held)).code == "task_expired"
    assert refused(task, report(AttemptSucceeded, held)).code == "attempt_mismatch"


def test_a_heartbeat_of_an_attempt_that_ended_otherwise_is_a_mismatch() -> None:
    assert refused(failed_once(), Heartbeaten(attempt=1)).code == "attempt_mismatch"


def test_a_newer_attempt_comes_before_the_expiry_of_an_older_one() -> None:
    task = handed(lost(fresh()))
    assert refused(task, Heartbeaten(attempt=1)).code == "attempt_mismatch"


def test_the_expiry_of_an_attempt_comes_before_the_end_of_its_task() -> None:
    task = after(lost(fresh()), CancelRequested())
    assert task.state is TaskState.CANCELLED
    assert refused(task, Heartbeaten(attempt=1)).code == "task_expired"
    assert refused(task, AttemptSucceeded(attempt=1)).code == "attempt_mismatch"


def test_a_newer_attempt_comes_before_the_end_of_the_task() -> None:
    held = handed(lost(fresh()))
    task = after(held, report(AttemptSucceeded, held))
    assert refused(task, AttemptSucceeded(attempt=1)).code == "attempt_mismatch"


def test_a_report_on_a_finished_task_is_told_its_state() -> None:
    rejection = refused(succeeded(), AttemptFailed(attempt=1, error=FAULT))
    assert rejection.code == "task_already_terminal"
    assert rejection.fields == {"state": "SUCCEEDED", "reason": "completed"}


# The end by an operator.


def test_a_terminated_task_fails_without_asking_its_worker() -> None:
    decision = decided(running(), Terminated(message="Out of budget."))
    task = decision.task
    assert (task.state, task.progress.reason) == (TaskState.FAILED, Reason.TERMINATED)
    assert task.progress.error == ErrorInfo(ErrorCategory.CANCELLED, "Out of budget.")
    assert decision.effects == (TellStop(WORKER, Stop(TASK_ID, 1, StopCause.TERMINATED)),)
