"""The operation that says why a run does not go on."""

from __future__ import annotations

from typing import Final

from tenure.api.http.operation import Answer, Operation, OperationCall
from tenure.api.http.parameter import Scoped
from tenure.api.http.route.run.view import StatusName
from tenure.api.http.route.task.explain import ReasonView, reason
from tenure.api.http.view import View
from tenure.core.access.permission import Action
from tenure.engine.read.explanation import explain_run


class RunExplanationView(View, frozen=True):
    """Why a run does not go on now; the first reason alone is why."""

    run_id: str
    status: StatusName
    reasons: list[ReasonView]


async def explain(call: OperationCall[Scoped, None]) -> Answer:
    """Explain why a run does not go on now."""
    found = await explain_run(
        call.engine.store,
        namespace=call.namespace,
        run_id=call.path["runId"],
        deaf=call.engine.deaf,
    )
    reasons = [reason(each) for each in found.reasons]
    return Answer(
        RunExplanationView(run_id=found.task.id, status=found.status.upper(), reasons=reasons)
    )


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/v1/runs/{runId}/explain",
        name="explainRun",
        group="Runs",
        summary="Why a run does not go on now, and why what it waits for is not done.",
        handle=explain,
        action=Action.READ,
        # It reads as much as a list does.
        is_list=True,
        query=Scoped,
        answer=RunExplanationView,
        errors=("not_found",),
    ),
)
