"""Runs and their steps, workers that poll, and the list of workers, over gRPC."""

from __future__ import annotations

import asyncio
from typing import Final

from google.protobuf import empty_pb2
from google.protobuf.timestamp_pb2 import Timestamp

import tenure
from tenure.api.guard.access import PRINCIPAL, speaker
from tenure.api.guard.client_address import rpc_address
from tenure.api.guard.scope import scope
from tenure.api.paging import requested_page
from tenure.api.rpc.context import Context
from tenure.api.rpc.permission import MethodRule
from tenure.api.rpc.service.run_explain_service import RunExplainService
from tenure.api.rpc.service.run_service import RunService
from tenure.api.rpc.service.step_attempt_service import StepAttemptService
from tenure.api.rpc.service.step_service import StepService
from tenure.api.rpc.service_spec import ServiceDependencies, ServiceSpec
from tenure.api.rpc.session.worker_session import token_number
from tenure.api.rpc.view import journal_view, task_view, worker_view
from tenure.core import check, limits
from tenure.core.access.permission import Action
from tenure.core.filter import WorkerFilter
from tenure.core.seat.secret import call_secret
from tenure.core.worker import lease as lease_rules
from tenure.core.worker.lease import Beat
from tenure.core.worker.record import NewWorker, WorkerMode
from tenure.engine.read import query
from tenure.engine.task.command import ClaimTasks, Tasks
from tenure.engine.worker import command as c
from tenure.errors import InvalidArgument
from tenure.v1 import workflow_service_pb2 as pb
from tenure.v1 import workflow_service_pb2_grpc

_MS_PER_S: Final = 1_000


class WorkflowService(
    RunService,
    RunExplainService,
    StepAttemptService,
    StepService,
    workflow_service_pb2_grpc.WorkflowServiceServicer,
):
    """Runs and their steps, registration, heartbeats and polls of workers, and their list."""

    def __init__(self, shared: ServiceDependencies) -> None:
        """Also know whether the server can work."""
        super().__init__(shared)
        self._readiness = shared.readiness
        self._served = shared.served

    # -- The life of a worker

    async def RegisterWorker(
        self, request: pb.RegisterWorkerRequest, context: Context
    ) -> pb.RegisterWorkerResponse:
        """Register an incarnation; the same instance key again returns the same one."""
        namespace = scope(request.namespace_id)
        caller = rpc_address(context.peer())
        command = c.RegisterWorker(
            namespace=namespace, new=self._new_worker(request, caller), speaker=speaker()
        )
        self._allowance.registrations.take(namespace)
        is_served = command.new.mode is WorkerMode.SERVED
        if is_served:
            await self._served.check(request.address, caller)
        made = await self._engine.submit(command)
        answer = pb.RegisterWorkerResponse(
            worker_id=made.worker.id,
            heartbeat_interval_secs=max(1, made.interval_ms // _MS_PER_S),
            heartbeat_interval_ms=made.interval_ms,
            lease_duration=worker_view.duration(made.lease.lease_ms),
        )
        if is_served:
            answer.call_secret = call_secret(self._engine.secrets.call_key, made.worker.id)
        else:
            answer.token = str(made.lease.token)
        return answer

    def _new_worker(self, request: pb.RegisterWorkerRequest, caller: str) -> NewWorker:
        return NewWorker(
            instance_key=request.instance_key or self._engine.clock.new_id(),
            queue=request.task_queue,
            types=tuple(dict.fromkeys(request.workflow_types)),
            mode=worker_view.mode(request.mode),
            slots=request.max_concurrent or limits.WORKER_SLOTS_DEFAULT,
            name=request.name,
            hostname=request.hostname,
            pid=request.pid,
            software_version=request.version,
            labels=dict(request.labels),
            lease_ms=worker_view.given_ms(request, "lease_duration", 0),
            key_id=PRINCIPAL.get().key_id,
            address=request.address,
            caller=caller,
        )

    async def WorkerHeartbeat(
        self, request: pb.WorkerHeartbeatRequest, context: Context
    ) -> pb.WorkerHeartbeatResponse:
        """Renew a lease, take in the worker's report about attempts, and answer what to do."""
        held = request.held_activities
        namespace, worker_id = scope(request.namespace_id), check.worker_id(request.worker_id)
        # Without the namespace a stranger could use up the rate of another namespace's worker.
        self._allowance.beats.take(f"{namespace} {worker_id}")
        renewed, answer = await self._engine.heartbeat(
            c.Heartbeat(
                namespace=namespace,
                worker_id=worker_id,
                beat=self._read_beat(request),
                wants_cancels=True,
                is_full=request.is_full,
                speaker=self._engine.worker_keys.unproven(namespace, worker_id, speaker()),
            ),
            bound=task_view.refs(request.bound_activities),
            unbound=task_view.refs(request.unbound_activities),
            held=task_view.refs(held.items) if request.HasField("held_activities") else None,
        )
        lease = renewed.lease
        return pb.WorkerHeartbeatResponse(
            accepted=True,
            should_drain=renewed.should_drain,
            token=str(lease.token),
            lease_duration=worker_view.duration(lease.lease_ms),
            heartbeat_interval_ms=lease_rules.interval_ms(lease.lease_ms),
            cancel=task_view.wire_refs(renewed.cancel),
            stop=task_view.stops((*renewed.stop, *answer.stop)),
        )

    def _read_beat(self, request: pb.WorkerHeartbeatRequest) -> Beat:
        has_completed = request.HasField("total_completed")
        has_failed = request.HasField("total_failed")
        return Beat(
            token=token_number(request.token),
            server_id=self._engine.server_id,
            lease_ms=worker_view.given_ms(request, "lease_duration", 0),
            total_completed=_total(request.total_completed) if has_completed else -1,
            total_failed=_total(request.total_failed) if has_failed else -1,
            completed_delta=request.completed_delta,
            failed_delta=request.failed_delta,
            active_count=request.active_count,
            loop_lag_ms=request.loop_lag_ms,
            stuck_count=request.stuck_count,
        )

    async def DeregisterWorker(
        self, request: pb.DeregisterWorkerRequest, context: Context
    ) -> empty_pb2.Empty:
        """Deregister a worker, or begin its drain."""
        namespace = scope(request.namespace_id)
        command: c.DrainWorker | c.DeregisterWorker
        if request.drain:
            default_ms = limits.DRAIN_DEADLINE_MS
            command = c.DrainWorker(
                namespace=namespace,
                worker_id=request.worker_id,
                deadline_ms=worker_view.given_ms(request, "drain_deadline", default_ms),
                is_own=True,
                speaker=speaker(),
            )
        else:
            command = c.DeregisterWorker(
                namespace=namespace, worker_id=request.worker_id, speaker=speaker()
            )
        await self._engine.submit(command)
        return empty_pb2.Empty()

    # -- The registry

    async def ListWorkers(
        self, request: pb.ListWorkersRequest, context: Context
    ) -> pb.ListWorkersResponse:
        """List workers, newest first, with their health and their number."""
        namespace = scope(request.namespace_id)
        self._allowance.lists.take(namespace)
        page = await query.list_workers(
            self._engine.store,
            namespace=namespace,
            page=requested_page(self._engine, request, wants_total=True),
            where=WorkerFilter(
                queue=request.task_queue,
                status=worker_view.status(request.filter_status),
                version=request.version,
                labels=dict(request.labels),
            ),
            deaf=self._engine.deaf,
        )
        return pb.ListWorkersResponse(
            workers=[worker_view.shown(each) for each in page.items],
            next_page_token=page.next_page_token,
            total_count=page.total_count or 0,
            is_total_exact=page.is_total_exact,
        )

    async def GetWorker(
        self, request: pb.GetWorkerRequest, context: Context
    ) -> pb.GetWorkerResponse:
        """Show a worker with its held tasks."""
        view = await query.get_worker(
            self._engine.store,
            namespace=scope(request.namespace_id),
            worker_id=request.worker_id,
            deaf=self._engine.deaf,
        )
        return pb.GetWorkerResponse(worker=worker_view.shown(view))

    # -- Execution

    async def PollActivity(
        self, request: pb.PollActivityRequest, context: Context
    ) -> pb.PollActivityResponse:
        """Wait for tasks that this worker can run."""
        wait_ms = limits.LONG_POLL_MS
        if request.HasField("wait"):
            wait_ms = worker_view.milliseconds(request.wait)
        command = ClaimTasks(
            namespace=scope(request.namespace_id),
            worker_id=request.worker_id,
            queue=request.task_queue,
            types=frozenset(request.supported_workflow_types),
            max_tasks=request.max_tasks or 1,
            wait_ms=wait_ms,
            speaker=speaker(),
        )
        with self._allowance.polls.place(command.namespace):
            given = await self._claim(command)
        if not given:
            return pb.PollActivityResponse()
        tokens = self._engine.tokens
        room_bytes, tasks = limits.POLL_PAGE_BYTES_MAX, []
        for task in given:
            token = tokens.sign(task_view.completion_claims(task, tokens.now_ms))
            tasks.append(journal_view.assigned(task, token, room_bytes=room_bytes))
            room_bytes -= tasks[-1].journal.ByteSize()
        first = given[0]
        return pb.PollActivityResponse(
            run_id=first.id,
            workflow_type=first.type,
            # A client that reads the list has it there already.
            workflow_input=(first.input or b"") if not request.max_tasks else b"",
            tasks=tasks,
        )

    async def _claim(self, command: ClaimTasks) -> Tasks:
        claiming = self._engine.submit(command)
        try:
            return await claiming
        except asyncio.CancelledError:
            # The caller may have disconnected at the moment when its tasks arrived.
            is_answered = claiming.done() and not claiming.cancelled()
            if is_answered and claiming.exception() is None and claiming.result():
                self._engine.give_back(claiming.result())
            raise

    async def HealthCheck(
        self, request: pb.HealthCheckRequest, context: Context
    ) -> pb.HealthCheckResponse:
        """Return whether this server can work."""
        problem = self._readiness.problem()
        now = Timestamp()
        now.FromMilliseconds(self._engine.clock.now_ms())
        serving = pb.HealthCheckResponse.SERVING_STATUS_SERVING
        return pb.HealthCheckResponse(
            status=pb.HealthCheckResponse.SERVING_STATUS_NOT_SERVING if problem else serving,
            message=problem or "ok",
            timestamp=now,
            server_version=tenure.__version__,
        )


def _total(value: int) -> int:
    if value < 0:
        raise InvalidArgument("totals must not be negative", field="totalCompleted")
    return value


SPEC: Final = ServiceSpec(
    descriptor=pb.DESCRIPTOR.services_by_name["WorkflowService"],
    make=WorkflowService,
    add_to_server=workflow_service_pb2_grpc.add_WorkflowServiceServicer_to_server,
    rules={
        MethodRule(Action.READ): "GetWorkflowRun ListWorkflowRuns GetJournal "
        "ExplainWorkflowRun GetStepAttempt ListStepAttempts ListWorkers GetWorker",
        MethodRule(Action.SUBMIT): "StartWorkflow CancelWorkflowRun SignalWorkflowRun "
        "ResumeWorkflowRun TerminateWorkflowRun RetryWorkflowRun",
        MethodRule(Action.WORK): "RegisterWorker WorkerHeartbeat DeregisterWorker PollActivity "
        "BeginStep CompleteStep FailStep CompleteWorkflow FailWorkflow ScheduleSleep",
    },
    open_methods="HealthCheck",
    # Heartbeats come before registrations.
    new_work="StartWorkflow RegisterWorker",
)
