"""Lanes: back-pressure before acceptance, batches, and a stop that finishes what was accepted."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tenure.core.task.record import NewTask, TaskState
from tenure.engine.access.command import CreateNamespace
from tenure.engine.clock import SystemClock
from tenure.engine.engine import Engine
from tenure.engine.lane import Entry, Lane
from tenure.engine.read import query
from tenure.engine.task.command import (
    CancelTask,
    EnqueueTasks,
    FinishTasks,
    PauseTask,
    ResumeTask,
    SignalCancels,
)
from tenure.engine.worker.command import DrainWorker, EvictWorker
from tenure.errors import InvalidArgument, RateLimited, Unavailable
from tenure.store.sqlite import SqliteStore
from tenure.testing.clock import ManualClock
from tests.engine.world import NAMESPACE, OTHER_NAMESPACE, QUEUE, SPEC, World, finish, heartbeat
from tests.polling import eventually


def enqueue(world: World) -> EnqueueTasks:
    return EnqueueTasks(namespace=NAMESPACE, tasks=(world.new(),))


async def test_a_batch_of_large_payloads_is_short(world: World) -> None:
    engine = await world.start()
    large = bytes(2 * 1024 * 1024)
    for payload, least, most in ((b"small", 1, 2), (large, 3, 6)):
        world.faults.points.clear()
        commands = [
            EnqueueTasks(namespace=NAMESPACE, tasks=(world.new(input=payload),)) for _ in range(20)
        ]
        await asyncio.gather(*map(engine.submit, commands))
        assert least <= world.faults.points.count("after COMMIT") <= most


class TestBackPressure:
    async def test_a_full_lane_refuses_new_work_before_reports_and_before_accepting(
        self, world: World
    ) -> None:
        engine = await world.start(lane_queue_max=10, work_batch_max=10)
        worker = await world.worker(engine)
        task = await world.held(engine, worker)
        accepted: list[Any] = [engine.submit(enqueue(world)) for _ in range(8)]
        with pytest.raises(RateLimited) as caught:
            engine.submit(enqueue(world))
        assert caught.value.fields == {"retry_after_ms": 100}
        with pytest.raises(RateLimited):
            world.poll(engine, worker)
        report = FinishTasks(namespace=NAMESPACE, worker_id=worker, items=(finish(task),))
        confirm = SignalCancels(namespace=NAMESPACE, items=())
        accepted += [engine.submit(report), engine.submit(confirm)]
        with pytest.raises(RateLimited):
            engine.submit(confirm)
        assert engine.waiting_count == 10
        answers = await asyncio.gather(*accepted)
        assert all(answer[0].is_new for answer in answers[:8])
        assert answers[8][0].state is TaskState.SUCCEEDED
        assert len((await world.dump("tasks"))["tasks"]) == 8

    async def test_a_full_work_lane_delays_no_lease(self, world: World) -> None:
        engine = await world.start(lane_queue_max=10, work_batch_max=10)
        worker = await world.worker(engine)
        waiting = [engine.submit(enqueue(world)) for _ in range(8)]
        assert (await world.beat(engine, worker, 1)).lease.token == 2
        await asyncio.gather(*waiting)

    async def test_a_full_heartbeat_lane_refuses_too(self, world: World) -> None:
        engine = await world.start(lane_queue_max=5, work_batch_max=5)
        worker = await world.worker(engine)
        beats = [engine.submit(heartbeat(engine, worker, 1 + each)) for each in range(5)]
        with pytest.raises(RateLimited):
            engine.submit(heartbeat(engine, worker, 6))
        await asyncio.gather(*beats)

    async def test_malformed_input_is_refused_before_it_takes_a_place(self, engine: Engine) -> None:
        with pytest.raises(InvalidArgument):
            engine.submit(EnqueueTasks(namespace=NAMESPACE, tasks=()))
        assert engine.waiting_count == 0


class TestBatches:
    async def test_what_waits_together_is_one_transaction(
        self, world: World, engine: Engine
    ) -> None:
        await world.add(engine)
        world.faults.points.clear()
        await asyncio.gather(*(engine.submit(enqueue(world)) for _ in range(100)))
        assert world.faults.points.count("after COMMIT") == 1
        assert world.faults.points.count("insert_tasks") == 1

    async def test_a_batch_is_bounded(self, world: World) -> None:
        engine = await world.start(work_batch_max=10)
        await world.add(engine)
        world.faults.points.clear()
        await asyncio.gather(*(engine.submit(enqueue(world)) for _ in range(35)))
        assert world.faults.points.count("after COMMIT") == 4

    async def test_a_later_command_of_a_batch_sees_what_an_earlier_one_did(
        self, world: World, engine: Engine
    ) -> None:
        new = world.new()
        worker = await world.worker(engine)
        futures: list[asyncio.Future[Any]] = [
            engine.submit(CreateNamespace(name="third/default")),
            engine.submit(EnqueueTasks(namespace="third/default", tasks=(world.new(),))),
            engine.submit(EnqueueTasks(namespace=NAMESPACE, tasks=(new,))),
            engine.submit(PauseTask(namespace=NAMESPACE, task_id=new.id)),
            engine.submit(ResumeTask(namespace=NAMESPACE, task_id=new.id)),
            engine.submit(CancelTask(namespace=NAMESPACE, task_id=new.id)),
            engine.submit(DrainWorker(namespace=NAMESPACE, worker_id=worker)),
            engine.submit(EvictWorker(namespace=NAMESPACE, worker_id=worker)),
        ]
        answers: Any = await asyncio.gather(*futures)
        assert [answer.state.value for answer in answers[3:6]] == ["paused", "pending", "cancelled"]
        assert await world.state(new.id) is TaskState.CANCELLED
        assert [answers[6].status.value, answers[7].status.value] == ["draining", "offline"]

    async def test_a_caller_that_went_away_is_left_out(self, world: World, engine: Engine) -> None:
        future = engine.submit(enqueue(world))
        kept = engine.submit(enqueue(world))
        future.cancel()
        await kept
        assert len((await world.dump("tasks"))["tasks"]) == 1

    async def test_two_namespaces_share_a_batch_and_nothing_else(
        self, world: World, engine: Engine
    ) -> None:
        new = world.new()
        await asyncio.gather(
            world.enqueue(engine, new), world.enqueue(engine, new, namespace=OTHER_NAMESPACE)
        )
        await engine.submit(CancelTask(namespace=NAMESPACE, task_id=new.id))
        store = engine.store
        other = await query.get_task(store, namespace=OTHER_NAMESPACE, task_id=new.id)
        assert other.state is TaskState.PENDING


class TestStop:
    async def test_a_stop_finishes_what_was_accepted(self, world: World) -> None:
        engine = await world.start(work_batch_max=10)
        futures = [engine.submit(enqueue(world)) for _ in range(95)]
        await world.stop(engine)
        assert all(future.done() and future.exception() is None for future in futures)
        assert len((await world.dump("tasks"))["tasks"]) == 95
        with pytest.raises(Unavailable) as caught:
            engine.submit(enqueue(world))
        assert caught.value.fields["reason"] == "shutting_down"

    @pytest.mark.parametrize("is_settled", [True, False])
    async def test_a_stop_ends_the_polls_that_wait(
        self, world: World, engine: Engine, is_settled: bool
    ) -> None:
        worker = await world.worker(engine)
        poll = world.poll(engine, worker)
        if is_settled:
            await world.settle(engine)
        await world.stop(engine)
        assert await asyncio.wait_for(poll, 1) == ()

    async def test_a_stop_hands_out_nothing_that_nobody_takes(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        poll = world.poll(engine, worker)
        await world.settle(engine)
        added = engine.submit(enqueue(world))
        await world.stop(engine)
        given = await poll
        rows = await world.database.rows("SELECT state FROM tasks")
        assert added.done()
        assert [row["state"] for row in rows] == ["dispatched" if given else "pending"]

    async def test_a_store_on_threads_stops_as_cleanly(self, tmp_path: Path) -> None:
        clock = SystemClock()
        path = str(tmp_path / "tenure.db")
        store = SqliteStore(path, clock=clock.now_ms)
        async with Engine(store, clock=clock) as engine:
            await engine.submit(CreateNamespace(name=NAMESPACE))
            ids = [clock.new_id() for _ in range(50)]
            futures = [
                engine.submit(EnqueueTasks(namespace=NAMESPACE, tasks=(_new(each),)))
                for each in ids
            ]
        assert all(future.done() for future in futures)
        again = SqliteStore(path, clock=clock.now_ms)
        async with Engine(again, clock=clock) as engine:
            for each in ids:
                task = await query.get_task(engine.store, namespace=NAMESPACE, task_id=each)
                assert task.state is TaskState.PENDING


def _new(task_id: str) -> NewTask:
    return NewTask(id=task_id, type="mail", queue=QUEUE, spec=SPEC)


async def test_a_lane_knows_since_when_its_batch_may_have_waited() -> None:
    """One reading of the clock per batch: never later than a submission, one batch earlier."""
    clock = ManualClock()
    seen: list[tuple[list[int], int]] = []
    later = [[5, 6], [7, 8]]

    async def run(entries: list[Entry[int]]) -> None:
        seen.append(([number for number, _ in entries], lane.waiting_since_mono_ms))
        clock.advance(10)
        for number in later.pop(0) if later else []:
            lane.submit(number)

    lane: Lane[int] = Lane(
        run, batch_max=2, queue_max=100, weigh=lambda _: 1, mono_ms=clock.monotonic_ms
    )
    clock.advance(1_000)
    for number in range(5):
        lane.submit(number)
    serving = asyncio.ensure_future(lane.serve())
    await eventually(lambda: len(seen) == 5)
    clock.advance(5_000)
    lane.submit(9)
    await eventually(lambda: len(seen) == 6)
    lane.close()
    await serving
    assert seen[:6] == [
        ([0, 1], 1_000),
        ([2, 3], 1_000),
        ([4, 5], 1_000),
        ([6, 7], 1_000),
        ([8], 1_010),
        # What an idle lane gets has not waited at all.
        ([9], 6_050),
    ]


async def test_what_follows_a_lane_comes_after_all_that_was_submitted_before() -> None:
    seen: list[object] = []

    async def run(entries: list[Entry[int]]) -> None:
        numbers = [number for number, _ in entries]
        if 5 in numbers:
            # Nothing waits any more, and yet this batch comes first.
            lane.follow(lambda: seen.append("of the last batch"))
        seen.append(numbers)

    lane: Lane[int] = Lane(
        run, batch_max=2, queue_max=100, weigh=lambda _: 1, mono_ms=ManualClock().monotonic_ms
    )
    lane.follow(lambda: seen.append("at once"))
    for number in range(3):
        lane.submit(number)
    lane.follow(lambda: seen.append("of three"))
    for number in range(3, 6):
        lane.submit(number)
    lane.close()
    await lane.serve()
    lane.follow(lambda: seen.append("at the end"))
    assert seen == [
        "at once",
        [0, 1],
        [2, 3],
        "of three",
        [4, 5],
        "of the last batch",
        "at the end",
    ]
