"""A run that begins anew thousands of times: its journal stays small, and no signal is lost."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

import grpc.aio
from google.protobuf.duration_pb2 import Duration

from tenure import Client, RunHandle
from tenure.v1 import journal_pb2, task_pb2
from tenure.v1 import task_service_pb2 as t
from tenure.v1 import workflow_service_pb2 as w
from tenure.v1.task_service_pb2_grpc import TaskServiceStub
from tenure.v1.workflow_service_pb2_grpc import WorkflowServiceStub
from tests.bounds import LONG_WORK_S
from tests.soak.result import Result
from tests.soak.scene import SCALES, on_both_stores, spotless
from tests.wire.stage import Stage

ROUNDS: Final = {False: 10_000, True: 30}
# What a round may find: signals that came since the last one, and those that it left.
ENTRIES_MAX: Final = 100
TYPE: Final = "loop"
BEAT_S: Final = 0.5
# Every so many rounds a signal is not taken.
LEFT_EVERY: Final = 3


async def run(small: bool) -> list[Result]:
    """Let a run begin anew on both stores while signals come in."""
    rounds = ROUNDS[small]

    async def scene(stage: Stage, dialect: str) -> list[Result]:
        server = await stage.server()
        async with Client(server.grpc) as client, grpc.aio.insecure_channel(server.grpc) as channel:
            handle = await client.start_named(TYPE, {"round": 0})
            worker = await _Worker.register(channel)
            async with asyncio.TaskGroup() as group:
                beats = group.create_task(worker.beat())
                group.create_task(_send(handle, rounds))
                await worker.loop(rounds)
                beats.cancel()
            result = await handle.result(timeout=LONG_WORK_S)
            described = await handle.describe()
        complaints = list(worker.complaints)
        if worker.taken != list(range(rounds)):
            complaints.append("signals were lost, came twice or in another order")
        if result != {"round": worker.rounds} or described.generation != worker.rounds:
            complaints.append(f"the first handle got {result} of {described.generation} rounds")
        if worker.longest > ENTRIES_MAX:
            complaints.append(f"a journal had {worker.longest} entries")
        return [
            spotless(
                f"run that begins anew, {dialect}",
                f"{rounds:,} signals in their order, at most {ENTRIES_MAX} entries at a time",
                f"{worker.rounds:,} rounds, at most {worker.longest} entries",
                complaints,
            )
        ]

    return await on_both_stores(SCALES[small], scene)


async def _send(handle: RunHandle[Any], count: int) -> None:
    for number in range(count):
        await handle.signal("tick", number)


class _Worker:
    """Holds the one run, as the protocol says, and begins it anew."""

    def __init__(self, channel: grpc.aio.Channel, registered: w.RegisterWorkerResponse) -> None:
        self._workflows = WorkflowServiceStub(channel)
        self._tasks = TaskServiceStub(channel)
        self._id = registered.worker_id
        self._token = registered.token
        self.taken: list[int] = []
        self.rounds = 0
        self.longest = 0
        self.complaints: list[str] = []

    @classmethod
    async def register(cls, channel: grpc.aio.Channel) -> _Worker:
        request = w.RegisterWorkerRequest(
            task_queue="default", workflow_types=[TYPE], max_concurrent=1
        )
        return cls(channel, await WorkflowServiceStub(channel).RegisterWorker(request))

    async def beat(self) -> None:
        """Keep the lease."""
        while True:
            request = w.WorkerHeartbeatRequest(worker_id=self._id, token=self._token)
            self._token = (await self._workflows.WorkerHeartbeat(request)).token
            await asyncio.sleep(BEAT_S)

    async def loop(self, rounds: int) -> None:
        """Begin anew at least so often, and until as many signals were taken."""
        while True:
            task = await self._next()
            if json.loads(task.input) != {"round": self.rounds}:
                self.complaints.append(f"round {self.rounds} has the input {task.input!r}")
            await self._step(task)
            keep = self._take(task)
            if self.rounds >= rounds and len(self.taken) >= rounds:
                output = json.dumps({"round": self.rounds}).encode()
                await self._finish(task, task_pb2.FINISH_KIND_SUCCEEDED, output=output)
                return
            self.rounds += 1
            await self._finish(
                task,
                task_pb2.FINISH_KIND_CONTINUED,
                next_input=json.dumps({"round": self.rounds}).encode(),
                seen=task.journal.end,
                keep=keep,
            )

    async def _next(self) -> task_pb2.AssignedTask:
        request = w.PollActivityRequest(
            worker_id=self._id,
            task_queue="default",
            supported_workflow_types=[TYPE],
            max_tasks=1,
            wait=Duration(seconds=5),
        )
        while True:
            answer: w.PollActivityResponse = await self._workflows.PollActivity(request)
            if answer.tasks:
                return answer.tasks[0]

    async def _step(self, task: task_pb2.AssignedTask) -> None:
        entry = task_pb2.NewEntry(kind=task_pb2.ENTRY_KIND_STEP, key="look", output=b"1")
        report = journal_pb2.StepReport(
            task_id=task.task_id, attempt=task.attempt, first_no=1, entries=[entry]
        )
        request = t.ReportRunsRequest(worker_id=self._id, steps=[report])
        (ack,) = (await self._tasks.ReportRuns(request)).step_acks
        self.longest = max(self.longest, ack.pos)
        if ack.HasField("error"):
            self.complaints.append(f"round {self.rounds}: a step got {ack.error.code}")

    def _take(self, task: task_pb2.AssignedTask) -> list[int]:
        """Take signals in their order; return the positions of those that are left."""
        signals = list(task.journal.entries)
        kept = [each.pos for each in signals[-1:]] if self.rounds % LEFT_EVERY == 0 else []
        self.taken += [json.loads(each.content.output) for each in signals if each.pos not in kept]
        return kept

    async def _finish(
        self, task: task_pb2.AssignedTask, kind: task_pb2.FinishKind.ValueType, **fields: Any
    ) -> None:
        item = task_pb2.TaskFinish(task_id=task.task_id, attempt=task.attempt, kind=kind, **fields)
        answer = await self._tasks.FinishTasks(
            t.FinishTasksRequest(worker_id=self._id, items=[item])
        )
        if answer.results[0].HasField("error"):
            self.complaints.append(f"round {self.rounds}: {answer.results[0].error.message}")
