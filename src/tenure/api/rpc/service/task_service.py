"""Tasks over gRPC, for clients and for workers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from tenure.api.guard.access import speaker
from tenure.api.guard.rate_limit import Allowance
from tenure.api.guard.scope import scope
from tenure.api.rpc import error
from tenure.api.rpc.boundary import Context
from tenure.api.rpc.outcome import Count
from tenure.api.rpc.session.client_stream import ClientStream
from tenure.api.rpc.session.stream_enqueue import StreamEnqueue
from tenure.api.rpc.view import task_view
from tenure.core import check
from tenure.core.access import task_token as task_tokens
from tenure.core.filter import TaskFilter
from tenure.core.task.record import NewTask, Task
from tenure.engine.command import Command
from tenure.engine.engine import Engine
from tenure.engine.read import query
from tenure.engine.read.explanation import explain_task
from tenure.engine.task import command as c
from tenure.errors import (
    AttemptMismatch,
    InvalidArgument,
    TenureError,
    Unavailable,
)
from tenure.v1 import task_pb2, task_service_pb2_grpc
from tenure.v1 import task_service_pb2 as pb


class TaskService(task_service_pb2_grpc.TaskServiceServicer):
    """Translates, submits one command or asks one query, and translates back."""

    def __init__(self, engine: Engine, allowance: Allowance, count: Count) -> None:
        """Speak for ``engine``, within ``allowance``; ``count`` is for what streams bring."""
        self._engine = engine
        self._allowance = allowance
        self._stream_enqueue = StreamEnqueue(self._enqueue, allowance.admission, count)
        self._specs = task_view.SpecReader()
        self._watches: set[ClientStream] = set()

    # -- For clients

    async def EnqueueTasks(
        self,
        request: pb.EnqueueTasksRequest,
        context: Context,
    ) -> pb.EnqueueTasksResponse:
        """Store tasks: all or none, or each on its own."""
        return await self._enqueue(scope(request.namespace_id), request)

    async def _enqueue(
        self, namespace: str, request: pb.EnqueueTasksRequest
    ) -> pb.EnqueueTasksResponse:
        is_resend = request.is_resend
        if request.independent:
            return await self._enqueue_independent(namespace, request)
        tasks = tuple(self._new_task(each) for each in request.tasks)
        command = c.EnqueueTasks(namespace=namespace, tasks=tasks, is_resend=is_resend)
        self._allowance.enqueues.take(namespace, len(tasks))
        answers = await self._engine.submit(command)
        return pb.EnqueueTasksResponse(results=[_enqueued(each) for each in answers])

    def _new_task(self, message: task_pb2.NewTask) -> NewTask:
        task_id = message.task_id or self._engine.clock.new_id()
        return task_view.new_task(message, task_id, self._specs)

    async def _enqueue_independent(
        self,
        namespace: str,
        request: pb.EnqueueTasksRequest,
    ) -> pb.EnqueueTasksResponse:
        """Enqueue calls that a client has combined.

        Together they are one command, which is cheap. Only if that is refused is each tried
        alone, so that every one gets its own answer.
        """
        if not request.tasks:
            raise InvalidArgument("tasks must not be empty", field="tasks")
        is_resend = request.is_resend
        try:
            tasks = tuple(self._new_task(each) for each in request.tasks)
            command = c.EnqueueTasks(namespace=namespace, tasks=tasks, is_resend=is_resend)
            self._allowance.enqueues.take(namespace, len(tasks))
            answers = await self._engine.submit(command)
        except Unavailable:
            raise
        except TenureError as refusal:
            if len(request.tasks) == 1:
                return pb.EnqueueTasksResponse(results=[_refused(request.tasks[0], refusal)])
        else:
            return pb.EnqueueTasksResponse(results=[_enqueued(each) for each in answers])
        alone = (self._enqueue_alone(namespace, each, is_resend) for each in request.tasks)
        return pb.EnqueueTasksResponse(results=await asyncio.gather(*alone))

    async def _enqueue_alone(
        self,
        namespace: str,
        message: task_pb2.NewTask,
        is_resend: bool,  # noqa: FBT001 (the field of the request)
    ) -> pb.EnqueueResult:
        try:
            tasks = (self._new_task(message),)
            command = c.EnqueueTasks(namespace=namespace, tasks=tasks, is_resend=is_resend)
            self._allowance.enqueues.take(namespace)
            answers = await self._engine.submit(command)
        except TenureError as refusal:
            return _refused(message, refusal)
        return _enqueued(answers[0])

    async def GetTask(
        self,
        request: pb.GetTaskRequest,
        context: Context,
    ) -> pb.GetTaskResponse:
        """Show a task, live or finished."""
        task = await self._get(scope(request.namespace_id), request.task_id)
        return pb.GetTaskResponse(task=task_view.shown(task))

    async def _get(self, namespace: str, task_id: str) -> Task:
        return await query.get_task(self._engine.store, namespace=namespace, task_id=task_id)

    async def ListTasks(
        self,
        request: pb.ListTasksRequest,
        context: Context,
    ) -> pb.ListTasksResponse:
        """List tasks, newest first, without their payloads."""
        state = task_view.STATE_OF.get(request.state)
        if state is None and request.state:
            raise InvalidArgument("state is not known", field="state")
        namespace = scope(request.namespace_id)
        self._allowance.lists.take(namespace)
        page = await query.list_tasks(
            self._engine.store,
            namespace=namespace,
            page=query.PageRequest(
                cursor_key=self._engine.secrets.cursor_key,
                size=request.page_size,
                token=request.page_token,
                wants_total=request.wants_total,
            ),
            where=TaskFilter(queue=request.task_queue, type=request.type, state=state),
        )
        return pb.ListTasksResponse(
            tasks=[task_view.shown(task, with_payload=False) for task in page.items],
            next_page_token=page.next_page_token,
            total_count=page.total_count,
            is_total_exact=page.total_count is not None and page.is_total_exact,
        )

    async def ListAttempts(
        self,
        request: pb.ListAttemptsRequest,
        context: Context,
    ) -> pb.ListAttemptsResponse:
        """List the attempts of a task in their order."""
        views = await query.list_attempts(
            self._engine.store,
            namespace=scope(request.namespace_id),
            task_id=request.task_id,
        )
        return pb.ListAttemptsResponse(attempts=[task_view.attempt(each) for each in views])

    async def CancelTask(
        self,
        request: pb.CancelTaskRequest,
        context: Context,
    ) -> pb.ChangeTaskResponse:
        """Cancel a task."""
        namespace = scope(request.namespace_id)
        command = c.CancelTask(
            namespace=namespace,
            task_id=request.task_id,
            reason=request.reason,
        )
        return await self._change(command)

    async def PauseTask(
        self,
        request: pb.PauseTaskRequest,
        context: Context,
    ) -> pb.ChangeTaskResponse:
        """Hold a task."""
        namespace = scope(request.namespace_id)
        return await self._change(c.PauseTask(namespace=namespace, task_id=request.task_id))

    async def ResumeTask(
        self,
        request: pb.ResumeTaskRequest,
        context: Context,
    ) -> pb.ChangeTaskResponse:
        """Let a held task go on."""
        namespace = scope(request.namespace_id)
        return await self._change(c.ResumeTask(namespace=namespace, task_id=request.task_id))

    async def TerminateTask(
        self,
        request: pb.TerminateTaskRequest,
        context: Context,
    ) -> pb.ChangeTaskResponse:
        """End a task without asking its worker."""
        namespace = scope(request.namespace_id)
        return await self._change(c.TerminateTask(namespace=namespace, task_id=request.task_id))

    async def _change(self, command: Command[c.Reported]) -> pb.ChangeTaskResponse:
        answer = await self._engine.submit(command)
        return pb.ChangeTaskResponse(state=task_view.STATES[answer.state])

    async def RetryTask(
        self,
        request: pb.RetryTaskRequest,
        context: Context,
    ) -> pb.RetryTaskResponse:
        """Make a new task from a finished one."""
        command = c.RetryTask(
            namespace=scope(request.namespace_id),
            task_id=request.task_id,
            new_task_id=request.new_task_id or self._engine.clock.new_id(),
        )
        self._allowance.enqueues.take(command.namespace)
        await self._engine.submit(command)
        return pb.RetryTaskResponse(task_id=command.new_task_id)

    async def ExplainTask(
        self,
        request: pb.ExplainTaskRequest,
        context: Context,
    ) -> pb.ExplainTaskResponse:
        """Say why a task is not running now; it looks at as much as a list does."""
        namespace = scope(request.namespace_id)
        self._allowance.lists.take(namespace)
        found = await explain_task(
            self._engine.store,
            namespace=namespace,
            task_id=request.task_id,
            deaf=self._engine.deaf,
        )
        return task_view.explanation(found)

    async def WatchTasks(
        self,
        requests: AsyncIterator[pb.WatchTasksRequest],
        context: Context,
    ) -> None:
        """Send results of tasks as they end, and take enqueues, over one stream."""
        watch = ClientStream(self._engine.results, self._stream_enqueue, context)
        self._watches.add(watch)
        try:
            await watch.serve(requests)
        finally:
            self._watches.discard(watch)

    def close(self) -> None:
        """End the streams of results: the server stops."""
        for watch in self._watches:
            watch.close()

    # -- For workers

    async def StartTasks(
        self,
        request: pb.StartTasksRequest,
        context: Context,
    ) -> pb.StartTasksResponse:
        """Confirm that a worker really holds attempts."""
        command = c.ConfirmTasks(
            namespace=scope(request.namespace_id),
            worker_id=_worker_id(request.worker_id),
            items=task_view.refs(request.items),
            speaker=self._speaker(request),
            exclusive=task_view.exclusive_refs(request.items),
        )
        return pb.StartTasksResponse(results=await self._report(command))

    async def HeartbeatTasks(
        self,
        request: pb.HeartbeatTasksRequest,
        context: Context,
    ) -> pb.HeartbeatTasksResponse:
        """Note that attempts make progress."""
        command = c.HeartbeatTasks(
            namespace=scope(request.namespace_id),
            worker_id=_worker_id(request.worker_id),
            items=tuple(task_view.beat(each) for each in request.items),
            speaker=self._speaker(request),
        )
        return pb.HeartbeatTasksResponse(results=await self._report(command))

    async def FinishTasks(
        self,
        request: pb.FinishTasksRequest,
        context: Context,
    ) -> pb.FinishTasksResponse:
        """End attempts."""
        command = c.FinishTasks(
            namespace=scope(request.namespace_id),
            worker_id=_worker_id(request.worker_id),
            items=tuple(task_view.finish(each) for each in request.items),
            speaker=self._speaker(request),
        )
        return pb.FinishTasksResponse(results=await self._report(command))

    def _speaker(
        self,
        request: pb.StartTasksRequest
        | pb.HeartbeatTasksRequest
        | pb.FinishTasksRequest
        | pb.CreateTaskTokenRequest,
    ) -> str | None:
        """Return the key that has to be the worker's own, unless that is known."""
        namespace = scope(request.namespace_id)
        return self._engine.worker_keys.unproven(namespace, request.worker_id, speaker())

    async def _report(
        self,
        command: c.ConfirmTasks | c.HeartbeatTasks | c.FinishTasks,
    ) -> list[pb.ReportResult]:
        if not command.items:
            raise InvalidArgument("items must not be empty", field="items")
        answers = await self._engine.submit(command)
        return [task_view.report(each) for each in answers]

    async def CreateTaskToken(
        self,
        request: pb.CreateTaskTokenRequest,
        context: Context,
    ) -> pb.CreateTaskTokenResponse:
        """Give the holder of a live attempt the token for its asynchronous completion."""
        namespace = scope(request.namespace_id)
        by = self._speaker(request)
        if by is not None:
            await query.check_speaker(
                self._engine.store,
                namespace=namespace,
                worker_id=_worker_id(request.worker_id),
                speaker=by,
            )
        task = await self._get(namespace, request.item.task_id)
        is_live = task.is_attempt_live and task.attempt == request.item.attempt
        if not is_live or task.worker_id != _worker_id(request.worker_id):
            raise AttemptMismatch(
                expected_attempt=task.attempt + (not task.is_attempt_live),
                received_attempt=request.item.attempt,
            )
        key, now_ms = self._engine.secrets.token_key, self._engine.clock.now_ms()
        return pb.CreateTaskTokenResponse(
            task_token=task_view.completion_token(key, task, now_ms),
        )

    # -- Asynchronous completion, from anywhere

    async def CompleteByToken(
        self,
        request: pb.CompleteByTokenRequest,
        context: Context,
    ) -> pb.CompleteTaskResponse:
        """Complete the attempt that a token vouches for."""
        claims = self._claims(request.task_token)
        finish = task_view.ending(request, task_id=claims.task_id, attempt=claims.attempt)
        return await self._complete(claims.namespace, finish)

    async def CompleteById(
        self,
        request: pb.CompleteByIdRequest,
        context: Context,
    ) -> pb.CompleteTaskResponse:
        """Complete the live attempt of a task, or the one that is named."""
        namespace = scope(request.namespace_id)
        check.integer(request.attempt, "attempt", 0, 2**31 - 1)
        finish = task_view.ending(request, task_id=request.task_id, attempt=request.attempt)
        return await self._complete(namespace, finish)

    async def _complete(self, namespace: str, finish: c.Finish) -> pb.CompleteTaskResponse:
        command = c.CompleteById(namespace=namespace, finish=finish)
        answer = await self._engine.submit(command)
        return pb.CompleteTaskResponse(state=task_view.STATES[answer.state])

    async def HeartbeatByToken(
        self,
        request: pb.HeartbeatByTokenRequest,
        context: Context,
    ) -> pb.HeartbeatTaskResponse:
        """Note progress of the attempt that a token vouches for."""
        claims = self._claims(request.task_token)
        return await self._beat(claims.namespace, claims.task_id, claims.attempt, request)

    async def HeartbeatById(
        self,
        request: pb.HeartbeatByIdRequest,
        context: Context,
    ) -> pb.HeartbeatTaskResponse:
        """Note progress of the live attempt of a task, or of the one that is named."""
        namespace = scope(request.namespace_id)
        attempt = request.attempt
        if not attempt:
            attempt = max(1, (await self._get(namespace, request.task_id)).attempt)
        return await self._beat(namespace, request.task_id, attempt, request)

    def _claims(self, task_token: str) -> task_tokens.Claims:
        return task_tokens.verify(
            self._engine.secrets.token_key,
            task_token,
            purpose=task_tokens.Purpose.COMPLETION,
            now_ms=self._engine.clock.now_ms(),
        )

    async def _beat(
        self,
        namespace: str,
        task_id: str,
        attempt: int,
        request: pb.HeartbeatByTokenRequest | pb.HeartbeatByIdRequest,
    ) -> pb.HeartbeatTaskResponse:
        beat = c.TaskBeat(
            task_id=task_id,
            attempt=attempt,
            details=request.details if request.HasField("details") else None,
            percent=request.progress_percent if request.HasField("progress_percent") else None,
            message=request.message if request.HasField("message") else None,
        )
        command = c.HeartbeatTasks(namespace=namespace, worker_id=None, items=(beat,))
        (answer,) = await self._engine.submit(command)
        if not isinstance(answer, c.Reported):
            raise answer.to_error()
        return pb.HeartbeatTaskResponse(
            state=task_view.STATES[answer.state],
            should_cancel=answer.should_cancel,
            cancel_reason=answer.cancel_reason,
        )


def _worker_id(text: str) -> str:
    """Check who reports: without a worker id a report would vouch for nobody."""
    return check.task_id(text, "workerId")


def _enqueued(answer: c.Enqueued) -> pb.EnqueueResult:
    return pb.EnqueueResult(
        task_id=answer.task_id,
        state=task_view.STATES[answer.state],
        is_new=answer.is_new,
    )


def _refused(message: task_pb2.NewTask, refusal: TenureError) -> pb.EnqueueResult:
    return pb.EnqueueResult(task_id=message.task_id, error=error.detail(refusal))
