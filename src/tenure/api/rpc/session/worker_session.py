"""One session of a worker: a stream of frames, and the worker's offer.

The reader submits the reports of a frame in their order, and does not wait for the commit; answers
come back through the outbox. Only a stream that the worker closed without a goodbye makes the
worker suspect.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, TypeVar

import grpc
import structlog

from tenure.api.guard.access import speaker
from tenure.api.guard.rate_limit import RateLimit
from tenure.api.guard.scope import scope
from tenure.api.rpc import error
from tenure.api.rpc.context import Context
from tenure.api.rpc.session.run_reports import RunReports
from tenure.api.rpc.session.session_outbox import SessionOutbox
from tenure.api.rpc.view import task_view
from tenure.core import check, limits
from tenure.core.journal.entry import JournalPage
from tenure.core.task.effect import Stop
from tenure.core.task.record import Task
from tenure.core.worker import decide as worker_rules
from tenure.core.worker import lease as lease_rules
from tenure.core.worker.lease import Beat
from tenure.core.worker.record import EndReason, WorkerStatus
from tenure.engine.command import Command, TaskRef
from tenure.engine.engine import Engine
from tenure.engine.read import query
from tenure.engine.task import command as c
from tenure.engine.worker.command import DeregisterWorker, Heartbeat, OpenSession, SessionAnswer
from tenure.errors import Rejection, TenureError, WorkerInactive
from tenure.v1 import session_service_pb2 as pb

log = structlog.get_logger("tenure.api")
Item = TypeVar("Item", TaskRef, c.TaskBeat, c.Finish)


class WorkerSession:
    """The sink of a worker's offer, and its stream."""

    def __init__(self, engine: Engine, context: Context, hello: pb.Hello, beats: RateLimit) -> None:
        """Prepare; ``serve`` opens it."""
        self._engine = engine
        self._beats = beats
        self._context = context
        self._hello = hello
        self._namespace = scope(hello.namespace_id)
        self._worker_id = hello.worker_id
        self._session_no = 0
        self._slots = 0
        self._outbox = SessionOutbox(self._token if hello.wants_tokens else None)
        self._is_open = True
        self._is_closing = False
        self._is_lost = False
        self._is_drain_wanted = False
        self._said_goodbye = False
        self._report_count = 0
        self._has_room = asyncio.Event()
        self._runs = RunReports(
            engine, self._namespace, self._worker_id, self._outbox, self._has_room
        )
        self._group = asyncio.TaskGroup()
        self._beat_done: asyncio.Future[None] | None = None

    # -- What the engine tells the worker

    @property
    def is_open(self) -> bool:
        """Return whether the worker is still connected."""
        return self._is_open

    @property
    def room_bytes(self) -> int:
        """Return how many bytes of payloads fit now."""
        return self._outbox.room_bytes

    def give(self, tasks: Sequence[Task]) -> None:
        """Deliver handed-out tasks."""
        self._outbox.put_tasks(tasks)

    def cancel(self, refs: Sequence[TaskRef]) -> None:
        """Send cancels for tasks."""
        self._outbox.put_cancel(refs)

    def stop(self, stops: Sequence[Stop]) -> None:
        """Send stops for attempts that have ended."""
        self._outbox.put_stop(stops)

    def page(self, ref: TaskRef, page: JournalPage) -> None:
        """Send what others have appended to the journal of a run."""
        self._runs.push(ref, page)

    def drain(self) -> None:
        """Send the drain: no more tasks come."""
        self._is_drain_wanted = True
        self._outbox.wake()

    def end(self, reason: EndReason) -> None:
        """Send that the worker is offline."""
        self._outbox.put_end(worker_rules.inactive(self._worker_id, reason).to_error())

    def close(self) -> None:
        """End the stream because the server stops: the lease decides, no worker is suspected."""
        self._is_closing = True
        self._outbox.wake()

    # -- The stream

    async def serve(self, frames: AsyncIterator[pb.ClientFrame]) -> None:
        """Open the session and serve it to its end."""
        try:
            answer = await self._open()
            self._session_no = answer.worker.session_no
            self._slots = answer.worker.slots
            if answer.worker.status is WorkerStatus.DRAINING:
                self.drain()
            await self._context.write(self._welcome(answer))
            await self._run(frames)
        except (asyncio.CancelledError, grpc.aio.InternalError):
            # Only gRPC cancels a call here, or cannot write: its peer is gone, unless it is us
            # who stop.
            self._is_lost = not (self._is_closing or self._said_goodbye)
            raise
        finally:
            self._is_open = False
            self._leave()

    async def _open(self) -> SessionAnswer:
        hello = self._hello
        opening = self._engine.submit(
            OpenSession(
                namespace=self._namespace,
                worker_id=self._worker_id,
                held=task_view.refs(hello.held),
                window=hello.window,
                sink=self,
                session_no=hello.session_no,
                speaker=speaker(),
            )
        )
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            # The session may be opened although the stream has ended: then it is lost.
            opening.add_done_callback(self._lose_unseen)
            raise

    def _lose_unseen(self, opened: asyncio.Future[Any]) -> None:
        if not opened.cancelled() and opened.exception() is None:
            session_no = opened.result().worker.session_no
            self._engine.lose_session(self._namespace, self._worker_id, session_no)

    def _leave(self) -> None:
        """Report how the stream ended, and give back tasks that were never written."""
        unwritten = self._outbox.take_tasks()
        if unwritten:
            self._engine.give_back(unwritten)
        if not self._session_no:
            return
        if self._is_lost:
            self._engine.lose_session(self._namespace, self._worker_id, self._session_no)
        else:
            self._engine.end_session(self._worker_id, self._session_no)

    async def _run(self, frames: AsyncIterator[pb.ClientFrame]) -> None:
        try:
            async with self._group:
                reader = self._group.create_task(self._read(frames))
                writer = self._group.create_task(self._write())
                await asyncio.wait({reader, writer}, return_when=asyncio.FIRST_COMPLETED)
                # After a goodbye acknowledgements are still written.
                if reader.done() and self._said_goodbye:
                    await self._flush(writer)
                reader.cancel()
                writer.cancel()
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def _flush(self, writer: asyncio.Task[None]) -> None:
        """Answer the reports before a goodbye, within a call's time."""
        async with asyncio.timeout(limits.CALL_MS / 1000):
            while not writer.done() and self._open_count:
                if self._outbox.answer_count:
                    self._outbox.wake()
                self._has_room.clear()
                await self._has_room.wait()

    @property
    def _open_count(self) -> int:
        """Return how many reports and requests have no answer that was written."""
        return self._report_count + self._runs.open_count + self._outbox.answer_count

    def _welcome(self, answer: SessionAnswer) -> pb.ServerFrame:
        lease = answer.lease
        return pb.ServerFrame(
            welcome=pb.Welcome(
                token=str(lease.token),
                lease_duration_ms=lease.lease_ms,
                heartbeat_interval_ms=lease_rules.interval_ms(lease.lease_ms),
                session_no=answer.worker.session_no,
                server_id=self._engine.server_id,
                stop=task_view.stops(answer.stop),
                cancel=[
                    pb.CancelRequest(task_id=ref.task_id, attempt=ref.attempt)
                    for ref in answer.cancel
                ],
                window=min(self._hello.window, answer.worker.slots),
                holds_exclusive=True,
            )
        )

    async def _write(self) -> None:
        """Write frames until the last one, or until the server stops."""
        is_last = False
        while not is_last:
            await self._outbox.wait()
            if self._is_closing:
                raise error.shutting_down("Open the session elsewhere.")
            if self._is_drain_wanted:
                self._is_drain_wanted = False
                await self._tell_drain()
            frame, is_last = self._outbox.take_frame()
            try:
                # A worker that does not read is left to its lease.
                async with asyncio.timeout(limits.SLOW_READER_MS / 1000):
                    await self._context.write(frame)
            except TimeoutError:
                log.warning("session.slow_reader", worker_id=self._worker_id)
                raise
            if self._outbox.written():
                self._engine.has_room(self._worker_id)
            if frame.acks or frame.step_acks or frame.child_acks or frame.pages:
                self._has_room.set()

    def _token(self, task: Task) -> str:
        tokens = self._engine.tokens
        return tokens.sign(task_view.completion_claims(task, tokens.now_ms))

    def _now_ms(self) -> int:
        return self._engine.clock.now_ms()

    async def _tell_drain(self) -> None:
        drain_at_ms = None
        try:
            view = await query.get_worker(
                self._engine.store, namespace=self._namespace, worker_id=self._worker_id
            )
            drain_at_ms = view.worker.drain_at_ms
        except TenureError as refusal:
            log.info("session.drain_deadline_unknown", error=refusal.code)
        self._outbox.put_drain(_drain_frame(drain_at_ms, self._now_ms()))

    # -- What the worker says

    async def _read(self, frames: AsyncIterator[pb.ClientFrame]) -> None:
        async for frame in frames:
            self._report(frame)
            if frame.HasField("beat"):
                await self._begin_beat(frame.beat)
            if frame.HasField("window"):
                window = check.integer(frame.window, "window", 0, limits.WORKER_SLOTS_MAX)
                # As in the hello: never more than it registered for.
                self._engine.set_window(self._worker_id, min(window, self._slots))
            if frame.HasField("goodbye"):
                await self._say_goodbye(frame.goodbye)
                return
            while self._open_count > limits.SESSION_REPORTS_MAX:
                self._has_room.clear()
                await self._has_room.wait()
        self._is_lost = True

    async def _say_goodbye(self, goodbye: pb.Goodbye) -> None:
        self._said_goodbye = True
        self._engine.end_session(self._worker_id, self._session_no)
        if goodbye.is_final:
            await self._engine.submit(
                DeregisterWorker(namespace=self._namespace, worker_id=self._worker_id)
            )

    def _report(self, frame: pb.ClientFrame) -> None:
        """Submit the reports of a frame in their order: started first, finished last."""
        if frame.started:
            started = list(task_view.refs(frame.started))
            exclusive = task_view.exclusive_refs(frame.started)
            self._submit(
                pb.REPORT_KIND_STARTED, started, lambda items: self._confirm(items, exclusive)
            )
        if frame.task_beats:
            beats = [task_view.beat(each, each.task_id, each.attempt) for each in frame.task_beats]
            self._submit(pb.REPORT_KIND_BEAT, beats, self._beat_tasks)
        self._runs.record(frame)
        if frame.finished:
            self._finish(frame)
        if frame.journal:
            self._runs.ask(frame.journal, self._group)

    def _finish(self, frame: pb.ClientFrame) -> None:
        items = []
        for message in frame.finished:
            try:
                items.append(task_view.finish(message))
            except TenureError as refusal:
                ref = TaskRef(message.task_id, message.attempt)
                self._outbox.put_acks([_ack(pb.REPORT_KIND_FINISHED, ref, refusal)])
        if items:
            self._submit(pb.REPORT_KIND_FINISHED, items, self._finish_tasks)

    def _confirm(self, items: tuple[TaskRef, ...], exclusive: frozenset[TaskRef]) -> c.ConfirmTasks:
        return c.ConfirmTasks(
            namespace=self._namespace, worker_id=self._worker_id, items=items, exclusive=exclusive
        )

    def _beat_tasks(self, items: tuple[c.TaskBeat, ...]) -> c.HeartbeatTasks:
        return c.HeartbeatTasks(namespace=self._namespace, worker_id=self._worker_id, items=items)

    def _finish_tasks(self, items: tuple[c.Finish, ...]) -> c.FinishTasks:
        return c.FinishTasks(namespace=self._namespace, worker_id=self._worker_id, items=items)

    def _submit(
        self,
        kind: pb.ReportKind.ValueType,
        items: Sequence[Item],
        make: Callable[[tuple[Item, ...]], Command[tuple[c.ItemAnswer, ...]]],
    ) -> None:
        """Submit reports together; if refused, each separately, so that each is answered."""
        try:
            future = self._engine.submit(make(tuple(items)))
        except TenureError as refusal:
            if len(items) == 1:
                self._outbox.put_acks([_ack(kind, items[0], refusal)])
                return
            for item in items:
                self._submit(kind, [item], make)
            return
        self._report_count += len(items)
        future.add_done_callback(lambda done: self._answered(kind, items, done))

    def _answered(
        self,
        kind: pb.ReportKind.ValueType,
        items: Sequence[TaskRef | c.TaskBeat | c.Finish],
        done: asyncio.Future[tuple[c.ItemAnswer, ...]],
    ) -> None:
        self._report_count -= len(items)
        self._has_room.set()
        if done.cancelled():
            return
        failure = done.exception()
        if isinstance(failure, TenureError):
            self._outbox.put_acks([_ack(kind, item, failure) for item in items])
            return
        answers = done.result()
        told = list(zip(items, answers, strict=True))
        is_finish = kind == pb.REPORT_KIND_FINISHED
        acks = [
            _answer(kind, item, answer) for item, answer in told if is_finish or _is_awaited(answer)
        ]
        cancel = [] if is_finish else _cancels(told)
        if acks:
            self._outbox.put_acks(acks)
        if cancel:
            self._outbox.put_cancel(cancel)

    # -- Heartbeats of the worker

    async def _begin_beat(self, beat: pb.WorkerBeat) -> None:
        """Handle one heartbeat at a time; reports of later frames do not wait for it."""
        if self._beat_done is not None:
            await self._beat_done
        self._beat_done = self._group.create_task(self._beat(beat))

    async def _beat(self, beat: pb.WorkerBeat) -> None:
        try:
            self._beats.take(f"{self._namespace} {self._worker_id}")
            renewed, held = await self._engine.heartbeat(
                Heartbeat(
                    namespace=self._namespace,
                    worker_id=self._worker_id,
                    beat=self._read_beat(beat),
                    is_full=beat.is_full,
                ),
                bound=task_view.refs(beat.bound),
                unbound=task_view.refs(beat.unbound),
                held=task_view.refs(beat.held.items) if beat.HasField("held") else None,
            )
        except WorkerInactive as over:
            self._outbox.put_end(over)
            return
        except TenureError as refusal:
            told = error.detail(refusal, pb.WorkerBeat.DESCRIPTOR)
            self._outbox.put_lease(pb.LeaseGrant(error=told))
            return
        lease = renewed.lease
        self._outbox.put_stop((*renewed.stop, *held.stop))
        self._outbox.put_cancel(renewed.cancel)
        self._outbox.put_lease(
            pb.LeaseGrant(
                token=str(lease.token),
                lease_duration_ms=lease.lease_ms,
                heartbeat_interval_ms=lease_rules.interval_ms(lease.lease_ms),
            )
        )

    def _read_beat(self, beat: pb.WorkerBeat) -> Beat:
        return Beat(
            token=token_number(beat.token),
            server_id=self._engine.server_id,
            lease_ms=beat.lease_duration_ms,
            total_completed=beat.total_completed,
            total_failed=beat.total_failed,
            active_count=beat.active_count,
            loop_lag_ms=beat.loop_lag_ms,
            stuck_count=beat.stuck_count,
        )


def token_number(text: str) -> int:
    """Return the number in a heartbeat token; before the first answer it is empty.

    An unreadable token is ``_NO_TOKEN``: its worker gets the current one, as if it were stale.
    """
    if not text:
        return 1
    if len(text) > _TOKEN_LENGTH_MAX or not text.isascii() or not text.isdigit():
        return _NO_TOKEN
    return int(text)


_TOKEN_LENGTH_MAX = 18
_NO_TOKEN = 0


def _drain_frame(drain_at_ms: int | None, now_ms: int) -> pb.Drain:
    if drain_at_ms is None:
        return pb.Drain(deadline_in_ms=limits.DRAIN_DEADLINE_MS)
    return pb.Drain(deadline_in_ms=max(0, drain_at_ms - now_ms))


def _is_awaited(answer: c.ItemAnswer) -> bool:
    """Return whether a worker needs the answer to a start or heartbeat: mostly it does not."""
    return answer.is_exclusive if isinstance(answer, c.Reported) else True


def _cancels(told: Sequence[tuple[TaskRef | c.TaskBeat | c.Finish, c.ItemAnswer]]) -> list[TaskRef]:
    return [
        TaskRef(item.task_id, item.attempt)
        for item, answer in told
        if isinstance(answer, c.Reported) and answer.should_cancel
    ]


def _answer(
    kind: pb.ReportKind.ValueType, item: TaskRef | c.TaskBeat | c.Finish, answer: c.ItemAnswer
) -> pb.Ack:
    if isinstance(answer, Rejection):
        return _ack(kind, item, answer)
    state = task_view.STATES[answer.state]
    return pb.Ack(task_id=item.task_id, attempt=item.attempt, kind=kind, state=state)


def _ack(
    kind: pb.ReportKind.ValueType,
    item: TaskRef | c.TaskBeat | c.Finish,
    refusal: TenureError | Rejection,
) -> pb.Ack:
    return pb.Ack(
        task_id=item.task_id, attempt=item.attempt, kind=kind, error=error.detail(refusal)
    )
