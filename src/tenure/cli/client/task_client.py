"""The part of the way to a server that is about tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from google.protobuf.message import Message

from tenure.cli.client.connection import ServerConnection
from tenure.cli.client.request import CompletionRequest, EnqueueOptions, TaskSelection
from tenure.cli.show import explain, view
from tenure.core.limits import PAGE_SIZE_MAX
from tenure.v1 import task_pb2
from tenure.v1 import task_service_pb2 as pb
from tenure.v1.task_service_pb2_grpc import TaskServiceStub

_JSON: Final = "json"


class TaskClient:
    """Speaks of tasks over the channel of a client."""

    def __init__(self, server: ServerConnection) -> None:
        self._server = server
        self._call = server.call
        self._namespace = server.namespace
        self._stub = TaskServiceStub(server.channel)

    def enqueue(self, type_name: str, options: EnqueueOptions) -> view.ShownEnqueued:
        """Enqueue a task."""
        run_at_ms = options["at_ms"] or 0
        if options["delay_ms"]:
            run_at_ms = self._server.now_ms() + options["delay_ms"]
        task = task_pb2.NewTask(
            task_id=self._server.clock.new_id(),
            type=type_name,
            task_queue=options["queue"],
            options=_task_options(options),
            input=options["input"] or b"",
            priority=options["priority"],
            run_at_ms=run_at_ms,
            labels=dict(options["labels"]),
            idempotency_key=options["key"],
        )
        request = pb.EnqueueTasksRequest(namespace_id=self._namespace, tasks=[task])
        answer = self._server.call_new(
            self._stub.EnqueueTasks, request, pb.EnqueueTasksResponse, f"task {task.task_id}"
        )
        return view.enqueued(answer.results[0])

    def get_task(self, task_id: str) -> view.ShownTask:
        """Return a task as it stands."""
        request = pb.GetTaskRequest(namespace_id=self._namespace, task_id=task_id)
        return view.task(self._call(self._stub.GetTask, request, pb.GetTaskResponse).task)

    def list_tasks(self, query: TaskSelection) -> tuple[list[view.ShownTask], str]:
        """Return a page of tasks and the token of the next one."""
        request = pb.ListTasksRequest(
            namespace_id=self._namespace,
            task_queue=query.queue,
            type=query.type,
            state=_state(query.state),
            states=[_state(each) for each in query.states],
            labels=query.labels,
            error_type=query.error_type,
            failure_reason=query.failure_reason,
            created_after_ms=query.created_after_ms,
            created_before_ms=query.created_before_ms,
            page_size=min(query.limit, PAGE_SIZE_MAX),
            page_token=query.page_token,
        )
        answer = self._call(self._stub.ListTasks, request, pb.ListTasksResponse)
        return [view.task(each) for each in answer.tasks], answer.next_page_token

    def list_attempts(self, task_id: str) -> list[view.ShownAttempt]:
        """Return the attempts of a task in their order."""
        request = pb.ListAttemptsRequest(namespace_id=self._namespace, task_id=task_id)
        return [
            view.attempt(each)
            for each in self._call(
                self._stub.ListAttempts, request, pb.ListAttemptsResponse
            ).attempts
        ]

    def explain_task(self, task_id: str) -> explain.ShownExplanation:
        """Return why a task is not running now."""
        request = pb.ExplainTaskRequest(namespace_id=self._namespace, task_id=task_id)
        answer = self._call(self._stub.ExplainTask, request, pb.ExplainTaskResponse)
        return explain.explanation(task_id, view.task_state(answer.state), answer)

    def cancel_task(self, task_id: str, reason: str) -> str:
        """Ask for the end of a task; return its state."""
        request = pb.CancelTaskRequest(namespace_id=self._namespace, task_id=task_id, reason=reason)
        return self._changed(self._stub.CancelTask, request)

    def pause_task(self, task_id: str) -> str:
        """Hold a task; return its state."""
        request = pb.PauseTaskRequest(namespace_id=self._namespace, task_id=task_id)
        return self._changed(self._stub.PauseTask, request)

    def resume_task(self, task_id: str) -> str:
        """Let a paused task go on; return its state."""
        request = pb.ResumeTaskRequest(namespace_id=self._namespace, task_id=task_id)
        return self._changed(self._stub.ResumeTask, request)

    def terminate_task(self, task_id: str) -> str:
        """End a task without asking its worker; return its state."""
        request = pb.TerminateTaskRequest(namespace_id=self._namespace, task_id=task_id)
        return self._changed(self._stub.TerminateTask, request)

    def retry_task(self, task_id: str) -> str:
        """Make a new task from one that has ended; return its id."""
        request = pb.RetryTaskRequest(
            namespace_id=self._namespace, task_id=task_id, new_task_id=self._server.clock.new_id()
        )
        return self._call(self._stub.RetryTask, request, pb.RetryTaskResponse).task_id

    def complete_task(self, task_id: str, completion: CompletionRequest) -> str:
        """Complete a task from outside its worker; return its state."""
        request = pb.CompleteByIdRequest(
            namespace_id=self._namespace, task_id=task_id, attempt=completion["attempt"] or 0
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
            self._call(self._stub.CompleteById, request, pb.CompleteTaskResponse).state
        )

    def watch_tasks(self, task_ids: Sequence[str]) -> Iterator[list[str]]:
        """Yield the ids of tasks as they end; the last of them ends the iteration."""
        request = pb.WatchTasksRequest(namespace_id=self._namespace, add=task_ids)
        with self._server.failures():
            for frame in self._stub.WatchTasks(iter([request]), metadata=self._server.metadata):
                yield [result.task_id for result in frame.results]

    def _changed(self, method: Callable[..., object], request: Message) -> str:
        return view.task_state(self._call(method, request, pb.ChangeTaskResponse).state)


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
