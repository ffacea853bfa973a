"""Converts attempts of steps between records of the core and messages of the wire."""

from __future__ import annotations

from msgspec import structs

from tenure.api.rpc.view import task_view
from tenure.api.rpc.view.worker_view import instant
from tenure.core.run.step_attempt import StepAttempt
from tenure.v1 import workflow_service_pb2 as pb


def shown(step: StepAttempt) -> pb.StepAttempt:
    """Show an attempt of a step."""
    made = pb.StepAttempt(
        step_attempt_id=step.id,
        run_id=step.run_id,
        step_id=step.step_id,
        attempt_number=step.number,
        status=step.status.name,
        input=step.input or b"",
        output=step.output or b"",
        error=task_view.task_error(step.error),
        started_at=instant(step.started_at_ms),
        finished_at=instant(step.finished_at_ms),
        kind=step.kind.name,
        task_id=step.task_id,
        worker_id=step.worker_id,
        input_encoding=step.input_encoding,
        output_encoding="" if step.output is None else step.encoding,
        retry_at=instant(step.retry_at_ms),
        site=step.site,
    )
    if step.counts is not None:
        made.items.CopyFrom(pb.MapItems(**structs.asdict(step.counts)))
    return made
