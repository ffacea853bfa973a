"""Waiting for finished tasks: those of this server, of another one, and those long finished."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tenure.core.task.record import NewTask, Task, TaskState
from tenure.engine.engine import Engine
from tenure.engine.replica.result_watch import Result
from tenure.engine.task import command as c
from tenure.errors import InvalidArgument, Rejection, Unavailable
from tenure.store.failure import Conflict, Lost
from tenure.store.sqlite import SqliteStore
from tests.bounds import WAIT_S
from tests.engine.test_running import Clock as LoopClock
from tests.engine.world import (
    DEFAULT_NAMESPACE,
    NAMESPACE,
    OTHER_NAMESPACE,
    QUEUE,
    SPEC,
    Faults,
    World,
)
from tests.polling import eventually
from tests.sim.loop import SimulatedLoop, run


class Results:
    """A listener that keeps what it was told."""

    def __init__(self) -> None:
        self.found: list[Result] = []
        self._more = asyncio.Event()

    def __call__(self, result: Result) -> None:
        self.found.append(result)
        self._more.set()

    async def wait(self, count: int = 1) -> list[Result]:
        async with asyncio.timeout(WAIT_S):
            while len(self.found) < count:
                self._more.clear()
                await self._more.wait()
        return self.found


async def finished(world: World, engine: Engine, *, output: bytes = b"done") -> str:
    """Enqueue a task, let it be done at once, and return its id."""
    (task_id,) = await world.add(engine)
    await finish(world, engine, output=output)
    return task_id


async def finish(world: World, engine: Engine, *, output: bytes = b"done") -> None:
    """Let a new worker do the first task that waits."""
    worker = await world.worker(engine)
    (task,) = await world.poll(engine, worker)
    await world.finish(engine, worker, task, output=output)


async def test_a_task_that_this_server_has_handed_out_is_waited_for_without_a_read(
    world: World,
) -> None:
    faults, results = Faults(), Results()
    engine = await world.start(faults=faults)
    (task_id,) = await world.add(engine)
    worker = await world.worker(engine)
    (task,) = await world.poll(engine, worker)

    engine.results.watch((NAMESPACE, task_id), results)
    await world.finish(engine, worker, task, output=b"done")

    (found,) = await results.wait()
    assert isinstance(found, Task)
    assert found.output == b"done"
    assert "find_tasks" not in faults.points


async def test_a_task_that_this_server_finishes_is_known_before_its_answer(
    world: World, engine: Engine
) -> None:
    results = Results()
    (task_id,) = await world.add(engine)
    engine.results.watch((NAMESPACE, task_id), results)
    await finish(world, engine)
    (task,) = results.found
    assert isinstance(task, Task)
    assert (task.state, task.output) == (TaskState.SUCCEEDED, b"done")
    assert task == await world.task(task_id)
    assert len(engine.results) == 0


async def test_a_task_that_is_finished_already_is_found_in_history(
    world: World, engine: Engine
) -> None:
    task_id = await finished(world, engine)
    results = Results()
    engine.results.watch((NAMESPACE, task_id), results)
    assert results.found == []
    (task,) = await results.wait()
    assert task == await world.task(task_id)


async def test_an_unknown_task_is_not_found(world: World, engine: Engine) -> None:
    results = Results()
    task_id = world.clock.new_id()
    engine.results.watch((NAMESPACE, task_id), results)
    (result,) = await results.wait()
    assert isinstance(result, Rejection)
    assert result.code == "not_found"
    assert task_id in result.message


async def test_a_task_of_another_namespace_is_not_found(world: World, engine: Engine) -> None:
    task_id = await finished(world, engine)
    results = Results()
    engine.results.watch((OTHER_NAMESPACE, task_id), results)
    (result,) = await results.wait()
    assert isinstance(result, Rejection)


async def test_everybody_who_waits_for_a_task_is_told_once(world: World, engine: Engine) -> None:
    (task_id,) = await world.add(engine)
    listeners = [Results() for _ in range(3)]
    for each in (*listeners, listeners[0]):
        engine.results.watch((NAMESPACE, task_id), each)
    engine.results.unwatch((NAMESPACE, task_id), listeners[2])
    engine.results.unwatch((NAMESPACE, task_id), Results())
    await finish(world, engine)
    await asyncio.gather(*(each.wait() for each in listeners[:2]))
    assert [len(each.found) for each in listeners] == [1, 1, 0]


async def test_whoever_stops_waiting_is_not_told(world: World, engine: Engine) -> None:
    task_id = await finished(world, engine)
    gone, there = Results(), Results()
    engine.results.watch((NAMESPACE, task_id), gone)
    engine.results.unwatch((NAMESPACE, task_id), gone)
    engine.results.unwatch((NAMESPACE, task_id), gone)
    assert len(engine.results) == 0
    engine.results.watch((NAMESPACE, task_id), there)
    await there.wait()
    assert gone.found == []


async def test_the_mistake_of_one_listener_is_not_the_others(world: World, engine: Engine) -> None:
    def fail(_: Result) -> None:
        raise ValueError

    results = Results()
    (task_id,) = await world.add(engine)
    engine.results.watch((NAMESPACE, task_id), fail)
    engine.results.watch((NAMESPACE, task_id), results)
    await finish(world, engine)
    await results.wait()
    assert await world.state(task_id) is TaskState.SUCCEEDED


async def test_what_another_server_finishes_is_told_here(world: World) -> None:
    first, second = await world.start(), await world.start(fallback_poll_ms=1_000, news_poll_ms=500)
    results = Results()
    task_ids = await world.add(first, 3)
    for task_id in task_ids:
        second.results.watch((NAMESPACE, task_id), results)
    # What is finished before the first server knows that somebody waits is found all the same.
    await finish(world, first)
    await results.wait(1)
    await finish(world, first)
    await results.wait(2)
    await finish(world, first)
    await results.wait(3)
    found = [each.id for each in results.found if isinstance(each, Task)]
    assert sorted(found) == sorted(task_ids)


@pytest.mark.parametrize("dialect", ["postgres"])
async def test_a_hint_is_enough(world: World) -> None:
    faults = Faults()
    first, second = await world.start(), await world.start(faults=faults)
    results = Results()
    (waiting,) = await world.add(first, queue="unserved")
    second.results.watch((NAMESPACE, waiting), results)
    # After the second read it looks at nothing that it was not told of.
    await eventually(lambda: faults.points.count("find_tasks") > 1)
    async with asyncio.timeout(WAIT_S):
        while not results.found:
            (task_id,) = await world.add(first)
            reads = faults.points.count("find_tasks")
            second.results.watch((NAMESPACE, task_id), results)
            await eventually(lambda reads=reads: faults.points.count("find_tasks") > reads)  # type: ignore[misc]  # bound early
            await finish(world, first)
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("dialect", ["postgres"])
async def test_without_listening_results_of_others_are_looked_for(world: World) -> None:
    first = await world.start(pooled=True)
    second = await world.start(pooled=True, news_poll_ms=20)
    results = Results()
    (task_id,) = await world.add(first)
    second.results.watch((NAMESPACE, task_id), results)
    await finish(world, first)
    (task,) = await results.wait()
    assert isinstance(task, Task)
    assert task.id == task_id


@pytest.mark.parametrize("dialect", ["postgres"])
async def test_a_server_tells_of_results_only_while_another_one_waits(world: World) -> None:
    first, second = await world.start(), await world.start()
    heard: list[str] = []
    second.store.listen(lambda payload: heard.extend(payload.splitlines()))
    await finished(world, first)
    # What is told later comes later, so that silence can be heard.
    await world.add(first, queue="unserved")
    await eventually(lambda: f"queue {NAMESPACE} unserved" in heard)
    assert not [line for line in heard if line.startswith("result")]
    await second.store.notify("want results")
    told: set[str] = set()
    async with asyncio.timeout(WAIT_S):
        while not told & set(heard):
            told.add(f"result {NAMESPACE} {await finished(world, first)}")
            await asyncio.sleep(0.01)


async def test_a_lost_connection_loses_nobody_who_waits(world: World) -> None:
    faults = Faults()
    engine = await world.start(faults=faults)
    task_id = await finished(world, engine)
    lost = Lost("gone", reason="connection_lost")
    faults.raise_at("find_tasks", lost, Conflict("again"), ValueError("a mistake of ours"))
    faults.raise_at("load_history", lost)
    results, unknown = Results(), Results()
    engine.results.watch((NAMESPACE, task_id), results)
    engine.results.watch((NAMESPACE, world.clock.new_id()), unknown)
    await asyncio.gather(results.wait(), unknown.wait())
    assert isinstance(results.found[0], Task)
    assert isinstance(unknown.found[0], Rejection)
    assert len(results.found) == len(unknown.found) == 1


async def test_ten_thousand_tasks_can_be_waited_for(world: World, engine: Engine) -> None:
    task_ids = await world.add(engine, 1_000)
    live, done, unknown = Results(), Results(), Results()
    for task_id in task_ids[:200]:
        await engine.submit(c.CancelTask(namespace=NAMESPACE, task_id=task_id))
    for number, task_id in enumerate(task_ids):
        engine.results.watch((NAMESPACE, task_id), done if number < 200 else live)
    for _ in range(9_000):
        engine.results.watch((NAMESPACE, world.clock.new_id()), unknown)
    await asyncio.gather(done.wait(200), unknown.wait(9_000))
    assert len(engine.results) == 800
    for task_id in task_ids[200:]:
        await engine.submit(c.CancelTask(namespace=NAMESPACE, task_id=task_id))
    await live.wait(800)
    assert len(engine.results) == 0
    assert all(isinstance(each, Task) for each in (*done.found, *live.found))


@pytest.mark.parametrize(
    "key",
    [
        (NAMESPACE, "no id"),
        (NAMESPACE, "019B0000-0000-7000-8000-000000000001"),
        ("acme", "019b0000-0000-7000-8000-000000000001"),
        ("a b/c", "019b0000-0000-7000-8000-000000000001"),
    ],
)
async def test_what_is_no_id_is_refused(engine: Engine, key: tuple[str, str]) -> None:
    with pytest.raises(InvalidArgument):
        engine.results.watch(key, Results())
    assert len(engine.results) == 0


async def test_nobody_can_wait_at_a_server_that_has_stopped(world: World) -> None:
    engine = await world.start()
    results = Results()
    (task_id,) = await world.add(engine)
    engine.results.watch((NAMESPACE, task_id), results)
    await world.stop(engine)
    assert results.found == []
    assert len(engine.results) == 0
    with pytest.raises(Unavailable):
        engine.results.watch((NAMESPACE, task_id), results)


def _reads(path: str) -> int:
    """Count how often a server reads in a minute, for one who waits for a task in vain."""
    faults = Faults()
    loop = SimulatedLoop()

    async def main() -> int:
        clock = LoopClock(loop)
        store = SqliteStore(path, clock=clock.now_ms, inline=True, probe=faults)
        async with Engine(store, clock=clock, services=()) as engine:
            new = NewTask(id=clock.new_id(), type="mail", queue=QUEUE, spec=SPEC)
            await engine.submit(c.EnqueueTasks(namespace=DEFAULT_NAMESPACE, tasks=(new,)))
            results = Results()
            engine.results.watch((DEFAULT_NAMESPACE, new.id), results)
            await asyncio.sleep(60)
            assert results.found == []
        return faults.points.count("find_tasks")

    return run(main, loop=loop)


def test_results_of_finished_tasks_come_one_after_the_other_without_a_pause(tmp_path: Path) -> None:
    loop = SimulatedLoop()

    async def main() -> float:
        clock = LoopClock(loop)
        store = SqliteStore(str(tmp_path / "tenure.db"), clock=clock.now_ms, inline=True)
        async with Engine(store, clock=clock, services=()) as engine:
            began_s = loop.time()
            for _ in range(20):
                results = Results()
                engine.results.watch((DEFAULT_NAMESPACE, clock.new_id()), results)
                await results.wait()
            return loop.time() - began_s

    assert run(main, loop=loop) == 0


def test_a_server_that_is_alone_reads_each_id_once(tmp_path: Path) -> None:
    assert _reads(str(tmp_path / "tenure.db")) == 1


def test_a_server_that_may_have_others_beside_it_looks_twice_a_second() -> None:
    assert 100 < _reads("file:/result-watch?vfs=memdb") <= 122
