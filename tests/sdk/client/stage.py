"""A server in this process that can be stopped and started, and a worker of the raw protocol."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, Self

import grpc
from google.protobuf.duration_pb2 import Duration

from tenure import activity
from tenure.api.server import Server
from tenure.api.setting import Address, ServerSettings
from tenure.engine.clock import SystemClock
from tenure.store.location import make_store
from tenure.v1 import task_pb2
from tenure.v1 import task_service_pb2 as task_pb
from tenure.v1 import workflow_service_pb2 as workflow_pb
from tenure.v1.task_service_pb2_grpc import TaskServiceStub
from tenure.v1.workflow_service_pb2_grpc import WorkflowServiceStub
from tests.polling import eventually

TYPES: Final = ("double", "shout", "echo", "nothing", "untyped", "sell")

Work = Callable[[task_pb2.AssignedTask], task_pb2.TaskFinish | None]


@activity(start_to_close="10m")
def double(number: int) -> int:
    return 2 * number


@activity(start_to_close="10m")
async def shout(text: str, *, times: int = 1) -> str:
    return text.upper() * times


@activity(start_to_close="10m")
def echo(data: bytes) -> bytes:
    return data


@activity(start_to_close="10m")
def nothing() -> None:
    pass


class ServerStage:
    """One server on one store; its port stays the same over a restart."""

    def __init__(self, store_url: str, **settings: Any) -> None:
        self._store_url = store_url
        self._settings = settings
        self._server: Server | None = None
        self._port = 0

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self._port}"

    async def start(self) -> None:
        clock = SystemClock()
        settings = ServerSettings(
            http=Address("127.0.0.1", 0),
            grpc=Address("127.0.0.1", self._port),
            shutdown_ms=400,
            **self._settings,
        )
        store = make_store(self._store_url, clock=clock.now_ms)
        self._server = Server(store, settings, clock=clock)
        await self._server.start()
        self._port = self._server.grpc_address.port

    async def stop(self) -> None:
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop()

    @property
    def watched_count(self) -> int:
        """How many tasks the server watches for clients."""
        assert self._server is not None
        return len(self._server.engine.results)

    async def task_count(self) -> int:
        """How many tasks the server knows, by its own account."""
        async with grpc.aio.insecure_channel(self.target) as channel:
            tasks: Any = TaskServiceStub(channel)
            answer = await tasks.ListTasks(task_pb.ListTasksRequest(wants_total=True, page_size=1))
            return int(answer.total_count)


class RawWorker:
    """Polls and finishes; what a task's end is, a function says."""

    def __init__(self, target: str, work: Work | None = None) -> None:
        self.started: list[str] = []
        self.worker_id = ""
        self._target = target
        self._work = work or compute
        self._running: asyncio.Task[None] | None = None
        self._channel: grpc.aio.Channel | None = None
        self._tasks: Any = None
        self._workers: Any = None

    async def __aenter__(self) -> Self:
        self._channel = grpc.aio.insecure_channel(self._target)
        self._tasks = TaskServiceStub(self._channel)
        self._workers = WorkflowServiceStub(self._channel)
        request = workflow_pb.RegisterWorkerRequest(
            task_queue="default", workflow_types=TYPES, max_concurrent=10_000
        )
        self.worker_id = (await self._workers.RegisterWorker(request)).worker_id
        self._running = asyncio.ensure_future(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._running is not None
        assert self._channel is not None
        self._running.cancel()
        with suppress(asyncio.CancelledError):
            await self._running
        await self._channel.close()

    async def _run(self) -> None:
        while True:
            request = workflow_pb.PollActivityRequest(
                worker_id=self.worker_id,
                task_queue="default",
                supported_workflow_types=TYPES,
                max_tasks=1_000,
                wait=Duration(seconds=5),
            )
            answer = await self._workers.PollActivity(request)
            self.started += [task.task_id for task in answer.tasks]
            ends = [self._work(task) for task in answer.tasks]
            items = [end for end in ends if end is not None]
            if items:
                await self.finish(*items)

    async def finish(self, *items: task_pb2.TaskFinish) -> None:
        request = task_pb.FinishTasksRequest(worker_id=self.worker_id, items=items)
        answer = await self._tasks.FinishTasks(request)
        assert not [each for each in answer.results if each.HasField("error")]

    async def beat(self, task_id: str, **fields: Any) -> None:
        beat = task_pb2.TaskBeat(task_id=task_id, attempt=1, **fields)
        request = task_pb.HeartbeatTasksRequest(worker_id=self.worker_id, items=[beat])
        await self._tasks.HeartbeatTasks(request)

    async def token(self, task_id: str) -> str:
        item = task_pb2.TaskRef(task_id=task_id, attempt=1)
        request = task_pb.CreateTaskTokenRequest(worker_id=self.worker_id, item=item)
        return str((await self._tasks.CreateTaskToken(request)).task_token)

    async def holds(self, count: int) -> list[str]:
        """Wait until so many tasks were handed out here; return their ids."""
        await eventually(lambda: len(self.started) >= count, f"{count} tasks")
        return self.started


def compute(task: task_pb2.AssignedTask) -> task_pb2.TaskFinish:
    """Do what the activities of this module do."""
    match task.type:
        case "echo":
            return succeeded(task, task.input, "bytes")
        case "double":
            return succeeded(task, json.dumps(2 * _arguments(task)["number"]).encode())
        case "shout":
            given = _arguments(task)
            return succeeded(
                task, json.dumps(given["text"].upper() * given.get("times", 1)).encode()
            )
        case _:
            return succeeded(task, b"null")


def hold(_: task_pb2.AssignedTask) -> None:
    """Take tasks and leave them."""


def succeeded(
    task: task_pb2.AssignedTask, output: bytes, encoding: str = "json"
) -> task_pb2.TaskFinish:
    return task_pb2.TaskFinish(
        task_id=task.task_id,
        attempt=task.attempt,
        kind=task_pb2.FINISH_KIND_SUCCEEDED,
        output=output,
        output_encoding=encoding,
    )


def failed(task: task_pb2.AssignedTask, **error: Any) -> task_pb2.TaskFinish:
    return task_pb2.TaskFinish(
        task_id=task.task_id,
        attempt=task.attempt,
        kind=task_pb2.FINISH_KIND_FAILED,
        error=task_pb2.TaskError(**error),
    )


def _arguments(task: task_pb2.AssignedTask) -> Mapping[str, Any]:
    given: Mapping[str, Any] = json.loads(task.input)
    return given
