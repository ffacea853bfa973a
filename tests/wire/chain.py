"""Chains of heartbeats that are sent one after the other, as fast as they are answered."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any, Final

import grpc
import grpc.aio
from google.protobuf.duration_pb2 import Duration

from tenure.v1 import session_service_pb2 as s
from tenure.v1 import workflow_service_pb2 as w
from tenure.v1.session_service_pb2_grpc import SessionServiceStub
from tenure.v1.task_pb2 import TaskRef
from tenure.v1.worker_pb2 import WORKER_MODE_POLL, WORKER_MODE_SESSION
from tenure.v1.workflow_service_pb2_grpc import WorkflowServiceStub
from tests.wire.call import CALL_SECONDS, Link, NoAnswer, Refused, ask, is_retryable, translate

_WIRE_MODES: Final = {"session": WORKER_MODE_SESSION, "poll": WORKER_MODE_POLL}


class Chain:
    """A worker that holds some tasks and does nothing but beat; each beat has one more end."""

    def __init__(self, direct: str, lossy: str, queue: str, mode: str) -> None:
        self._direct = Link([direct])
        self._link = Link([lossy])
        self._queue = queue
        self._mode = mode
        self._is_full = False
        self.worker_id = ""
        self.token = ""
        self.held: list[TaskRef] = []
        self.completed_count = 0
        self.sent_count = 0
        self.mismatch_count = 0
        self.silence_count = 0

    async def register(self, slots: int) -> None:
        """Register, over the line that loses nothing."""
        request = w.RegisterWorkerRequest(
            task_queue=self._queue,
            workflow_types=["work"],
            max_concurrent=slots,
            instance_key=uuid.uuid4().hex,
            mode=_WIRE_MODES[self._mode],
        )
        stub = WorkflowServiceStub(self._direct.channel)
        answer = await ask(stub.RegisterWorker(request, timeout=CALL_SECONDS))
        self.worker_id, self.token = answer.worker_id, answer.token

    async def close(self) -> None:
        await self._direct.close()
        await self._link.close()

    async def take(self, count: int) -> None:
        """Get the tasks that it shall hold."""
        raise NotImplementedError

    async def beat(self) -> None:
        """Send one heartbeat with one more end; its answer may be lost."""
        raise NotImplementedError


class PollChain(Chain):
    """Heartbeats as calls, with totals or with deltas."""

    def __init__(self, direct: str, lossy: str, queue: str, *, uses_deltas: bool) -> None:
        super().__init__(direct, lossy, queue, "poll")
        self._uses_deltas = uses_deltas
        self._unsaid = 0

    async def take(self, count: int) -> None:
        stub = WorkflowServiceStub(self._direct.channel)
        while len(self.held) < count:
            request = w.PollActivityRequest(
                worker_id=self.worker_id,
                task_queue=self._queue,
                supported_workflow_types=["work"],
                max_tasks=count - len(self.held),
                wait=Duration(seconds=10),
            )
            answer = await ask(stub.PollActivity(request, timeout=30))
            self.held += [
                TaskRef(task_id=each.task_id, attempt=each.attempt) for each in answer.tasks
            ]

    async def beat(self) -> None:
        self.completed_count += 1
        self._unsaid += 1
        # Until one is answered, all say the same: one of them may have counted.
        said = self._unsaid
        sent_token = self.token
        while True:
            try:
                await self._send(said, sent_token)
            except NoAnswer as error:
                self.silence_count += 1
                await asyncio.sleep(error.retry_after_s)
                await self._link.replace(self._link.channel)
            else:
                return

    async def _send(self, said: int, sent_token: str) -> None:
        request = w.WorkerHeartbeatRequest(
            worker_id=self.worker_id,
            token=self.token,
            active_count=len(self.held),
            # The tasks are bound again with every heartbeat, which must bind nothing twice.
            bound_activities=() if self._is_full else self.held,
            held_activities=w.HeldActivities(items=self.held) if self._is_full else None,
        )
        if self._uses_deltas:
            request.completed_delta = said
        else:
            request.total_completed = self.completed_count
        self.sent_count += 1
        stub = WorkflowServiceStub(self._link.channel)
        try:
            answer = await ask(stub.WorkerHeartbeat(request, timeout=CALL_SECONDS))
        except Refused as refused:
            if refused.code != "token_mismatch":
                raise
            self.mismatch_count += 1
            if self.token == sent_token:
                # The token moved on, so the lost one was accepted, with its deltas.
                self._unsaid -= said
            self.token, self._is_full = refused.detail.current_token, True
        else:
            self._unsaid -= said
            self.token, self._is_full = answer.token, False


class SessionChain(Chain):
    """Heartbeats in a session, which is opened again each time it is cut."""

    def __init__(self, direct: str, lossy: str, queue: str) -> None:
        super().__init__(direct, lossy, queue, "session")
        self._stream: Any = None
        self._session_no = 0
        self._window = 0

    async def take(self, count: int) -> None:
        self._window = count
        while len(self.held) < count:
            try:
                await self._open()
                while len(self.held) < count:
                    self._keep(await self._read())
            except NoAnswer:
                await self._lose()

    async def beat(self) -> None:
        self.completed_count += 1
        while True:
            try:
                await self._open()
                await self._beat()
            except NoAnswer:
                await self._lose()
            else:
                return

    async def _open(self) -> None:
        if self._stream is not None:
            return
        self._session_no += 1
        self._stream = SessionServiceStub(self._link.channel).Open()
        hello = s.Hello(
            worker_id=self.worker_id,
            session_no=self._session_no,
            window=self._window,
            held=self.held,
        )
        await self._write(s.ClientFrame(hello=hello))
        frame = await self._read()
        self.token = frame.welcome.token
        self._keep(frame)
        if self.held:
            await self._write(s.ClientFrame(started=self.held))

    async def _beat(self) -> None:
        beat = s.WorkerBeat(
            token=self.token,
            total_completed=self.completed_count,
            active_count=len(self.held),
            bound=() if self._is_full else self.held,
            held=s.HeldSet(items=self.held) if self._is_full else None,
        )
        self.sent_count += 1
        await self._write(s.ClientFrame(beat=beat))
        while True:
            frame = await self._read()
            self._keep(frame)
            if frame.HasField("lease"):
                break
        if not frame.lease.HasField("error"):
            self.token, self._is_full = frame.lease.token, False
            return
        error = frame.lease.error
        if is_retryable(error):
            # It beats faster than a server lets one worker beat, and goes on when it may.
            await asyncio.sleep(error.retry_after_ms / 1_000)
            await self._beat()
            return
        assert error.code == "token_mismatch", error
        self.mismatch_count += 1
        self.token, self._is_full = error.current_token, True

    def _keep(self, frame: s.ServerFrame) -> None:
        self.held += [TaskRef(task_id=each.task_id, attempt=each.attempt) for each in frame.tasks]

    async def _write(self, frame: s.ClientFrame) -> None:
        await self._await(self._stream.write(frame))

    async def _read(self) -> s.ServerFrame:
        frame = await self._await(self._stream.read())
        if frame is grpc.aio.EOF:
            raise NoAnswer(grpc.StatusCode.UNAVAILABLE, "closed", None)
        assert isinstance(frame, s.ServerFrame)
        assert not frame.HasField("end"), frame.end
        return frame

    async def _await(self, doing: Any) -> Any:
        try:
            async with asyncio.timeout(CALL_SECONDS):
                return await doing
        except grpc.aio.AioRpcError as error:
            raise translate(error) from error
        except (asyncio.InvalidStateError, TimeoutError):
            raise NoAnswer(grpc.StatusCode.UNAVAILABLE, "gone", None) from None

    async def _lose(self) -> None:
        self.silence_count += 1
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.cancel()
        await self._link.replace(self._link.channel)
