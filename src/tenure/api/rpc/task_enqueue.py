"""The path of an enqueue from a request to the engine and back, for calls and for streams."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tenure.api.guard.rate_limit import RateLimit
from tenure.api.rpc import error
from tenure.api.rpc.view import task_view
from tenure.core.task.record import NewTask
from tenure.engine.engine import Engine
from tenure.engine.task import command as c
from tenure.errors import InvalidArgument, TenureError, Unavailable
from tenure.v1 import task_pb2
from tenure.v1 import task_service_pb2 as pb


class TaskEnqueue:
    """Turns a request into the engine's command, and its answer into the response."""

    def __init__(self, engine: Engine, enqueues: RateLimit) -> None:
        """Enqueue at ``engine`` within the limits of ``enqueues``."""
        self._engine = engine
        self._enqueues = enqueues
        self._specs = task_view.SpecReader(task_view.read_options)

    async def answer(
        self, namespace: str, request: pb.EnqueueTasksRequest
    ) -> pb.EnqueueTasksResponse:
        """Store tasks: all or none, or each separately."""
        enqueue = self._enqueue_each if request.independent else self._enqueue
        results = await enqueue(namespace, request.tasks, is_resend=request.is_resend)
        return pb.EnqueueTasksResponse(results=results)

    async def _enqueue(
        self, namespace: str, messages: Sequence[task_pb2.NewTask], *, is_resend: bool
    ) -> list[pb.EnqueueResult]:
        tasks = tuple(self._new_task(each) for each in messages)
        command = c.EnqueueTasks(namespace=namespace, tasks=tasks, is_resend=is_resend)
        self._enqueues.take(namespace, len(tasks))
        answers = await self._engine.submit(command)
        return [_enqueued(each) for each in answers]

    def _new_task(self, message: task_pb2.NewTask) -> NewTask:
        task_id = message.task_id or self._engine.clock.new_id()
        return task_view.new_task(message, task_id, self._specs)

    async def _enqueue_each(
        self, namespace: str, messages: Sequence[task_pb2.NewTask], *, is_resend: bool
    ) -> list[pb.EnqueueResult]:
        """Enqueue calls that a client has combined.

        Together they are one command, which is cheap. Only if that is refused, each is tried
        separately, so that every one gets its own answer.
        """
        if not messages:
            raise InvalidArgument("tasks must not be empty", field="tasks")
        try:
            return await self._enqueue(namespace, messages, is_resend=is_resend)
        except Unavailable:
            raise
        except TenureError as refusal:
            if len(messages) == 1:
                return [_refused(messages[0], refusal)]
        alone = (self._enqueue_alone(namespace, each, is_resend=is_resend) for each in messages)
        return await asyncio.gather(*alone)

    async def _enqueue_alone(
        self, namespace: str, message: task_pb2.NewTask, *, is_resend: bool
    ) -> pb.EnqueueResult:
        try:
            (result,) = await self._enqueue(namespace, (message,), is_resend=is_resend)
        except TenureError as refusal:
            return _refused(message, refusal)
        return result


def _enqueued(answer: c.Enqueued) -> pb.EnqueueResult:
    return pb.EnqueueResult(
        task_id=answer.task_id, state=task_view.STATES[answer.state], is_new=answer.is_new
    )


def _refused(message: task_pb2.NewTask, refusal: TenureError) -> pb.EnqueueResult:
    return pb.EnqueueResult(task_id=message.task_id, error=error.detail(refusal))
