"""The crash guard at work: groups of suspects, a line of their own, and deaths by chance."""

from __future__ import annotations

from tenure.core.limits import CONTROL_WINDOW_MS
from tenure.core.task.record import Line, Task, TaskState
from tenure.engine.access.command import SetQueue
from tenure.engine.engine import Engine
from tenure.engine.services.due_tasks import DueTasks
from tenure.engine.task.command import Finish, FinishKind, FinishTasks
from tests.engine.world import NAMESPACE, QUEUE, World


async def supersede(world: World, engine: Engine, name: str) -> str:
    """Start a worker anew under its name: the one before it has died with all that it held."""
    worker = await world.worker(engine, name=name, slots=100)
    await world.settle(engine)
    return worker


async def make_suspects(world: World, engine: Engine, count: int) -> list[str]:
    """Lose tasks twice, together, and let their back-off pass."""
    ids = await world.add(engine, count)
    for _ in range(2):
        worker = await supersede(world, engine, "first")
        claimed = await world.claim(engine, worker, max_tasks=100)
        assert len(claimed) == count
    await supersede(world, engine, "first")
    await world.advance(1_000)
    await world.round(DueTasks(), engine)
    stored = [await world.task(each) for each in ids]
    assert {each.line for each in stored} == {Line.SUSPECT}
    return ids


def ids_of(tasks: tuple[Task, ...]) -> list[str]:
    return [each.id for each in tasks]


async def test_suspects_come_back_in_groups_of_half_the_size_that_died(
    world: World, engine: Engine
) -> None:
    ids = await make_suspects(world, engine, 20)
    one, other = await world.worker(engine, slots=100), await world.worker(engine, slots=100)
    group = await world.claim(engine, one, max_tasks=100)
    assert ids_of(group) == ids[:10]
    assert await world.claim(engine, one, max_tasks=100) == ()
    assert ids_of(await world.claim(engine, other, max_tasks=100)) == ids[10:]


async def test_a_suspect_that_ends_makes_room_for_the_next_one(
    world: World, engine: Engine
) -> None:
    worker = await world.worker(engine, slots=100)
    ids = await make_suspects(world, engine, 4)
    sink, _ = await world.session(engine, worker, window=100)
    await world.settle(engine)
    first, second = sink.take()
    assert [first.id, second.id] == ids[:2]
    await world.finish(engine, worker, first)
    await world.settle(engine)
    assert [each.id for each in sink.take()] == [ids[2]]
    assert (await world.task(first.id)).state is TaskState.SUCCEEDED


async def test_suspects_never_stand_before_an_ordinary_retry(world: World, engine: Engine) -> None:
    await make_suspects(world, engine, 6)
    worker = await world.worker(engine, slots=100)
    assert len(await world.claim(engine, worker, max_tasks=100)) == 3
    (ordinary,) = await world.add(engine)
    assert ids_of(await world.claim(engine, worker, max_tasks=1)) == [ordinary]
    refs = (Finish(task_id=ordinary, attempt=1, kind=FinishKind.RELEASED),)
    await engine.submit(FinishTasks(namespace=NAMESPACE, worker_id=worker, items=refs))
    assert (await world.task(ordinary)).line is Line.RETURNED
    assert ids_of(await world.claim(engine, worker, max_tasks=1)) == [ordinary]


async def test_suspects_that_fit_nobody_do_not_use_up_the_limit_of_their_queue(
    world: World, engine: Engine
) -> None:
    await make_suspects(world, engine, 4)
    worker = await world.worker(engine, slots=100)
    assert len(await world.claim(engine, worker, max_tasks=100)) == 2
    await engine.submit(SetQueue(namespace=NAMESPACE, name=QUEUE, concurrency_max=3))
    (ordinary,) = await world.add(engine)
    assert ids_of(await world.claim(engine, worker)) == [ordinary]


async def test_a_new_worker_gets_the_suspects_that_fitted_nobody(
    world: World, engine: Engine
) -> None:
    ids = await make_suspects(world, engine, 2)
    worker = await world.worker(engine, slots=100)
    assert ids_of(await world.claim(engine, worker)) == ids[:1]
    assert await world.claim(engine, worker) == ()
    sink, _ = await world.session(engine, await world.worker(engine))
    await world.settle(engine)
    assert [each.id for each in sink.take()] == ids[1:]


async def lose_alone(world: World, engine: Engine, task_id: str, *, name: str) -> None:
    """Lose a task once more, with a worker that holds nothing else."""
    worker = await supersede(world, engine, name)
    assert ids_of(await world.claim(engine, worker, max_tasks=1)) == [task_id]
    await world.advance(4_000)
    await supersede(world, engine, name)
    await world.advance(16_000)
    await world.round(DueTasks(), engine)


async def test_a_loss_does_not_count_while_other_workers_die_as_often(
    world: World, engine: Engine
) -> None:
    (task_id,) = await world.add(engine)
    for _ in range(6):
        for number in range(4):
            for _ in range(6):
                await supersede(world, engine, f"other-{number}")
        await lose_alone(world, engine, task_id, name="mine")
    storm = (await world.task(task_id)).progress
    assert (storm.loss_count, storm.counted_count) == (6, 0)
    await world.advance(CONTROL_WINDOW_MS)
    for _ in range(5):
        await lose_alone(world, engine, task_id, name="mine")
    calm = await world.task(task_id)
    assert calm.state is TaskState.FAILED
    assert calm.progress.reason == "POISONED"


async def test_a_suspect_that_explains_the_death_of_its_worker_hides_no_other(
    world: World, engine: Engine
) -> None:
    first, second = [(await world.add(engine))[0] for _ in range(2)]
    both = (first, second)
    for _ in range(3):
        workers = [await supersede(world, engine, name) for name in ("one", "two")]
        held = [await world.claim(engine, each, max_tasks=1) for each in workers]
        assert {each.id for (each,) in held} == set(both)
        await world.advance(4_000)
        for name in ("one", "two"):
            await supersede(world, engine, name)
        await world.advance(16_000)
        await world.round(DueTasks(), engine)
    rows = await world.database.rows("SELECT is_end_explained FROM workers WHERE status='offline'")
    assert sum(bool(row["is_end_explained"]) for row in rows) == 2
