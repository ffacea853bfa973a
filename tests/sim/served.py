"""Served workers: processes that are called, and the way of a call to them and back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tenure.core.seat.kill import KillReason
from tenure.core.seat.record import Seat
from tenure.engine.command import TaskRef
from tenure.engine.seat.call import Call, CallAnswer, CallFailed
from tenure.engine.task.command import FinishTasks, HeartbeatTasks, ItemAnswer, Reported, TaskBeat
from tenure.engine.worker.command import RegisterWorker, Registration
from tenure.errors import TenureError, WorkerInactive
from tests.sim.network import NoAnswer
from tests.sim.worker import Held, WorkerProcess

if TYPE_CHECKING:
    from tests.sim.server import Server
    from tests.sim.world import World

AGAIN_MS = 300


class ServedProcess(WorkerProcess):
    """A process that registers once and is called from then on."""

    _sent: dict[int, float]

    async def _live(self) -> None:
        self._sent = {}
        self._beaten: dict[int, list[tuple[Held, float]]] = {}
        self._beats: dict[TaskRef, TaskBeat] = {}
        self._confirmed: set[TaskRef] = set()
        self._highest = (0, 0)
        self._last: CallAnswer | None = None
        while not self.is_over:
            await self._register()
            self._world.listening[self.new.address] = self
            self._ended.clear()
            self._parts = [self._world.spawn(self._keep_clock())]
            await self._ended.wait()
            self._stop_parts()
        if self._world.listening.get(self.new.address) is self:
            del self._world.listening[self.new.address]

    async def _keep_clock(self) -> None:
        """Register again with the same key while the own clock is over."""
        while True:
            await self.sleep(AGAIN_MS)
            if self.is_fenced:
                await self._register_again()

    async def _register_again(self) -> None:
        worker_id = self.worker_id
        command = RegisterWorker(namespace=self.namespace, new=self.new)
        try:
            answer: Registration = await self.call(command)
        except WorkerInactive as error:
            if self.worker_id == worker_id:
                self.inactive(str(error.fields["reason"]))
        except (NoAnswer, TenureError):
            self._server = self._pick_server()
        else:
            if self.worker_id == worker_id != answer.worker.id:
                self.inactive("replaced")

    def inactive(self, reason: str) -> None:
        """Forget everything: no answer can tell it any more."""
        for held in self.held.values():
            held.is_over = True
            held.put_aside()
        self.held, self.outbox = {}, {}
        self._highest, self._last, self._sent = (0, 0), None, {}
        self._beats, self._confirmed = {}, set()
        super().inactive(reason)

    # -- A call

    def serve(self, call: Call) -> CallAnswer:
        """Take what a call brings, and answer with everything that is here."""
        if call.worker_id != self.worker_id or self.is_over:
            raise CallFailed("worker_inactive")
        pair = (call.session_no, call.call_no)
        if pair == self._highest and self._last is not None:
            return self._last
        if pair < self._highest:
            raise CallFailed("wrong_state")
        self._heard(call)
        if call.end is not None:
            self.inactive(call.end.value)
            return CallAnswer(worker_id=call.worker_id, call_no=call.call_no)
        self._take_acks(call)
        self._take_kills(call)
        for task in call.tasks:
            self._world.check(self._world.served.carried_is_held(self), task)
            self._take(task)
        if call.drain_in_ms is not None:
            self.drain()
        self._start_waiting()
        self._last = self._answer(call)
        return self._last

    def _heard(self, call: Call) -> None:
        if call.session_no != self._highest[0]:
            self._sent, self._beaten = {}, {}
        self._highest = (call.session_no, call.call_no)
        sent_at_ms = self.extended_from_ms(call)
        if sent_at_ms is not None:
            lease_ms = call.lease_ms
            self.heartbeat_state.extend(sent_at_ms, lease_ms)
        for call_no in [each for each in self._beaten if each <= call.answered_no]:
            for held, at_ms in self._beaten.pop(call_no):
                held.heard_at_ms = max(held.heard_at_ms, at_ms)

    def extended_from_ms(self, call: Call) -> float | None:
        """Return when the answer was sent that this call acknowledges."""
        return self._sent.get(call.answered_no)

    def _take_acks(self, call: Call) -> None:
        for ack in call.acks:
            held = self.held.get(ack.ref)
            if ack.is_finish:
                self._take_finish_ack(ack.ref, ack.answer)
            elif held is None or not self._is_current(held):
                continue
            elif not isinstance(ack.answer, Reported):
                self._drop(ack.ref)
            elif not held.is_started and self._world.now_ms < self._stops_at_ms(held):
                self._start(held)
                self._world.exclusive.begun(self, held)
                self._world.spawn(self._guard(held))

    def _take_finish_ack(self, ref: TaskRef, answer: Any) -> None:
        if ref not in self.outbox:
            return
        owner, finish = self.outbox.pop(ref)
        self._drop(ref)
        command = FinishTasks(namespace=self.namespace, worker_id=owner, items=(finish,))
        told: tuple[ItemAnswer, ...] = (answer,)
        if not isinstance(answer, Exception):
            self._world.request_log.answered(command, told)

    def _take_kills(self, call: Call) -> None:
        for kill in call.kills:
            ref = TaskRef(kill.task_id, kill.attempt)
            self._world.served.killed(self, kill)
            if kill.reason is KillReason.CANCEL:
                self._cancel(ref)
            else:
                self.outbox.pop(ref, None)
                if ref in self.held:
                    self.held[ref].is_over = True
                    self._drop(ref)

    def _answer(self, call: Call) -> CallAnswer:
        now_ms = self._world.now_ms
        self._sent[call.call_no] = now_ms
        waiting = [
            held.ref
            for held in self.held.values()
            if held.is_exclusive and not held.is_started and not held.is_over
        ]
        for ref in waiting:
            held = self.held[ref]
            if not held.asked_at_ms:
                held.asked_at_ms = held.heard_at_ms = now_ms
        beats, self._beats = self._beats, {}
        # What is asked for again counts from the answer that a later call acknowledges.
        told = [ref for ref in (*beats, *waiting) if ref in self.held]
        self._beaten[call.call_no] = [(self.held[ref], now_ms) for ref in told]
        return CallAnswer(
            worker_id=call.worker_id,
            call_no=call.call_no,
            running=tuple(ref for ref, held in self.held.items() if not held.is_over),
            exclusive=frozenset(waiting),
            finished=tuple(finish for _, finish in self.outbox.values()),
            beats=tuple(beats.values()),
            total_completed=self.heartbeat_state.completed,
            total_failed=self.heartbeat_state.failed,
            active_count=len(self.held),
            window=self.new.slots,
        )

    # -- Work

    def _begin(self, held: Held) -> None:
        if not held.is_exclusive:
            self._start(held)

    def _beat_task(self, held: Held) -> None:
        if self._is_current(held) and self.worker_id is not None:
            ref = held.ref
            self._beats[ref] = TaskBeat(task_id=ref.task_id, attempt=ref.attempt, details=b"d")
            self.soon(held.task.spec.heartbeat_timeout_ms / 3, self._beat_task, held)

    def _end_run(self, held: Held) -> None:
        if held.is_exclusive and self._world.served.is_mute(self):
            # It takes long, just when nobody hears of it.
            self.soon(200, self._end_run, held)
        else:
            super()._end_run(held)

    async def _report(self) -> None:
        """A served worker reports with its answers."""


class SimulatedCaller:
    """The way of a server's calls to served workers."""

    def __init__(self, world: World, server: Server) -> None:
        self._world = world
        self._server = server
        self._random = world.random(f"caller {server.number}.{server.life}")

    async def call(self, seat: Seat, call: Call) -> CallAnswer:
        """Carry a call there and its answer back; both may be lost, late or doubled."""
        world = self._world
        await self._server.wait_if_stopped()
        reply: asyncio.Future[CallAnswer] = world.loop.create_future()
        try:
            if not self._happens(world.faults.request_lost):
                for copy in range(1 + self._happens(world.faults.duplicated)):
                    delay_s = world.network.delay_ms() / 1000
                    given = reply if copy == 0 else None
                    world.loop.call_later(delay_s, self._arrive, seat, call, given)
            answer = await reply
        except BaseException:
            world.served.failed(call)
            raise
        await self._server.wait_if_stopped()
        self._log(call, answer)
        return answer

    async def forget(self, worker_id: str) -> None:
        """There is no connection to close."""

    def _happens(self, share: float) -> bool:
        return self._random.random() < share and not self._world.is_healed

    def _arrive(self, seat: Seat, call: Call, reply: asyncio.Future[CallAnswer] | None) -> None:
        process = self._world.listening.get(seat.address)
        if process is None:
            self._send_back(None, reply, CallFailed("nobody listens"))
        elif not self._world.network.cut_ms(process.name, self._server):
            process.do(lambda: self._serve(process, call, reply))

    def _serve(
        self, process: ServedProcess, call: Call, reply: asyncio.Future[CallAnswer] | None
    ) -> None:
        answer: CallAnswer | CallFailed
        try:
            answer = process.serve(call)
        except CallFailed as failed:
            answer = failed
        if not self._happens(self._world.faults.reply_lost):
            self._send_back(process, reply, answer)

    def _send_back(
        self,
        process: ServedProcess | None,
        reply: asyncio.Future[CallAnswer] | None,
        answer: CallAnswer | CallFailed,
    ) -> None:
        world = self._world
        if reply is None:
            return
        if process is not None and (
            world.served.is_mute(process) or world.network.cut_ms(process.name, self._server)
        ):
            return
        world.loop.call_later(world.network.delay_ms() / 1000, _resolve, reply, answer)

    def _log(self, call: Call, answer: CallAnswer) -> None:
        """Note what a server knows from now on."""
        log, namespace, worker_id = self._world.request_log, call.namespace, call.worker_id
        log.called(namespace, worker_id, answer.running)
        if answer.beats:
            beats = HeartbeatTasks(namespace=namespace, worker_id=worker_id, items=answer.beats)
            log.arrived(beats)
        if answer.finished:
            ends = FinishTasks(namespace=namespace, worker_id=worker_id, items=answer.finished)
            log.arrived(ends)
        self._world.served.answered(call, answer)


def _resolve(reply: asyncio.Future[CallAnswer], answer: CallAnswer | CallFailed) -> None:
    if reply.done():
        return
    if isinstance(answer, Exception):
        reply.set_exception(answer)
    else:
        reply.set_result(answer)
