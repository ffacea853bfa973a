"""A served worker in memory, and a caller that reaches such workers without a network."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tenure.core.seat.kill import Kill
from tenure.core.seat.record import Seat
from tenure.core.task.record import Task
from tenure.core.worker.record import WorkerMode
from tenure.engine.command import TaskRef
from tenure.engine.engine import Engine
from tenure.engine.seat.call import Ack, Call, CallAnswer, CallFailed
from tenure.engine.seat.served_driver import ServedDriver
from tenure.engine.services.server_row import ServerTouch
from tenure.engine.task.command import Finish, FinishKind, TaskBeat
from tests.engine.world import World

ADDRESS = "127.0.0.1:7310"


class ServedInMemory:
    """What one served worker has; it answers with it, unless told to fail."""

    def __init__(self, worker_id: str = "") -> None:
        self.worker_id = worker_id
        self.running: dict[TaskRef, Task | None] = {}
        self.exclusive: set[TaskRef] = set()
        self.completed: dict[TaskRef, Finish] = {}
        self.beats: tuple[TaskBeat, ...] = ()
        self.begun: list[TaskRef] = []
        self.calls: list[Call] = []
        self.window = 100
        self.failure: BaseException | None = None
        self.loses_answer = False
        self.change: Callable[[CallAnswer], CallAnswer] = lambda answer: answer
        self.before: Callable[[], Awaitable[None]] | None = None

    @property
    def kills(self) -> list[Kill]:
        return [kill for call in self.calls for kill in call.kills]

    @property
    def acks(self) -> list[Ack]:
        return [ack for call in self.calls for ack in call.acks]

    def finish(self, ref: TaskRef, kind: FinishKind = FinishKind.SUCCEEDED) -> None:
        self.running.pop(ref, None)
        output = b"done" if kind is FinishKind.SUCCEEDED else None
        self.completed[ref] = Finish(
            task_id=ref.task_id, attempt=ref.attempt, kind=kind, output=output
        )

    async def call(self, call: Call) -> CallAnswer:
        if self.before is not None:
            await self.before()
        if self.failure is not None:
            raise self.failure
        self.calls.append(call)
        for ack in call.acks:
            self.completed.pop(ack.ref, None)
            self.exclusive.discard(ack.ref)
        for task in call.tasks:
            ref = TaskRef(task.id, task.attempt)
            if ref not in self.begun:
                self.begun.append(ref)
                self.running[ref] = task
        beats, self.beats = self.beats, ()
        answer = CallAnswer(
            worker_id=self.worker_id,
            call_no=call.call_no,
            running=tuple(self.running),
            exclusive=frozenset(self.exclusive),
            finished=tuple(self.completed.values()),
            beats=beats,
            window=self.window,
        )
        if self.loses_answer:
            raise CallFailed("The answer was lost.")
        return self.change(answer)


class CallerInMemory:
    """Reaches workers by their addresses."""

    def __init__(self) -> None:
        self.listening: dict[str, ServedInMemory] = {}

    async def call(self, seat: Seat, call: Call) -> CallAnswer:
        worker = self.listening.get(seat.address)
        if worker is None:
            raise CallFailed("Nobody listens.")
        if worker.worker_id != call.worker_id:
            raise CallFailed("worker_inactive")
        return await worker.call(call)

    async def forget(self, worker_id: str) -> None:
        pass


class ServedWorld:
    """One engine that drives served workers, with calls that the test makes."""

    def __init__(self, world: World, engine: Engine) -> None:
        self.world = world
        self.engine = engine
        self.caller = CallerInMemory()

    async def open(self) -> None:
        # The loop of a driver waits in real time: no tick comes by itself.
        await self.touch()
        self.engine.seats.open(self.caller)

    async def touch(self) -> None:
        await ServerTouch().run_once(self.engine)

    async def worker(self, *types: str, address: str = ADDRESS, slots: int = 10) -> ServedInMemory:
        made = await self.world.register(
            self.engine, *types, mode=WorkerMode.SERVED, address=address, slots=slots
        )
        worker = ServedInMemory(made.worker.id)
        self.caller.listening[address] = worker
        return worker

    async def round(self, engine: Engine | None = None) -> None:
        await (engine or self.engine).seats.round()
        await asyncio.sleep(0)

    def driver(self, worker: ServedInMemory, engine: Engine | None = None) -> ServedDriver:
        driver = (engine or self.engine).seats.driver_of(worker.worker_id)
        assert isinstance(driver, ServedDriver)
        return driver

    async def call(self, worker: ServedInMemory, engine: Engine | None = None) -> Call | None:
        """Make one call, and return it if it arrived."""
        count = len(worker.calls)
        await self.driver(worker, engine).call()
        await self.world.settle(engine or self.engine)
        return worker.calls[-1] if len(worker.calls) > count else None
