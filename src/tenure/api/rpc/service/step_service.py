"""Single steps of runs over gRPC, for workers that do without the report of entries."""

from __future__ import annotations

from google.protobuf import empty_pb2
from google.protobuf.duration_pb2 import Duration

from tenure.api.guard.access import speaker
from tenure.api.guard.scope import scope
from tenure.api.rpc.context import Context
from tenure.api.rpc.service_spec import EngineService, ServiceDependencies
from tenure.api.rpc.view import task_view
from tenure.core.journal.entry import NO_BODY
from tenure.core.run.step_call import STEP_RETRY
from tenure.core.task.retry import ErrorInfo
from tenure.engine.read.step import HeldRun
from tenure.engine.run.step_calls import StepCalls
from tenure.engine.task.command import Finish, FinishKind
from tenure.errors import InvalidArgument
from tenure.v1 import workflow_service_pb2 as pb

_MS_PER_S = 1_000
_NS_PER_MS = 1_000_000
_Request = (
    pb.BeginStepRequest
    | pb.CompleteStepRequest
    | pb.FailStepRequest
    | pb.CompleteWorkflowRequest
    | pb.FailWorkflowRequest
    | pb.ScheduleSleepRequest
)


class StepService(EngineService):
    """The steps, the sleeps and the end of a run, each as a call of its own."""

    def __init__(self, shared: ServiceDependencies) -> None:
        """Carry out the calls of one run one after the other."""
        super().__init__(shared)
        self._calls = StepCalls(shared.engine)

    async def BeginStep(
        self, request: pb.BeginStepRequest, context: Context
    ) -> pb.BeginStepResponse:
        """Confirm the attempt; say whether to execute a step, or what was recorded of it."""
        answer = await self._calls.begin(
            self._held(request), request.step_id, request.input or None
        )
        known = answer.recorded or NO_BODY
        return pb.BeginStepResponse(
            should_execute=answer.recorded is None and not answer.has_yielded,
            cached_result=known.output or b"",
            step_attempt=answer.number or known.attempts,
            error=task_view.task_error(known.error),
            output_encoding="" if known.output is None else known.encoding,
            has_yielded=answer.has_yielded,
            next_at_ms=answer.next_at_ms,
        )

    async def CompleteStep(
        self, request: pb.CompleteStepRequest, context: Context
    ) -> empty_pb2.Empty:
        """Record the output of a step."""
        await self._calls.complete(
            self._held(request), request.step_id, request.output or None, request.output_encoding
        )
        return empty_pb2.Empty()

    async def FailStep(self, request: pb.FailStepRequest, context: Context) -> pb.FailStepResponse:
        """Record that a step has failed; say whether and when it is tried again."""
        has_policy = request.HasField("retry")
        policy = task_view.policy(request.retry, STEP_RETRY) if has_policy else None
        answer = await self._calls.fail(
            self._held(request), request.step_id, _error(request), policy
        )
        next_at_ms = answer.next_at_ms
        return pb.FailStepResponse(
            will_retry=next_at_ms > 0,
            retry_at_ms=next_at_ms,
            retry_after_ms=max(0, next_at_ms - answer.now_ms),
            has_yielded=answer.has_yielded,
        )

    async def ScheduleSleep(
        self, request: pb.ScheduleSleepRequest, context: Context
    ) -> pb.ScheduleSleepResponse:
        """Let a run sleep; unless that is over, the attempt yields."""
        answer = await self._calls.sleep(
            self._held(request), request.step_id, _duration_ms(request.duration)
        )
        return pb.ScheduleSleepResponse(
            has_yielded=answer.has_yielded, wake_at_ms=answer.next_at_ms
        )

    async def CompleteWorkflow(
        self, request: pb.CompleteWorkflowRequest, context: Context
    ) -> empty_pb2.Empty:
        """End a run with its output."""
        finish = Finish(
            task_id=request.run_id,
            attempt=request.attempt,
            kind=FinishKind.SUCCEEDED,
            output=request.output or None,
            output_encoding=request.output_encoding,
        )
        await self._calls.finish(self._held(request), finish)
        return empty_pb2.Empty()

    async def FailWorkflow(
        self, request: pb.FailWorkflowRequest, context: Context
    ) -> empty_pb2.Empty:
        """End a run with an error; with a retry policy it begins anew."""
        finish = Finish(
            task_id=request.run_id,
            attempt=request.attempt,
            kind=FinishKind.FAILED,
            error=_error(request),
        )
        await self._calls.finish(self._held(request), finish)
        return empty_pb2.Empty()

    def _held(self, request: _Request) -> HeldRun:
        namespace = scope(request.namespace_id)
        return HeldRun(
            namespace=namespace,
            run_id=request.run_id,
            worker_id=request.worker_id,
            attempt=request.attempt,
            speaker=self._engine.worker_keys.unproven(namespace, request.worker_id, speaker()),
        )


def _error(request: pb.FailStepRequest | pb.FailWorkflowRequest) -> ErrorInfo | None:
    return task_view.error_info(request.error) if request.HasField("error") else None


def _duration_ms(given: Duration) -> int:
    """Return a duration in whole milliseconds, rounded up: nothing wakes before its time."""
    if given.seconds < 0 or not 0 <= given.nanos < _MS_PER_S * _NS_PER_MS:
        raise InvalidArgument("duration must not be negative", field="duration")
    return given.seconds * _MS_PER_S - -given.nanos // _NS_PER_MS
