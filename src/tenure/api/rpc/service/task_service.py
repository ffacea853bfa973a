"""Tasks over gRPC, for clients and for workers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from tenure.api.guard.access import actor, speaker
from tenure.api.guard.scope import scope
from tenure.api.paging import requested_page
from tenure.api.rpc.context import Context
from tenure.api.rpc.permission import MethodRule
from tenure.api.rpc.run_report import CancelReporting, SpawnReporting, StepReporting
from tenure.api.rpc.service_spec import EngineService, ServiceDependencies, ServiceSpec
from tenure.api.rpc.session.client_stream import ClientStreams
from tenure.api.rpc.session.stream_enqueue import StreamEnqueue
from tenure.api.rpc.task_enqueue import TaskEnqueue
from tenure.api.rpc.view import journal_view, task_view
from tenure.core import check
from tenure.core.access import task_token as task_tokens
from tenure.core.access.permission import Action
from tenure.core.filter import TaskFilter, TaskSearch
from tenure.core.limits import JOURNAL_REQUESTS_MAX
from tenure.core.task.record import Reason, Task, TaskState
from tenure.core.task.refusal import attempt_mismatch, is_held
from tenure.engine.command import Command
from tenure.engine.read import query
from tenure.engine.read.explanation import explain_task
from tenure.engine.read.held_journal import read_held_pages
from tenure.engine.task import command as c
from tenure.errors import InvalidArgument, PayloadTooLarge
from tenure.v1 import task_service_pb2 as pb
from tenure.v1 import task_service_pb2_grpc

_PlainChange = c.PauseTask | c.ResumeTask | c.TerminateTask
_PlainRequest = pb.PauseTaskRequest | pb.ResumeTaskRequest | pb.TerminateTaskRequest


def _plain_change(
    kind: type[_PlainChange],
) -> Callable[[TaskService, _PlainRequest, Context], Awaitable[pb.ChangeTaskResponse]]:
    """Return a method that changes a task and needs only its id."""

    async def change(
        service: TaskService, request: _PlainRequest, _: Context
    ) -> pb.ChangeTaskResponse:
        command = kind(
            namespace=scope(request.namespace_id), task_id=request.task_id, actor=actor()
        )
        return await service.change(command)

    return change


class TaskService(EngineService, task_service_pb2_grpc.TaskServiceServicer):
    """The life of tasks; their streams end with the server."""

    def __init__(self, shared: ServiceDependencies) -> None:
        """Let calls and streams enqueue in the same way."""
        super().__init__(shared)
        admission = shared.allowance.admission
        self._enqueue = TaskEnqueue(shared.engine, shared.allowance.enqueues)
        streamed = StreamEnqueue(self._enqueue.answer, admission, shared.count)
        self._streams = ClientStreams(shared.engine.results, streamed)

    # -- For clients

    async def EnqueueTasks(
        self, request: pb.EnqueueTasksRequest, context: Context
    ) -> pb.EnqueueTasksResponse:
        """Store tasks: all or none, or each separately."""
        return await self._enqueue.answer(scope(request.namespace_id), request)

    async def GetTask(self, request: pb.GetTaskRequest, context: Context) -> pb.GetTaskResponse:
        """Show a task, live or finished."""
        task = await self._get(scope(request.namespace_id), request.task_id)
        return pb.GetTaskResponse(task=task_view.shown(task))

    async def _get(self, namespace: str, task_id: str) -> Task:
        return await query.get_task(self._engine.store, namespace=namespace, task_id=task_id)

    async def ListTasks(
        self, request: pb.ListTasksRequest, context: Context
    ) -> pb.ListTasksResponse:
        """List tasks, newest first, without their payloads."""
        state = task_view.STATE_OF.get(request.state)
        if state is None and request.state:
            raise InvalidArgument("state must be one of the task states", field="state")
        namespace = scope(request.namespace_id)
        self._allowance.lists.take(namespace)
        page = await query.list_tasks(
            self._engine.store,
            namespace=namespace,
            page=requested_page(self._engine, request, wants_total=request.wants_total),
            where=_where(request, state),
        )
        return pb.ListTasksResponse(
            tasks=[task_view.shown(task, with_payload=False) for task in page.items],
            next_page_token=page.next_page_token,
            total_count=page.total_count,
            is_total_exact=page.total_count is not None and page.is_total_exact,
            searched_back_to_ms=page.searched_back_to_ms or 0,
        )

    async def ListAttempts(
        self, request: pb.ListAttemptsRequest, context: Context
    ) -> pb.ListAttemptsResponse:
        """List the attempts of a task in their order."""
        views = await query.list_attempts(
            self._engine.store, namespace=scope(request.namespace_id), task_id=request.task_id
        )
        return pb.ListAttemptsResponse(attempts=[task_view.attempt(each) for each in views])

    async def CancelTask(
        self, request: pb.CancelTaskRequest, context: Context
    ) -> pb.ChangeTaskResponse:
        """Cancel a task."""
        namespace = scope(request.namespace_id)
        command = c.CancelTask(
            namespace=namespace, task_id=request.task_id, reason=request.reason, actor=actor()
        )
        return await self.change(command)

    PauseTask = _plain_change(c.PauseTask)
    ResumeTask = _plain_change(c.ResumeTask)
    TerminateTask = _plain_change(c.TerminateTask)

    async def change(self, command: Command[c.Reported]) -> pb.ChangeTaskResponse:
        """Answer with the new state of the task."""
        answer = await self._engine.submit(command)
        return pb.ChangeTaskResponse(state=task_view.STATES[answer.state])

    async def RetryTask(
        self, request: pb.RetryTaskRequest, context: Context
    ) -> pb.RetryTaskResponse:
        """Create a new task from a finished one."""
        command = c.RetryTask(
            namespace=scope(request.namespace_id),
            task_id=request.task_id,
            new_task_id=request.new_task_id or self._engine.clock.new_id(),
            actor=actor(),
        )
        self._allowance.enqueues.take(command.namespace)
        await self._engine.submit(command)
        return pb.RetryTaskResponse(task_id=command.new_task_id)

    async def ExplainTask(
        self, request: pb.ExplainTaskRequest, context: Context
    ) -> pb.ExplainTaskResponse:
        """Explain why a task is not running now; it reads as much as a list does."""
        namespace = scope(request.namespace_id)
        self._allowance.lists.take(namespace)
        found = await explain_task(
            self._engine.store, namespace=namespace, task_id=request.task_id, deaf=self._engine.deaf
        )
        return task_view.explanation(found)

    async def WatchTasks(
        self, requests: AsyncIterator[pb.WatchTasksRequest], context: Context
    ) -> None:
        """Send results of tasks as they end, and accept enqueues, over one stream."""
        await self._streams.serve(requests, context)

    def close(self) -> None:
        """End the streams of results: the server stops."""
        self._streams.close()

    # -- For workers

    async def StartTasks(
        self, request: pb.StartTasksRequest, context: Context
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
        self, request: pb.HeartbeatTasksRequest, context: Context
    ) -> pb.HeartbeatTasksResponse:
        """Note that attempts make progress."""
        command = c.HeartbeatTasks(
            namespace=scope(request.namespace_id),
            worker_id=_worker_id(request.worker_id),
            items=tuple(task_view.beat(each, each.task_id, each.attempt) for each in request.items),
            speaker=self._speaker(request),
        )
        return pb.HeartbeatTasksResponse(results=await self._report(command))

    async def FinishTasks(
        self, request: pb.FinishTasksRequest, context: Context
    ) -> pb.FinishTasksResponse:
        """End attempts."""
        command = c.FinishTasks(
            namespace=scope(request.namespace_id),
            worker_id=_worker_id(request.worker_id),
            items=tuple(task_view.finish(each) for each in request.items),
            speaker=self._speaker(request),
        )
        return pb.FinishTasksResponse(results=await self._report(command))

    async def ReportRuns(
        self, request: pb.ReportRunsRequest, context: Context
    ) -> pb.ReportRunsResponse:
        """Record steps of runs, make and end their children, and read pages of their journals."""
        if not (request.steps or request.spawns or request.child_cancels or request.journal):
            message = "steps, spawns, childCancels or journal must not be empty"
            raise InvalidArgument(message, field="steps")
        if len(request.journal) > JOURNAL_REQUESTS_MAX:
            message = f"journal must have at most {JOURNAL_REQUESTS_MAX} entries"
            raise PayloadTooLarge(message, limit=JOURNAL_REQUESTS_MAX)
        namespace, worker_id = scope(request.namespace_id), _worker_id(request.worker_id)
        by = self._speaker(request)
        if by is not None:
            await query.check_reporter(
                self._engine.store, namespace=namespace, worker_id=worker_id, speaker=by
            )
        by_worker = (self._engine, namespace, worker_id)
        acks = await StepReporting(*by_worker).record(request.steps)
        child_acks = await SpawnReporting(*by_worker).record(request.spawns)
        child_acks += await CancelReporting(*by_worker).record(request.child_cancels)
        wanted = [journal_view.page_ref(each) for each in request.journal]
        answers = await read_held_pages(
            self._engine.store, namespace=namespace, worker_id=worker_id, wanted=wanted
        )
        pages = map(journal_view.answered_page, wanted, answers)
        return pb.ReportRunsResponse(step_acks=acks, pages=pages, child_acks=child_acks)

    def _speaker(
        self,
        request: pb.StartTasksRequest
        | pb.HeartbeatTasksRequest
        | pb.FinishTasksRequest
        | pb.ReportRunsRequest
        | pb.CreateTaskTokenRequest,
    ) -> str | None:
        """Return the key that must be the worker's own, unless that is known."""
        namespace = scope(request.namespace_id)
        return self._engine.worker_keys.unproven(namespace, request.worker_id, speaker())

    async def _report(
        self, command: c.ConfirmTasks | c.HeartbeatTasks | c.FinishTasks
    ) -> list[pb.ReportResult]:
        if not command.items:
            raise InvalidArgument("items must not be empty", field="items")
        answers = await self._engine.submit(command)
        return [task_view.report(each) for each in answers]

    async def CreateTaskToken(
        self, request: pb.CreateTaskTokenRequest, context: Context
    ) -> pb.CreateTaskTokenResponse:
        """Give the worker of a live attempt the token for its asynchronous completion."""
        namespace = scope(request.namespace_id)
        worker_id = _worker_id(request.worker_id)
        by = self._speaker(request)
        await query.check_reporter(
            self._engine.store, namespace=namespace, worker_id=worker_id, speaker=by
        )
        task = await self._get(namespace, request.item.task_id)
        attempt = request.item.attempt
        if not is_held(task, attempt, worker_id):
            raise attempt_mismatch(task, attempt).to_error()
        tokens = self._engine.tokens
        claims = task_view.completion_claims(task, tokens.now_ms)
        return pb.CreateTaskTokenResponse(task_token=tokens.sign(claims))

    # -- Asynchronous completion, from anywhere

    async def CompleteByToken(
        self, request: pb.CompleteByTokenRequest, context: Context
    ) -> pb.CompleteTaskResponse:
        """Complete the attempt of a task token."""
        claims = await self._claims(request.task_token)
        finish = task_view.ending(request, task_id=claims.task_id, attempt=claims.attempt)
        return await self._complete(claims.namespace, finish)

    async def CompleteById(
        self, request: pb.CompleteByIdRequest, context: Context
    ) -> pb.CompleteTaskResponse:
        """Complete the live attempt of a task, or the named one."""
        namespace = scope(request.namespace_id)
        check.integer(request.attempt, "attempt", 0, 2**31 - 1)
        finish = task_view.ending(request, task_id=request.task_id, attempt=request.attempt)
        return await self._complete(namespace, finish)

    async def _complete(self, namespace: str, finish: c.Finish) -> pb.CompleteTaskResponse:
        command = c.CompleteById(namespace=namespace, finish=finish)
        answer = await self._engine.submit(command)
        return pb.CompleteTaskResponse(state=task_view.STATES[answer.state])

    async def HeartbeatByToken(
        self, request: pb.HeartbeatByTokenRequest, context: Context
    ) -> pb.HeartbeatTaskResponse:
        """Note progress of the attempt of a task token."""
        claims = await self._claims(request.task_token)
        return await self._beat(claims.namespace, claims.task_id, claims.attempt, request)

    async def HeartbeatById(
        self, request: pb.HeartbeatByIdRequest, context: Context
    ) -> pb.HeartbeatTaskResponse:
        """Note progress of the live attempt of a task, or of the named one."""
        namespace = scope(request.namespace_id)
        attempt = request.attempt
        if not attempt:
            attempt = max(1, (await self._get(namespace, request.task_id)).attempt)
        return await self._beat(namespace, request.task_id, attempt, request)

    async def _claims(self, task_token: str) -> task_tokens.Claims:
        return await self._engine.tokens.verify(task_token, task_tokens.Purpose.COMPLETION)

    async def _beat(
        self,
        namespace: str,
        task_id: str,
        attempt: int,
        request: pb.HeartbeatByTokenRequest | pb.HeartbeatByIdRequest,
    ) -> pb.HeartbeatTaskResponse:
        beat = task_view.beat(request, task_id, attempt)
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
    """Check the reporting worker: a report needs a worker id."""
    return check.task_id(text, "workerId")


def _where(request: pb.ListTasksRequest, state: TaskState | None) -> TaskFilter | TaskSearch:
    """Return the filter of a list; one that an index knows, if possible."""
    names = {each.upper(): each for each in Reason}
    if request.failure_reason and request.failure_reason not in names:
        raise InvalidArgument("failure_reason must be a known one", field="failureReason")
    states = [task_view.STATE_OF.get(each) for each in request.states]
    if None in states:
        raise InvalidArgument("states must be task states", field="states")
    chosen = {state, *states} - {None}
    search = TaskSearch(
        queue=request.task_queue,
        type=request.type,
        states=tuple(each for each in TaskState if each in chosen),
        labels=dict(request.labels),
        error_type=request.error_type,
        failure_reason=names.get(request.failure_reason),
        created_from_ms=request.created_after_ms or None,
        created_to_ms=request.created_before_ms or None,
    )
    return search.plain()


SPEC: Final = ServiceSpec(
    descriptor=pb.DESCRIPTOR.services_by_name["TaskService"],
    make=TaskService,
    add_to_server=task_service_pb2_grpc.add_TaskServiceServicer_to_server,
    rules={
        MethodRule(Action.READ): "GetTask ListTasks ListAttempts ExplainTask WatchTasks",
        MethodRule(Action.SUBMIT): "EnqueueTasks CancelTask PauseTask ResumeTask TerminateTask "
        "RetryTask CompleteById HeartbeatById",
        MethodRule(Action.WORK): "StartTasks HeartbeatTasks FinishTasks ReportRuns CreateTaskToken",
    },
    # The task token is the key.
    open_methods="CompleteByToken HeartbeatByToken",
    new_work="EnqueueTasks RetryTask",
)
