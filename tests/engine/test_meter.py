"""What an engine tells its meter: once per batch, added up over tasks and refusals."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tenure.core.task.attempt import Outcome
from tenure.core.task.record import TaskState
from tenure.core.worker.record import WorkerMode
from tenure.engine.batch.run import Committed
from tenure.engine.command import TaskRef
from tenure.engine.engine import Engine
from tenure.engine.latencies import LATENCY_BOUNDS_MS, Latencies
from tenure.engine.meter import Tally
from tenure.engine.task import command as c
from tenure.errors import AttemptMismatch, NotFound, Unavailable, WorkerInactive
from tenure.store.failure import Lost
from tenure.store.transaction import LaneName
from tests.engine.world import NAMESPACE, World, finish, ref, spec


class Meter:
    """Keeps all it is told."""

    def __init__(self) -> None:
        self.tally = Tally()
        self.batches: list[tuple[LaneName, int, float]] = []
        self.losses: list[str] = []
        self._now = 0.0

    def now(self) -> float:
        self._now += 1.0
        return self._now

    def ran(self, lane: LaneName, size: int, began: float) -> None:
        self.batches.append((lane, size, self.now() - began))

    def committed(self, committed: Committed) -> None:
        self.tally.add(committed)

    def refused(self, answers: Iterable[object]) -> None:
        self.tally.add_refused(answers)

    def lost(self, reason: str) -> None:
        self.losses.append(reason)


@pytest.fixture
def meter(engine: Engine) -> Meter:
    engine.meter = made = Meter()
    return made


def latencies(found: Latencies) -> dict[float, int]:
    """Return the counts that are not zero, by the bound above them."""
    bounds = [*LATENCY_BOUNDS_MS, float("inf")]
    return {bound: count for bound, count in zip(bounds, found.counts, strict=True) if count}


async def test_a_batch_is_told_with_its_lane_its_size_and_when_it_began(
    world: World, engine: Engine, meter: Meter
) -> None:
    worker = await world.worker(engine)
    first = engine.submit(c.EnqueueTasks(namespace=NAMESPACE, tasks=(world.new(), world.new())))
    second = engine.submit(c.EnqueueTasks(namespace=NAMESPACE, tasks=(world.new(),)))
    await first
    await second
    await world.beat(engine, worker, 1)
    assert meter.batches[-2:] == [(LaneName.WORK, 2, 1.0), (LaneName.HEARTBEAT, 1, 1.0)]
    assert meter.tally.enqueued_count == 3


async def test_a_hand_out_is_counted_with_the_time_since_the_task_was_ready(
    world: World, engine: Engine, meter: Meter
) -> None:
    worker = await world.worker(engine)
    await world.add(engine, 2)
    await world.add(engine, run_at_ms=world.clock.now_ms() + 100)
    await world.advance(7)
    tasks = await world.claim(engine, worker)
    assert meter.tally.handed_out_count == 2
    assert (latencies(meter.tally.start), meter.tally.start.total_ms) == ({10: 2}, 14)
    await world.advance(50)
    await world.finish(engine, worker, tasks[0], c.FinishKind.RELEASED)
    await world.advance(2_000)
    await world.claim(engine, worker)
    # It kept its place, but it was ready only when it came back.
    assert latencies(meter.tally.start) == {10: 2, 2_500: 1}


async def test_a_task_that_meets_a_waiting_worker_starts_at_once(
    world: World, engine: Engine, meter: Meter
) -> None:
    worker = await world.worker(engine, mode=WorkerMode.SESSION)
    await world.session(engine, worker)
    await world.add(engine, 3)
    assert (meter.tally.enqueued_count, meter.tally.handed_out_count) == (3, 3)
    assert latencies(meter.tally.start) == {1: 3}


async def test_finished_tasks_and_ended_attempts_are_counted_once_each(
    world: World, engine: Engine, meter: Meter
) -> None:
    worker = await world.worker(engine)
    await world.add(engine, 4)
    done, failed, released, lost = await world.claim(engine, worker)
    await world.confirm(engine, worker, failed)
    await world.advance(30)
    items = (
        finish(done),
        finish(failed, c.FinishKind.FAILED),
        finish(released, c.FinishKind.RELEASED),
    )
    await engine.submit(c.FinishTasks(namespace=NAMESPACE, worker_id=worker, items=items))
    await engine.submit(c.CancelTask(namespace=NAMESPACE, task_id=released.id))
    await engine.submit(c.CancelTask(namespace=NAMESPACE, task_id=lost.id))
    await world.settle(engine)
    assert meter.tally.finished == {TaskState.SUCCEEDED: 1, TaskState.CANCELLED: 2}
    assert meter.tally.ended == {
        Outcome.SUCCEEDED: 1,
        Outcome.FAILED: 1,
        Outcome.RELEASED: 1,
        Outcome.CANCELLED: 1,
    }
    assert (latencies(meter.tally.run), meter.tally.run.total_ms) == ({50: 4}, 120)


async def test_a_completion_that_ends_an_asynchronous_wait_ends_its_attempt(
    world: World, engine: Engine, meter: Meter
) -> None:
    worker = await world.worker(engine)
    task = await world.running(engine, worker)
    await world.finish(engine, worker, task, c.FinishKind.DEFERRED)
    await world.advance(1_000)
    command = c.CompleteById(namespace=NAMESPACE, finish=finish(task))
    await engine.submit(command)
    assert meter.tally.ended == {Outcome.SUCCEEDED: 1}
    assert latencies(meter.tally.run) == {1_000: 1}


async def test_refusals_are_counted_by_code_of_commands_items_polls_and_heartbeats(
    world: World, engine: Engine, meter: Meter
) -> None:
    worker = await world.worker(engine)
    task = await world.held(engine, worker)
    unknown = world.clock.new_id()
    wrong = TaskRef(task.id, 7)
    await engine.submit(
        c.ConfirmTasks(namespace=NAMESPACE, worker_id=worker, items=(wrong, wrong, ref(task)))
    )
    with pytest.raises(NotFound):
        await engine.submit(c.CancelTask(namespace=NAMESPACE, task_id=unknown))
    with pytest.raises(WorkerInactive):
        await world.claim(engine, unknown)
    with pytest.raises(WorkerInactive):
        await world.beat(engine, unknown, 1)
    assert meter.tally.refused == {
        AttemptMismatch.code: 2,
        NotFound.code: 1,
        WorkerInactive.code: 2,
    }


async def test_a_batch_that_is_lost_with_the_store_is_told_by_its_reason(
    world: World, engine: Engine, meter: Meter
) -> None:
    world.faults.raise_at("before COMMIT", Lost("full", reason="storage_full"))
    with pytest.raises(Unavailable):
        await world.add(engine)
    assert meter.losses == ["storage_full"]
    assert meter.tally.enqueued_count == 0


async def test_a_clock_that_goes_back_makes_no_negative_latency(
    world: World, engine: Engine, meter: Meter
) -> None:
    worker = await world.worker(engine)
    await world.add(engine, spec=spec(schedule_to_close_ms=90_000_000))
    await world.jump(-3_600_000)
    await world.claim(engine, worker)
    assert (latencies(meter.tally.start), meter.tally.start.total_ms) == ({1: 1}, 0)


async def test_an_engine_tells_who_waits_in_it(world: World, engine: Engine) -> None:
    worker, other = await world.worker(engine), await world.worker(engine)
    await world.session(engine, other)
    poll = world.poll(engine, worker)
    await world.settle(engine)
    waiting = engine.submit(c.SignalCancels(namespace=NAMESPACE, items=()))
    found = engine.occupancy
    assert (found.session_count, found.poll_count) == (1, 1)
    assert (found.work_command_count, found.heartbeat_command_count) == (1, 0)
    await waiting
    poll.cancel()
