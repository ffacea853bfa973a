"""The poll mode: long polls, heartbeats and reports as calls of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from tenure.errors import TenureError, TokenMismatch, WorkerDraining, WorkerInactive
from tenure.sdk.worker.connection import method
from tenure.sdk.worker.connection.incarnation import Incarnation
from tenure.sdk.worker.connection.outage import Outage
from tenure.sdk.worker.connection.shared_slots import SlotShare
from tenure.sdk.worker.connection.task_race import run_together
from tenure.v1 import workflow_service_pb2 as pb

# Shorter than the idle timeout of common proxies; an answer may take a little longer.
POLL_MS: Final = 20_000
# A worker without a free slot checks again this often.
FULL_S: Final = 1.0


class PollMode:
    """Polls, sends heartbeats and reports for one incarnation, until it is drained or over."""

    def __init__(self, incarnation: Incarnation, outage: Outage) -> None:
        self._me = incarnation
        self._outage = outage

    async def serve(self) -> None:
        """Return when a drain is done; ``WorkerInactive`` says that the incarnation is over."""
        await run_together(self._work, lambda: self._again(self._beat))

    async def _work(self) -> None:
        """Poll until a drain begins, and report until nothing is left."""
        polling = asyncio.ensure_future(self._poll_until_draining())
        try:
            while not self._me.is_drained or not polling.done():
                if polling.done():
                    polling.result()
                await self._again_once(self._report)
        finally:
            polling.cancel()
            await asyncio.gather(polling, return_exceptions=True)

    async def _again(self, once: Callable[[], Awaitable[None]]) -> None:
        while True:
            await self._again_once(once)

    async def _again_once(self, once: Callable[[], Awaitable[None]]) -> None:
        """Do it once. If no server answers, wait a little."""
        try:
            await once()
        except WorkerInactive:
            raise
        except TenureError as error:
            self._me.is_connected = False
            await asyncio.sleep(self._outage.pause_s(error))

    def _heard(self) -> None:
        self._me.is_connected = True
        self._outage.over()

    # -- Polls

    async def _poll_until_draining(self) -> None:
        me = self._me
        try:
            while not me.is_draining:
                await self._again_once(self._poll)
        finally:
            me.changed.notify()

    async def _poll(self) -> None:
        me, slots = self._me, self._me.slots
        if me.heartbeat.is_fenced:
            await me.room.wait(FULL_S)
        elif slots is None:
            free = me.window - len(me.held_attempts)
            await (self._ask_for_tasks(free) if free > 0 else me.room.wait(FULL_S))
        else:
            await self._poll_with(slots)

    async def _poll_with(self, slots: SlotShare) -> None:
        """Poll with the part of the slots that this queue has now."""
        me = self._me
        free = slots.all.begin_poll(slots.mine, me.clock())
        if not free:
            await me.room.wait(FULL_S)
            return
        count = 0
        try:
            wait_s = slots.all.poll_s(slots.mine, POLL_MS / 1_000)
            count = await self._ask_for_tasks(free, round(wait_s * 1_000))
        finally:
            slots.all.end_poll(slots.mine, me.clock(), is_empty=not count)

    async def _ask_for_tasks(self, free: int, wait_ms: int = POLL_MS) -> int:
        """Wait for tasks and start them; return how many came."""
        me = self._me
        request = pb.PollActivityRequest(
            namespace_id=me.setup.namespace,
            worker_id=me.worker_id,
            task_queue=me.setup.queue,
            supported_workflow_types=me.setup.types,
            max_tasks=free,
            wait=method.duration(wait_ms),
        )
        try:
            timeout_s = wait_ms / 1_000 + method.CALL_S
            answer = await me.ask(method.POLL, request, timeout_s=timeout_s)
        except WorkerDraining:
            me.begin_drain()
            return 0
        self._heard()
        me.deliver(answer.tasks)
        return len(answer.tasks)

    # -- Heartbeats

    async def _beat(self) -> None:
        me, heartbeat = self._me, self._me.heartbeat
        await asyncio.sleep(heartbeat.due_in_s())
        request = self._make_beat()
        try:
            answer = await me.ask(method.HEARTBEAT, request, timeout_s=heartbeat.patience_s)
        except TokenMismatch as error:
            me.held_attempts.put_unbound(request.unbound_activities)
            heartbeat.mismatched(str(error.fields["current_token"]))
            return
        except TenureError:
            me.held_attempts.put_unbound(request.unbound_activities)
            heartbeat.unanswered()
            raise
        heartbeat.accepted(
            answer.token,
            lease_ms=answer.lease_duration.ToMilliseconds(),
            interval_ms=answer.heartbeat_interval_ms,
        )
        self._heard()
        me.stop(answer.stop)
        me.cancel((each.task_id, each.attempt) for each in answer.cancel)
        me.renewed()
        self._me.room.notify()
        if answer.should_drain:
            me.begin_drain()

    def _make_beat(self) -> pb.WorkerHeartbeatRequest:
        me = self._me
        me.heartbeat.send()
        held = me.held_attempts.held_refs() if me.heartbeat.is_full else None
        return pb.WorkerHeartbeatRequest(
            namespace_id=me.setup.namespace,
            worker_id=me.worker_id,
            token=me.heartbeat.token,
            active_count=me.active_count,
            total_completed=me.held_attempts.completed_total,
            total_failed=me.held_attempts.failed_total,
            loop_lag_ms=me.health_state.take_lag_ms(),
            stuck_count=me.health_state.stuck_count,
            is_full=me.is_full,
            unbound_activities=me.held_attempts.take_unbound(),
            held_activities=None if held is None else pb.HeldActivities(items=held),
        )

    # -- Reports

    async def _report(self) -> None:
        """Send the reports, or wait until there are some."""
        me = self._me
        reports = me.held_attempts.take(me.clock())
        if reports is None:
            await me.wait_for_news()
            return
        try:
            await me.report(reports)
        except TenureError:
            me.held_attempts.restart(reports)
            raise
        self._heard()
        me.held_attempts.pass_beats()
        me.held_attempts.settle_beats()
        self._me.room.notify()
