"""A disabled namespace: nothing new comes in or goes out, and what is held may be finished."""

from __future__ import annotations

import asyncio

import pytest

from tenure.core.access.api_key import Role
from tenure.core.queue import Namespace
from tenure.core.task.record import TaskState
from tenure.core.worker.record import NewWorker, WorkerMode
from tenure.engine.access.command import CreateKey, CreateNamespace, SetNamespace
from tenure.engine.command import AnyCommand
from tenure.engine.engine import Engine
from tenure.engine.services.due_tasks import DueTasks
from tenure.engine.task.command import CancelTask, ClaimTasks, EnqueueTasks, RetryTask
from tenure.engine.worker.command import DrainWorker, OpenSession, RegisterWorker
from tenure.errors import AlreadyExists, NotFound, TenureError, WrongState
from tests.engine.world import NAMESPACE, OTHER_NAMESPACE, QUEUE, Faults, Sink, World, codes, ref


@pytest.fixture
async def worker(world: World, engine: Engine) -> str:
    return await world.worker(engine)


async def set_namespace(engine: Engine, name: str = NAMESPACE, *, is_disabled: bool) -> Namespace:
    command = SetNamespace(name=name, is_disabled=is_disabled)
    return await engine.submit(command)


async def refused(world: World, engine: Engine, command: AnyCommand) -> TenureError:
    """Run a command that is refused and changes nothing; return the refusal."""
    before = await world.dump("namespaces", "tasks", "workers", "leases", "audit")
    with pytest.raises(TenureError) as caught:
        await engine.submit(command)
    assert await world.dump("namespaces", "tasks", "workers", "leases", "audit") == before
    return caught.value


async def test_it_takes_no_workers_no_tasks_and_no_polls(
    world: World, engine: Engine, worker: str
) -> None:
    (task_id,) = await world.add(engine)
    await engine.submit(CancelTask(namespace=NAMESPACE, task_id=task_id))
    changed = await set_namespace(engine, is_disabled=True)
    assert (changed.name, changed.is_disabled) == (NAMESPACE, True)
    new = NewWorker(instance_key="k", queue=QUEUE, types=("mail",), mode=WorkerMode.POLL)
    commands: list[AnyCommand] = [
        RegisterWorker(namespace=NAMESPACE, new=new),
        EnqueueTasks(namespace=NAMESPACE, tasks=(world.new(),)),
        RetryTask(namespace=NAMESPACE, task_id=task_id, new_task_id=world.clock.new_id()),
        OpenSession(namespace=NAMESPACE, worker_id=worker, held=(), window=1, sink=Sink()),
        ClaimTasks(namespace=NAMESPACE, worker_id=worker, queue=QUEUE, types=frozenset({"mail"})),
    ]
    for command in commands:
        error = await refused(world, engine, command)
        assert isinstance(error, WrongState)
        assert error.fields == {"state": "disabled"}
        assert error.message == (
            f"Namespace {NAMESPACE} is disabled. "
            f"To enable it, run: tenure namespaces enable {NAMESPACE}"
        )


async def test_others_are_not_disturbed(world: World, engine: Engine) -> None:
    await set_namespace(engine, OTHER_NAMESPACE, is_disabled=True)
    worker = await world.worker(engine)
    await world.held(engine, worker)
    with pytest.raises(WrongState):
        await world.enqueue(engine, world.new(), namespace=OTHER_NAMESPACE)


async def test_what_comes_behind_in_the_same_batch_is_refused(world: World, engine: Engine) -> None:
    first = engine.submit(EnqueueTasks(namespace=NAMESPACE, tasks=(world.new(),)))
    disabling = engine.submit(SetNamespace(name=NAMESPACE, is_disabled=True))
    second = engine.submit(EnqueueTasks(namespace=NAMESPACE, tasks=(world.new(),)))
    enabling = engine.submit(SetNamespace(name=NAMESPACE, is_disabled=False))
    third = engine.submit(EnqueueTasks(namespace=NAMESPACE, tasks=(world.new(),)))
    await asyncio.gather(first, disabling, enabling, third)
    with pytest.raises(WrongState):
        await second
    assert not engine.access_cache.is_disabled(NAMESPACE)


async def test_what_was_accepted_before_keeps_its_answer(world: World, engine: Engine) -> None:
    new = world.new(idempotency_key="k")
    (first,) = await world.enqueue(engine, new)
    await set_namespace(engine, is_disabled=True)
    (again,) = await world.enqueue(engine, new, is_resend=True)
    assert (again.task_id, again.is_new) == (first.task_id, False)
    with pytest.raises(WrongState):
        await world.enqueue(engine, new, world.new(idempotency_key="l"), is_resend=True)


async def test_a_waiting_poll_is_answered_and_nothing_is_handed_out(
    world: World, engine: Engine, worker: str
) -> None:
    poll = world.poll(engine, worker, wait_ms=60_000)
    await world.settle(engine)
    await set_namespace(engine, is_disabled=True)
    with pytest.raises(WrongState):
        await poll
    assert engine.occupancy.poll_count == 0


async def test_a_session_gets_nothing_finishes_what_it_holds_and_goes_on_when_enabled(
    world: World, engine: Engine, worker: str
) -> None:
    sink, _ = await world.session(engine, worker, window=2)
    first, second = await world.add(engine, 2)
    (waiting,) = await world.add(engine)
    await world.settle(engine)
    given = sink.take()
    assert [each.id for each in given] == [first, second]
    await set_namespace(engine, is_disabled=True)
    await world.confirm(engine, worker, *given)
    assert codes([await world.finish(engine, worker, given[0])]) == ["succeeded"]
    await world.beat(engine, worker, 1)
    engine.look_for_work()
    await world.settle(engine)
    assert sink.given == []
    assert await world.state(waiting) is TaskState.PENDING
    await set_namespace(engine, is_disabled=False)
    await world.settle(engine)
    assert [each.id for each in sink.take()] == [waiting]


async def test_who_holds_something_may_come_back_to_finish_it(
    world: World, engine: Engine, worker: str
) -> None:
    task = await world.running(engine, worker)
    await world.add(engine)
    await set_namespace(engine, is_disabled=True)
    sink, answer = await world.session(engine, worker, ref(task))
    assert answer.held == {ref(task)}
    assert codes([await world.finish(engine, worker, task)]) == ["succeeded"]
    await world.settle(engine)
    assert sink.given == []


async def test_its_timers_go_on_and_what_they_put_back_waits(
    world: World, engine: Engine, worker: str
) -> None:
    sink, _ = await world.session(engine, worker, window=1)
    (task_id,) = await world.add(engine)
    await world.settle(engine)
    (task,) = sink.take()
    await world.confirm(engine, worker, task)
    await set_namespace(engine, is_disabled=True)
    await world.watch(engine, 600_000)
    await world.round(DueTasks(), engine)
    assert await world.state(task_id) is not TaskState.RUNNING
    assert sink.given == []


async def test_its_tasks_and_workers_can_still_be_administered(
    world: World, engine: Engine, worker: str
) -> None:
    (task_id,) = await world.add(engine)
    await set_namespace(engine, is_disabled=True)
    assert await world.state(task_id) is TaskState.PENDING
    await engine.submit(CancelTask(namespace=NAMESPACE, task_id=task_id))
    await engine.submit(DrainWorker(namespace=NAMESPACE, worker_id=worker))
    await engine.submit(CreateKey(name="ci", role=Role.CLIENT, namespaces=(NAMESPACE,)))


async def test_setting_what_is_so_changes_nothing(world: World, engine: Engine) -> None:
    first = await set_namespace(engine, is_disabled=True)
    before = await world.dump("namespaces", "audit")
    assert await set_namespace(engine, is_disabled=True) == first
    assert await world.dump("namespaces", "audit") == before


async def test_one_that_does_not_exist_cannot_be_disabled(world: World, engine: Engine) -> None:
    command = SetNamespace(name="no/such", is_disabled=True)
    error = await refused(world, engine, command)
    assert isinstance(error, NotFound)
    assert error.message == "Namespace no/such was not found."


async def test_one_can_be_created_and_disabled_in_one_batch(engine: Engine) -> None:
    creating = engine.submit(CreateNamespace(name="new/default"))
    disabling = engine.submit(SetNamespace(name="new/default", is_disabled=True))
    assert await creating == "new/default"
    assert (await disabling).is_disabled
    assert engine.access_cache.is_disabled("new/default")
    with pytest.raises(AlreadyExists):
        await engine.submit(CreateNamespace(name="new/default"))


async def test_a_server_that_starts_knows_it(world: World, engine: Engine) -> None:
    await set_namespace(engine, is_disabled=True)
    late = await world.start()
    assert late.access_cache.is_disabled(NAMESPACE)
    with pytest.raises(WrongState):
        await world.add(late)


async def test_the_common_batch_reads_no_namespace(world: World) -> None:
    faults = Faults()
    engine = await world.start(faults=faults)
    worker = await world.worker(engine)
    await set_namespace(engine, OTHER_NAMESPACE, is_disabled=True)
    faults.points.clear()
    task = await world.held(engine, worker)
    await world.finish(engine, worker, task)
    assert not {"read_namespaces", "read_access", "lock_access"} & set(faults.points)
