"""The session mode: one stream with frames in both directions, reopened when it breaks."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from tenure.errors import TenureError, Unavailable, WorkerInactive
from tenure.sdk.transport import refusal
from tenure.sdk.transport.channel import Stream
from tenure.sdk.worker.connection import method
from tenure.sdk.worker.connection.incarnation import Incarnation
from tenure.sdk.worker.connection.outage import Outage
from tenure.sdk.worker.connection.passing import is_denied, is_passing
from tenure.sdk.worker.connection.task_race import run_together
from tenure.v1 import session_service_pb2 as pb
from tenure.v1 import task_pb2

log = logging.getLogger("tenure.worker")

Wire = Stream[pb.ClientFrame, pb.ServerFrame]

_STARTED: Final = pb.REPORT_KIND_STARTED
_FINISHED: Final = pb.REPORT_KIND_FINISHED
WELCOME_S: Final = 5.0
GOODBYE_S: Final = 5.0
# How often it is checked whether this thread gets any time.
GUARD_S: Final = 1.0


class _KeyReplaced(Exception):
    """There is a new API key, and the session was opened with the old one."""


class SessionMode:
    """Keeps a session open for one incarnation, until it is drained or over."""

    def __init__(self, incarnation: Incarnation, outage: Outage) -> None:
        self._me = incarnation
        self._outage = outage
        self._session_no = 0
        self._said_goodbye = False
        self._window = 0
        self._key_number = 0
        self._unbound: list[task_pb2.TaskRef] = []

    async def serve(self) -> None:
        """Return when a drain is done; ``WorkerInactive`` says that the incarnation is over."""
        me = self._me
        while True:
            try:
                await self._stream()
            except _KeyReplaced:
                continue
            except WorkerInactive as over:
                await self._register_again(over)
            except TenureError as error:
                me.is_connected = False
                await asyncio.sleep(self._outage.pause_s(error))
            else:
                return
            finally:
                me.is_connected = False

    async def _register_again(self, over: WorkerInactive) -> None:
        """Register with a new API key, unless the incarnation is over."""
        try:
            await self._me.register_again(over)
        except WorkerInactive:
            raise
        except TenureError as error:
            await asyncio.sleep(self._outage.pause_s(error))

    async def _stream(self) -> None:
        self._key_number = self._me.channel.api_key.look()
        stream = self._me.channel.stream(method.OPEN_SESSION)
        try:
            await self._greet(stream)
            self._me.is_connected = True
            self._outage.over()
            await run_together(
                lambda: self._read(stream), lambda: self._write(stream), lambda: self._guard(stream)
            )
        finally:
            stream.cancel()

    async def _greet(self, stream: Wire) -> None:
        me = self._me
        self._session_no += 1
        self._said_goodbye = False
        self._window = me.window
        hello = pb.Hello(
            namespace_id=me.setup.namespace,
            worker_id=me.worker_id,
            session_no=self._session_no,
            window=self._window,
            held=me.held_attempts.held_refs(),
            wants_tokens=me.setup.wants_tokens,
        )
        try:
            async with asyncio.timeout(WELCOME_S):
                await stream.write(pb.ClientFrame(hello=hello))
                frame = await stream.read()
        except TimeoutError:
            raise await self._give_up(stream, "did not welcome the worker") from None
        if frame is None:
            raise closed(stream.target)
        if frame.HasField("welcome"):
            welcome = frame.welcome
            me.heartbeat.resume(welcome.token, interval_ms=welcome.heartbeat_interval_ms)
            me.holds_exclusive = welcome.holds_exclusive
            me.held_attempts.send_again()
            me.session_opened()
            me.held_attempts.put_unbound(self._unbound)
            me.stop(welcome.stop)
            me.cancel((each.task_id, each.attempt) for each in welcome.cancel)
            if not me.holds_exclusive:
                me.start_asked()
        self._obey(frame)

    async def _give_up(self, stream: Wire, what: str) -> TenureError:
        """Close the stream to a server that does not answer."""
        await stream.give_up()
        message = f"The server at {stream.target} {what} in time."
        return Unavailable(message, reason=refusal.BROKEN)

    # -- Down

    async def _read(self, stream: Wire) -> None:
        while True:
            frame = await stream.read()
            if frame is None:
                if self._said_goodbye:
                    return
                raise closed(stream.target)
            self._obey(frame)

    def _obey(self, frame: pb.ServerFrame) -> None:
        me = self._me
        if frame.HasField("drain"):
            me.begin_drain(frame.drain.deadline_in_ms / 1_000)
        self._take_answers(frame)
        if frame.tasks:
            me.deliver(frame.tasks)
        if frame.cancel:
            me.cancel((each.task_id, each.attempt) for each in frame.cancel)
        if frame.stop:
            me.stop(frame.stop)
        if frame.HasField("lease"):
            self._take_lease(frame.lease)
        if frame.HasField("end"):
            raise refusal.from_detail(frame.end.error)

    def _take_answers(self, frame: pb.ServerFrame) -> None:
        if frame.step_acks or frame.pages or frame.child_acks:
            self._me.take_entries(frame.step_acks, frame.pages, frame.child_acks)
        if frame.acks:
            self._take_acks(frame)

    def _take_acks(self, frame: pb.ServerFrame) -> None:
        me = self._me
        acknowledge = me.held_attempts.acknowledge
        succeeded = task_pb2.TASK_STATE_SUCCEEDED
        # There is something to send only after a refusal, or after the last answer of a drain.
        has_news = me.is_draining
        for ack in frame.acks:
            ref = (ack.task_id, ack.attempt)
            if ack.HasField("error"):
                has_news = True
                answer = me.answered if ack.kind == _FINISHED else me.refused
                answer(ref, ack.error)
            elif ack.kind == _FINISHED and ack.state == succeeded:
                acknowledge(ref)
            elif ack.kind == _FINISHED:
                me.answered(ref, None, ack.state)
            elif ack.kind == _STARTED:
                me.accepted(ref, is_exclusive=True)
            else:
                me.held_attempts.exclusives.beat_accepted(ref)
        if has_news:
            me.changed.notify()

    def _take_lease(self, grant: pb.LeaseGrant) -> None:
        me = self._me
        if not grant.HasField("error"):
            me.heartbeat.accepted(
                grant.token,
                lease_ms=grant.lease_duration_ms,
                interval_ms=grant.heartbeat_interval_ms,
            )
            self._unbound = []
            me.held_attempts.settle_beats()
            me.renewed()
        elif grant.error.code == "token_mismatch":
            me.heartbeat.mismatched(grant.error.current_token)
        else:
            error = refusal.from_detail(grant.error)
            if not is_passing(error):
                raise error
            me.heartbeat.unanswered()
        me.changed.notify()

    # -- Up

    async def _write(self, stream: Wire) -> None:
        me = self._me
        while not me.is_drained:
            frame = self._next_frame()
            if frame is not None:
                await stream.write(frame)
            else:
                await me.wait_for_news(me.heartbeat.due_in_s())
        # Not final: tasks that the server has already written are read and handed back before the
        # worker deregisters, so that none counts as lost.
        self._said_goodbye = True
        await stream.write(pb.ClientFrame(goodbye=pb.Goodbye()))
        await stream.done_writing()
        await asyncio.sleep(GOODBYE_S)
        raise await self._give_up(stream, "did not end the session")

    async def _guard(self, stream: Wire) -> None:
        """Leave a server that does not answer or does not read; switch to a new API key."""
        heartbeat = self._me.heartbeat
        while left_s := heartbeat.overdue_in_s():
            pause_s, began_s = min(left_s, GUARD_S), heartbeat.clock()
            await asyncio.sleep(pause_s)
            heartbeat.starved(heartbeat.clock() - began_s - pause_s)
            if self._me.channel.api_key.look() != self._key_number:
                await self._follow_key()
        heartbeat.unanswered()
        raise await self._give_up(stream, "did not answer a heartbeat")

    async def _follow_key(self) -> None:
        """Reopen the session with a new API key, before the old one is revoked."""
        number = self._me.channel.api_key.look()
        try:
            await self._me.register_again()
        except TenureError as error:
            if is_denied(error):
                self._key_number = number
                log.warning(
                    "The new API key was refused, so the session keeps the old one: %s",
                    error.message,
                )
            elif not is_passing(error):
                raise
            return
        raise _KeyReplaced

    def _next_frame(self) -> pb.ClientFrame | None:
        """Return one frame with everything to send now."""
        me = self._me
        reports = me.held_attempts.take(me.clock())
        beat = self._beat() if me.heartbeat.is_due else None
        window = me.window
        if reports is None and beat is None and window == self._window:
            return None
        if reports is None:
            frame = pb.ClientFrame(beat=beat)
        else:
            frame = pb.ClientFrame(
                started=reports.started,
                task_beats=reports.beats,
                finished=reports.finished,
                beat=beat,
                steps=reports.runs.steps,
                spawns=reports.runs.spawns,
                child_cancels=reports.runs.child_cancels,
                journal=reports.runs.requests,
            )
        if window != self._window:
            frame.window = self._window = window
        return frame

    def _beat(self) -> pb.WorkerBeat:
        me = self._me
        me.heartbeat.send()
        me.held_attempts.pass_beats()
        self._unbound += me.held_attempts.take_unbound()
        held = pb.HeldSet(items=me.held_attempts.held_refs()) if me.heartbeat.is_full else None
        return pb.WorkerBeat(
            token=me.heartbeat.token,
            total_completed=me.held_attempts.completed_total,
            total_failed=me.held_attempts.failed_total,
            active_count=me.active_count,
            loop_lag_ms=me.health_state.take_lag_ms(),
            stuck_count=me.health_state.stuck_count,
            is_full=me.is_full,
            unbound=self._unbound,
            held=held,
        )


def closed(target: str) -> Unavailable:
    """Return the error for a stream that the server has closed without a reason."""
    return Unavailable(f"The server at {target} has closed the session.", reason="closed")
