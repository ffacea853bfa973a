"""A client of the raw protocol: enqueues, looks, waits, drains, at any of several servers."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Self, TypeVar

import grpc.aio
from uuid_utils import uuid7

from tenure.v1 import admin_service_pb2 as a
from tenure.v1 import task_pb2
from tenure.v1 import task_service_pb2 as t
from tenure.v1 import workflow_service_pb2 as w
from tenure.v1.admin_service_pb2_grpc import AdminServiceStub
from tenure.v1.task_service_pb2_grpc import TaskServiceStub
from tenure.v1.worker_pb2 import Worker
from tenure.v1.workflow_service_pb2_grpc import WorkflowServiceStub
from tests.secret_scan import CANARY
from tests.wire.call import CALL_SECONDS, Link, NoAnswer, ask, translate

Answer = TypeVar("Answer")

START_TO_CLOSE_MS: Final = 3_600_000
CHUNK: Final = 500
PAGE: Final = 100
# A stream waits for at most twice as many.
WATCHED: Final = 5_000


def make_task(
    sleep_ms: int | Sequence[int] = 0,
    *,
    queue: str = "default",
    type: str = "work",
    delivery_timeout_ms: int = 0,
) -> task_pb2.NewTask:
    """Return a task that sleeps; see ``bench.Work``."""
    return task_pb2.NewTask(
        task_id=str(uuid7()),
        type=type,
        task_queue=queue,
        input=json.dumps({"sleep_ms": sleep_ms, "note": CANARY}).encode(),
        options=task_pb2.TaskOptions(
            start_to_close_ms=START_TO_CLOSE_MS, delivery_timeout_ms=delivery_timeout_ms
        ),
    )


class Client:
    """Calls until somebody answers, unless it is told how long to try."""

    def __init__(self, *targets: str, namespace: str = "") -> None:
        self._link = Link(targets)
        self._namespace = namespace
        self.silence_count = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._link.close()

    async def _call(
        self, make: Callable[[grpc.aio.Channel], Awaitable[Answer]], seconds_max: float = 60.0
    ) -> Answer:
        deadline = time.monotonic() + seconds_max
        while True:
            channel = self._link.channel
            try:
                return await ask(make(channel))
            except NoAnswer as error:
                self.silence_count += 1
                if error.is_odd or time.monotonic() > deadline:
                    raise
                await asyncio.sleep(error.retry_after_s)
            await self._link.move(channel)

    async def enqueue(self, tasks: Sequence[task_pb2.NewTask]) -> list[str]:
        """Enqueue, and send again what was not answered; return the ids."""
        for start in range(0, len(tasks), CHUNK):
            chunk = tasks[start : start + CHUNK]
            tries = itertools.count()

            def send(
                channel: grpc.aio.Channel,
                chunk: Sequence[task_pb2.NewTask] = chunk,
                tries: Iterator[int] = tries,
            ) -> Awaitable[t.EnqueueTasksResponse]:
                request = t.EnqueueTasksRequest(
                    namespace_id=self._namespace, tasks=chunk, is_resend=next(tries) > 0
                )
                stub = TaskServiceStub(channel)
                call: Awaitable[t.EnqueueTasksResponse] = stub.EnqueueTasks(
                    request, timeout=CALL_SECONDS
                )
                return call

            await self._call(send)
        return [task.task_id for task in tasks]

    async def try_enqueue(self, task: task_pb2.NewTask, *, timeout_s: float) -> None:
        """Enqueue once; raise what the answer is."""
        request = t.EnqueueTasksRequest(namespace_id=self._namespace, tasks=[task])
        await ask(TaskServiceStub(self._link.channel).EnqueueTasks(request, timeout=timeout_s))

    async def get(self, task_id: str) -> task_pb2.Task:
        request = t.GetTaskRequest(namespace_id=self._namespace, task_id=task_id)
        answer: t.GetTaskResponse = await self._call(
            lambda channel: TaskServiceStub(channel).GetTask(request, timeout=CALL_SECONDS)
        )
        return answer.task

    async def get_all(self, task_ids: Iterable[str]) -> list[task_pb2.Task]:
        return [await self.get(each) for each in task_ids]

    async def wait_state(
        self, task_ids: Sequence[str], state: task_pb2.TaskState.ValueType, seconds_max: float
    ) -> None:
        """Wait until all of some tasks are in a state."""
        waiting = list(task_ids)
        async with asyncio.timeout(seconds_max):
            while waiting:
                tasks = await self.get_all(waiting)
                waiting = [task.task_id for task in tasks if task.state != state]
                await asyncio.sleep(0.02)

    async def attempts(self, task_id: str) -> list[task_pb2.Attempt]:
        request = t.ListAttemptsRequest(namespace_id=self._namespace, task_id=task_id)
        answer: t.ListAttemptsResponse = await self._call(
            lambda channel: TaskServiceStub(channel).ListAttempts(request, timeout=CALL_SECONDS)
        )
        return list(answer.attempts)

    async def wait_all(
        self, task_ids: Iterable[str], seconds_max: float
    ) -> dict[str, t.TaskResult]:
        """Watch tasks to their end over one stream, opened again when it breaks."""
        waiting, found = set(task_ids), dict[str, t.TaskResult]()
        async with asyncio.timeout(seconds_max):
            while waiting:
                channel = self._link.channel
                try:
                    some = list(itertools.islice(waiting, WATCHED))
                    async for result in self._watch(channel, some):
                        found[result.task_id] = result
                        waiting.discard(result.task_id)
                except grpc.aio.AioRpcError as error:
                    meant = translate(error)
                    if not isinstance(meant, NoAnswer) or meant.is_odd:
                        raise meant from error
                    self.silence_count += 1
                    await self._link.move(channel)
        return found

    async def _watch(self, channel: grpc.aio.Channel, task_ids: Iterable[str]) -> Any:
        stream: Any = TaskServiceStub(channel).WatchTasks()
        try:
            request = t.WatchTasksRequest(namespace_id=self._namespace, add=task_ids)
            await stream.write(request)
            await stream.done_writing()
            while (answer := await stream.read()) is not grpc.aio.EOF:
                for result in answer.results:
                    yield result
        except asyncio.InvalidStateError:
            return
        finally:
            stream.cancel()

    async def worker(self, worker_id: str) -> Worker:
        request = w.GetWorkerRequest(namespace_id=self._namespace, worker_id=worker_id)
        answer: w.GetWorkerResponse = await self._call(
            lambda channel: WorkflowServiceStub(channel).GetWorker(request, timeout=CALL_SECONDS)
        )
        return answer.worker

    async def workers(self, status: str = "") -> list[Worker]:
        """Return all workers, page by page."""
        found: list[Worker] = []
        token = ""
        while True:
            request = w.ListWorkersRequest(
                namespace_id=self._namespace, filter_status=status, page_size=PAGE, page_token=token
            )
            answer = await self._list_workers(request)
            found += answer.workers
            token = answer.next_page_token
            if not token:
                return found

    async def _list_workers(self, request: w.ListWorkersRequest) -> w.ListWorkersResponse:
        return await self._call(
            lambda channel: WorkflowServiceStub(channel).ListWorkers(request, timeout=CALL_SECONDS)
        )

    async def drain(self, worker_id: str) -> None:
        request = a.DrainWorkerRequest(namespace_id=self._namespace, worker_id=worker_id)
        await self._call(
            lambda channel: AdminServiceStub(channel).DrainWorker(request, timeout=CALL_SECONDS)
        )

    async def evict(self, worker_id: str) -> None:
        request = a.EvictWorkerRequest(namespace_id=self._namespace, worker_id=worker_id)
        await self._call(
            lambda channel: AdminServiceStub(channel).EvictWorker(request, timeout=CALL_SECONDS)
        )

    async def cancel(self, task_id: str) -> None:
        request = t.CancelTaskRequest(namespace_id=self._namespace, task_id=task_id)
        await self._call(
            lambda channel: TaskServiceStub(channel).CancelTask(request, timeout=CALL_SECONDS)
        )
