"""Calls of every method with messages that are good, strange or broken, to a server that runs.

``python -m tests.fuzz.grpc --target 127.0.0.1:7301 --cases 500 --seed 7``. The seed and the number
of a case say what is sent, but for the ids that the server chose. Several cases are under way at a
time, as with clients that know nothing of each other. Sessions and watches say things out of their
order, close their half, or just leave.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

import grpc
import grpc.aio
import msgspec
from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from tenure.errors import ERRORS, Unauthenticated
from tenure.v1 import admin_service_pb2, session_service_pb2, task_pb2, task_service_pb2, worker_pb2
from tenure.v1 import workflow_service_pb2 as w
from tenure.v1.admin_service_pb2_grpc import AdminServiceStub
from tenure.v1.error_pb2 import ErrorDetail
from tenure.v1.workflow_service_pb2_grpc import WorkflowServiceStub
from tests.bounds import WAIT_S
from tests.fuzz.found import Found
from tests.fuzz.message import (
    NAMESPACE,
    QUEUES,
    SIDE,
    TYPES,
    Maker,
    Pool,
    is_repeated,
    methods,
    mutated,
)
from tests.wire.call import OPTIONS, detail_of

AT_A_TIME: Final = 12
# How long a stream or a poll is listened to.
LEAVE_S: Final = 0.15
MUTATED_SHARE: Final = 0.25
CANCELLED_SHARE: Final = 0.03
SESSION_SHARE: Final = 0.12
WATCH_SHARE: Final = 0.04
UNKNOWN_SHARE: Final = 0.01
# How often somebody takes a run, so that calls for its steps get further than to its worker.
HOLD_SHARE: Final = 0.05
# Runs of their own queue and type: nobody else takes or ends them.
HELD: Final = "held"
WAITING: Final = frozenset({"PollActivity"})
# The most is to be found where the most is done, the least where nothing is done yet.
WEIGHTS: Final = {
    **dict.fromkeys(("EnqueueTasks", "RegisterWorker", "PollActivity", "FinishTasks"), 12),
    **dict.fromkeys(("StartTasks", "HeartbeatTasks", "WorkerHeartbeat", "StartWorkflow"), 8),
    **dict.fromkeys(("BeginStep", "CompleteStep", "FailStep", "ScheduleSleep"), 8),
    **dict.fromkeys(("HealthCheck",), 1),
}
# Its first key would close an open server.
CLOSING: Final = "CreateApiKey"
OPEN: Final = "/tenure.v1.SessionService/Open"
WATCH: Final = "/tenure.v1.TaskService/WatchTasks"
UNKNOWN: Final = (
    "/tenure.v1.TaskService/Nothing",
    "/tenure.v1.TaskService/",
    "/tenure.v2.TaskService/GetTask",
    "/TaskService/GetTask",
    "/x",
)
LEFT: Final = "left"
_OURS: Final = frozenset({grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED})
_NEVER: Final = frozenset({grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN})
# What grpc itself says before a message reaches the server.
_OF_GRPC: Final = ("larger than max", "Method not found", "Internal error from Core")


class Keys(msgspec.Struct, frozen=True):
    """Who calls; without an admin the server is open."""

    admin: str = ""
    viewer: str = ""

    @property
    def texts(self) -> list[str]:
        """The keys that there are."""
        return [each for each in (self.admin, self.viewer) if each]

    def choose(self, rng: random.Random) -> tuple[tuple[str, str], ...]:
        """Return the metadata of the next call: the admin's key, the viewer's, or none."""
        lot = rng.random()
        key = self.admin if lot < 0.85 else self.viewer if lot < 0.95 else ""
        return (("authorization", f"Bearer {key}"),) if key else ()


class GrpcFuzzer:
    """Sends the calls and looks at the answers."""

    def __init__(self, target: str, pool: Pool, seed: int, keys: Keys | None = None) -> None:
        self.found = Found(seed)
        self._keys = keys or Keys()
        self._pool = pool
        self._pool.spared |= {each.split("_")[1] for each in self._keys.texts}
        self._target = target
        self._unary = [
            each
            for each in methods()
            if not each.client_streaming and (self._keys.admin or each.name != CLOSING)
        ]
        self._weights = [WEIGHTS.get(each.name, 4) for each in self._unary]

    async def run(self, cases: int) -> Found:
        """Send that many cases."""
        async with grpc.aio.insecure_channel(self._target, options=OPTIONS) as channel:
            await self._prepare(channel)
            numbers = itertools.count()

            async def work() -> None:
                while (number := next(numbers)) < cases:
                    await self._play(channel, random.Random(f"{self.found.seed}:{number}"))

            async with asyncio.TaskGroup() as group:
                for _ in range(AT_A_TIME):
                    group.create_task(work())
        return self.found

    async def _prepare(self, channel: grpc.aio.Channel) -> None:
        """Make the namespaces that most messages name."""
        stub: Any = AdminServiceStub(channel)
        metadata = self._keys.choose(random.Random(0)) and (
            ("authorization", f"Bearer {self._keys.admin}"),
        )
        for name in (NAMESPACE, SIDE):
            request = admin_service_pb2.CreateNamespaceRequest(name=name)
            try:
                await stub.CreateNamespace(request, metadata=metadata, timeout=WAIT_S)
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.ALREADY_EXISTS:
                    raise

    async def _play(self, channel: grpc.aio.Channel, rng: random.Random) -> None:
        maker = Maker(rng, self._pool)
        metadata = self._keys.choose(rng)
        lot = rng.random()
        if lot < SESSION_SHARE:
            frames = await self._session_frames(channel, maker, metadata)
            await self._converse(channel, OPEN, frames, rng, metadata)
        elif lot < SESSION_SHARE + WATCH_SHARE:
            frames = self._frames(maker, task_service_pb2.WatchTasksRequest.DESCRIPTOR)
            await self._converse(channel, WATCH, frames, rng, metadata)
        elif lot < SESSION_SHARE + WATCH_SHARE + UNKNOWN_SHARE:
            await self._call(channel, rng.choice(UNKNOWN), rng.randbytes(5), None, metadata)
        elif lot < SESSION_SHARE + WATCH_SHARE + UNKNOWN_SHARE + HOLD_SHARE:
            await self._hold_run(channel, metadata)
        else:
            await self._call_one(channel, maker, metadata)

    async def _call_one(self, channel: grpc.aio.Channel, maker: Maker, metadata: Any) -> None:
        """Call one method that takes one message."""
        rng = maker.rng
        (method,) = rng.choices(self._unary, self._weights)
        data = maker.request(method.input_type).SerializeToString()
        is_mutated = rng.random() < MUTATED_SHARE
        path = f"/{method.containing_service.full_name}/{method.name}"
        await self._call(
            channel,
            path,
            mutated(data, rng) if is_mutated else data,
            None if is_mutated else method,
            metadata,
            leave_s=rng.random() * 0.01 if rng.random() < CANCELLED_SHARE else None,
        )

    async def _call(
        self,
        channel: grpc.aio.Channel,
        path: str,
        data: bytes,
        method: MethodDescriptor | None,
        metadata: Any,
        *,
        leave_s: float | None = None,
    ) -> None:
        name = path.rpartition("/")[2]
        is_waiting = name in WAITING
        method_of: Any = channel.unary_unary(path)
        call = method_of(data, metadata=metadata, timeout=LEAVE_S if is_waiting else WAIT_S)
        if leave_s is not None:
            asyncio.get_running_loop().call_later(leave_s, call.cancel)
        try:
            answer = await call
        except asyncio.CancelledError:
            if leave_s is None:
                raise
            self.found.note(LEFT)
        except grpc.aio.AioRpcError as error:
            is_left = is_waiting or leave_s is not None
            self._judge(error, f"{name} {data[:300]!r}", metadata, is_left=is_left)
        else:
            self.found.note("ok")
            if method is not None:
                self._learn(method.output_type, answer)

    def _learn(self, descriptor: Descriptor, data: Any) -> None:
        message = message_factory.GetMessageClass(descriptor).FromString(data)
        self._pool.learn(message)
        for detail in _details(message):
            if detail.code not in ERRORS or detail.reason == "internal":
                self.found.complain(f"{descriptor.name} has {detail}")

    def _judge(
        self, error: grpc.aio.AioRpcError, case: str, metadata: Any, *, is_left: bool
    ) -> None:
        """Complain about an error that no caller should meet."""
        code, text = error.code(), error.details() or ""
        detail = detail_of(error)
        if detail is None and ((is_left and code in _OURS) or any(e in text for e in _OF_GRPC)):
            self.found.note(LEFT if is_left else code.name)
            return
        self.found.note(code.name if detail is None else detail.code)
        if code in _NEVER or detail is None:
            self.found.complain(f"{case}: {code.name} {text}")
        elif detail.code not in ERRORS or detail.reason == "internal":
            self.found.complain(f"{case}: {detail}")
        elif detail.code == Unauthenticated.code and metadata:
            # The keys of this run are good to its end: refused calls would try nothing.
            self.found.complain(f"{case}: a good key was refused: {text}")

    def _frames(self, maker: Maker, descriptor: Descriptor) -> list[bytes]:
        made = []
        for _ in range(maker.rng.choice((0, 1, 1, 2, 5))):
            data = maker.request(descriptor).SerializeToString()
            if maker.rng.random() < MUTATED_SHARE / 2:
                data = mutated(data, maker.rng)
            made.append(data)
        return made

    async def _session_frames(
        self, channel: grpc.aio.Channel, maker: Maker, metadata: Any
    ) -> list[bytes]:
        """Return what a worker says: mostly a good hello first, and then anything."""
        frames = self._frames(maker, session_service_pb2.ClientFrame.DESCRIPTOR)
        if maker.rng.random() < 0.7:
            worker_id = await self._register(channel, maker.rng, metadata)
            hello = session_service_pb2.Hello(
                namespace_id=NAMESPACE,
                worker_id=worker_id,
                session_no=maker.rng.choice((1, 1, 1, 0, -1, 2**31 - 1)),
                window=maker.rng.choice((5, 5, 0, -1, 2**31 - 1)),
                wants_tokens=maker.rng.random() < 0.5,
            )
            frame = session_service_pb2.ClientFrame(hello=hello)
            frames.insert(0, frame.SerializeToString())
        return frames

    async def _register(self, channel: grpc.aio.Channel, rng: random.Random, metadata: Any) -> str:
        """Return the id of a new worker, or of none when it may not be."""
        stub: Any = WorkflowServiceStub(channel)
        request = w.RegisterWorkerRequest(
            namespace_id=NAMESPACE,
            task_queue=rng.choice(QUEUES),
            workflow_types=TYPES,
            max_concurrent=5,
            mode=worker_pb2.WORKER_MODE_SESSION,
        )
        try:
            answer = await stub.RegisterWorker(request, metadata=metadata, timeout=WAIT_S)
        except grpc.aio.AioRpcError as error:
            self._judge(error, "RegisterWorker of a session", metadata, is_left=False)
            return ""
        return str(answer.worker_id)

    async def _hold_run(self, channel: grpc.aio.Channel, metadata: Any) -> None:
        """Start a run and let a worker have it, for whom others then speak."""
        stub: Any = WorkflowServiceStub(channel)
        here: Any = {"namespace_id": NAMESPACE, "task_queue": HELD}
        given = {"metadata": metadata, "timeout": WAIT_S}
        retry = task_pb2.RetryPolicy(maximum_attempts=3, initial_interval_ms=1)
        start = w.StartWorkflowRequest(
            **here, workflow_type=HELD, options=task_pb2.TaskOptions(retry=retry)
        )
        register = w.RegisterWorkerRequest(**here, workflow_types=[HELD])
        try:
            await stub.StartWorkflow(start, **given)
            made = await stub.RegisterWorker(register, **given)
            poll = w.PollActivityRequest(
                **here,
                worker_id=made.worker_id,
                supported_workflow_types=[HELD],
                max_tasks=5,
                wait=Duration(),
            )
            answer = await stub.PollActivity(poll, **given)
        except grpc.aio.AioRpcError as error:
            self._judge(error, "a run that is held", metadata, is_left=False)
            return
        self.found.note("ok")
        for task in answer.tasks:
            held = task.task_id, task.attempt, made.worker_id
            self._pool.add(self._pool.held_runs, held)

    async def _converse(
        self,
        channel: grpc.aio.Channel,
        path: str,
        frames: Sequence[bytes],
        rng: random.Random,
        metadata: Any,
    ) -> None:
        """Say all frames while listening; then close this half, or leave, or listen on."""
        call: Any = channel.stream_stream(path)(metadata=metadata)
        end = rng.choice(("close", "close", "leave", "listen"))
        listening = asyncio.ensure_future(self._listen(call, path))
        try:
            async with asyncio.timeout(LEAVE_S):
                for frame in frames:
                    await call.write(frame)
                if end == "close":
                    await call.done_writing()
                if end != "leave":
                    await asyncio.shield(listening)
        except (TimeoutError, grpc.aio.AioRpcError, asyncio.InvalidStateError):
            # It ended before all was said; what it ended with, the listener knows.
            pass
        if not listening.done():
            # What it was refused with may be on its way.
            await asyncio.wait([listening], timeout=LEAVE_S if end == "close" else 0)
        call.cancel()
        how = (await asyncio.gather(listening, return_exceptions=True))[0]
        case = f"{path} {[each[:100] for each in frames]}"
        if isinstance(how, grpc.aio.AioRpcError):
            self._judge(how, case, metadata, is_left=True)
        elif isinstance(how, asyncio.CancelledError):
            self.found.note(LEFT)
        elif isinstance(how, BaseException):
            raise how
        else:
            self.found.note("ok")

    async def _listen(self, call: Any, path: str) -> None:
        kind = session_service_pb2.ServerFrame if path == OPEN else None
        while (data := await call.read()) is not grpc.aio.EOF:
            self._learn((kind or task_service_pb2.WatchTasksResponse).DESCRIPTOR, data)


def _details(message: Message) -> list[ErrorDetail]:
    """Return every typed error inside an answer."""
    if isinstance(message, ErrorDetail):
        return [message]
    found: list[ErrorDetail] = []
    for field, value in message.ListFields():
        if field.type != FieldDescriptor.TYPE_MESSAGE or field.message_type.GetOptions().map_entry:
            continue
        for each in value if is_repeated(field) else (value,):
            found += _details(each)
    return found


def main() -> int:
    """Send the calls and print what was found; 1 if something was."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.grpc")
    parser.add_argument("--target", required=True, metavar="HOST:PORT")
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**9)
    options = parser.parse_args()
    found = asyncio.run(GrpcFuzzer(options.target, Pool(), options.seed).run(options.cases))
    print(f"seed {found.seed}: {found.count:,} calls: {found.told()}")  # noqa: T201
    for each in found.complaints:
        print(each, file=sys.stderr)  # noqa: T201
    return int(bool(found.complaints))


if __name__ == "__main__":
    sys.exit(main())
