"""The attempts of steps over gRPC: the calls of the workflow service that show them."""

from __future__ import annotations

from tenure.api.guard.scope import scope
from tenure.api.paging import requested_page
from tenure.api.rpc.context import Context
from tenure.api.rpc.service_spec import EngineService
from tenure.api.rpc.view import step_view
from tenure.engine.read import step_attempt as step_read
from tenure.v1 import workflow_service_pb2 as pb


class StepAttemptService(EngineService):
    """What the steps of runs have done, as clients and operators see it."""

    async def GetStepAttempt(
        self, request: pb.GetStepAttemptRequest, context: Context
    ) -> pb.GetStepAttemptResponse:
        """Show one attempt of a step, with its payloads."""
        found = await step_read.get_step(
            self._engine.store,
            namespace=scope(request.namespace_id),
            step_attempt_id=request.step_attempt_id,
        )
        return pb.GetStepAttemptResponse(step_attempt=step_view.shown(found))

    async def ListStepAttempts(
        self, request: pb.ListStepAttemptsRequest, context: Context
    ) -> pb.ListStepAttemptsResponse:
        """List the attempts of a run's steps, or of one step, in the order of its journal."""
        namespace = scope(request.namespace_id)
        self._allowance.lists.take(namespace)
        page = await step_read.list_steps(
            self._engine.store,
            namespace=namespace,
            run_id=request.run_id,
            page=requested_page(self._engine, request),
            step_id=request.step_id,
        )
        return pb.ListStepAttemptsResponse(
            step_attempts=[step_view.shown(each) for each in page.items],
            next_page_token=page.next_page_token,
        )
