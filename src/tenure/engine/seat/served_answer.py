"""Applies the answer of a served worker: lease, task beats, completions, then the full set."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tenure.core.limits import SERVED_COMPARED_EVERY
from tenure.core.seat.kill import KillReason
from tenure.core.worker.lease import Beat, Lease
from tenure.engine.command import AnyCommand, Command, TaskRef
from tenure.engine.seat.call import Ack, Call, CallAnswer
from tenure.engine.seat.command import ApplySet, SeatTaken
from tenure.engine.seat.served_content import ServedContent
from tenure.engine.task import command as t
from tenure.engine.worker.command import Heartbeat, Renewed
from tenure.errors import TenureError, TokenMismatch, Unavailable

Item = TypeVar("Item", TaskRef, t.TaskBeat, t.Finish)
Submit = Callable[[AnyCommand], "asyncio.Future[Any]"]


class ServedAnswer:
    """Applies the answers of one worker, in the order of their calls, each to its end."""

    def __init__(self, taken: SeatTaken, content: ServedContent, submit: Submit) -> None:
        """Begin with what was read when the seat was taken."""
        self._taken = taken
        self._content = content
        self._submit = submit
        self._token = taken.lease.token
        self.lease_ms = taken.lease.lease_ms
        self._applied_at_ms = taken.taken_at_ms
        # What the last full set said that was compared with the rows.
        self._compared: frozenset[TaskRef] | None = None
        self._since_compared = 0
        self._signalled: set[TaskRef] = set()
        # The last call whose answer has renewed the lease.
        self.answered_no = 0

    async def apply(self, call: Call, answer: CallAnswer) -> None:
        """Apply an answer. If it fails in between, the next answer brings the same again."""
        lease = await self._renew(answer)
        self.lease_ms = lease.lease_ms
        self.answered_no = call.call_no
        self._content.answered(call)
        if answer.beats:
            await self._each(answer.beats, self._beat)
        if answer.exclusive:
            waiting = tuple(ref for ref in answer.running if ref in answer.exclusive)
            await self._confirm_exclusive(waiting)
        if answer.finished or answer.bad:
            await self._finish(answer)
        await self._compare(call, answer)
        await self._signal(call)

    # -- The lease

    async def _renew(self, answer: CallAnswer) -> Lease:
        """Renew the lease. Another server may have used the token; the present one is told."""
        try:
            return await self._heartbeat(answer)
        except TokenMismatch as stale:
            self._token = int(stale.fields["current_token"])
        return await self._heartbeat(answer)

    async def _heartbeat(self, answer: CallAnswer) -> Lease:
        taken = self._taken
        assert taken.seat.server_id is not None
        beat = Beat(
            token=self._token,
            server_id=taken.seat.server_id,
            total_completed=answer.total_completed,
            total_failed=answer.total_failed,
            active_count=answer.active_count,
            loop_lag_ms=answer.loop_lag_ms,
            stuck_count=answer.stuck_count,
        )
        command = Heartbeat(
            namespace=taken.worker.namespace,
            worker_id=taken.worker.id,
            beat=beat,
            is_full=answer.is_full,
        )
        renewed: Renewed = await self._submit(command)
        self._token = renewed.lease.token
        return renewed.lease

    # -- Reports

    def _beat(self, items: tuple[t.TaskBeat, ...]) -> t.HeartbeatTasks:
        return t.HeartbeatTasks(
            namespace=self._taken.worker.namespace,
            worker_id=self._taken.worker.id,
            items=items,
            is_answered=False,
        )

    def _confirm(self, items: tuple[TaskRef, ...]) -> t.ConfirmTasks:
        return t.ConfirmTasks(
            namespace=self._taken.worker.namespace,
            worker_id=self._taken.worker.id,
            items=items,
            exclusive=frozenset(items),
            is_answered=False,
        )

    def _end(self, items: tuple[t.Finish, ...]) -> t.FinishTasks:
        return t.FinishTasks(
            namespace=self._taken.worker.namespace, worker_id=self._taken.worker.id, items=items
        )

    async def _confirm_exclusive(self, refs: tuple[TaskRef, ...]) -> None:
        answers = await self._each(refs, self._confirm)
        self._content.ack(Ack(ref, answer, is_finish=False) for ref, answer in answers)

    async def _finish(self, answer: CallAnswer) -> None:
        acks = [Ack(ref, refusal, is_finish=True) for ref, refusal in answer.bad]
        if answer.finished:
            for item, said in await self._each(answer.finished, self._end):
                acks.append(Ack(TaskRef(item.task_id, item.attempt), said, is_finish=True))
        self._content.ack(acks)

    async def _each(
        self,
        items: Sequence[Item],
        make: Callable[[tuple[Item, ...]], Command[tuple[t.ItemAnswer, ...]]],
    ) -> list[tuple[Item, t.ItemAnswer | TenureError]]:
        """Submit reports together; if one is refused, each alone, so that each has its answer.

        A store that is away answers nobody: the worker keeps its reports.
        """
        try:
            answers = await self._submit(make(tuple(items)))
            return list(zip(items, answers, strict=True))
        except Unavailable:
            raise
        except TenureError as refusal:
            if len(items) == 1:
                return [(items[0], refusal)]
        found: list[tuple[Item, t.ItemAnswer | TenureError]] = []
        for item in items:
            found += await self._each([item], make)
        return found

    # -- The full set

    async def _compare(self, call: Call, answer: CallAnswer) -> None:
        """Compare the full set, if it says something new; else only once in some calls."""
        running = frozenset(answer.running)
        carried = tuple(TaskRef(each.id, each.attempt) for each in call.tasks)
        self._since_compared += 1
        has_news = carried or answer.finished or answer.bad or self._content.kill_count
        is_same = running == self._compared and not has_news
        if is_same and self._since_compared < SERVED_COMPARED_EVERY:
            return
        said = await self._submit(
            ApplySet(
                namespace=self._taken.worker.namespace,
                worker_id=self._taken.worker.id,
                session_no=call.session_no,
                applied_at_ms=self._applied_at_ms,
                running=answer.running,
                done=answer.done,
                carried=carried,
            )
        )
        self._applied_at_ms = said.applied_at_ms
        self._compared, self._since_compared = running, 0
        self._content.confirmed((*carried, *answer.running, *answer.done))
        self._content.compared(call, said.stop, said.cancel)

    async def _signal(self, call: Call) -> None:
        """Begin the grace of the cancel requests that an answered call has carried."""
        carried = [
            TaskRef(each.task_id, each.attempt)
            for each in call.kills
            if each.reason is KillReason.CANCEL
        ]
        self._signalled.intersection_update(carried)
        new = tuple(ref for ref in carried if ref not in self._signalled)
        if new:
            await self._submit(t.SignalCancels(namespace=self._taken.worker.namespace, items=new))
            self._signalled.update(new)
