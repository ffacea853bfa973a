"""The bodies of callbacks, and their conversion.

Instants of workers are shown and never used, so they are optional.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Literal, TypeVar

from msgspec import UNSET, Meta, Raw, UnsetType

from tenure.api.http.body import Body, given_or
from tenure.api.http.route.task.body import JSON_ENCODING, ErrorBody, instant_ms
from tenure.core import check, limits
from tenure.core.task.callback import CallbackReport
from tenure.core.task.retry import ErrorCategory
from tenure.engine.command import TaskRef
from tenure.engine.task import command as c
from tenure.errors import InvalidArgument

T = TypeVar("T")
WorkerInstant = Annotated[datetime, Meta(tz=True)] | UnsetType
Attempt = Annotated[int, Meta(ge=1, le=limits.ATTEMPT_MAX)]
Percent = Annotated[int, Meta(ge=0, le=100)] | UnsetType
Json = Annotated[Raw, Meta(description="Any JSON; stored byte for byte")] | UnsetType
_FAILED: Final = "FAILED"
_CANCELLED: Final = "CANCELLED"


class StartedBody(Body, frozen=True):
    """A process has begun its attempt."""

    attempt: Attempt
    worker_id: str
    started_at: WorkerInstant = UNSET

    def said(self) -> CallbackReport:
        """Return what the process says about itself."""
        started_at_ms = _instant_ms(self.started_at, "startedAt")
        return CallbackReport(worker=self.worker_id, started_at_ms=started_at_ms)

    def ref(self, task_id: str) -> TaskRef:
        """Return the attempt."""
        return TaskRef(task_id, self.attempt)


class HeartbeatBody(Body, frozen=True):
    """A process makes progress; details reach the next attempt if this one fails."""

    attempt: Attempt
    worker_id: str | UnsetType = UNSET
    heartbeat_at: WorkerInstant = UNSET
    progress_pct: Percent = UNSET
    message: str | UnsetType = UNSET
    details: Json = UNSET

    def beat(self, task_id: str) -> c.TaskBeat:
        """Return the report of the progress."""
        return c.TaskBeat(
            task_id=task_id,
            attempt=self.attempt,
            details=_payload(self.details, "details"),
            percent=given_or(self.progress_pct, None),
            message=given_or(self.message, None),
            said=CallbackReport(
                worker=given_or(self.worker_id, ""),
                beat_at_ms=_instant_ms(self.heartbeat_at, "heartbeatAt"),
            ),
        )


class CallbackErrorBody(ErrorBody, frozen=True):
    """Why an attempt failed; the category says whether it is retried."""

    category: ErrorCategory


class CompletedBody(Body, frozen=True):
    """A process has ended its attempt; RELEASED hands it back, which counts as no failure."""

    attempt: Attempt
    outcome: Literal["SUCCEEDED", "FAILED", "CANCELLED", "RELEASED"]
    worker_id: str | UnsetType = UNSET
    completed_at: WorkerInstant = UNSET
    output: Annotated[Json, Meta(description="Of FAILED: what is finished")] = UNSET
    error: CallbackErrorBody | UnsetType = UNSET
    metrics: dict[str, float] | UnsetType = UNSET
    cancelled_during_phase: str | UnsetType = UNSET
    partial_progress: Json = UNSET

    def finish(self, task_id: str) -> c.Finish:
        """Return the report of the end; only fields of its outcome are allowed."""
        self._check_outcome()
        is_success = self.outcome == "SUCCEEDED"
        output = _payload(self.output, "output")
        said = CallbackReport(
            worker=given_or(self.worker_id, ""),
            completed_at_ms=_instant_ms(self.completed_at, "completedAt"),
            metrics=given_or(self.metrics, {}),
            output=None if is_success else output,
            phase=given_or(self.cancelled_during_phase, ""),
            partial_progress=_payload(self.partial_progress, "partialProgress"),
        )
        return c.Finish(
            task_id=task_id,
            attempt=self.attempt,
            kind=c.FinishKind(self.outcome.lower()),
            output=output if is_success else None,
            output_encoding=JSON_ENCODING if is_success and output is not None else "",
            error=None if self.error is UNSET else self.error.info(),
            said=said,
        )

    def _check_outcome(self) -> None:
        if (self.error is not UNSET) != (self.outcome == _FAILED):
            _refuse("error", "belongs to the outcome FAILED, which needs it")
        if self.output is not UNSET and self.outcome not in {"SUCCEEDED", _FAILED}:
            _refuse("output", "belongs to the outcomes SUCCEEDED and FAILED")
        for value, field in (
            (self.cancelled_during_phase, "cancelledDuringPhase"),
            (self.partial_progress, "partialProgress"),
        ):
            if value is not UNSET and self.outcome != _CANCELLED:
                _refuse(field, "belongs to the outcome CANCELLED")


def _payload(given: Raw | UnsetType, field: str) -> bytes | None:
    return None if given is UNSET else check.payload(bytes(given), field)


def _instant_ms(given: datetime | UnsetType, field: str) -> int:
    return 0 if given is UNSET else instant_ms(given, field)


def _refuse(field: str, problem: str) -> None:
    raise InvalidArgument(f"{field} {problem}", field=field)
