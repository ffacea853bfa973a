"""A whole engine with its services on simulated time: nothing is driven by hand."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

from tenure.core.task.record import NewTask, Spec, Task, TaskState
from tenure.core.worker.lease import Beat
from tenure.core.worker.record import NewWorker, WorkerMode, WorkerStatus
from tenure.engine.access.command import CreateNamespace
from tenure.engine.command import TaskRef
from tenure.engine.engine import Engine
from tenure.engine.read import query
from tenure.engine.settings import Settings
from tenure.engine.task.command import (
    ClaimTasks,
    ConfirmTasks,
    EnqueueTasks,
    Finish,
    FinishKind,
    FinishTasks,
)
from tenure.engine.worker.command import Heartbeat, OpenSession, RegisterWorker
from tenure.store.sqlite import SqliteStore
from tests.engine.world import FAULT, NAMESPACE, QUEUE, Sink
from tests.sim.clock import LoopClock
from tests.sim.loop import SimulatedLoop, run

_names = itertools.count(1)
SPEC = Spec(start_to_close_ms=60_000)


class Clock(LoopClock):
    """The clock of the loop, and ids."""

    def __init__(self, loop: SimulatedLoop) -> None:
        super().__init__(loop)
        self._numbers = itertools.count(1)

    def new_id(self) -> str:
        at = f"{self.now_ms():012x}"
        return f"{at[:8]}-{at[8:]}-7000-8000-{next(self._numbers):012x}"

    def jitter(self) -> float:
        return 0.5

    def random_bytes(self, count: int) -> bytes:
        return bytes(count)


class Scene:
    """One engine that runs by itself."""

    def __init__(self, clock: Clock, engine: Engine) -> None:
        self.clock = clock
        self.engine = engine

    async def worker(self, **changes: Any) -> str:
        fields = {"queue": QUEUE, "types": ("mail",), **changes}
        new = NewWorker(instance_key=self.clock.new_id(), **fields)
        answer = await self.engine.submit(RegisterWorker(namespace=NAMESPACE, new=new))
        return answer.worker.id

    async def add(self, **changes: Any) -> str:
        fields = {"type": "mail", "queue": QUEUE, "spec": SPEC, **changes}
        new = NewTask(id=self.clock.new_id(), **fields)
        await self.engine.submit(EnqueueTasks(namespace=NAMESPACE, tasks=(new,)))
        return new.id

    def poll(self, worker: str, **changes: Any) -> asyncio.Future[Any]:
        fields = {"queue": QUEUE, "types": frozenset({"mail"}), **changes}
        return self.engine.submit(ClaimTasks(namespace=NAMESPACE, worker_id=worker, **fields))

    async def task(self, task_id: str) -> Task:
        return await query.get_task(self.engine.store, namespace=NAMESPACE, task_id=task_id)

    async def status(self, worker: str) -> WorkerStatus:
        view = await query.get_worker(self.engine.store, namespace=NAMESPACE, worker_id=worker)
        return view.worker.status

    async def beat(self, worker: str, *, every_s: float, count: int) -> None:
        for number in range(count):
            await asyncio.sleep(every_s)
            beat = Beat(token=number + 1, server_id=self.engine.server_id)
            await self.engine.submit(Heartbeat(namespace=NAMESPACE, worker_id=worker, beat=beat))


def play(scene: Callable[[Scene], Awaitable[None]], **settings: Any) -> None:
    """Run a scene to its end on simulated time."""
    loop = SimulatedLoop()

    async def main() -> None:
        clock = Clock(loop)
        path = f"file:/running-{next(_names)}?vfs=memdb"
        store = SqliteStore(path, clock=clock.now_ms, inline=True)
        async with Engine(store, clock=clock, settings=Settings(**settings)) as engine:
            await engine.submit(CreateNamespace(name=NAMESPACE))
            await scene(Scene(clock, engine))

    run(main, loop=loop)


def test_a_delayed_task_starts_at_its_instant_not_at_the_next_poll() -> None:
    async def scene(scene: Scene) -> None:
        worker = await scene.worker()
        run_at_ms = scene.clock.now_ms() + 4_321
        task_id = await scene.add(run_at_ms=run_at_ms)
        (task,) = await scene.poll(worker)
        assert task.id == task_id
        assert 0 <= scene.clock.now_ms() - run_at_ms <= 2

    play(scene, fallback_poll_ms=60_000)


def test_a_poll_returns_empty_at_its_deadline_and_not_before() -> None:
    async def scene(scene: Scene) -> None:
        worker = await scene.worker(mode=WorkerMode.POLL)
        began_ms = scene.clock.now_ms()
        assert await scene.poll(worker, wait_ms=20_000) == ()
        assert scene.clock.now_ms() - began_ms == 20_000

    play(scene)


def test_a_silent_worker_is_lost_soon_after_its_lease_and_another_gets_its_task() -> None:
    async def scene(scene: Scene) -> None:
        await asyncio.sleep(20)
        lost, other = await scene.worker(), await scene.worker(mode=WorkerMode.POLL)
        task_id = await scene.add()
        (first,) = await scene.poll(lost)
        began_ms = scene.clock.now_ms()
        (again,) = await scene.poll(other)
        assert (first.id, again.id, again.attempt) == (task_id, task_id, 2)
        assert 15_000 <= scene.clock.now_ms() - began_ms <= 17_000
        assert await scene.status(lost) is WorkerStatus.OFFLINE

    play(scene)


def test_a_worker_that_beats_keeps_its_task_for_as_long_as_it_takes() -> None:
    async def scene(scene: Scene) -> None:
        worker = await scene.worker()
        task_id = await scene.add(spec=Spec(start_to_close_ms=3_600_000))
        (task,) = await scene.poll(worker)
        refs = (TaskRef(task.id, 1),)
        await scene.engine.submit(ConfirmTasks(namespace=NAMESPACE, worker_id=worker, items=refs))
        await scene.beat(worker, every_s=5, count=60)
        assert (await scene.task(task_id)).state is TaskState.RUNNING
        assert await scene.status(worker) is WorkerStatus.ONLINE

    play(scene)


def test_a_worker_whose_session_broke_is_lost_within_seconds() -> None:
    async def scene(scene: Scene) -> None:
        await asyncio.sleep(20)
        worker = await scene.worker()
        sink = Sink()
        command = OpenSession(namespace=NAMESPACE, worker_id=worker, held=(), window=1, sink=sink)
        await scene.engine.submit(command)
        task_id = await scene.add()
        await asyncio.sleep(1)
        assert [task.id for task in sink.given] == [task_id]
        scene.engine.lose_session(NAMESPACE, worker, 1)
        await asyncio.sleep(5)
        assert await scene.status(worker) is WorkerStatus.OFFLINE
        assert (await scene.task(task_id)).state is TaskState.PENDING

    play(scene)


def test_timeouts_fire_at_their_instants() -> None:
    async def scene(scene: Scene) -> None:
        worker = await scene.worker(mode=WorkerMode.POLL)
        task_id = await scene.add(spec=Spec(schedule_to_close_ms=7_500))
        await scene.poll(worker)
        await asyncio.sleep(7.4)
        assert (await scene.task(task_id)).state is TaskState.DISPATCHED
        await asyncio.sleep(0.11)
        assert (await scene.task(task_id)).state is TaskState.FAILED

    play(scene)


def test_retries_come_at_their_instants() -> None:
    async def scene(scene: Scene) -> None:
        worker = await scene.worker(mode=WorkerMode.POLL)
        task_id = await scene.add()
        waits = []
        before_ms = scene.clock.now_ms()
        for attempt in range(1, 5):
            (task,) = await scene.poll(worker)
            waits.append(round((scene.clock.now_ms() - before_ms) / 1_000))
            assert (task.id, task.attempt) == (task_id, attempt)
            item = Finish(task_id=task.id, attempt=attempt, kind=FinishKind.FAILED, error=FAULT)
            before_ms = scene.clock.now_ms()
            await scene.engine.submit(
                FinishTasks(namespace=NAMESPACE, worker_id=worker, items=(item,))
            )
        assert waits == [0, 1, 2, 4]

    play(scene)


def test_a_thousand_tasks_flow_through_sessions_to_their_end() -> None:
    async def scene(scene: Scene) -> None:
        engine = scene.engine
        done: set[str] = set()

        class Doer(Sink):
            def __init__(self, worker: str) -> None:
                super().__init__()
                self._worker = worker

            def give(self, tasks: Any) -> None:
                for task in tasks:
                    assert task.id not in done
                    done.add(task.id)
                items = tuple(
                    Finish(task_id=task.id, attempt=1, kind=FinishKind.SUCCEEDED) for task in tasks
                )
                engine.submit(FinishTasks(namespace=NAMESPACE, worker_id=self._worker, items=items))

        for _ in range(4):
            worker = await scene.worker()
            await engine.submit(
                OpenSession(
                    namespace=NAMESPACE, worker_id=worker, held=(), window=7, sink=Doer(worker)
                )
            )
        ids = {await scene.add() for _ in range(1_000)}
        await asyncio.sleep(2)
        assert done == ids
        assert engine.finished_count == 1_000

    play(scene)
