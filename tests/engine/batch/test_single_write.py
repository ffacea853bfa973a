"""A command that comes alone is one statement, and never decides by what is no longer so."""

from __future__ import annotations

from typing import Final, NamedTuple

import pytest

from tenure.core.limits import CROWDED_MS, FALLBACK_POLL_MS, STORE_TIME_KEPT_MS, YOUNG_MARGIN_MS
from tenure.core.task.record import Task, TaskState
from tenure.engine.access.command import SetQueue
from tenure.engine.engine import Engine
from tenure.engine.task.command import FinishKind, Reported, TerminateTask
from tenure.errors import AlreadyExists, Rejection
from tests.engine.run.runs import cancel, positions, report, start
from tests.engine.world import NAMESPACE, QUEUE, Sink, World
from tests.polling import eventually

_COMMITS: Final = {"before COMMIT", "after COMMIT"}
BRAKES_SQL: Final = (
    "INSERT INTO queues (namespace, name, is_paused, concurrency_max, version)"
    f" VALUES ('{NAMESPACE}', '{QUEUE}', "
)


class Seat(NamedTuple):
    """An engine, a worker with a session at it, and what the session gets."""

    engine: Engine
    worker: str
    sink: Sink


@pytest.fixture
async def seat(world: World, engine: Engine) -> Seat:
    """A worker that this server remembers, because it has handed it a task."""
    worker = await world.worker(engine)
    sink, _ = await world.session(engine, worker)
    await world.add(engine, 2)
    for task in sink.take():
        await world.finish(engine, worker, task)
    await world.settle(engine)
    world.faults.points.clear()
    return Seat(engine, worker, sink)


def statements(world: World) -> list[str]:
    """Return what was sent to the store since the last question."""
    points = [each for each in world.faults.points if each not in _COMMITS]
    world.faults.points.clear()
    return points


async def handed(world: World, seat: Seat) -> Task:
    await world.add(seat.engine)
    (task,) = seat.sink.take()
    world.faults.points.clear()
    return task


async def test_an_enqueue_that_is_handed_out_at_once_is_one_statement(
    world: World, seat: Seat
) -> None:
    (task_id,) = await world.add(seat.engine)
    assert statements(world) == ["insert_alone"]
    (task,) = seat.sink.take()
    assert await world.task(task_id) == task
    assert (task.state, task.worker_id) == (TaskState.DISPATCHED, seat.worker)


async def test_an_enqueue_that_nobody_waits_for_is_one_statement(
    world: World, engine: Engine
) -> None:
    await world.add(engine, 2)
    statements(world)
    (task_id,) = await world.add(engine)
    assert statements(world) == ["insert_alone"]
    assert await world.state(task_id) is TaskState.PENDING


async def test_the_end_of_a_task_is_one_statement(world: World, seat: Seat) -> None:
    task = await handed(world, seat)
    await world.advance(40)
    assert isinstance(await world.finish(seat.engine, seat.worker, task), Reported)
    assert statements(world) == ["finish_tasks"]
    assert (await world.task(task.id)).finished_at_ms == world.clock.now_ms()


async def test_a_confirmation_is_one_statement(world: World, seat: Seat) -> None:
    task = await handed(world, seat)
    await world.confirm(seat.engine, seat.worker, task)
    assert statements(world) == ["update_alone"]
    assert await world.state(task.id) is TaskState.RUNNING


async def test_a_lone_step_is_one_statement_from_the_first_on(world: World, seat: Seat) -> None:
    await start(world, seat.engine)
    (task,) = seat.sink.take()
    statements(world)
    for number in (1, 2, 3):
        place = await positions(seat.engine, seat.worker, report(task, first_no=number))
        assert place == [number]
        assert statements(world) == ["insert_entries"]


async def test_a_step_of_a_clean_up_reads_nothing(world: World, seat: Seat) -> None:
    await start(world, seat.engine)
    (task,) = seat.sink.take()
    await world.confirm(seat.engine, seat.worker, task)
    await cancel(seat.engine, task.id)
    await world.settle(seat.engine)
    statements(world)
    assert await positions(seat.engine, seat.worker, report(task)) == [2]
    assert statements(world) == ["insert_entries"]
    assert await world.state(task.id) is TaskState.CANCELLING


async def test_a_confirmation_alone_never_counts_for_a_worker_that_is_over(
    world: World, seat: Seat
) -> None:
    task = await handed(world, seat)
    # Another server has taken it offline, and has not put back yet what it held.
    await world.database.execute(
        "UPDATE workers SET status = 'offline', end_reason = 'evicted', release_pending = "
        f"(1 = 1), ended_at_ms = {world.clock.now_ms()}, version = version + 1 "
        f"WHERE id = '{seat.worker}'"
    )
    await world.database.execute(f"DELETE FROM leases WHERE worker_id = '{seat.worker}'")
    (answer,) = await world.confirm(seat.engine, seat.worker, task)
    assert isinstance(answer, Rejection)
    assert answer.code == "worker_inactive"
    assert await world.state(task.id) is TaskState.DISPATCHED


async def crowd(world: World, engine: Engine, count: int, payload: bytes = b"") -> list[str]:
    """Let tasks wait that nobody was told of, as after a word from another server."""
    await engine.submit(SetQueue(namespace=NAMESPACE, name=QUEUE, is_paused=True))
    ids = [(await world.add(engine, input=payload))[0] for _ in range(count)]
    await world.database.execute("DELETE FROM queues")
    statements(world)
    return ids


async def test_a_claim_of_one_task_is_a_look_and_a_write(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    await world.add(engine, 2)
    await world.claim(engine, worker, max_tasks=2)
    (task_id,) = await crowd(world, engine, 1)
    (task,) = await world.claim(engine, worker)
    assert statements(world) == ["peek_tasks", "update_alone"]
    assert task.id == task_id
    assert (await world.task(task_id)).worker_id == worker


async def crowd_of_one(world: World, engine: Engine) -> tuple[str, str]:
    """Let one task wait in a line that was empty; return it and who may claim it."""
    worker = await world.worker(engine)
    await world.add(engine, 2)
    # One more than there are: so the server knows that these were all.
    await world.claim(engine, worker, max_tasks=3)
    (task_id,) = await crowd(world, engine, 1, b"hello")
    return task_id, worker


async def test_a_claim_of_the_only_task_that_its_server_knows_of_is_one_write(
    world: World, engine: Engine
) -> None:
    for _ in range(2):
        task_id, worker = await crowd_of_one(world, engine)
        (task,) = await world.claim(engine, worker)
        assert statements(world) == ["update_alone"]
        assert (task.id, task.attempt, task.input) == (task_id, 1, b"hello")
        stored = await world.task(task_id)
        assert (stored.state, stored.worker_id, stored.attempt) == (task.state, worker, 1)


async def test_an_only_task_that_has_changed_elsewhere_is_claimed_as_it_is(
    world: World, engine: Engine
) -> None:
    task_id, worker = await crowd_of_one(world, engine)
    await world.database.execute("UPDATE tasks SET version = version + 1")
    (task,) = await world.claim(engine, worker)
    found = statements(world)
    assert (found[0], "claim_tasks" in found) == ("update_alone", True)
    assert (task.id, task.attempt) == (task_id, 1)
    assert (await world.task(task_id)).worker_id == worker


async def test_an_only_task_that_was_taken_elsewhere_is_not_claimed(
    world: World, engine: Engine
) -> None:
    _, worker = await crowd_of_one(world, engine)
    await world.database.execute("DELETE FROM tasks WHERE line > 0")
    assert await world.claim(engine, worker) == ()
    (task_id,) = await crowd(world, engine, 1)
    (task,) = await world.claim(engine, worker)
    assert task.id == task_id


async def test_a_session_whose_lines_are_empty_looks_and_writes_nothing(
    world: World, seat: Seat
) -> None:
    await world.advance(FALLBACK_POLL_MS)
    seat.engine.look_for_work()
    await eventually(lambda: "peek_tasks" in world.faults.points)
    await world.settle(seat.engine)
    assert "share_workers" not in statements(world)


async def test_a_claim_of_many_tasks_is_a_batch_and_so_are_those_after_it(
    world: World, engine: Engine
) -> None:
    worker = await world.worker(engine)
    await world.add(engine, 2)
    await world.claim(engine, worker, max_tasks=2)
    ids = await crowd(world, engine, 5)
    first = await world.claim(engine, worker, max_tasks=3)
    assert {"peek_tasks", "claim_tasks"} <= set(statements(world))
    second = await world.claim(engine, worker, max_tasks=1)
    assert "peek_tasks" not in statements(world)
    await world.advance(CROWDED_MS)
    third = await world.claim(engine, worker, max_tasks=1)
    assert [task.id for task in (*first, *second, *third)] == ids
    assert "update_alone" in statements(world)


async def test_a_claim_by_a_worker_that_has_changed_is_decided_again(
    world: World, engine: Engine
) -> None:
    worker = await world.worker(engine)
    await world.add(engine, 2)
    await world.claim(engine, worker, max_tasks=2)
    (task_id,) = await crowd(world, engine, 1)
    await world.database.execute("UPDATE workers SET version = version + 1")
    (task,) = await world.claim(engine, worker)
    assert "lock_receivers" in statements(world)
    assert task.id == task_id
    assert (await world.task(task_id)).worker_id == worker


async def test_what_needs_more_than_one_write_is_a_transaction(world: World, seat: Seat) -> None:
    task = await handed(world, seat)
    await world.finish(seat.engine, seat.worker, task, FinishKind.RELEASED)
    assert "insert_attempts" in statements(world)
    await world.add(seat.engine, idempotency_key="once")
    assert "insert_keys" in statements(world)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE workers SET status = 'draining', drain_at_ms = 0, version = version + 1",
        "UPDATE workers SET session_no = session_no + 1, version = version + 1",
        BRAKES_SQL + "true, 0, 1)",
        "UPDATE leases SET beat_at_ms = beat_at_ms - lease_ms",
    ],
    ids=["drained", "at another server", "paused", "late"],
)
async def test_a_worker_that_may_get_nothing_any_more_gets_nothing(
    world: World, seat: Seat, change: str
) -> None:
    await world.database.execute(change)
    (task_id,) = await world.add(seat.engine)
    assert statements(world)[:1] == ["insert_alone"]
    assert await world.state(task_id) is TaskState.PENDING
    assert not seat.sink.take()


@pytest.mark.parametrize(
    "change",
    [
        BRAKES_SQL + "false, 1, 1)",
        "UPDATE leases SET lease_ms = lease_ms - 1",
        "UPDATE workers SET version = version + 1",
    ],
    ids=["a limit", "another lease", "another version"],
)
async def test_a_worker_that_has_changed_is_looked_at_and_gets_its_task(
    world: World, seat: Seat, change: str
) -> None:
    await world.database.execute(change)
    await world.add(seat.engine)
    assert "share_workers" in statements(world)
    assert len(seat.sink.take()) == 1


async def test_a_limit_that_is_known_is_kept(world: World, seat: Seat) -> None:
    await seat.engine.submit(SetQueue(namespace=NAMESPACE, name=QUEUE, concurrency_max=1))
    first, second = [(await world.add(seat.engine))[0] for _ in range(2)]
    await world.settle(seat.engine)
    assert [task.id for task in seat.sink.take()] == [first]
    assert await world.state(second) is TaskState.PENDING


@pytest.mark.parametrize("off_ms", [YOUNG_MARGIN_MS + 1, -YOUNG_MARGIN_MS - 1])
async def test_a_clock_that_was_set_is_noticed(world: World, seat: Seat, off_ms: int) -> None:
    await world.jump(off_ms)
    (task_id,) = await world.add(seat.engine)
    assert len(statements(world)) > 1
    assert (await world.task(task_id)).created_at_ms == world.clock.now_ms()


async def test_the_time_is_read_again_after_a_while(world: World, seat: Seat) -> None:
    await world.advance(STORE_TIME_KEPT_MS + 1)
    await world.add(seat.engine)
    assert "insert_tasks" in statements(world)
    await world.add(seat.engine)
    assert statements(world) == ["insert_alone"]


async def test_an_attempt_that_another_server_has_ended_is_not_ended_again(
    world: World, seat: Seat
) -> None:
    other = await world.start()
    task = await handed(world, seat)
    await other.submit(TerminateTask(namespace=NAMESPACE, task_id=task.id))
    answer = await world.finish(seat.engine, seat.worker, task)
    assert isinstance(answer, Rejection)
    assert await world.state(task.id) is TaskState.FAILED


async def test_an_end_that_is_reported_twice_gets_its_answer_again(
    world: World, seat: Seat
) -> None:
    task = await handed(world, seat)
    first = await world.finish(seat.engine, seat.worker, task)
    assert await world.finish(seat.engine, seat.worker, task) == first
    assert isinstance(first, Reported)


async def test_an_id_that_exists_is_refused(world: World, seat: Seat) -> None:
    new = world.new()
    await world.enqueue(seat.engine, new)
    with pytest.raises(AlreadyExists):
        await world.enqueue(seat.engine, new)


async def test_more_than_one_thing_to_do_is_a_batch(world: World, seat: Seat) -> None:
    await world.add(seat.engine, 2)
    assert statements(world)[-1] == "insert_tasks"
    assert len(seat.sink.take()) == 2
