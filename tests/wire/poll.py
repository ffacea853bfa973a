"""The poll mode of a worker: long polls, heartbeats and reports as calls of their own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

import grpc.aio
from google.protobuf.duration_pb2 import Duration

from tenure.v1 import task_service_pb2 as t
from tenure.v1 import workflow_service_pb2 as w
from tenure.v1.task_pb2 import TaskFinish, TaskRef
from tenure.v1.task_service_pb2_grpc import TaskServiceStub
from tenure.v1.workflow_service_pb2_grpc import WorkflowServiceStub
from tests.wire.call import CALL_SECONDS, NoAnswer, Refused, ask
from tests.wire.held_attempts import Ref
from tests.wire.incarnation import Incarnation, Over, raise_if_over, run_together
from tests.wire.worker_heartbeat import now_s

FULL_SECONDS: Final = 0.1


class PollMode:
    """Polls, beats and reports for one incarnation until that is over."""

    def __init__(self, incarnation: Incarnation) -> None:
        self._me = incarnation
        self._fresh: set[Ref] = set()

    async def serve(self) -> str:
        """Return why the incarnation is over."""
        me = self._me
        parts = [lambda: self._again(self._poll), lambda: self._again(self._beat), self._report]
        try:
            await run_together(*parts)
            await me.deregister(is_drain=False)
        except Over as over:
            return over.reason
        return "deregistered"

    async def _again(self, once: Callable[[grpc.aio.Channel], Awaitable[None]]) -> None:
        """Repeat one call; when nobody answers, at the next server."""
        me = self._me
        while True:
            channel = me.link.channel
            try:
                await once(channel)
            except NoAnswer as error:
                me.odd(error)
                await me.link.move(channel)
            except Refused as refused:
                raise_if_over(refused)
                me.odd(refused)
                await asyncio.sleep(FULL_SECONDS)

    async def _poll(self, channel: grpc.aio.Channel) -> None:
        me = self._me
        free = me.options.slots - len(me.held_attempts.held)
        if free <= 0 or me.heartbeat.is_fenced or me.held_attempts.is_draining:
            await asyncio.sleep(FULL_SECONDS)
            return
        request = w.PollActivityRequest(
            namespace_id=me.options.namespace,
            worker_id=me.worker_id,
            task_queue=me.options.queue,
            supported_workflow_types=me.options.types,
            max_tasks=free,
            wait=Duration(nanos=0, seconds=int(me.options.poll_s)),
        )
        stub = WorkflowServiceStub(channel)
        try:
            answer = await ask(stub.PollActivity(request, timeout=me.options.poll_s + CALL_SECONDS))
        except Refused as refused:
            if refused.code != "worker_draining":
                raise
            me.drain()
        else:
            me.held_attempts.take(answer.tasks)

    async def _beat(self, channel: grpc.aio.Channel) -> None:
        me, heartbeat = self._me, self._me.heartbeat
        await asyncio.sleep(max(0.0, heartbeat.next_at_s - now_s()))
        fresh = [
            each for each in me.held_attempts.refs() if (each.task_id, each.attempt) in self._fresh
        ]
        request = w.WorkerHeartbeatRequest(
            namespace_id=me.options.namespace,
            worker_id=me.worker_id,
            token=heartbeat.token,
            active_count=len(me.held_attempts.held),
            total_completed=me.held_attempts.completed_count,
            total_failed=0,
            bound_activities=() if heartbeat.is_full else fresh,
            held_activities=w.HeldActivities(items=me.held_attempts.refs())
            if heartbeat.is_full
            else None,
        )
        heartbeat.sent_at_s = now_s()
        try:
            stub = WorkflowServiceStub(channel)
            answer = await ask(stub.WorkerHeartbeat(request, timeout=heartbeat.patience_s))
        except Refused as refused:
            if refused.code != "token_mismatch":
                raise
            heartbeat.mismatched(refused.detail.current_token)
            return
        except NoAnswer:
            heartbeat.unanswered()
            raise
        took_s = now_s() - heartbeat.sent_at_s
        heartbeat.accepted(
            answer.token,
            lease_ms=answer.lease_duration.ToMilliseconds(),
            interval_ms=answer.heartbeat_interval_ms,
        )
        me.note("beat", f"{1_000 * took_s:.1f}")
        self._fresh -= {(each.task_id, each.attempt) for each in fresh}
        me.held_attempts.stop(answer.stop)
        me.held_attempts.cancel((each.task_id, each.attempt) for each in answer.cancel)
        me.held_attempts.start_waiting()
        if answer.should_drain:
            me.drain()

    async def _report(self) -> None:
        """Confirm and finish attempts, until a draining worker holds nothing."""
        me = self._me
        while not me.is_drained:
            channel = me.link.channel
            started, finished = (
                me.held_attempts.take_confirmations(),
                me.held_attempts.take_finished(),
            )
            try:
                if started:
                    await self._start(channel, started)
                if finished:
                    await self._finish(channel, finished)
            except NoAnswer as error:
                me.odd(error)
                for ref in started:
                    me.held_attempts.confirm_again((ref.task_id, ref.attempt))
                me.held_attempts.send_again((each.task_id, each.attempt) for each in finished)
                await me.link.move(channel)
            except Refused as refused:
                raise_if_over(refused)
                me.odd(refused)
                me.held_attempts.send_again((each.task_id, each.attempt) for each in finished)
                await asyncio.sleep(FULL_SECONDS)
            else:
                await me.wait_for_news(1.0)

    async def _start(self, channel: grpc.aio.Channel, items: list[TaskRef]) -> None:
        me = self._me
        request = t.StartTasksRequest(
            namespace_id=me.options.namespace, worker_id=me.worker_id, items=items
        )
        stub = TaskServiceStub(channel)
        answer = await ask(stub.StartTasks(request, timeout=CALL_SECONDS))
        for ref, result in zip(items, answer.results, strict=True):
            key = (ref.task_id, ref.attempt)
            if result.HasField("error"):
                me.held_attempts.start_refused(key, result.error)
            else:
                self._fresh.add(key)
                if result.should_cancel:
                    me.held_attempts.cancel([key])

    async def _finish(self, channel: grpc.aio.Channel, items: list[TaskFinish]) -> None:
        await finish(self._me, channel, items)


async def finish(me: Incarnation, channel: grpc.aio.Channel, items: list[TaskFinish]) -> None:
    """Report ends by a call, and take the answers."""
    request = t.FinishTasksRequest(
        namespace_id=me.options.namespace, worker_id=me.worker_id, items=items
    )
    stub = TaskServiceStub(channel)
    answer = await ask(stub.FinishTasks(request, timeout=CALL_SECONDS))
    for item, result in zip(items, answer.results, strict=True):
        error = result.error if result.HasField("error") else None
        me.held_attempts.finish_answered((item.task_id, item.attempt), error)


async def flush(me: Incarnation, seconds_max: float) -> None:
    """Send the ends that nobody has acknowledged, after the incarnation is over."""
    me.held_attempts.abort()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds_max):
            while me.held_attempts.held:
                me.held_attempts.send_again()
                channel = me.link.channel
                try:
                    await finish(me, channel, me.held_attempts.take_finished())
                except NoAnswer as error:
                    me.odd(error)
                    await me.link.move(channel)
                except Refused as refused:
                    me.note("refused_all", str(refused))
                    return
