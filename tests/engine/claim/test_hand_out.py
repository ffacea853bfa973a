"""Direct hand-out and refill: one write less, and never past somebody who waits longer."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

from tenure.core.task.effect import StopCause
from tenure.core.task.record import Line, TaskState
from tenure.engine.access.command import SetQueue
from tenure.engine.engine import Engine
from tenure.engine.task.command import Finish, FinishKind, FinishTasks, TerminateTask
from tenure.engine.worker.command import DrainWorker
from tests.engine.world import NAMESPACE, QUEUE, World, finish, stop

WRITES: Final = {"insert_alone", "insert_tasks", "update_alone", "update_tasks", "finish_tasks"}


def writes(world: World) -> list[str]:
    """Return the statements so far that wrote tasks, and forget them."""
    points = list(world.faults.points)
    world.faults.points.clear()
    return [each for each in points if each in WRITES]


async def set_queue(engine: Engine, **brakes: Any) -> None:
    await engine.submit(SetQueue(namespace=NAMESPACE, name=QUEUE, **brakes))


class TestDirectHandOut:
    async def test_a_task_enqueued_while_a_poll_waits_is_stored_as_dispatched_in_one_write(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        poll = world.poll(engine, worker)
        await world.settle(engine)
        writes(world)
        (task_id,) = await world.add(engine)
        (task,) = await poll
        assert writes(world) == ["insert_alone"]
        stored = await world.task(task_id)
        assert stored == task
        assert (stored.state, stored.attempt, stored.version) == (TaskState.DISPATCHED, 1, 0)

    async def test_the_enqueue_is_answered_pending_or_dispatched_but_new(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        world.poll(engine, worker)
        (answer,) = await world.enqueue(engine, world.new())
        assert answer.is_new

    async def test_a_bulk_is_dealt_to_everybody_who_waits(
        self, world: World, engine: Engine
    ) -> None:
        polls = [world.poll(engine, await world.worker(engine), max_tasks=2) for _ in range(3)]
        await world.settle(engine)
        writes(world)
        ids = await world.add(engine, 5)
        given = [await poll for poll in polls]
        assert [len(each) for each in given] == [2, 2, 1]
        assert sorted(task.id for each in given for task in each) == ids
        assert writes(world) == ["insert_tasks"]

    async def test_a_finished_direct_task_was_written_twice_in_all(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        poll = world.poll(engine, worker)
        await world.settle(engine)
        writes(world)
        await world.add(engine)
        (task,) = await poll
        await world.finish(engine, worker, task)
        assert writes(world) == ["insert_alone", "finish_tasks"]

    async def test_something_older_goes_first(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine)
        await set_queue(engine, is_paused=True)
        (older,) = await world.add(engine)
        await world.advance(1)
        poll = world.poll(engine, worker)
        await world.settle(engine)
        await set_queue(engine, is_paused=False)
        (newer,) = await world.add(engine)
        assert [task.id for task in await poll] == [older]
        assert await world.state(newer) is TaskState.PENDING

    async def test_something_older_of_another_engine_goes_first(
        self, world: World, engine: Engine
    ) -> None:
        other = await world.start()
        worker = await world.worker(engine)
        assert await world.claim(engine, worker) == ()
        (older,) = await world.add(other)
        await world.advance(1_000)
        poll = world.poll(engine, worker)
        (newer,) = await world.add(engine)
        assert [task.id for task in await poll] == [older]
        assert await world.state(newer) is TaskState.PENDING

    async def test_a_paused_queue_stores_it_as_pending(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine)
        poll = world.poll(engine, worker)
        await set_queue(engine, is_paused=True)
        (task_id,) = await world.add(engine)
        await world.settle(engine)
        assert not poll.done()
        assert (await world.task(task_id)).line is Line.FRESH

    async def test_a_queue_at_its_limit_stores_it_as_pending(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        await set_queue(engine, concurrency_max=1)
        await world.held(engine, worker)
        poll = world.poll(engine, worker)
        await world.settle(engine)
        (task_id,) = await world.add(engine)
        await world.settle(engine)
        assert not poll.done()
        assert await world.state(task_id) is TaskState.PENDING

    async def test_a_bulk_fills_a_limit_and_leaves_the_rest(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        await set_queue(engine, concurrency_max=2)
        poll = world.poll(engine, worker, max_tasks=10)
        await world.settle(engine)
        ids = await world.add(engine, 5)
        assert [task.id for task in await poll] == ids[:2]

    async def test_a_delayed_task_is_not_handed_out(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine)
        poll = world.poll(engine, worker)
        await world.add(engine, run_at_ms=world.clock.now_ms() + 1)
        await world.settle(engine)
        assert not poll.done()

    async def test_a_draining_worker_gets_nothing_directly(
        self, world: World, engine: Engine
    ) -> None:
        other = await world.start()
        worker = await world.worker(engine)
        poll = world.poll(engine, worker)
        await world.settle(engine)
        await other.submit(DrainWorker(namespace=NAMESPACE, worker_id=worker))
        (task_id,) = await world.add(engine)
        assert (await world.task(task_id)).attempt == 0
        await world.settle(engine)
        assert poll.done()
        # The other server's word may have come before the batch found out.
        assert poll.exception() is not None or poll.result() == ()

    async def test_it_can_be_switched_off(self, world: World) -> None:
        engine = await world.start(direct_hand_out=False)
        worker = await world.worker(engine)
        poll = world.poll(engine, worker)
        await world.settle(engine)
        writes(world)
        await world.add(engine)
        assert len(await poll) == 1
        assert writes(world) == ["insert_alone", "update_alone"]

    @pytest.mark.parametrize("is_on", [True, False])
    async def test_marks_and_cached_rows_change_no_result(self, world: World, is_on: bool) -> None:
        engine = await world.start(cached_rows=is_on, low_water_marks=is_on, own_vacuum=is_on)
        worker = await world.worker(engine)
        done = []
        for _ in range(5):
            ids = await world.add(engine, 3)
            for task in await world.claim(engine, worker):
                await world.finish(engine, worker, task)
                done.append(task.id)
            assert done[-3:] == ids


class TestRefill:
    async def test_a_session_gets_work_up_to_its_window(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine, slots=3)
        ids = await world.add(engine, 5)
        sink, _ = await world.session(engine, worker, window=100)
        assert [task.id for task in sink.take()] == ids[:3]

    async def test_the_batch_that_accepts_completions_refills_their_slots(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        ids = await world.add(engine, 5)
        sink, _ = await world.session(engine, worker, window=2)
        held = sink.take()
        world.faults.points.clear()
        items = tuple(finish(task) for task in held)
        await engine.submit(FinishTasks(namespace=NAMESPACE, worker_id=worker, items=items))
        assert world.faults.points.count("after COMMIT") == 1
        assert [task.id for task in sink.take()] == ids[2:4]

    async def test_a_refused_completion_frees_no_slot(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine)
        await world.add(engine, 3)
        sink, _ = await world.session(engine, worker, window=1)
        (task,) = sink.take()
        stale = Finish(task_id=task.id, attempt=9, kind=FinishKind.SUCCEEDED)
        await engine.submit(FinishTasks(namespace=NAMESPACE, worker_id=worker, items=(stale,)))
        await world.settle(engine)
        assert sink.take() == []

    async def test_a_repeated_completion_frees_its_slot_once(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        await world.add(engine, 5)
        sink, _ = await world.session(engine, worker, window=1)
        (task,) = sink.take()
        await asyncio.gather(*(world.finish(engine, worker, task) for _ in range(3)))
        await world.settle(engine)
        assert len(sink.take()) == 1

    async def test_a_released_task_is_handed_out_again_by_its_own_batch(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        await world.add(engine)
        sink, _ = await world.session(engine, worker, window=1)
        (task,) = sink.take()
        await world.finish(engine, worker, task, FinishKind.RELEASED)
        await world.settle(engine)
        (again,) = sink.take()
        assert (again.id, again.attempt) == (task.id, 2)

    async def test_a_smaller_window_stops_the_refill_and_a_larger_one_tops_up(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        await world.add(engine, 10)
        sink, _ = await world.session(engine, worker, window=2)
        held = sink.take()
        engine.set_window(worker, 0)
        for task in held:
            await world.finish(engine, worker, task)
        await world.settle(engine)
        assert sink.take() == []
        engine.set_window(worker, 3)
        await world.settle(engine)
        assert len(sink.take()) == 3

    async def test_what_an_operator_takes_away_frees_its_slot(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        await world.add(engine, 2)
        sink, _ = await world.session(engine, worker, window=1)
        (task,) = sink.take()
        await engine.submit(TerminateTask(namespace=NAMESPACE, task_id=task.id))
        await world.settle(engine)
        assert len(sink.take()) == 1
        assert sink.stopped == [stop(task, StopCause.TERMINATED)]

    async def test_more_than_one_batch_is_handed_out_without_waiting(self, world: World) -> None:
        engine = await world.start(work_batch_max=10)
        worker = await world.worker(engine, slots=2_000)
        for _ in range(2):
            await world.add(engine, 600)
        sink, _ = await world.session(engine, worker, window=2_000)
        await world.settle(engine)
        assert len(sink.take()) == 1_200

    async def test_a_session_that_ended_gets_nothing_and_a_later_one_stays(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        old, first = await world.session(engine, worker)
        new, second = await world.session(engine, worker)
        assert (first.worker.session_no, second.worker.session_no) == (1, 2)
        engine.end_session(worker, 1)
        await world.add(engine)
        await world.settle(engine)
        assert (len(old.take()), len(new.take())) == (0, 1)
        engine.end_session(worker, 2)
        (task_id,) = await world.add(engine)
        await world.settle(engine)
        assert await world.state(task_id) is TaskState.PENDING
