"""Why a run does not go on, over gRPC."""

from __future__ import annotations

from tenure.api.guard.scope import scope
from tenure.api.rpc.context import Context
from tenure.api.rpc.service_spec import EngineService
from tenure.api.rpc.view import run_view, task_view
from tenure.core.run.status import status_of
from tenure.engine.read.explanation import explain_run
from tenure.v1 import workflow_service_pb2 as pb


class RunExplainService(EngineService):
    """The call of the workflow service that explains a run."""

    async def ExplainWorkflowRun(
        self, request: pb.ExplainWorkflowRunRequest, context: Context
    ) -> pb.ExplainWorkflowRunResponse:
        """Explain why a run does not go on now; it reads as much as a list does."""
        namespace = scope(request.namespace_id)
        self._allowance.lists.take(namespace)
        found = await explain_run(
            self._engine.store, namespace=namespace, run_id=request.run_id, deaf=self._engine.deaf
        )
        return pb.ExplainWorkflowRunResponse(
            run_id=found.task.id,
            status=run_view.STATUSES[status_of(found.task)],
            explanation=found.text,
            reasons=[task_view.reason(each) for each in found.reasons],
        )
