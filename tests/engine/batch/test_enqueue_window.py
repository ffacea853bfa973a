"""An enqueue never runs twice, however late its first request arrives; the young are not asked."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from tenure.core.limits import (
    CLOCK_SET_BACK_MS_MAX,
    ENQUEUE_DECIDED_MS,
    ENQUEUE_STORED_MS,
    ENQUEUE_YOUNG_MS,
)
from tenure.core.task.record import NewTask, TaskState
from tenure.engine.engine import Engine
from tenure.engine.task import command as c
from tenure.errors import AlreadyExists, Unavailable
from tests.engine.world import HOUR_MS, NAMESPACE, QUEUE, SPEC, World
from tests.polling import eventually

LOOK_UPS = ("load_tasks", "load_history")


@pytest.fixture
async def warm(world: World) -> Engine:
    """An engine that has seen the store's time."""
    engine = await world.start()
    await world.add(engine)
    world.faults.points.clear()
    return engine


def looked_up(world: World) -> bool:
    return any(point in LOOK_UPS for point in world.faults.points)


async def done(world: World, engine: Engine, new: NewTask) -> None:
    """Store a task and let it finish at once."""
    await world.enqueue(engine, new)
    await engine.submit(c.CancelTask(namespace=NAMESPACE, task_id=new.id))
    world.faults.points.clear()


async def refused_as_known(world: World, engine: Engine, new: NewTask) -> None:
    """Let the first request run after its task has finished: it must find that."""
    before = await world.dump("tasks", "history")
    with pytest.raises(AlreadyExists):
        await world.enqueue(engine, new)
    assert await world.dump("tasks", "history") == before


async def test_a_young_enqueue_is_not_looked_up(world: World, warm: Engine) -> None:
    for _ in range(3):
        await world.add(warm, 5)
        await world.advance(ENQUEUE_YOUNG_MS * 10)
    assert not looked_up(world)


@pytest.mark.parametrize("off_ms", [-3_600_000, -ENQUEUE_YOUNG_MS - 1, ENQUEUE_YOUNG_MS + 1])
async def test_an_enqueue_with_an_older_or_later_id_is_looked_up(
    world: World, warm: Engine, off_ms: int
) -> None:
    at = f"{world.clock.now_ms() + off_ms:012x}"
    task_id = f"{at[:8]}-{at[8:]}-7abc-8000-000000000001"
    new = NewTask(id=task_id, type="mail", queue=QUEUE, spec=SPEC)
    await done(world, warm, new)
    await refused_as_known(world, warm, new)
    assert looked_up(world)


async def test_an_enqueue_whose_id_carries_no_time_is_looked_up(world: World, warm: Engine) -> None:
    new = NewTask(id=str(uuid.UUID(int=1, version=4)), type="mail", queue=QUEUE, spec=SPEC)
    await done(world, warm, new)
    await refused_as_known(world, warm, new)


async def test_an_enqueue_that_arrives_late_finds_its_finished_task(
    world: World, warm: Engine
) -> None:
    new = world.new()
    await done(world, warm, new)
    await world.advance(ENQUEUE_YOUNG_MS + 1)
    await refused_as_known(world, warm, new)


async def test_a_server_that_has_not_seen_the_time_looks_up(world: World) -> None:
    first = await world.start()
    new = world.new()
    await done(world, first, new)
    await refused_as_known(world, await world.start(), new)


async def test_an_enqueue_that_waited_long_is_looked_up_though_the_clock_went_back(
    world: World,
) -> None:
    engine = await world.start(work_batch_max=1)
    (other,) = await world.add(engine)
    new = world.new()
    await done(world, engine, new)

    def go_back() -> None:
        """Let the time of the store stand while it passes for the server."""
        world.clock.advance(ENQUEUE_YOUNG_MS + 1)
        world.clock.jump(-ENQUEUE_YOUNG_MS - 1)

    world.faults.call_at("load_tasks", go_back)
    # The batch before the late one learns the new time, so that only the wait tells.
    before = engine.submit(c.CancelTask(namespace=NAMESPACE, task_id=other))
    late = engine.submit(c.EnqueueTasks(namespace=NAMESPACE, tasks=(new,)))
    await before
    with pytest.raises(AlreadyExists):
        await late
    assert (await world.task(new.id)).state is TaskState.CANCELLED


async def test_a_wrong_guess_of_the_time_is_noticed(world: World, warm: Engine) -> None:
    """The store's clock was set, and this server does not know it yet."""
    new = world.new()
    await done(world, warm, new)
    await world.jump(ENQUEUE_YOUNG_MS * 5)
    await refused_as_known(world, warm, new)
    # From now on it knows.
    world.faults.points.clear()
    await world.add(warm)
    assert not looked_up(world)


async def test_after_the_clock_went_back_everything_is_looked_up_until_it_has_caught_up(
    world: World, warm: Engine
) -> None:
    new = world.new()
    await done(world, warm, new)
    await world.advance(ENQUEUE_DECIDED_MS)
    await world.jump(-ENQUEUE_DECIDED_MS)
    # This batch sees the new time, by which the task that is done was made just now.
    await world.add(warm)
    await refused_as_known(world, warm, new)
    await world.advance(ENQUEUE_DECIDED_MS + ENQUEUE_YOUNG_MS)
    world.faults.points.clear()
    await world.add(warm)
    assert looked_up(world)
    await world.advance(1)
    world.faults.points.clear()
    await world.add(warm)
    assert not looked_up(world)


async def test_a_clock_that_was_far_ahead_costs_look_ups_for_a_minute_only(
    world: World, warm: Engine
) -> None:
    await world.jump(-HOUR_MS)
    await world.add(warm)
    await world.advance(CLOCK_SET_BACK_MS_MAX + ENQUEUE_YOUNG_MS + 1)
    world.faults.points.clear()
    await world.add(warm)
    assert not looked_up(world)


async def test_what_was_decided_too_long_ago_is_decided_again(world: World, warm: Engine) -> None:
    world.faults.call_at("insert_tasks", lambda: world.clock.advance(ENQUEUE_STORED_MS + 1))
    first, second = await world.add(warm, 2)
    assert world.faults.points.count("insert_tasks") == 2
    assert looked_up(world)
    assert await world.state(first) is await world.state(second) is TaskState.PENDING


@pytest.mark.parametrize("dialect", ["postgres"])
async def test_a_task_that_another_server_finishes_after_the_look_up_is_found(
    world: World, warm: Engine
) -> None:
    model, new = world.new(), world.new()
    await done(world, warm, model)
    await world.advance(ENQUEUE_YOUNG_MS * 2)
    # Nobody can insert before the end of this transaction.
    await world.database.execute("BEGIN; LOCK TABLE tasks IN SHARE MODE")
    late = asyncio.ensure_future(world.enqueue(warm, new))
    await eventually(lambda: "insert_tasks" in world.faults.points)
    columns = (
        "namespace, queue, type, state, priority, created_at_ms, run_at_ms, attempt, version,"
        " handed_at_ms, session_no, spec, finished_at_ms"
    )
    await world.database.execute(
        f"INSERT INTO history (id, {columns}) SELECT '{new.id}', {columns} FROM history"
        f" WHERE id = '{model.id}'; COMMIT"
    )
    with pytest.raises(AlreadyExists):
        await late
    assert len((await world.dump("history"))["history"]) == 2
    assert (await world.task(new.id)).state is TaskState.CANCELLED


async def test_a_marked_enqueue_waits_until_its_first_request_can_only_be_looked_up(
    world: World, warm: Engine
) -> None:
    new, other = world.new(), world.new()
    before = await world.dump()
    await world.advance(500)
    with pytest.raises(Unavailable) as caught:
        await world.enqueue(warm, other, new, is_resend=True)
    assert caught.value.fields == {
        "reason": "undecided",
        "retry_after_ms": ENQUEUE_DECIDED_MS - 500,
    }
    assert await world.dump() == before
    await world.advance(ENQUEUE_DECIDED_MS - 500)
    (answer,) = await world.enqueue(warm, new, is_resend=True)
    assert answer.is_new


async def test_a_marked_enqueue_of_a_known_task_is_answered_at_once(
    world: World, warm: Engine
) -> None:
    live, finished = world.new(), world.new()
    await world.enqueue(warm, live)
    await done(world, warm, finished)
    answers = await world.enqueue(warm, live, finished, is_resend=True)
    assert [each.is_new for each in answers] == [False, False]


async def test_a_marked_enqueue_with_a_key_is_accepted_at_once(world: World, warm: Engine) -> None:
    """Its key stays when the task is finished, and every request asks for its key."""
    new = world.new(idempotency_key="order 7")
    (answer,) = await world.enqueue(warm, new, is_resend=True)
    assert answer.is_new
    await warm.submit(c.CancelTask(namespace=NAMESPACE, task_id=new.id))
    await refused_as_known(world, warm, new)
