"""Hand-outs are bounded by bytes: what does not fit waits, and goes out when there is room."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tenure.core.limits import (
    CLAIM_INPUT_BYTES_MAX,
    LANE_BYTES_MAX,
    POLL_BYTES_MAX,
    STREAM_BYTES_MAX,
)
from tenure.core.task.record import TaskState
from tenure.core.worker.record import WorkerMode
from tenure.engine.engine import Engine
from tenure.engine.lane import Lane
from tenure.engine.task.command import (
    ConfirmTasks,
    Finish,
    FinishKind,
    FinishTasks,
    RetryTask,
    TerminateTask,
)
from tenure.engine.worker.command import OpenSession
from tenure.errors import RateLimited
from tests.engine.world import NAMESPACE, Clock, Sink, World, ref
from tests.polling import eventually

MIB: Final = 1024 * 1024


class SlowSink(Sink):
    """A session whose peer reads when it is told to."""

    room_bytes: int

    def __init__(self) -> None:
        super().__init__()
        self.room_bytes = STREAM_BYTES_MAX

    def give(self, tasks: Any) -> None:
        super().give(tasks)
        self.room_bytes -= sum(len(task.input or b"") for task in tasks)


def inputs(count: int, size: int) -> list[bytes]:
    return [bytes([number]) * size for number in range(count)]


async def add(world: World, engine: Engine, *payloads: bytes) -> list[str]:
    return [(await world.add(engine, input=each))[0] for each in payloads]


async def open_session(world: World, engine: Engine, sink: Sink, window: int = 100) -> str:
    worker = await world.worker(engine, mode=WorkerMode.SESSION)
    await engine.submit(
        OpenSession(namespace=NAMESPACE, worker_id=worker, held=(), window=window, sink=sink)
    )
    return worker


async def test_a_poll_gets_what_fits_its_answer_and_the_rest_stays_pending(
    world: World, engine: Engine
) -> None:
    payloads = inputs(5, MIB)
    ids = await add(world, engine, *payloads)
    worker = await world.worker(engine)
    given = await world.claim(engine, worker)
    assert [task.input for task in given] == payloads[: POLL_BYTES_MAX // MIB]
    states = [await world.task(each) for each in ids]
    assert [task.attempt for task in states] == [1, 1, 1, 0, 0]
    assert [task.input for task in await world.claim(engine, worker)] == payloads[3:]


async def test_a_session_gets_no_more_than_it_has_room_for_until_it_has_read(
    world: World, engine: Engine
) -> None:
    size = 2 * MIB
    fitting = STREAM_BYTES_MAX // size
    payloads = inputs(fitting + 2, size)
    await add(world, engine, *payloads)
    sink = SlowSink()
    worker = await open_session(world, engine, sink)
    await eventually(lambda: len(sink.given) == fitting)
    engine.look_for_work()
    await world.add(engine, type="mail")
    assert len(sink.given) == fitting
    sink.room_bytes = STREAM_BYTES_MAX
    engine.has_room(worker)
    await eventually(lambda: len(sink.given) == fitting + 3)
    assert [task.input for task in sink.given[:-1]] == payloads


async def test_a_task_that_was_loaded_for_a_report_is_handed_out_with_its_input(
    world: World, engine: Engine
) -> None:
    """Reports load rows without their inputs, and a claim may find the same row."""
    for size in (10, 2 * CLAIM_INPUT_BYTES_MAX):
        payload = b"x" * size
        worker = await world.worker(engine)
        (task_id,) = await world.add(engine, input=payload)
        (task,) = await world.claim(engine, worker)
        finish = Finish(task_id=task.id, attempt=1, kind=FinishKind.RELEASED)
        release = FinishTasks(namespace=NAMESPACE, worker_id=worker, items=(finish,))
        await engine.submit(release)
        # The late report and the poll are one batch.
        late = engine.submit(
            ConfirmTasks(namespace=NAMESPACE, worker_id=worker, items=(ref(task),))
        )
        (again,) = await world.claim(engine, worker)
        await late
        assert (again.id, again.attempt, again.input) == (task_id, 2, payload)
        finish = Finish(task_id=task.id, attempt=2, kind=FinishKind.SUCCEEDED)
        await engine.submit(FinishTasks(namespace=NAMESPACE, worker_id=worker, items=(finish,)))
        done = await world.task(task_id)
        assert (done.state, done.input) == (TaskState.SUCCEEDED, payload)


async def test_a_retried_task_has_the_input_of_the_first(world: World, engine: Engine) -> None:
    payload = b"x" * (2 * CLAIM_INPUT_BYTES_MAX)
    worker = await world.worker(engine)
    task = await world.running(engine, worker, input=payload)
    await engine.submit(TerminateTask(namespace=NAMESPACE, task_id=task.id))
    new_id = world.clock.new_id()
    await engine.submit(RetryTask(namespace=NAMESPACE, task_id=task.id, new_task_id=new_id))
    (again,) = await world.claim(engine, worker)
    assert (again.id, again.input) == (new_id, payload)


async def test_payloads_that_wait_for_a_batch_are_bounded_and_reports_come_last() -> None:
    async def run(_: object) -> None:
        raise AssertionError

    lane: Lane[int] = Lane(
        run,
        batch_max=1,
        queue_max=1_000,
        weigh=lambda _: 1,
        measure=lambda size: size,
        mono_ms=Clock().monotonic_ms,
    )
    lane.submit(LANE_BYTES_MAX, is_new_work=True)
    with pytest.raises(RateLimited):
        lane.submit(1, is_new_work=True)
    lane.submit(0, is_new_work=True)
    lane.submit(LANE_BYTES_MAX)
    with pytest.raises(RateLimited):
        lane.submit(1)
