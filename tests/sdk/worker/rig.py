"""A real server behind a proxy, a worker's connection in its own thread, and an executor that
does what the test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from tenure.api.readiness import Readiness
from tenure.api.rpc.server import RpcServer
from tenure.api.setting import Address, ServerSettings
from tenure.engine.clock import SystemClock
from tenure.engine.engine import Engine
from tenure.engine.settings import Settings
from tenure.sdk.activity.context import StopReason
from tenure.sdk.transport.channel import Channel
from tenure.sdk.worker.connection.connection import WorkerConnection
from tenure.sdk.worker.connection.incarnation import Setup
from tenure.sdk.worker.executor_protocol import AnsweredReport, RecordedEntries, Reporter
from tenure.store.sqlite import SqliteStore
from tenure.v1 import admin_service_pb2 as admin_pb
from tenure.v1 import (
    admin_service_pb2_grpc,
    task_pb2,
    task_service_pb2_grpc,
    worker_pb2,
    workflow_service_pb2_grpc,
)
from tenure.v1 import task_service_pb2 as task_pb
from tenure.v1 import workflow_service_pb2 as workflow_pb
from tenure.v1.error_pb2 import ErrorDetail
from tests.bounds import WAIT_S
from tests.polling import eventually
from tests.wire.call import Link as RawLink
from tests.wire.proxy import Proxy

TYPE: Final = "mail"
QUEUE: Final = "default"
# Short leases, looked at often: what takes seconds in production takes parts of one here.
FAST: Final = {"session_lease_ms": 1_500, "poll_lease_ms": 1_500, "judge_ms": 50}
PATIENT: Final = {"session_lease_ms": 60_000, "poll_lease_ms": 60_000, "judge_ms": 50}


class FakeExecutor:
    """Stands at the seam: it starts nothing by itself, and reports what the test tells it to."""

    def __init__(self) -> None:
        self.worker_id = ""
        self.is_fenced: Callable[[], bool] = bool
        self.started: list[task_pb2.AssignedTask] = []
        self.running: dict[tuple[str, int], task_pb2.AssignedTask] = {}
        self.stopped: list[tuple[str, int, StopReason]] = []
        self.exclusive_stops = 0
        self.exclusive_types: frozenset[str] = frozenset()
        self.timed_out: list[tuple[str, int]] = []
        self.hand_backs = 0
        self.recorded: list[RecordedEntries] = []
        self.pages: list[task_pb2.JournalPage] = []
        self.answered: list[AnsweredReport] = []
        self.refused: list[tuple[str, int, str]] = []
        self.session_count = 0
        self.renewals = 0
        self.is_draining = False
        self.is_closed = False
        # Activities that take their time to stop.
        self.keeps_stopped = False
        # Tells how an attempt ends at once, when it is started.
        self.at_once: Callable[[task_pb2.AssignedTask], task_pb2.TaskFinish] | None = None

    def attach(self, reporter: Reporter) -> FakeExecutor:
        self.reporter = reporter
        return self

    def start(self, task: task_pb2.AssignedTask) -> None:
        self.running[task.task_id, task.attempt] = task
        self.started.append(task)
        if self.at_once is not None:
            self.end(self.at_once(task))

    def stop(self, task_id: str, attempt: int, reason: StopReason) -> None:
        self.stopped.append((task_id, attempt, reason))
        if self.keeps_stopped:
            return
        if self.running.pop((task_id, attempt), None) and reason is StopReason.CANCELLED:
            self.reporter.finish(finish(task_id, attempt, task_pb2.FINISH_KIND_CANCELLED))

    def stop_exclusive(self) -> None:
        self.exclusive_stops += 1

    def time_out(self, task_id: str, attempt: int) -> None:
        self.timed_out.append((task_id, attempt))

    @property
    def exclusive_count(self) -> int:
        return sum(each.type in self.exclusive_types for each in self.running.values())

    def hand_back(self) -> None:
        self.hand_backs += 1
        for task_id, attempt in list(self.running):
            self.end(finish(task_id, attempt, task_pb2.FINISH_KIND_RELEASED))

    @property
    def active_count(self) -> int:
        return len(self.running)

    @property
    def extra_count(self) -> int:
        return 0

    def take_entries(
        self, recorded: Sequence[RecordedEntries], pages: Sequence[task_pb2.JournalPage]
    ) -> None:
        self.recorded += recorded
        self.pages += pages

    def take_answers(self, answered: Sequence[AnsweredReport]) -> None:
        self.answered += answered

    def refuse_entries(self, task_id: str, attempt: int, error: ErrorDetail) -> None:
        self.refused.append((task_id, attempt, error.code))

    def session_opened(self) -> None:
        self.session_count += 1

    def renewed(self) -> None:
        self.renewals += 1

    def begin_drain(self) -> None:
        self.is_draining = True

    def runs_task(self, task_id: str) -> bool:
        return any(each == task_id for each, _ in self.running)

    async def close(self) -> None:
        self.is_closed = True

    # -- For the test, from its own thread

    def end(self, ending: task_pb2.TaskFinish) -> None:
        del self.running[ending.task_id, ending.attempt]
        self.reporter.finish(ending)

    def succeed(self, task_id: str, attempt: int = 1, output: bytes = b"1") -> None:
        self.end(finish(task_id, attempt, task_pb2.FINISH_KIND_SUCCEEDED, output=output))

    async def has_started(self, count: int) -> None:
        await eventually(lambda: len(self.started) >= count)

    def runs(self, task_id: str, attempt: int = 1) -> bool:
        return (task_id, attempt) in self.running


def finish(
    task_id: str, attempt: int, kind: task_pb2.FinishKind.ValueType, **fields: Any
) -> task_pb2.TaskFinish:
    return task_pb2.TaskFinish(task_id=task_id, attempt=attempt, kind=kind, **fields)


def succeeded(task: task_pb2.AssignedTask) -> task_pb2.TaskFinish:
    kind = task_pb2.FINISH_KIND_SUCCEEDED
    return finish(task.task_id, task.attempt, kind, output=b"1")


class Rig:
    """One server on one file, that can be stopped and started, and the proxy before it."""

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self._path = path
        self._settings = Settings(**{"lease_least_ms": 1, **settings})
        self._engine: Engine | None = None
        self._rpc: RpcServer | None = None
        self.proxy = Proxy("127.0.0.1:1")
        self.raw: Any = None
        self._connections: list[tuple[WorkerConnection, Future[None]]] = []

    async def start_server(self) -> None:
        """Start it, on a port of its own, behind the same proxy."""
        clock = SystemClock()
        self.store = SqliteStore(str(self._path), clock=clock.now_ms)
        engine = Engine(self.store, clock=clock, settings=self._settings)
        await engine.start()
        settings = ServerSettings(grpc=Address("127.0.0.1", 0))
        self._rpc = RpcServer(engine, settings, Readiness(engine), lambda *_: None)
        self._engine = engine
        self.proxy.target = str(await self._rpc.start())
        self.raw = RawLink([self.proxy.target])

    @property
    def engine(self) -> Engine:
        """The engine of the running server."""
        assert self._engine is not None
        return self._engine

    async def stop_server(self) -> None:
        """Stop it as an operator does."""
        assert self._rpc is not None
        assert self._engine is not None
        await self.raw.close()
        await self._rpc.stop(0)
        await self._engine.stop()
        self._rpc = self._engine = None

    async def kill_server(self) -> None:
        """Cut all connections first, so that nobody is told anything."""
        self.proxy.target = "127.0.0.1:1"
        self.proxy.cut()
        await self.stop_server()

    def connect(self, **fields: Any) -> tuple[WorkerConnection, FakeExecutor]:
        """Start a worker's connection through the proxy."""
        executor = FakeExecutor()
        health = fields.pop("health", None)
        targets = fields.pop("targets", None) or [self.proxy.address]
        setup = Setup(**{"namespace": "", "queue": QUEUE, "types": (TYPE,), **fields})
        connection = WorkerConnection([setup], Channel(targets), executor.attach, health=health)
        self._connections.append((connection, connection.start()))
        return connection, executor

    async def ended(self, connection: WorkerConnection) -> BaseException | None:
        """Wait for the end of a connection and return how it failed."""
        future = next(each for made, each in self._connections if made is connection)
        async with asyncio.timeout(WAIT_S):
            waiting = asyncio.wrap_future(future)
            await asyncio.wait([waiting])
        return waiting.exception()

    async def close(self) -> None:
        for connection, future in self._connections:
            if not future.done():
                connection.hand_back()
        for connection, _ in self._connections:
            await self.ended(connection)
        if self._rpc is not None:
            await self.stop_server()

    # -- What clients and operators do

    def _stub(self, name: str) -> Any:
        stubs = {
            "admin": admin_service_pb2_grpc.AdminServiceStub,
            "task": task_service_pb2_grpc.TaskServiceStub,
            "workflow": workflow_service_pb2_grpc.WorkflowServiceStub,
        }
        return stubs[name](self.raw.channel)  # type: ignore[no-untyped-call]

    async def enqueue(
        self,
        count: int = 1,
        input: bytes = b"",  # noqa: A002 (as on the wire)
        queue: str = QUEUE,
        **options: Any,
    ) -> list[str]:
        wire = task_pb2.TaskOptions(**{"start_to_close_ms": 600_000, **options})
        request = task_pb.EnqueueTasksRequest(
            tasks=[
                task_pb2.NewTask(type=TYPE, task_queue=queue, options=wire, input=input)
                for _ in range(count)
            ]
        )
        answer = await self._stub("task").EnqueueTasks(request)
        return [each.task_id for each in answer.results]

    async def task(self, task_id: str) -> task_pb2.Task:
        answer = await self._stub("task").GetTask(task_pb.GetTaskRequest(task_id=task_id))
        found: task_pb2.Task = answer.task
        return found

    async def outcomes(self, task_id: str) -> list[str]:
        request = task_pb.ListAttemptsRequest(task_id=task_id)
        answer = await self._stub("task").ListAttempts(request)
        return [each.outcome for each in answer.attempts]

    async def until(self, task_id: str, state: str) -> task_pb2.Task:
        wanted = task_pb2.TaskState.Value(f"TASK_STATE_{state}")

        async def is_there() -> bool:
            return (await self.task(task_id)).state == wanted

        await eventually(is_there)
        return await self.task(task_id)

    async def cancel(self, task_id: str) -> None:
        await self._stub("task").CancelTask(task_pb.CancelTaskRequest(task_id=task_id))

    async def terminate(self, task_id: str) -> None:
        await self._stub("task").TerminateTask(task_pb.TerminateTaskRequest(task_id=task_id))

    async def complete(self, task_id: str) -> None:
        request = task_pb.CompleteByIdRequest(task_id=task_id, kind=task_pb2.FINISH_KIND_SUCCEEDED)
        await self._stub("task").CompleteById(request)

    async def worker(self, worker_id: str) -> worker_pb2.Worker:
        request = workflow_pb.GetWorkerRequest(worker_id=worker_id)
        found: worker_pb2.Worker = (await self._stub("workflow").GetWorker(request)).worker
        return found

    async def workers(self) -> Sequence[worker_pb2.Worker]:
        answer = await self._stub("workflow").ListWorkers(workflow_pb.ListWorkersRequest())
        found: Sequence[worker_pb2.Worker] = answer.workers
        return found

    async def evict(self, worker_id: str) -> None:
        await self._stub("admin").EvictWorker(admin_pb.EvictWorkerRequest(worker_id=worker_id))

    async def drain(self, worker_id: str, **fields: Any) -> None:
        request = workflow_pb.DeregisterWorkerRequest(worker_id=worker_id, drain=True, **fields)
        await self._stub("workflow").DeregisterWorker(request)


@asynccontextmanager
async def open_rig(path: Path, **settings: int) -> AsyncIterator[Rig]:
    """Start a server on a new file, with a proxy before it."""
    rig = Rig(path / "tenure.db", {**PATIENT, **settings})
    async with rig.proxy:
        await rig.start_server()
        try:
            yield rig
        finally:
            await rig.close()


def messages(caplog: Any) -> list[str]:
    """Return what the worker has logged."""
    return [each.getMessage() for each in caplog.records if each.name == "tenure.worker"]
