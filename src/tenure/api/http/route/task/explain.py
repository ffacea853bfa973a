"""The operation that says why a task is not running."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, structs

from tenure.api.http.operation import Answer, Operation, OperationCall
from tenure.api.http.parameter import Scoped
from tenure.api.http.route.task.view import StateName
from tenure.api.http.view import View
from tenure.core.access.permission import Action
from tenure.engine.read.explanation import explain_task


class ReasonView(View, frozen=True):
    """One reason: a stable code, what it means here, what to do, and the evidence."""

    code: Annotated[str, Meta(description="For example queue_paused, no_worker, backing_off")]
    message: str
    advice: str
    evidence: dict[str, str]


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
    reasons = [ReasonView(**structs.asdict(each)) for each in found.reasons]
    return Answer(
        ExplanationView(task_id=found.task_id, state=found.state.upper(), reasons=reasons)
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
