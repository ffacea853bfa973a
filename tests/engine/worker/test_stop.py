"""A worker hears that somebody else has ended what it runs, in every mode, and why."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from tenure.core.task.effect import StopCause, TellStop
from tenure.core.task.record import Task
from tenure.engine.engine import Engine
from tenure.engine.services.due_tasks import DueTasks
from tenure.engine.services.held_release import HeldRelease
from tenure.engine.services.retention import Retention
from tenure.engine.task.command import CancelTask, CompleteById, FinishKind, TerminateTask
from tenure.engine.worker.command import EvictWorker, Renewed
from tenure.errors import TokenMismatch
from tenure.store.table.stop import insert_stops
from tests.engine.world import NAMESPACE, World, finish, heartbeat, ref, spec, stop

End = Callable[[World, Engine, Task], Awaitable[object]]


async def terminate(_world: World, engine: Engine, task: Task) -> object:
    return await engine.submit(TerminateTask(namespace=NAMESPACE, task_id=task.id))


async def complete(_world: World, engine: Engine, task: Task) -> object:
    return await engine.submit(CompleteById(namespace=NAMESPACE, finish=finish(task)))


async def time_out(world: World, engine: Engine, _task: Task) -> object:
    await world.advance(5_000)
    return await world.round(DueTasks(), engine)


ENDS: dict[StopCause, End] = {
    StopCause.TERMINATED: terminate,
    StopCause.COMPLETED: complete,
    StopCause.TIMED_OUT: time_out,
}


async def stop_rows(world: World) -> int:
    return len((await world.dump("stops"))["stops"])


async def beat(engine: Engine, worker: str, token: int) -> Renewed:
    renewed, _ = await engine.heartbeat(heartbeat(engine, worker, token, wants_cancels=True))
    return renewed


@pytest.mark.parametrize("cause", ENDS)
async def test_a_poll_worker_hears_with_its_next_heartbeat_what_somebody_else_has_ended(
    world: World, engine: Engine, cause: StopCause
) -> None:
    worker = await world.worker(engine)
    task = await world.running(engine, worker, spec=spec(start_to_close_ms=5_000))
    await ENDS[cause](world, engine, task)
    assert (await beat(engine, worker, 1)).stop == (stop(task, cause),)
    # Once told, it is forgotten.
    assert (await beat(engine, worker, 2)).stop == ()
    assert await stop_rows(world) == 0


@pytest.mark.parametrize("cause", ENDS)
async def test_a_stop_whose_answer_was_lost_is_told_again_with_its_reason(
    world: World, engine: Engine, cause: StopCause
) -> None:
    worker = await world.worker(engine)
    task = await world.running(engine, worker, spec=spec(start_to_close_ms=5_000))
    await ENDS[cause](world, engine, task)
    await beat(engine, worker, 1)
    with pytest.raises(TokenMismatch):
        await beat(engine, worker, 1)
    again = heartbeat(engine, worker, 2, wants_cancels=True)
    _, answer = await engine.heartbeat(again, held=(ref(task),))
    assert answer.stop == (stop(task, cause),)


async def test_a_stop_survives_all_servers_and_is_told_by_any(world: World) -> None:
    here, there = await world.start(), await world.start()
    worker = await world.worker(here)
    task = await world.running(here, worker)
    await terminate(world, there, task)
    await world.stop(here)
    await world.stop(there)
    later = await world.start()
    assert (await beat(later, worker, 1)).stop == (stop(task, StopCause.TERMINATED),)


async def test_a_poll_worker_hears_of_a_cancel_before_its_confirmation(
    world: World, engine: Engine
) -> None:
    worker = await world.worker(engine)
    task = await world.held(engine, worker)
    await engine.submit(CancelTask(namespace=NAMESPACE, task_id=task.id))
    assert (await beat(engine, worker, 1)).stop == (stop(task, StopCause.CANCELLED),)


@pytest.mark.parametrize("cause", ENDS)
async def test_a_session_is_told_at_once_and_no_row_stays(
    world: World, engine: Engine, cause: StopCause
) -> None:
    worker = await world.worker(engine)
    sink, _ = await world.session(engine, worker, window=1)
    await world.add(engine, spec=spec(start_to_close_ms=5_000))
    await world.settle(engine)
    (task,) = sink.take()
    await world.confirm(engine, worker, task)
    await ENDS[cause](world, engine, task)
    await world.settle(engine)
    assert sink.stopped == [stop(task, cause)]
    assert await stop_rows(world) == 0


async def test_a_stop_that_the_stream_has_lost_is_told_to_the_next_session(
    world: World, engine: Engine
) -> None:
    worker = await world.worker(engine)
    task = await world.running(engine, worker)
    await terminate(world, engine, task)
    _, answer = await world.session(engine, worker, ref(task))
    assert answer.stop == (stop(task, StopCause.TERMINATED),)
    assert await stop_rows(world) == 0
    # Told and forgotten, the finished task still knows the reason.
    _, again = await world.session(engine, worker, ref(task))
    assert again.stop == (stop(task, StopCause.TERMINATED),)


async def test_a_stop_told_to_a_session_that_its_worker_has_left_stays(world: World) -> None:
    # Pooled servers get no hints, so neither hears what happens at the other.
    here, there = await world.start(pooled=True), await world.start(pooled=True)
    worker = await world.worker(here)
    old, _ = await world.session(here, worker, window=1)
    await world.add(here)
    await world.settle(here)
    (task,) = old.take()
    await world.confirm(here, worker, task)
    # The worker talks to another server by now, and this one has not heard of it.
    await world.session(there, worker, ref(task), window=1)
    await here.submit(TerminateTask(namespace=NAMESPACE, task_id=task.id))
    await world.settle(here)
    assert old.stopped == [stop(task, StopCause.TERMINATED)]
    assert await stop_rows(world) == 1


@pytest.mark.parametrize("kind", [FinishKind.SUCCEEDED, FinishKind.FAILED, FinishKind.CANCELLED])
async def test_what_a_worker_reports_itself_writes_no_stop(
    world: World, engine: Engine, kind: FinishKind
) -> None:
    worker = await world.worker(engine)
    task = await world.running(engine, worker)
    world.faults.points.clear()
    await world.finish(engine, worker, task, kind)
    assert "insert_stops" not in world.faults.points


async def test_the_stops_of_a_worker_that_is_gone_are_deleted(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    task = await world.running(engine, worker)
    await terminate(world, engine, task)
    assert await stop_rows(world) == 1
    await engine.submit(EvictWorker(namespace=NAMESPACE, worker_id=worker))
    await world.settle(engine)
    await world.round(HeldRelease(), engine)
    assert await stop_rows(world) == 0


async def test_stops_that_outlive_their_worker_are_deleted_with_its_row(
    world: World, engine: Engine
) -> None:
    worker = await world.worker(engine)
    task = await world.running(engine, worker)
    await engine.submit(EvictWorker(namespace=NAMESPACE, worker_id=worker))
    await world.round(HeldRelease(), engine)
    # A server of the version before releases what a worker holds, and knows no stops.
    left = TellStop(worker, stop(task, StopCause.TERMINATED))
    await engine.store.transaction(lambda tx: insert_stops(tx, [left]))
    await world.advance(engine.settings.offline_kept_ms + 1)
    await Retention().run_once(engine)
    assert (await world.dump("workers"))["workers"] == []
    assert await stop_rows(world) == 0
