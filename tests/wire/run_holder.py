"""A worker that holds runs and makes children: its session or its polls, and what it does.

A run of type ``parent`` makes three activities and a run of type ``child``, gives up its slot, and
ends with their outputs when all of them have ended. It begins with what the journal has: what was
made before is open or has ended, and is not made again.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final, Protocol

import grpc.aio
from google.protobuf.duration_pb2 import Duration

from tenure.v1 import journal_pb2, task_pb2
from tenure.v1 import session_service_pb2 as s
from tenure.v1 import task_service_pb2 as t
from tenure.v1 import workflow_service_pb2 as w
from tenure.v1.session_service_pb2_grpc import SessionServiceStub
from tenure.v1.task_service_pb2_grpc import TaskServiceStub
from tenure.v1.worker_pb2 import WORKER_MODE_POLL, WORKER_MODE_SESSION, WorkerMode
from tenure.v1.workflow_service_pb2_grpc import WorkflowServiceStub
from tests.wire.call import open_channel

QUEUE: Final = "default"
TYPES: Final = ("parent", "child")
ACTIVITIES: Final = ("1/work", "2/work", "3/work")
CHILD_RUN: Final = "child:child"
LEASE_S: Final = 120
POLL_S: Final = 5
Task = task_pb2.AssignedTask


def child_id(run: Task, key: str) -> str:
    """Return an id that follows from the call: the same in each attempt of its run."""
    digest = blake2b(f"{run.task_id}:{run.generation}:{key}:0".encode(), digest_size=16).digest()
    bits = int.from_bytes(digest) >> 48 | run.begun_at_ms << 80
    bits = bits & ~(0xF << 76) | 7 << 76
    return str(uuid.UUID(int=bits & ~(3 << 62) | 2 << 62))


def _new_child(run: Task, key: str, index: int) -> journal_pb2.NewChild:
    is_run = key == CHILD_RUN
    options = task_pb2.TaskOptions(start_to_close_ms=60_000)
    if is_run:
        options = task_pb2.TaskOptions(kind=task_pb2.TASK_KIND_WORKFLOW)
    task = task_pb2.NewTask(
        task_id=child_id(run, key),
        type="child" if is_run else "work",
        task_queue=QUEUE,
        options=options,
    )
    return journal_pb2.NewChild(task=task, key=key, index=index)


class Line(Protocol):
    """How a worker speaks to its server."""

    async def tasks(self) -> Sequence[Task]: ...

    async def spawn(self, report: journal_pb2.SpawnReport) -> journal_pb2.ChildAck: ...

    async def lose(self, report: journal_pb2.SpawnReport) -> None:
        """Send children, and lose the way to the server before the answer."""

    async def finish(self, item: task_pb2.TaskFinish) -> None: ...

    async def close(self) -> None: ...


async def _register(channel: grpc.aio.Channel, mode: WorkerMode.ValueType) -> str:
    request = w.RegisterWorkerRequest(
        task_queue=QUEUE,
        workflow_types=TYPES,
        mode=mode,
        max_concurrent=10,
        instance_key=uuid.uuid4().hex,
        lease_duration=Duration(seconds=LEASE_S),
    )
    return str((await WorkflowServiceStub(channel).RegisterWorker(request)).worker_id)


class SessionLine:
    """A session, opened again when it was lost."""

    def __init__(self, target: str) -> None:
        self._channel = open_channel(target)
        self._worker_id = ""
        self._session_no = 0
        self._held: dict[tuple[str, int], Task] = {}
        self._fresh: list[Task] = []
        # A grpc.aio.StreamStreamCall; its stubs lack the methods of an open stream.
        self._stream: Any = None

    async def tasks(self) -> Sequence[Task]:
        await self._open()
        while not self._fresh:
            await self._read()
        fresh, self._fresh = self._fresh, []
        return fresh

    async def _open(self) -> None:
        if not self._worker_id:
            self._worker_id = await _register(self._channel, WORKER_MODE_SESSION)
        if self._stream is not None:
            return
        self._session_no += 1
        self._stream = SessionServiceStub(self._channel).Open()
        hello = s.Hello(
            worker_id=self._worker_id,
            session_no=self._session_no,
            window=10,
            held=[_ref(each) for each in self._held.values()],
        )
        await self._stream.write(s.ClientFrame(hello=hello))
        frame = await self._read()
        assert frame.welcome.session_no == self._session_no

    async def _read(self) -> s.ServerFrame:
        frame = await self._stream.read()
        assert frame is not grpc.aio.EOF
        assert isinstance(frame, s.ServerFrame)
        for task in frame.tasks:
            self._held[task.task_id, task.attempt] = task
            self._fresh.append(task)
        if frame.tasks:
            started = [_ref(each) for each in frame.tasks]
            await self._stream.write(s.ClientFrame(started=started))
        return frame

    async def spawn(self, report: journal_pb2.SpawnReport) -> journal_pb2.ChildAck:
        await self._open()
        await self._stream.write(s.ClientFrame(spawns=[report]))
        while True:
            for ack in (await self._read()).child_acks:
                assert (ack.task_id, ack.number) == (report.task_id, report.number)
                return ack

    async def lose(self, report: journal_pb2.SpawnReport) -> None:
        await self._stream.write(s.ClientFrame(spawns=[report]))
        self._stream.cancel()
        self._stream = None

    async def finish(self, item: task_pb2.TaskFinish) -> None:
        await self._stream.write(s.ClientFrame(finished=[item]))
        while True:
            for ack in (await self._read()).acks:
                assert not ack.HasField("error"), ack
                assert ack.task_id == item.task_id
                del self._held[item.task_id, item.attempt]
                return

    async def close(self) -> None:
        if self._stream is not None:
            self._stream.cancel()
        await self._channel.close()


class PollLine:
    """Polls, and a call for each report."""

    def __init__(self, target: str) -> None:
        self._channel = open_channel(target)
        self._worker_id = ""
        self._calls = TaskServiceStub(self._channel)

    async def tasks(self) -> Sequence[Task]:
        if not self._worker_id:
            self._worker_id = await _register(self._channel, WORKER_MODE_POLL)
        request = w.PollActivityRequest(
            worker_id=self._worker_id,
            task_queue=QUEUE,
            supported_workflow_types=TYPES,
            max_tasks=10,
            wait=Duration(seconds=POLL_S),
        )
        answer = await WorkflowServiceStub(self._channel).PollActivity(request)
        tasks = list(answer.tasks)
        if tasks:
            items = [_ref(each) for each in tasks]
            await self._calls.StartTasks(
                t.StartTasksRequest(worker_id=self._worker_id, items=items)
            )
        return tasks

    async def spawn(self, report: journal_pb2.SpawnReport) -> journal_pb2.ChildAck:
        (ack,) = (await self._calls.ReportRuns(self._reporting(report))).child_acks
        assert isinstance(ack, journal_pb2.ChildAck)
        return ack

    def _reporting(self, report: journal_pb2.SpawnReport) -> t.ReportRunsRequest:
        return t.ReportRunsRequest(worker_id=self._worker_id, spawns=[report])

    async def lose(self, report: journal_pb2.SpawnReport) -> None:
        call = self._calls.ReportRuns(self._reporting(report))
        # It is on its way when a later call has come back.
        await WorkflowServiceStub(self._channel).HealthCheck(w.HealthCheckRequest())
        call.cancel()

    async def finish(self, item: task_pb2.TaskFinish) -> None:
        request = t.FinishTasksRequest(worker_id=self._worker_id, items=[item])
        (result,) = (await self._calls.FinishTasks(request)).results
        assert not result.HasField("error"), result

    async def close(self) -> None:
        await self._channel.close()


def _ref(task: Task) -> task_pb2.TaskRef:
    return task_pb2.TaskRef(task_id=task.task_id, attempt=task.attempt)


class RunHolder:
    """Holds runs over one line, until its parents have ended."""

    def __init__(self, line: Line, *, loses_answers: bool = False) -> None:
        self._line = line
        self._loses_answers = loses_answers
        self._ends: dict[str, dict[str, task_pb2.Entry]] = {}
        self._reports: dict[str, journal_pb2.SpawnReport] = {}
        self.hand_out_count = 0

    async def run_to_the_end(self, run_id: str) -> dict[str, task_pb2.Entry]:
        """Do what comes until this run has ended; return the ends of its children by call."""
        while True:
            for task in await self._line.tasks():
                if task.type == "child":
                    await self._succeed(task, b"sailed")
                elif await self._go_on(task) and task.task_id == run_id:
                    return self._ends[run_id]

    async def _go_on(self, run: Task) -> bool:
        """Make the children of a run, or wait for them; return whether all have ended."""
        self.hand_out_count += 1
        ends = self._ends.setdefault(run.task_id, {})
        for entry in run.journal.entries:
            assert entry.HasField("child")
            assert entry.content.key not in ends
            ends[entry.content.key] = entry
        if run.task_id not in self._reports:
            await self._make_children(run)
        keys = self._keys(run)
        if set(keys) == set(ends):
            outputs = [ends[key].content.output.decode() for key in keys]
            await self._succeed(run, "\n".join(outputs).encode())
            return True
        await self._line.finish(
            task_pb2.TaskFinish(
                task_id=run.task_id,
                attempt=run.attempt,
                kind=task_pb2.FINISH_KIND_YIELDED,
                seen=run.journal.end,
                patience_n=1,
            )
        )
        return False

    def _keys(self, run: Task) -> list[str]:
        return [each.key for each in self._reports[run.task_id].children]

    async def _make_children(self, run: Task) -> None:
        keys = (*ACTIVITIES, CHILD_RUN)
        children = [_new_child(run, key, index) for index, key in enumerate(keys)]
        report = journal_pb2.SpawnReport(
            task_id=run.task_id, attempt=run.attempt, number=1, children=children
        )
        self._reports[run.task_id] = report
        if self._loses_answers:
            await self._line.lose(report)
        ack = await self._line.spawn(report)
        assert not ack.HasField("error"), ack

    async def _succeed(self, run: Task, output: bytes) -> None:
        kind = task_pb2.FINISH_KIND_SUCCEEDED
        await self._line.finish(
            task_pb2.TaskFinish(task_id=run.task_id, attempt=run.attempt, kind=kind, output=output)
        )
