"""The way to a server: gRPC on one side, plain records on the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from tenure.cli.client.access_client import AccessClient
from tenure.cli.client.request import (
    CompletionRequest,
    DrainChoice,
    EnqueueOptions,
    TaskSelection,
    WorkerQuery,
)
from tenure.cli.client.rpc_failure import NOT_CONNECTED, failure_of
from tenure.cli.exit_code import ExitCode
from tenure.cli.failure import CliError
from tenure.cli.show import diagnosis_view, explain, view
from tenure.core.limits import PAGE_SIZE_MAX
from tenure.engine.clock import SystemClock
from tenure.sdk.transport.api_key import find_api_key
from tenure.sdk.transport.tls import TLS, credentials
from tenure.v1 import admin_service_pb2 as admin_pb
from tenure.v1 import task_pb2, worker_pb2
from tenure.v1 import task_service_pb2 as task_pb
from tenure.v1 import workflow_service_pb2 as workflow_pb
from tenure.v1.admin_service_pb2_grpc import AdminServiceStub
from tenure.v1.task_service_pb2_grpc import TaskServiceStub
from tenure.v1.workflow_service_pb2_grpc import WorkflowServiceStub

Response = TypeVar("Response", bound=Message)
# Who waits longer at a prompt believes that it hangs.
CALL_SECONDS_MAX: Final = 10.0
_RESEND_SECONDS: Final = 0.3
_JSON: Final = "json"


class ServerClient:
    """One channel to a server, in one namespace."""

    def __init__(
        self, target: str, namespace: str, *, api_key: str = "", tls: TLS | None = None
    ) -> None:
        """Prepare the channel; it connects with the first call."""
        self.target = target
        self.namespace = namespace
        self._clock = SystemClock()
        self._metadata = _metadata(api_key)
        self._is_tls = tls is not None
        self._channel = _channel(target, tls)
        self._tasks = TaskServiceStub(self._channel)
        self._workers = WorkflowServiceStub(self._channel)
        self._admin = AdminServiceStub(self._channel)
        self.access = AccessClient(self._admin, self._call, self.now_ms)

    def close(self) -> None:
        """End the connection."""
        self._channel.close()

    def monotonic_ms(self) -> int:
        """Return time for waiting."""
        return self._clock.monotonic_ms()

    def now_ms(self) -> int:
        """Return the server's time, because every instant that it tells is of its clock."""
        answer = self._call(
            self._workers.HealthCheck,
            workflow_pb.HealthCheckRequest(),
            workflow_pb.HealthCheckResponse,
        )
        stamp = answer.timestamp
        return stamp.ToMilliseconds() if answer.HasField("timestamp") else self._clock.now_ms()

    def enqueue(self, type_name: str, options: EnqueueOptions) -> view.ShownEnqueued:
        """Enqueue a task. It has its id before it is sent, so sending it twice does not hurt."""
        run_at_ms = options["at_ms"] or 0
        if options["delay_ms"]:
            run_at_ms = self.now_ms() + options["delay_ms"]
        task = task_pb2.NewTask(
            task_id=self._clock.new_id(),
            type=type_name,
            task_queue=options["queue"],
            options=_task_options(options),
            input=options["input"] or b"",
            priority=options["priority"],
            run_at_ms=run_at_ms,
            labels=dict(options["labels"]),
            idempotency_key=options["key"],
        )
        request = task_pb.EnqueueTasksRequest(namespace_id=self.namespace, tasks=[task])
        return view.enqueued(self._enqueue(request, task.task_id))

    def _enqueue(self, request: task_pb.EnqueueTasksRequest, task_id: str) -> task_pb.EnqueueResult:
        try:
            return self._call(
                self._tasks.EnqueueTasks, request, task_pb.EnqueueTasksResponse
            ).results[0]
        except CliError as error:
            if not error.is_transient or error.code == NOT_CONNECTED:
                raise
        time.sleep(_RESEND_SECONDS)
        request.is_resend = True
        try:
            return self._call(
                self._tasks.EnqueueTasks, request, task_pb.EnqueueTasksResponse
            ).results[0]
        except CliError as error:
            if error.is_transient:
                error.hint += f" If the task was accepted all the same, its id is {task_id}."
            raise

    def get_task(self, task_id: str) -> view.ShownTask:
        """Return a task as it stands."""
        request = task_pb.GetTaskRequest(namespace_id=self.namespace, task_id=task_id)
        return view.task(self._call(self._tasks.GetTask, request, task_pb.GetTaskResponse).task)

    def list_tasks(self, query: TaskSelection) -> tuple[list[view.ShownTask], str]:
        """Return a page of tasks and the token of the next one."""
        request = task_pb.ListTasksRequest(
            namespace_id=self.namespace,
            task_queue=query.queue,
            type=query.type,
            state=_state(query.state),
            page_size=min(query.limit, PAGE_SIZE_MAX),
            page_token=query.page_token,
        )
        answer = self._call(self._tasks.ListTasks, request, task_pb.ListTasksResponse)
        return [view.task(each) for each in answer.tasks], answer.next_page_token

    def list_attempts(self, task_id: str) -> list[view.ShownAttempt]:
        """Return the attempts of a task in their order."""
        request = task_pb.ListAttemptsRequest(namespace_id=self.namespace, task_id=task_id)
        return [
            view.attempt(each)
            for each in self._call(
                self._tasks.ListAttempts, request, task_pb.ListAttemptsResponse
            ).attempts
        ]

    def explain_task(self, task_id: str) -> explain.ShownExplanation:
        """Return why a task is not running now."""
        request = task_pb.ExplainTaskRequest(namespace_id=self.namespace, task_id=task_id)
        answer = self._call(self._tasks.ExplainTask, request, task_pb.ExplainTaskResponse)
        return explain.explanation(task_id, view.task_state(answer.state), answer)

    def cancel_task(self, task_id: str, reason: str) -> str:
        """Ask for the end of a task; return its state."""
        request = task_pb.CancelTaskRequest(
            namespace_id=self.namespace, task_id=task_id, reason=reason
        )
        return view.task_state(
            self._call(self._tasks.CancelTask, request, task_pb.ChangeTaskResponse).state
        )

    def pause_task(self, task_id: str) -> str:
        """Hold a task; return its state."""
        request = task_pb.PauseTaskRequest(namespace_id=self.namespace, task_id=task_id)
        return view.task_state(
            self._call(self._tasks.PauseTask, request, task_pb.ChangeTaskResponse).state
        )

    def resume_task(self, task_id: str) -> str:
        """Let a paused task go on; return its state."""
        request = task_pb.ResumeTaskRequest(namespace_id=self.namespace, task_id=task_id)
        return view.task_state(
            self._call(self._tasks.ResumeTask, request, task_pb.ChangeTaskResponse).state
        )

    def terminate_task(self, task_id: str) -> str:
        """End a task without asking its worker; return its state."""
        request = task_pb.TerminateTaskRequest(namespace_id=self.namespace, task_id=task_id)
        return view.task_state(
            self._call(self._tasks.TerminateTask, request, task_pb.ChangeTaskResponse).state
        )

    def retry_task(self, task_id: str) -> str:
        """Make a new task from one that has ended; return its id."""
        request = task_pb.RetryTaskRequest(
            namespace_id=self.namespace, task_id=task_id, new_task_id=self._clock.new_id()
        )
        return self._call(self._tasks.RetryTask, request, task_pb.RetryTaskResponse).task_id

    def complete_task(self, task_id: str, completion: CompletionRequest) -> str:
        """Complete a task from outside its worker; return its state."""
        request = task_pb.CompleteByIdRequest(
            namespace_id=self.namespace, task_id=task_id, attempt=completion["attempt"] or 0
        )
        if completion["error_message"] is None:
            request.kind = task_pb2.FINISH_KIND_SUCCEEDED
            request.output = completion["output"] or b""
            request.output_encoding = _JSON
        else:
            request.kind = task_pb2.FINISH_KIND_FAILED
            request.error.message = completion["error_message"]
            request.error.type = completion["error_type"]
            request.error.category = task_pb2.ERROR_CATEGORY_USER_CODE
            if completion["is_final"]:
                request.error.retryable = False
        return view.task_state(
            self._call(self._tasks.CompleteById, request, task_pb.CompleteTaskResponse).state
        )

    def watch_tasks(self, task_ids: Sequence[str]) -> Iterator[list[str]]:
        """Yield the ids of tasks as they end; the last of them ends the iteration."""
        request = task_pb.WatchTasksRequest(namespace_id=self.namespace, add=task_ids)
        try:
            for frame in self._tasks.WatchTasks(iter([request]), metadata=self._metadata):
                yield [result.task_id for result in frame.results]
        except grpc.RpcError as error:
            raise failure_of(error, self.target, is_tls=self._is_tls) from error

    def get_worker(self, worker_id: str) -> view.ShownWorker:
        """Return a worker, with the number of tasks that the server knows it to hold."""
        return view.worker(self._worker(worker_id), self.now_ms())

    def _worker(self, worker_id: str) -> worker_pb2.Worker:
        request = workflow_pb.GetWorkerRequest(namespace_id=self.namespace, worker_id=worker_id)
        return self._call(self._workers.GetWorker, request, workflow_pb.GetWorkerResponse).worker

    def list_workers(self, query: WorkerQuery) -> tuple[list[view.ShownWorker], str]:
        """Return a page of workers and the token of the next one."""
        request = workflow_pb.ListWorkersRequest(
            namespace_id=self.namespace,
            task_queue=query.queue,
            filter_status=query.status,
            labels=query.labels,
            version=query.version,
            page_size=min(query.limit, PAGE_SIZE_MAX),
            page_token=query.page_token,
        )
        answer = self._call(self._workers.ListWorkers, request, workflow_pb.ListWorkersResponse)
        now_ms = self.now_ms()
        shown = [view.worker(self._exact(each), now_ms) for each in answer.workers]
        return shown, answer.next_page_token

    def _exact(self, worker: worker_pb2.Worker) -> worker_pb2.Worker:
        """Ask again for a worker of a list that looks as if it might be stopped now.

        Lists show what the worker said with its last heartbeat; only the server knows what it has
        handed out since, and whoever stops the worker because of our word must not lose it.
        """
        is_draining = worker.status == worker_pb2.WORKER_STATUS_DRAINING
        return self._worker(worker.worker_id) if is_draining and not worker.active_count else worker

    def drain(self, choice: DrainChoice) -> list[str]:
        """Let workers finish what they hold and give them nothing new; return their ids."""
        deadline = _duration(choice["deadline_ms"])
        worker_id = choice["worker_id"]
        if worker_id is not None:
            one = admin_pb.DrainWorkerRequest(
                namespace_id=self.namespace, worker_id=worker_id, deadline=deadline
            )
            return [
                self._call(
                    self._admin.DrainWorker, one, admin_pb.DrainWorkerResponse
                ).worker.worker_id
            ]
        several = admin_pb.DrainWorkersRequest(
            namespace_id=self.namespace,
            labels=dict(choice["labels"]),
            version=choice["version"],
            deadline=deadline,
        )
        return list(
            self._call(self._admin.DrainWorkers, several, admin_pb.DrainWorkersResponse).worker_ids
        )

    def evict_worker(self, worker_id: str) -> view.ShownWorker:
        """Take a worker offline, whatever it does."""
        request = admin_pb.EvictWorkerRequest(namespace_id=self.namespace, worker_id=worker_id)
        return view.worker(
            self._call(self._admin.EvictWorker, request, admin_pb.EvictWorkerResponse).worker,
            self.now_ms(),
        )

    def list_queues(self, page_token: str, limit: int) -> tuple[list[view.ShownQueue], str]:
        """Return a page of the queues that have settings or live tasks, and the next token."""
        request = admin_pb.ListQueuesRequest(
            namespace_id=self.namespace,
            page_size=min(limit, PAGE_SIZE_MAX),
            page_token=page_token,
        )
        answer = self._call(self._admin.ListQueues, request, admin_pb.ListQueuesResponse)
        return [view.queue(each) for each in answer.queues], answer.next_page_token

    def get_queue(self, name: str) -> view.ShownQueue:
        """Return a queue."""
        request = admin_pb.GetQueueRequest(namespace_id=self.namespace, name=name)
        return view.queue(
            self._call(self._admin.GetQueue, request, admin_pb.GetQueueResponse).queue
        )

    def set_queue(
        self, name: str, *, is_paused: bool | None = None, concurrency_max: int | None = None
    ) -> view.ShownQueue:
        """Set a brake of a queue; what is None stays as it is."""
        request = admin_pb.SetQueueRequest(
            namespace_id=self.namespace,
            name=name,
            is_paused=is_paused,
            concurrency_max=concurrency_max,
        )
        return view.queue(
            self._call(self._admin.SetQueue, request, admin_pb.SetQueueResponse).queue
        )

    def diagnose(self, namespace: str) -> diagnosis_view.ShownDiagnosis:
        """Return what is wrong; without a namespace with all that the caller may see."""
        self._connect()
        request = admin_pb.DiagnoseRequest(
            namespace_id=namespace, client_now_ms=self._clock.now_ms()
        )
        answer = self._call(self._admin.Diagnose, request, admin_pb.DiagnoseResponse)
        return diagnosis_view.diagnosis(answer)

    def _connect(self) -> None:
        """Make sure of the connection, so that the time that it takes is not the clocks' fault."""
        try:
            self.now_ms()
        except CliError as error:
            # A server whose store is away says so to this question, and tells more when diagnosed.
            if not error.is_transient or error.code == NOT_CONNECTED:
                raise

    def _call(
        self, method: Callable[..., object], request: Message, kind: type[Response]
    ) -> Response:
        """Call and return the answer, of whose type the generated stubs say nothing."""
        try:
            answer = method(request, timeout=CALL_SECONDS_MAX, metadata=self._metadata)
        except grpc.RpcError as error:
            raise failure_of(error, self.target, is_tls=self._is_tls) from error
        assert isinstance(answer, kind)
        return answer


def _metadata(api_key: str) -> tuple[tuple[str, str], ...] | None:
    """Return what says who calls, if anything is to."""
    try:
        key = find_api_key(api_key)
    except ValueError:
        what = "The API key is none: it must be as the server gave it, tnr_, an id and a secret."
        hint = "Look at --api-key or TENURE_API_KEY."
        raise CliError(what, hint=hint, exit_code=ExitCode.USAGE) from None
    return (("authorization", f"Bearer {key}"),) if key else None


def _channel(target: str, tls: TLS | None) -> grpc.Channel:
    if tls is None:
        return grpc.insecure_channel(target, options=_options(target))
    return grpc.secure_channel(target, credentials(tls), options=_options(target))


def _options(target: str) -> list[tuple[str, int]]:
    """Return the options of the channel."""
    # Who waits over a restart of the server sees it back within a second.
    options = [("grpc.initial_reconnect_backoff_ms", 200), ("grpc.max_reconnect_backoff_ms", 1_000)]
    # What is on this machine is never behind a proxy.
    host = target.rpartition(":")[0].strip("[]")
    is_local = host in {"localhost", "::1"} or host.startswith("127.")
    return [*options, ("grpc.enable_http_proxy", 0)] if is_local else options


def _task_options(options: EnqueueOptions) -> task_pb2.TaskOptions:
    return task_pb2.TaskOptions(
        kind=task_pb2.TASK_KIND_ACTIVITY,
        schedule_to_start_ms=options["schedule_to_start_ms"] or 0,
        schedule_to_close_ms=options["schedule_to_close_ms"] or 0,
        start_to_close_ms=options["start_to_close_ms"] or 0,
        heartbeat_timeout_ms=options["heartbeat_timeout_ms"] or 0,
        cancel_grace_period_ms=options["cancel_grace_ms"] or 0,
        retry=task_pb2.RetryPolicy(maximum_attempts=options["max_attempts"]),
        encoding=_JSON,
    )


def _state(name: str) -> task_pb2.TaskState.ValueType:
    return task_pb2.TaskState.Value(f"TASK_STATE_{name or 'UNSPECIFIED'}")


def _duration(milliseconds: int | None) -> Duration | None:
    if milliseconds is None:
        return None
    duration = Duration()
    duration.FromMilliseconds(milliseconds)
    return duration
