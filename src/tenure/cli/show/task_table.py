"""Tasks and attempts as people read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from tenure.cli.show.output import Lines, encoded
from tenure.cli.show.run_view import ShownRun
from tenure.cli.show.table import Column
from tenure.cli.show.text import age_text, duration_text, parse_instant_ms, short_id
from tenure.cli.show.view import ShownAttempt, ShownFailure, ShownTask


class WithAttempts(ShownTask, frozen=True, kw_only=True):
    """A task with its attempts, for ``tenure tasks show``."""

    attempts: list[ShownAttempt]

    @classmethod
    def of(cls, task: ShownTask, attempts: Sequence[ShownAttempt]) -> WithAttempts:
        """Put both together."""
        return cls(**msgspec.structs.asdict(task), attempts=list(attempts))


def columns(now_ms: int) -> Sequence[Column[ShownTask]]:
    """Return the columns of a list of tasks."""
    return (
        Column("TASK", lambda task: task.task_id),
        Column("TYPE", _type_text, rank=1, is_text=True),
        Column("QUEUE", lambda task: task.queue, rank=4, is_text=True),
        Column("STATE", lambda task: task.state),
        Column("ATTEMPT", lambda task: task.attempt or "", rank=5),
        Column("AGE", lambda task: age_text(task.created_at, now_ms), rank=3),
        Column("NOTE", lambda task: note(task, now_ms), rank=2, is_text=True),
    )


def _type_text(task: ShownTask) -> str:
    return f"{task.type} (run)" if task.is_run else task.type


def note(task: ShownTask, now_ms: int) -> str:
    """Return what is most worth knowing about a task in its present state."""
    if task.failure_reason:
        return failure_text(task)
    if task.cancel_reason:
        return task.cancel_reason
    if task.is_pause_requested:
        return "paused when its attempt ends"
    starts_in_ms = parse_instant_ms(task.run_at) - now_ms
    if task.state == "PENDING" and starts_in_ms > 0:
        return f"starts in {duration_text(starts_in_ms)}"
    return progress_text(task)


def failure_text(task: ShownTask) -> str:
    """Return what failed, as Python would say it, and the reason why the task has ended."""
    said = error_text(task.error)
    return f"{said} ({task.failure_reason})" if said else task.failure_reason or ""


def error_text(error: ShownFailure | None) -> str:
    """Return the type and the message of a failure; the type may stand in place of a message."""
    if error is None:
        return ""
    return ": ".join(dict.fromkeys(part for part in (error.type, error.message) if part))


def progress_text(task: ShownTask | ShownRun) -> str:
    """Return how far a task is, as its worker told."""
    percent = "" if task.progress_percent is None else f"{task.progress_percent:.0f} %"
    return " ".join(part for part in (percent, task.progress_message or "") if part)


def facts(task: ShownTask, now_ms: int, why: str = "") -> Iterator[tuple[str, object]]:
    """Return what is known of a task, the most important first; ``why`` says why it waits."""
    yield "task", task.task_id
    yield "state", task.state
    yield "waits", why
    yield "reason", task.failure_reason or task.cancel_reason
    yield (
        "pause",
        "requested: it is paused when its attempt ends" if task.is_pause_requested else "",
    )
    if task.error is not None:
        yield "error", full_error_text(task.error)
    yield "damaged", damage_text(task)
    yield "progress", progress_text(task)
    yield "type", task.type
    yield "queue", task.queue
    yield "namespace", task.namespace
    yield "priority", task.priority
    yield "attempt", _attempt_text(task)
    yield "worker", task.worker_id
    yield "created", ago(task.created_at, now_ms)
    if parse_instant_ms(task.run_at) > now_ms:
        yield "starts", task.run_at
    yield "started", ago(task.started_at, now_ms)
    yield "heartbeat", ago(task.heartbeat_at, now_ms)
    yield "finished", ago(task.finished_at, now_ms)
    yield "timeouts", _timeouts(task)
    yield "labels", labels_text(task.labels)
    yield "key", task.idempotency_key
    yield "made by", made_by_text(task)
    yield "retry of", task.retry_of
    for name, payload, other in (
        ("input", task.input, task.input_base64),
        ("output", task.output, task.output_base64),
        ("details", task.heartbeat_details, task.heartbeat_details_base64),
    ):
        yield name, payload_text(payload, other)
    yield "trace", Lines(task.error.stack_trace or "") if task.error else None


def made_by_text(task: ShownTask | ShownRun) -> str:
    """Return which call of which run made a task, under which first run; or which fire did."""
    if task.parent_id is None:
        return _fire_text(task)
    is_deep = task.root_run_id not in {None, task.parent_id}
    top = f", under run {task.root_run_id}" if is_deep else ""
    return f"{task.step_key or 'a call'} of run {task.parent_id}{top}"


def _fire_text(task: ShownTask | ShownRun) -> str:
    if task.schedule_id is None:
        return ""
    return f"schedule {task.schedule_id}, planned for {task.fire_at}"


def full_error_text(error: ShownFailure) -> str:
    """Return an error with its type and category."""
    return f"{error_text(error)} ({error.category})"


def _attempt_text(task: ShownTask) -> str:
    most = task.retry.maximum_attempts
    return f"{task.attempt} of at most {most}" if most else str(task.attempt)


def ago(instant: str | None, now_ms: int) -> str | None:
    """Return an instant, and how long ago it was."""
    return None if instant is None else f"{instant} ({age_text(instant, now_ms)} ago)"


def _timeouts(task: ShownTask) -> str:
    known = (
        ("start to close", task.start_to_close_ms),
        ("schedule to close", task.schedule_to_close_ms),
        ("schedule to start", task.schedule_to_start_ms),
        ("heartbeat", task.heartbeat_timeout_ms),
    )
    return ", ".join(f"{name} {duration_text(value)}" for name, value in known if value)


def labels_text(labels: dict[str, str]) -> str:
    """Return labels as they are written on the command line."""
    return ", ".join(f"{key}={labels[key]}" for key in sorted(labels))


def damage_text(task: ShownTask | ShownRun) -> str | None:
    """Return what the server left out because it is not as it was stored."""
    return f"{', '.join(task.damaged)} (left out)" if task.damaged else None


def payload_text(payload: msgspec.Raw | None, other: str | None) -> Lines | None:
    """Return a payload for people: JSON over several lines, everything else as base64."""
    if payload is not None:
        return Lines(encoded(payload, indent=2).decode())
    return Lines(f"{other} (base64)") if other else None


def attempt_columns(now_ms: int) -> Sequence[Column[ShownAttempt]]:
    """Return the columns of a list of attempts."""
    return (
        Column("ATTEMPT", lambda attempt: attempt.attempt),
        Column("OUTCOME", lambda attempt: attempt.outcome or "live"),
        Column(
            "WORKER",
            lambda attempt: attempt.worker_id,
            rank=2,
            short=lambda attempt: short_id(attempt.worker_id or ""),
        ),
        Column("STARTED", lambda attempt: f"{age_text(attempt.handed_at, now_ms)} ago", rank=4),
        Column("TOOK", lambda attempt: _took(attempt, now_ms), rank=3),
        Column("ERROR", lambda attempt: error_text(attempt.error), rank=1, is_text=True),
    )


def _took(attempt: ShownAttempt, now_ms: int) -> str:
    ended_ms = parse_instant_ms(attempt.ended_at) if attempt.ended_at else now_ms
    return age_text(attempt.handed_at, ended_ms)
