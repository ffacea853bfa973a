"""Converts tasks between records of the core and messages of the wire."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from msgspec import structs

from tenure.api.rpc import error
from tenure.core import limits
from tenure.core.access import task_token as task_tokens
from tenure.core.explain.fact import TaskExplanation, WaitingReason
from tenure.core.run.record import Wait, Yield
from tenure.core.task import damage
from tenure.core.task.callback import CallbackAttempt
from tenure.core.task.deadline import attempt_ends_at_ms
from tenure.core.task.effect import Stop
from tenure.core.task.record import (
    NO_PROGRESS,
    TIMEOUTS,
    AttemptProgress,
    NewTask,
    Spec,
    Task,
    TaskKind,
    TaskState,
)
from tenure.core.task.retry import ErrorCategory, ErrorInfo, RetryPolicy
from tenure.engine.command import TaskRef
from tenure.engine.read.query import AttemptView
from tenure.engine.task import command as c
from tenure.errors import InvalidArgument, Rejection
from tenure.v1 import task_pb2, task_service_pb2

STATES: Final = {state: task_pb2.TaskState.Value(f"TASK_STATE_{state.name}") for state in TaskState}
STATE_OF: Final = {number: state for state, number in STATES.items()}
_KINDS: Final = {kind: task_pb2.TaskKind.Value(f"TASK_KIND_{kind.name}") for kind in TaskKind}
_KIND_OF: Final[dict[int, TaskKind]] = {number: kind for kind, number in _KINDS.items()}
_CATEGORIES: Final = {
    each: task_pb2.ErrorCategory.Value(f"ERROR_CATEGORY_{each.name}") for each in ErrorCategory
}
_CATEGORY_OF: Final[dict[int, ErrorCategory]] = {
    number: each for each, number in _CATEGORIES.items()
}
_FINISH_OF: Final = {
    task_pb2.FinishKind.Value(f"FINISH_KIND_{each.name}"): each for each in c.FinishKind
}


_RETRY: Final = RetryPolicy()
# Each end of an attempt is compared with them.
_YIELDED: Final = c.FinishKind.YIELDED
_CONTINUED: Final = c.FinishKind.CONTINUED


class SpecReader:
    """Reads options; equal ones are read once, because tasks of a kind share theirs."""

    def __init__(self, make: Callable[[task_pb2.TaskOptions], Spec]) -> None:
        """Start without any; ``make`` reads options that are new."""
        self._make = make
        self._known: dict[bytes, Spec] = {}

    def read(self, given: task_pb2.TaskOptions) -> Spec:
        """Return the spec of the options."""
        key = given.SerializeToString(deterministic=True)
        spec = self._known.get(key)
        if spec is None:
            spec = self._make(given)
            # Options of that size are refused later, and must not fill the memory.
            if len(key) > limits.SPEC_BYTES_REMEMBERED_MAX:
                return spec
            if len(self._known) >= limits.SPECS_REMEMBERED_MAX:
                self._known.clear()
            self._known[key] = spec
        return spec


def read_options(given: task_pb2.TaskOptions) -> Spec:
    """Return the spec of options; without a kind they are those of an activity."""
    kind = _KIND_OF.get(given.kind) if given.kind else TaskKind.ACTIVITY
    if kind is None:
        raise InvalidArgument("options.kind must be one of the task kinds", field="options.kind")
    return Spec(
        kind=kind,
        schedule_to_start_ms=given.schedule_to_start_ms,
        schedule_to_close_ms=given.schedule_to_close_ms,
        start_to_close_ms=given.start_to_close_ms,
        heartbeat_timeout_ms=given.heartbeat_timeout_ms,
        heartbeat_interval_ms=given.heartbeat_interval_ms,
        cancel_grace_ms=given.cancel_grace_period_ms or limits.CANCEL_GRACE_MS,
        delivery_timeout_ms=given.delivery_timeout_ms or limits.DELIVERY_TIMEOUT_MS,
        retry=policy(given.retry),
        encoding=given.encoding,
        resources=dict(given.resources),
    )


def policy(retry: task_pb2.RetryPolicy, default: RetryPolicy = _RETRY) -> RetryPolicy:
    """Return when another attempt is made; what a message leaves out is as by default."""
    return RetryPolicy(
        initial_interval_ms=retry.initial_interval_ms or default.initial_interval_ms,
        backoff_coefficient=retry.backoff_coefficient or default.backoff_coefficient,
        maximum_interval_ms=retry.maximum_interval_ms,
        maximum_attempts=retry.maximum_attempts,
        non_retryable_error_types=tuple(retry.non_retryable_error_types),
    )


def new_task(message: task_pb2.NewTask, task_id: str, specs: SpecReader) -> NewTask:
    """Return a task as a client requests it."""
    return NewTask(
        task_id,
        message.type,
        message.task_queue,
        specs.read(message.options),
        message.input,
        message.priority if message.HasField("priority") else limits.PRIORITY_DEFAULT,
        message.run_at_ms,
        dict(message.labels) or None,
        message.idempotency_key,
    )


def refs(messages: Iterable[task_pb2.TaskRef]) -> tuple[TaskRef, ...]:
    """Return the attempts that a worker names."""
    return tuple(TaskRef(each.task_id, each.attempt) for each in messages)


def exclusive_refs(messages: Iterable[task_pb2.TaskRef]) -> frozenset[TaskRef]:
    """Return the attempts that are exclusive."""
    return frozenset(TaskRef(each.task_id, each.attempt) for each in messages if each.exclusive)


def wire_refs(items: Iterable[TaskRef]) -> list[task_pb2.TaskRef]:
    """Name attempts."""
    return [task_pb2.TaskRef(task_id=each.task_id, attempt=each.attempt) for each in items]


def stops(items: Iterable[Stop]) -> list[task_pb2.TaskRef]:
    """Name attempts that have ended, and why."""
    return [
        task_pb2.TaskRef(task_id=each.task_id, attempt=each.attempt, stop_reason=each.cause.value)
        for each in items
    ]


Beating = (
    task_pb2.TaskBeat
    | task_service_pb2.HeartbeatByIdRequest
    | task_service_pb2.HeartbeatByTokenRequest
)


def beat(message: Beating, task_id: str, attempt: int) -> c.TaskBeat:
    """Return the heartbeat of an attempt, from its worker or from outside."""
    return c.TaskBeat(
        task_id=task_id,
        attempt=attempt,
        details=message.details if message.HasField("details") else None,
        percent=message.progress_percent if message.HasField("progress_percent") else None,
        message=message.message if message.HasField("message") else None,
    )


Ending = (
    task_pb2.TaskFinish
    | task_service_pb2.CompleteByIdRequest
    | task_service_pb2.CompleteByTokenRequest
)


def finish(message: task_pb2.TaskFinish) -> c.Finish:
    """Return the end of an attempt as its worker reports it."""
    kind = finish_kind(message)
    return c.Finish(
        task_id=message.task_id,
        attempt=message.attempt,
        kind=kind,
        output=message.output if message.HasField("output") else None,
        output_encoding=message.output_encoding,
        error=error_info(message.error) if message.HasField("error") else None,
        wish=_wish(message) if kind is _YIELDED else None,
        anew=_anew(message) if kind is _CONTINUED else None,
    )


def _anew(message: task_pb2.TaskFinish) -> c.Anew:
    return c.Anew(
        seen=message.seen,
        keep=tuple(message.keep),
        input=message.next_input if message.HasField("next_input") else None,
        encoding=message.next_encoding,
    )


def _wish(message: task_pb2.TaskFinish) -> Yield:
    return Yield(
        seen=message.seen,
        wake_at_ms=message.wake_at_ms,
        wake_key=message.wake_key,
        wake_index=message.wake_index,
        patience_n=message.patience_n,
        patience_ms=message.patience_ms,
        waits=tuple(
            Wait(each.kind, each.key, each.since_ms, each.detail, each.site)
            for each in message.waits
        ),
        wait_count=message.wait_count,
    )


def ending(message: Ending, *, task_id: str, attempt: int) -> c.Finish:
    """Return the end of an attempt as reported from outside."""
    kind = finish_kind(message)
    if kind not in _OUTSIDE:
        message_text = "kind must be SUCCEEDED, FAILED or CANCELLED"
        raise InvalidArgument(message_text, field="kind")
    return c.Finish(
        task_id=task_id,
        attempt=attempt,
        kind=kind,
        output=message.output if message.HasField("output") else None,
        output_encoding=message.output_encoding,
        error=error_info(message.error) if message.HasField("error") else None,
    )


_OUTSIDE: Final = frozenset({c.FinishKind.SUCCEEDED, c.FinishKind.FAILED, c.FinishKind.CANCELLED})


def finish_kind(message: Ending) -> c.FinishKind:
    """Return how an attempt ended."""
    kind = _FINISH_OF.get(message.kind)
    if kind is None:
        raise InvalidArgument("kind must be one of the outcomes of an attempt", field="kind")
    return kind


def error_info(message: task_pb2.TaskError) -> ErrorInfo:
    """Return a worker's description of a failure."""
    category = ErrorCategory.USER_CODE
    if message.category:
        known = _CATEGORY_OF.get(message.category)
        if known is None:
            raise InvalidArgument(
                "error.category must be one of the error categories", field="error.category"
            )
        category = known
    return ErrorInfo(
        category=category,
        message=message.message,
        type=message.type,
        stack_trace=message.stack_trace,
        details=message.details or None,
        retryable=message.retryable if message.HasField("retryable") else None,
        next_delay_ms=(
            message.next_retry_delay_ms if message.HasField("next_retry_delay_ms") else None
        ),
    )


def task_error(info: ErrorInfo | None) -> task_pb2.TaskError | None:
    """Show a failure."""
    if info is None:
        return None
    return task_pb2.TaskError(
        message=info.message,
        type=info.type,
        category=_CATEGORIES[info.category],
        retryable=info.retryable,
        next_retry_delay_ms=info.next_delay_ms,
        stack_trace=info.stack_trace,
        details=info.details or b"",
    )


def assigned(task: Task, task_token: str = "") -> task_pb2.AssignedTask:
    """Return a task as its worker gets it."""
    spec, progress = task.spec, task.progress
    made = task_pb2.AssignedTask(
        task_id=task.id,
        attempt=task.attempt,
        type=task.type,
        kind=_KINDS[spec.kind],
        input=task.input or b"",
        encoding=spec.encoding,
        start_to_close_ms=spec.start_to_close_ms,
        cancel_grace_period_ms=spec.cancel_grace_ms,
        deadline_at_ms=attempt_ends_at_ms(task),
        created_at_ms=task.created_at_ms,
        handed_at_ms=task.handed_at_ms,
        priority=task.priority,
        task_queue=task.queue,
        maximum_attempts=spec.retry.maximum_attempts,
    )
    if progress is not NO_PROGRESS:
        made.failure_count = progress.failure_count
        if progress.details is not None:
            made.heartbeat_details = progress.details
    if task_token:
        made.task_token = task_token
    _add_rare(made, task)
    return made


def _add_rare(made: task_pb2.AssignedTask, task: Task) -> None:
    """Set what most tasks do not have: each field costs time."""
    spec = task.spec
    if spec.heartbeat_timeout_ms or spec.heartbeat_interval_ms:
        made.heartbeat_timeout_ms = spec.heartbeat_timeout_ms
        made.heartbeat_interval_ms = spec.heartbeat_interval_ms
    if spec.schedule_to_close_ms:
        made.schedule_to_close_ms = spec.schedule_to_close_ms
    if task.labels:
        made.labels.update(task.labels)
    if spec.idempotency_key:
        made.idempotency_key = spec.idempotency_key
    if task.link is not None:
        place = task.place
        made.run_id = made.parent_id = place.run_id
        made.step_key = place.step_key
        made.first_run_id = place.first_run_id
        made.external_id = task.link.external_id or ""
    if spec.fire is not None:
        made.schedule_id = spec.schedule_id
        made.fire_at_ms = spec.fire_at_ms


def completion_claims(task: Task, now_ms: int) -> task_tokens.Claims:
    """Return what the credential says with which this attempt can be completed from outside."""
    return task_tokens.Claims(
        purpose=task_tokens.Purpose.COMPLETION,
        namespace=task.namespace,
        run_id=task.place.run_id,
        task_id=task.id,
        attempt=task.attempt,
        # As long as the attempt may last: the attempt ends before its token does.
        expires_at_ms=max(now_ms + limits.COMPLETION_TOKEN_MS, attempt_ends_at_ms(task)),
    )


def shown(task: Task, *, with_payload: bool = True) -> task_pb2.Task:
    """Show the present state of a task; lists leave the payloads out."""
    spec, progress, where = task.spec, task.progress, task.place
    made = task_pb2.Task(
        task_id=task.id,
        namespace_id=task.namespace,
        task_queue=task.queue,
        type=task.type,
        state=STATES[task.state],
        options=options(spec),
        priority=task.priority,
        attempt=task.attempt,
        worker_id=task.worker_id or "",
        labels=task.labels or {},
        idempotency_key=spec.idempotency_key,
        error=task_error(progress.error),
        failure_reason=progress.reason or "",
        created_at_ms=task.created_at_ms,
        run_at_ms=task.run_at_ms,
        handed_at_ms=task.handed_at_ms,
        started_at_ms=progress.confirmed_at_ms,
        heartbeat_at_ms=progress.beat_at_ms,
        finished_at_ms=task.finished_at_ms or 0,
        cancel_requested_at_ms=progress.cancel_at_ms,
        cancel_reason=progress.cancel_reason,
        failure_count=progress.failure_count,
        interruption_count=progress.interruption_count,
        progress_percent=progress.percent,
        progress_message=progress.message or "",
        run_id=where.run_id,
        parent_id=where.run_id,
        root_run_id=where.root_run_id,
        step_key=where.key,
        retry_of=spec.retry_of,
        schedule_id=spec.schedule_id,
        fire_at_ms=spec.fire_at_ms,
        version=task.version,
        output_encoding=task.output_encoding,
        damaged=task.damaged,
        is_pause_requested=progress.pause_wanted,
    )
    if with_payload:
        made.input = task.input or b""
        made.output = task.output or b""
        made.heartbeat_details = progress.details or b""
    return made


def options(spec: Spec) -> task_pb2.TaskOptions:
    """Show what was requested beside type, queue and input."""
    return task_pb2.TaskOptions(
        kind=_KINDS[spec.kind],
        schedule_to_start_ms=spec.schedule_to_start_ms,
        schedule_to_close_ms=spec.schedule_to_close_ms,
        start_to_close_ms=spec.start_to_close_ms,
        heartbeat_timeout_ms=spec.heartbeat_timeout_ms,
        heartbeat_interval_ms=spec.heartbeat_interval_ms,
        cancel_grace_period_ms=spec.cancel_grace_ms,
        delivery_timeout_ms=spec.delivery_timeout_ms,
        retry=task_pb2.RetryPolicy(**structs.asdict(spec.retry)),
        encoding=spec.encoding,
        resources=spec.resources,
    )


def attempt(view: AttemptView) -> task_pb2.Attempt:
    """Show one hand-out of a task."""
    return task_pb2.Attempt(
        attempt=view.number,
        worker_id=view.worker_id or "",
        handed_at_ms=view.handed_at_ms,
        ended_at_ms=view.ended_at_ms or 0,
        outcome=view.outcome or "",
        error=task_error(view.error),
        callback=_callback(view.callback),
    )


def _callback(found: CallbackAttempt | None) -> task_pb2.CallbackReport | None:
    """Show what a process said; other workers say nothing of the kind."""
    if found is None:
        return None
    said = found.report
    return task_pb2.CallbackReport(
        worker=said.worker,
        accepted_at_ms=found.accepted_at_ms,
        started_at_ms=said.started_at_ms,
        heartbeat_at_ms=said.beat_at_ms,
        completed_at_ms=said.completed_at_ms,
        metrics=said.metrics,
        output=said.output or b"",
        cancelled_during_phase=said.phase,
        partial_progress=said.partial_progress or b"",
    )


def result(task: Task) -> task_service_pb2.TaskResult:
    """Show how a task ended, for a waiting caller; a damaged result is refused."""
    if damage.is_result_lost(task):
        refusal = error.detail(damage.refusal(task))
        return task_service_pb2.TaskResult(task_id=task.id, refusal=refusal)
    progress = task.progress
    made = task_service_pb2.TaskResult(
        task_id=task.id,
        state=STATES[task.state],
        output=task.output or b"",
        output_encoding=task.output_encoding,
        attempt=task.attempt,
        finished_at_ms=task.finished_at_ms or 0,
    )
    if progress is not NO_PROGRESS:
        _add_failure(made, progress)
    return made


def _add_failure(made: task_service_pb2.TaskResult, progress: AttemptProgress) -> None:
    """Say why a task failed or was cancelled; one that timed out shows its progress."""
    failure = task_error(progress.error)
    if failure is not None:
        made.error.CopyFrom(failure)
    made.failure_reason = progress.reason or ""
    made.cancel_reason = progress.cancel_reason
    if progress.reason in TIMEOUTS:
        # Its progress: the waiting caller may continue from there.
        if progress.percent is not None:
            made.progress_percent = progress.percent
        made.progress_message = progress.message or ""
        made.heartbeat_details = progress.details or b""


def explanation(found: TaskExplanation) -> task_service_pb2.ExplainTaskResponse:
    """Show why a task is not running."""
    return task_service_pb2.ExplainTaskResponse(
        explanation=found.text,
        state=STATES[found.task.state],
        reasons=[reason(each) for each in found.reasons],
    )


def reason(found: WaitingReason) -> task_service_pb2.Reason:
    """Show a reason why a task is not running, and the tasks that it waits for."""
    return task_service_pb2.Reason(
        code=found.code,
        message=found.message,
        advice=found.advice,
        evidence=found.evidence,
        tasks=[
            task_service_pb2.ExplainedTask(
                task_id=each.task.id,
                type=each.task.type,
                kind=_KINDS[each.task.kind],
                status=each.status.upper(),
                reasons=[reason(nested) for nested in each.reasons],
            )
            for each in found.tasks
        ],
    )


def report(answer: c.ItemAnswer) -> task_service_pb2.ReportResult:
    """Show the result of one reported attempt."""
    if isinstance(answer, Rejection):
        return task_service_pb2.ReportResult(error=error.detail(answer))
    return task_service_pb2.ReportResult(
        state=STATES[answer.state],
        should_cancel=answer.should_cancel,
        cancel_reason=answer.cancel_reason,
        exclusive=answer.is_exclusive,
    )
