"""Reports that name a worker that is not live: it is told so, unless what it completes counts."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tenure.core.task.record import Task, TaskState
from tenure.engine.engine import Engine
from tenure.engine.task.command import (
    ConfirmTasks,
    FinishKind,
    FinishTasks,
    HeartbeatTasks,
    TaskBeat,
)
from tenure.engine.worker.command import DeregisterWorker, EvictWorker
from tenure.errors import Rejection
from tests.engine.world import NAMESPACE, OTHER_NAMESPACE, World, codes, finish, ref

REPORTS = ["started", "beat", "finished"]


def report(kind: str, worker_id: str, *tasks: Any, namespace: str = NAMESPACE) -> Any:
    """Return a report of a worker on some attempts."""
    fields: dict[str, Any] = {"namespace": namespace, "worker_id": worker_id}
    if kind == "started":
        return ConfirmTasks(items=tuple(ref(task) for task in tasks), **fields)
    if kind == "beat":
        beats = tuple(TaskBeat(task_id=task.id, attempt=task.attempt) for task in tasks)
        return HeartbeatTasks(items=beats, **fields)
    items = tuple(finish(task, FinishKind.SUCCEEDED) for task in tasks)
    return FinishTasks(items=items, **fields)


async def evict(engine: Engine, worker: str) -> None:
    await engine.submit(EvictWorker(namespace=NAMESPACE, worker_id=worker))


async def end_without_release(world: World, worker: str) -> None:
    """Take a worker offline like a server that dies before it puts back what the worker held."""
    await world.database.execute(
        "UPDATE workers SET status = 'offline', end_reason = 'evicted', release_pending = "
        f"(1 = 1), ended_at_ms = {world.clock.now_ms()} WHERE id = '{worker}'"
    )
    await world.database.execute(f"DELETE FROM leases WHERE worker_id = '{worker}'")


def unknown(world: World, task: Task) -> Task:
    """Return an attempt of a task that does not exist."""
    return replace(task, id=world.clock.new_id())


def told(answers: Any) -> list[tuple[str, object]]:
    """Return code and reason of each refusal."""
    assert all(isinstance(each, Rejection) for each in answers), answers
    return [(each.code, each.fields.get("reason")) for each in answers]


@pytest.mark.parametrize("kind", REPORTS)
async def test_an_offline_worker_is_told_that_it_is_over(
    world: World, engine: Engine, kind: str
) -> None:
    worker, other = await world.worker(engine), await world.worker(engine)
    task = await world.running(engine, worker)
    await evict(engine, worker)
    await world.settle(engine)
    before = await world.dump()
    assert told(await engine.submit(report(kind, worker, task))) == [("worker_inactive", "evicted")]
    assert await world.dump() == before
    # Also of what another worker runs by now, and of what does not exist.
    (again,) = await world.claim(engine, other)
    gone = [("worker_inactive", "evicted")] * 2
    assert told(await engine.submit(report(kind, worker, again, unknown(world, task)))) == gone


@pytest.mark.parametrize("kind", REPORTS)
async def test_a_worker_that_is_unknown_in_the_namespace_is_told_so(
    world: World, engine: Engine, kind: str
) -> None:
    worker = await world.worker(engine)
    task = await world.running(engine, worker)
    before = await world.dump()
    nobody = report(kind, world.clock.new_id(), task)
    foreign = report(kind, worker, task, namespace=OTHER_NAMESPACE)
    for command in (nobody, foreign):
        assert told(await engine.submit(command)) == [("worker_inactive", "unknown")]
    assert await world.dump() == before


async def test_what_an_offline_worker_completes_counts_until_its_attempt_has_ended(
    world: World, engine: Engine
) -> None:
    worker = await world.worker(engine)
    task, other = await world.running(engine, worker), await world.running(engine, worker)
    await end_without_release(world, worker)
    for kind in ("started", "beat"):
        answers = await engine.submit(report(kind, worker, task))
        assert told(answers) == [("worker_inactive", "evicted")]
    assert codes(await engine.submit(report("finished", worker, task))) == ["succeeded"]
    # The same end again is no other one; another end of it is refused.
    assert codes(await engine.submit(report("finished", worker, task))) == ["succeeded"]
    late = await world.finish(engine, worker, task, output=b"other")
    assert told([late]) == [("worker_inactive", "evicted")]
    # What counts and what does not are answered side by side.
    command = report("finished", worker, task, other, unknown(world, task))
    assert codes(await engine.submit(command)) == ["succeeded", "succeeded", "worker_inactive"]


async def test_a_completion_that_was_accepted_is_answered_after_the_worker_s_end(
    world: World, engine: Engine
) -> None:
    worker = await world.worker(engine)
    done, failed = await world.running(engine, worker), await world.running(engine, worker)
    await world.finish(engine, worker, done)
    await world.finish(engine, worker, failed, FinishKind.RELEASED)
    await engine.submit(DeregisterWorker(namespace=NAMESPACE, worker_id=worker))
    await world.settle(engine)
    assert codes([await world.finish(engine, worker, done)]) == ["succeeded"]
    assert codes([await world.finish(engine, worker, failed, FinishKind.RELEASED)]) == ["pending"]
    assert await world.state(failed.id) is TaskState.PENDING


async def test_a_token_or_an_id_vouches_without_a_worker(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    task = await world.running(engine, worker)
    beat = TaskBeat(task_id=task.id, attempt=task.attempt)
    answers = await engine.submit(
        HeartbeatTasks(namespace=NAMESPACE, worker_id=None, items=(beat,))
    )
    assert codes(answers) == ["running"]


async def test_a_worker_that_ends_in_the_same_batch_is_told_so(
    world: World, engine: Engine
) -> None:
    worker = await world.worker(engine)
    task = await world.held(engine, worker)
    ending = engine.submit(EvictWorker(namespace=NAMESPACE, worker_id=worker))
    starting = engine.submit(report("started", worker, task))
    await ending
    assert told(await starting) == [("worker_inactive", "evicted")]
