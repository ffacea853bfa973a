"""The session mode of a worker: one stream, opened again wherever a server answers."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

import grpc
import grpc.aio

from tenure.v1 import session_service_pb2 as s
from tenure.v1.session_service_pb2_grpc import SessionServiceStub
from tests.wire.call import NoAnswer, Refused, is_retryable, translate
from tests.wire.incarnation import Incarnation, Over, raise_if_over, run_together
from tests.wire.worker_heartbeat import now_s

WELCOME_SECONDS: Final = 5.0
GOODBYE_SECONDS: Final = 5.0

Stream = Any  # grpc.aio.StreamStreamCall; its stubs lack the methods of an open stream.


class SessionMode:
    """Keeps a session open for one incarnation until that is over."""

    def __init__(self, incarnation: Incarnation) -> None:
        self._me = incarnation
        self._session_no = 0
        self._is_final = False

    async def serve(self) -> str:
        """Return why the incarnation is over."""
        me = self._me
        while True:
            channel = me.link.channel
            try:
                await self._stream(channel)
            except Over as over:
                return over.reason
            except NoAnswer as error:
                me.odd(error)
                me.note("disconnected", str(error))
            except Refused as refused:
                me.odd(refused)
            if self._is_final:
                with contextlib.suppress(Over):
                    # The goodbye may have been lost.
                    await me.deregister(is_drain=False)
                return "deregistered"
            await me.link.move(channel)

    async def _stream(self, channel: grpc.aio.Channel) -> None:
        stream: Stream = SessionServiceStub(channel).Open()
        try:
            await self._greet(stream)
            await run_together(lambda: self._read(stream), lambda: self._write(stream))
        except grpc.aio.AioRpcError as error:
            meant = translate(error)
            if isinstance(meant, Refused):
                raise_if_over(meant)
            raise meant from error
        except asyncio.InvalidStateError:
            # It ended while a frame was being written; the status says how.
            code, text = await stream.code(), await stream.details()
            raise NoAnswer(code, text or "", None) from None
        finally:
            stream.cancel()

    async def _greet(self, stream: Stream) -> None:
        me = self._me
        self._session_no += 1
        hello = s.Hello(
            namespace_id=me.options.namespace,
            worker_id=me.worker_id,
            session_no=self._session_no,
            window=me.options.slots,
            held=me.held_attempts.refs(),
        )
        sent_at_s = now_s()
        try:
            async with asyncio.timeout(WELCOME_SECONDS):
                await stream.write(s.ClientFrame(hello=hello))
                frame = await stream.read()
        except TimeoutError:
            raise NoAnswer(grpc.StatusCode.DEADLINE_EXCEEDED, "no welcome", None) from None
        if frame is grpc.aio.EOF:
            raise NoAnswer(grpc.StatusCode.UNAVAILABLE, "closed before the welcome", None)
        if frame.HasField("welcome"):
            welcome = frame.welcome
            me.heartbeat.begin(
                welcome.token,
                lease_ms=welcome.lease_duration_ms,
                interval_ms=welcome.heartbeat_interval_ms,
                sent_at_s=sent_at_s,
            )
            me.held_attempts.send_again()
            me.note("welcomed", f"{welcome.session_no} {welcome.server_id}")
            me.held_attempts.stop(welcome.stop)
            me.held_attempts.cancel((each.task_id, each.attempt) for each in welcome.cancel)
        self._obey(frame)

    # -- Down ----------------------------------------------------------------------------------

    async def _read(self, stream: Stream) -> None:
        while True:
            frame = await stream.read()
            if frame is grpc.aio.EOF:
                if self._is_final:
                    return
                raise NoAnswer(grpc.StatusCode.UNAVAILABLE, "closed by the server", None)
            self._obey(frame)

    def _obey(self, frame: s.ServerFrame) -> None:
        me = self._me
        if frame.HasField("end"):
            raise Over(frame.end.error.reason or "unknown")
        if frame.HasField("drain"):
            me.drain(frame.drain.deadline_in_ms / 1_000)
        me.held_attempts.take(frame.tasks)
        me.held_attempts.cancel((each.task_id, each.attempt) for each in frame.cancel)
        me.held_attempts.stop(frame.stop)
        for ack in frame.acks:
            self._take_ack(ack)
        if frame.HasField("lease"):
            self._take_lease(frame.lease)

    def _take_ack(self, ack: s.Ack) -> None:
        ref = (ack.task_id, ack.attempt)
        error = ack.error if ack.HasField("error") else None
        if ack.kind == s.REPORT_KIND_FINISHED:
            self._me.held_attempts.finish_answered(ref, error)
        elif error is not None:
            self._me.held_attempts.start_refused(ref, error)

    def _take_lease(self, grant: s.LeaseGrant) -> None:
        heartbeat = self._me.heartbeat
        if not grant.HasField("error"):
            took_s = now_s() - (heartbeat.sent_at_s or now_s())
            heartbeat.accepted(
                grant.token,
                lease_ms=grant.lease_duration_ms,
                interval_ms=grant.heartbeat_interval_ms,
            )
            self._me.note("beat", f"{1_000 * took_s:.1f}")
            self._me.held_attempts.start_waiting()
        elif grant.error.code == "token_mismatch":
            heartbeat.mismatched(grant.error.current_token)
        elif is_retryable(grant.error):
            heartbeat.unanswered()
        else:
            refused = Refused(grant.error)
            raise_if_over(refused)
            raise refused
        self._me.held_attempts.news.set()

    # -- Up ------------------------------------------------------------------------------------

    async def _write(self, stream: Stream) -> None:
        me = self._me
        while not me.is_drained:
            frame = s.ClientFrame(
                started=me.held_attempts.take_confirmations(),
                finished=me.held_attempts.take_finished(),
            )
            self._add_beat(frame)
            if frame.ByteSize():
                await stream.write(frame)
            await me.wait_for_news(self._wake_at_s() - now_s())
        self._is_final = True
        await stream.write(s.ClientFrame(goodbye=s.Goodbye(is_final=True)))
        await stream.done_writing()
        await asyncio.sleep(GOODBYE_SECONDS)

    def _wake_at_s(self) -> float:
        heartbeat = self._me.heartbeat
        if heartbeat.sent_at_s is None:
            return heartbeat.next_at_s
        return heartbeat.sent_at_s + heartbeat.patience_s

    def _add_beat(self, frame: s.ClientFrame) -> None:
        me, heartbeat = self._me, self._me.heartbeat
        now = now_s()
        if heartbeat.sent_at_s is not None:
            if now >= heartbeat.sent_at_s + heartbeat.patience_s:
                heartbeat.sent_at_s = None
                raise NoAnswer(grpc.StatusCode.DEADLINE_EXCEEDED, "no answer to a beat", None)
            return
        if now < heartbeat.next_at_s:
            return
        frame.beat.CopyFrom(
            s.WorkerBeat(
                token=heartbeat.token,
                total_completed=me.held_attempts.completed_count,
                active_count=len(me.held_attempts.held),
                held=s.HeldSet(items=me.held_attempts.refs()) if heartbeat.is_full else None,
            )
        )
        heartbeat.sent_at_s = now
