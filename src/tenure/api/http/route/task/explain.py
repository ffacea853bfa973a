"""The operation that says why a task is not running."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import UNSET, Meta, UnsetType

from tenure.api.http.operation import Answer, Operation, OperationCall
from tenure.api.http.parameter import Scoped
from tenure.api.http.route.task.view import StateName
from tenure.api.http.view import View, names
from tenure.core.access.permission import Action
from tenure.core.explain.fact import WaitingReason
from tenure.core.task.record import TaskKind
from tenure.engine.read.explanation import explain_task


class ReasonView(View, frozen=True):
    """One reason: a stable code, what it means here, what to do, and the evidence."""

    code: Annotated[str, Meta(description="For example queue_paused, no_worker, backing_off")]
    message: str
    advice: str
    evidence: dict[str, str]
    tasks: (
        Annotated[
            list[ExplainedTaskView], Meta(description="Of a run: the first tasks it waits for")
        ]
        | UnsetType
    ) = UNSET


class ExplainedTaskView(View, frozen=True):
    """A task or a run that a run waits for, and why it is not running."""

    task_id: str
    type: str
    kind: Annotated[str, names(TaskKind)]
    status: Annotated[str, Meta(description="The state of a task, or the status of a run")]
    reasons: list[ReasonView]


class ExplanationView(View, frozen=True):
    """Why a task is not running now; the first reason alone is why it does not run."""

    task_id: str
    state: StateName
    reasons: list[ReasonView]


async def explain(call: OperationCall[Scoped, None]) -> Answer:
    """Explain why a task is not running now."""
    found = await explain_task(
        call.engine.store,
        namespace=call.namespace,
        task_id=call.path["taskId"],
        deaf=call.engine.deaf,
    )
    task, reasons = found.task, [reason(each) for each in found.reasons]
    return Answer(ExplanationView(task_id=task.id, state=task.state.upper(), reasons=reasons))


def reason(found: WaitingReason) -> ReasonView:
    """Show a reason, and the tasks that it waits for."""
    tasks = [
        ExplainedTaskView(
            task_id=each.task.id,
            type=each.task.type,
            kind=each.task.kind.upper(),
            status=each.status.upper(),
            reasons=[reason(nested) for nested in each.reasons],
        )
        for each in found.tasks
    ]
    return ReasonView(
        code=found.code,
        message=found.message,
        advice=found.advice,
        evidence=found.evidence,
        tasks=tasks or UNSET,
    )


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/v1/tasks/{taskId}/explain",
        name="explainTask",
        group="Tasks",
        summary="Why a task is not running now, the reason that counts now first, with what to do.",
        handle=explain,
        action=Action.READ,
        # It reads as much as a list does.
        is_list=True,
        query=Scoped,
        answer=ExplanationView,
        errors=("not_found",),
    ),
)
