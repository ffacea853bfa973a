"""The start of a run, sent until it is answered."""

from __future__ import annotations

import msgspec

from tenure.core.limits import PRIORITY_DEFAULT
from tenure.sdk.client.client_state import ClientState, new_task_id
from tenure.sdk.client.method import START
from tenure.sdk.payload import Payload
from tenure.sdk.workflow.definition import WorkflowOptions
from tenure.v1 import workflow_service_pb2 as pb


class RunStart(msgspec.Struct, frozen=True):
    """What a run is started with; the payload is as it travels."""

    type: str
    options: WorkflowOptions
    input: Payload

    async def send(self, state: ClientState) -> str:
        """Start the run; return its id, or that of the first with its key.

        Its id is made here, and a repeated request is marked, so a lost answer starts it once.
        """
        options = self.options
        request = pb.StartWorkflowRequest(
            namespace_id=state.namespace,
            task_queue=options.queue,
            workflow_type=self.type,
            input=self.input.data,
            run_id=new_task_id(),
            idempotency_key=options.idempotency_key,
            options=options.to_wire(self.input.encoding),
            labels=options.labels,
            external_id=options.id,
            on_live=options.on_live.upper(),
            on_finished=options.on_finished.upper(),
        )
        if options.priority != PRIORITY_DEFAULT:
            request.priority = options.priority
        run_at_ms = await state.run_at_ms(options)
        if run_at_ms:
            request.run_at.FromMilliseconds(run_at_ms)

        def again() -> pb.StartWorkflowRequest:
            request.is_resend = True
            return request

        answer = await state.ask(START, request, again=again)
        return answer.run_id
