"""What a schedule starts, from an activity or a workflow and its arguments."""

from __future__ import annotations

from typing import Any, Final

from tenure.core.limits import PRIORITY_DEFAULT
from tenure.core.run.external_id import OnFinished
from tenure.sdk.activity.definition import Activity, check_activity
from tenure.sdk.activity.option import Options
from tenure.sdk.payload import Converter
from tenure.sdk.workflow.definition import Workflow, WorkflowOptions, check_workflow
from tenure.v1 import schedule_service_pb2 as pb

# A schedule decides itself when something starts, and how often.
_OF_SCHEDULE: Final = {
    "delay_ms": "delay",
    "run_at_ms": "run_at",
    "idempotency_key": "idempotency_key",
}


def target_to_wire(
    converter: Converter,
    target: Activity[..., Any] | Workflow[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> pb.ScheduleTarget:
    """Return what each fire starts; raise ``TypeError`` for arguments that do not fit."""
    if isinstance(target, Activity):
        check_activity(target)
        payload = target.call(*args, **kwargs).payload
    else:
        check_workflow(target)
        payload = target.signature.encode(target.signature.bind(args, kwargs))
    options: Options | WorkflowOptions = target.options
    for field, name in _OF_SCHEDULE.items():
        if getattr(options, field):
            raise ValueError(f"a schedule decides about {name} itself: do not set it")
    sealed = converter.seal(payload)
    made = pb.ScheduleTarget(
        type=target.name,
        task_queue=options.queue,
        input=sealed.data,
        options=options.to_wire(sealed.encoding),
        labels=options.labels,
    )
    if options.priority != PRIORITY_DEFAULT:
        made.priority = options.priority
    if isinstance(options, WorkflowOptions):
        if options.on_finished != OnFinished.ALLOW:
            raise ValueError("a schedule always starts a run if only finished ones have its id")
        made.external_id, made.on_live = options.id, options.on_live.upper()
    return made
