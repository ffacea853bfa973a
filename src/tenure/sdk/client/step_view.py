"""The attempts of a run's steps as a client shows them."""

from __future__ import annotations

from datetime import datetime

import msgspec

from tenure.core.run.step_attempt import StepKind, StepStatus
from tenure.sdk.failure import RemoteError
from tenure.sdk.instant import datetime_of
from tenure.sdk.payload import Converter, Payload
from tenure.v1 import workflow_service_pb2 as pb


class StepItems(msgspec.Struct, frozen=True, kw_only=True):
    """How the items of a ``ctx.map`` have ended so far."""

    total: int
    succeeded: int
    failed: int
    cancelled: int


class RunStep(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of a step of a run. Instants are the server's; None means not yet or not known.

    ``key`` is the call: its branch, name and ordinal. ``task_id`` is that of a queued activity or
    a child run, ``site`` the file and line of the call, and ``items`` are those of a map.
    """

    id: str
    run_id: str
    key: str
    attempt: int
    kind: StepKind
    status: StepStatus
    task_id: str = ""
    worker_id: str = ""
    output: Payload | None = None
    error: RemoteError | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    retry_at: datetime | None = None
    site: str = ""
    items: StepItems | None = None


def run_step(step: pb.StepAttempt, converter: Converter) -> RunStep:
    """Show an attempt of a step."""
    return RunStep(
        id=step.step_attempt_id,
        run_id=step.run_id,
        key=step.step_id,
        attempt=step.attempt_number,
        kind=StepKind(step.kind.lower()),
        status=StepStatus(step.status.lower()),
        task_id=step.task_id,
        worker_id=step.worker_id,
        output=_output(step),
        error=RemoteError(step.error, converter) if step.HasField("error") else None,
        started_at=datetime_of(step.started_at.ToMilliseconds()),
        finished_at=datetime_of(step.finished_at.ToMilliseconds()),
        retry_at=datetime_of(step.retry_at.ToMilliseconds()),
        site=step.site,
        items=_items(step.items) if step.HasField("items") else None,
    )


def _output(step: pb.StepAttempt) -> Payload | None:
    has_output = step.output or step.output_encoding
    return Payload(step.output_encoding, step.output) if has_output else None


def _items(items: pb.MapItems) -> StepItems:
    return StepItems(
        total=items.total, succeeded=items.succeeded, failed=items.failed, cancelled=items.cancelled
    )
