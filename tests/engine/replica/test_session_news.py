"""What another server did to a worker whose session or poll stands here."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenure.core.task.effect import Stop, StopCause
from tenure.core.task.record import TaskState
from tenure.core.worker.record import EndReason
from tenure.engine.engine import Engine
from tenure.engine.services.hint_channel import HintChannel
from tenure.engine.task.command import CancelTask, TerminateTask
from tenure.engine.worker.command import DrainWorker, EvictWorker, JudgeLeases
from tenure.errors import WorkerInactive
from tenure.store.failure import Lost
from tests.engine.world import NAMESPACE, NEVER_MS, Faults, Sink, World, heartbeat, ref, stop
from tests.polling import eventually

# How this server hears: by hints alone, or, without any, by looking.
HINTED: dict[str, Any] = {"fallback_poll_ms": NEVER_MS, "news_poll_ms": 20}
LOOKING: dict[str, Any] = {"fallback_poll_ms": 20, "news_poll_ms": 20}


@pytest.fixture(params=["hinted", "looking", "pooled"])
async def here(request: pytest.FixtureRequest, world: World) -> Engine:
    """The server that has the session: told by hints, looking by itself, or behind a pooler."""
    settings = HINTED if request.param == "hinted" else LOOKING
    return await world.start(pooled=request.param == "pooled", **settings)


@pytest.fixture
async def there(here: Engine, world: World) -> Engine:
    """The server that does something to its worker."""
    del here
    return await world.start()


async def running(world: World, engine: Engine, worker: str, sink: Sink, count: int = 1) -> Any:
    """Let a session get tasks and confirm them."""
    await world.add(engine, count)
    await eventually(lambda: len(sink.given) >= count)
    tasks = sink.take()
    await world.confirm(engine, worker, *tasks)
    return tasks


async def test_a_cancel_request_reaches_the_session_and_its_grace_begins(
    world: World, here: Engine, there: Engine
) -> None:
    worker = await world.worker(here)
    sink, _ = await world.session(here, worker)
    (task,) = await running(world, here, worker, sink)
    await there.submit(CancelTask(namespace=NAMESPACE, task_id=task.id))
    await eventually(lambda: sink.cancelled)
    while not (await world.task(task.id)).progress.grace_at_ms:
        await world.settle(here)
    assert sink.cancelled == [ref(task)]
    assert await world.state(task.id) is TaskState.CANCELLING


async def test_a_cancel_request_is_sent_once_per_session(world: World) -> None:
    faults = Faults()
    here = await world.start(faults=faults, **LOOKING)
    there = await world.start()
    worker = await world.worker(here)
    sink, _ = await world.session(here, worker)
    first, second = await running(world, here, worker, sink, 2)
    await there.submit(CancelTask(namespace=NAMESPACE, task_id=first.id))
    await eventually(lambda: sink.cancelled)
    looks = faults.points.count("read_news")
    await eventually(lambda: faults.points.count("read_news") > looks + 3)
    await there.submit(CancelTask(namespace=NAMESPACE, task_id=second.id))
    await eventually(lambda: len(sink.cancelled) > 1)
    assert sink.cancelled == [ref(first), ref(second)]
    again, _ = await world.session(here, worker, ref(first), ref(second))
    looks = faults.points.count("read_news")
    await eventually(lambda: faults.points.count("read_news") > looks + 3)
    # The answer to the new session said so.
    assert again.cancelled == []


async def test_a_cancel_request_whose_grace_could_not_begin_is_sent_again(world: World) -> None:
    faults = Faults()
    here = await world.start(faults=faults, **LOOKING)
    there = await world.start()
    worker = await world.worker(here)
    sink, _ = await world.session(here, worker)
    (task,) = await running(world, here, worker, sink)
    faults.raise_at("update_tasks", Lost("gone", reason="connection_lost"))
    await there.submit(CancelTask(namespace=NAMESPACE, task_id=task.id))
    await eventually(lambda: len(sink.cancelled) > 1)
    while not (await world.task(task.id)).progress.grace_at_ms:
        await world.settle(here)


async def test_an_attempt_that_is_over_is_stopped_and_its_slot_is_free(
    world: World, here: Engine, there: Engine
) -> None:
    worker = await world.worker(here)
    first, second = await world.add(here, 2)
    sink, _ = await world.session(here, worker, window=1)
    await eventually(lambda: sink.given)
    assert [task.id for task in sink.take()] == [first]
    await there.submit(TerminateTask(namespace=NAMESPACE, task_id=first))
    await eventually(lambda: sink.given)
    assert [task.id for task in sink.take()] == [second]
    assert set(sink.stopped) == {Stop(first, 1, StopCause.TERMINATED)}


async def test_a_task_that_is_cancelled_before_it_started_is_stopped(
    world: World, here: Engine, there: Engine
) -> None:
    worker = await world.worker(here)
    sink, _ = await world.session(here, worker)
    (task_id,) = await world.add(here)
    await eventually(lambda: sink.given)
    await there.submit(CancelTask(namespace=NAMESPACE, task_id=task_id))
    await eventually(lambda: sink.stopped)
    assert set(sink.stopped) == {Stop(task_id, 1, StopCause.CANCELLED)}
    assert sink.cancelled == []


async def test_a_drain_reaches_the_session_once_and_what_it_holds_stays_in_sight(
    world: World, here: Engine, there: Engine
) -> None:
    worker = await world.worker(here)
    sink, _ = await world.session(here, worker)
    kept, ended = await running(world, here, worker, sink, 2)
    await there.submit(DrainWorker(namespace=NAMESPACE, worker_id=worker))
    await eventually(lambda: sink.drained)
    sink.drained = False
    here.set_window(worker, 10)
    await world.add(here)
    await there.submit(CancelTask(namespace=NAMESPACE, task_id=kept.id))
    await eventually(lambda: sink.cancelled)
    await there.submit(TerminateTask(namespace=NAMESPACE, task_id=ended.id))
    await eventually(lambda: sink.stopped)
    assert sink.cancelled == [ref(kept)]
    assert set(sink.stopped) == {stop(ended, StopCause.TERMINATED)}
    assert (sink.drained, sink.given) == (False, [])
    await there.submit(EvictWorker(namespace=NAMESPACE, worker_id=worker))
    await eventually(lambda: sink.ended)
    assert sink.ended is EndReason.EVICTED


async def test_an_eviction_ends_the_session_with_its_reason(
    world: World, here: Engine, there: Engine
) -> None:
    worker = await world.worker(here)
    sink, _ = await world.session(here, worker)
    await there.submit(EvictWorker(namespace=NAMESPACE, worker_id=worker))
    await eventually(lambda: sink.ended)
    assert sink.ended is EndReason.EVICTED
    assert not here.has_credit(worker)


async def test_a_new_incarnation_elsewhere_ends_the_session_of_the_old_one(
    world: World, here: Engine, there: Engine
) -> None:
    worker = await world.worker(here, name="mailer-1")
    sink, _ = await world.session(here, worker)
    await world.worker(there, name="mailer-1")
    await eventually(lambda: sink.ended)
    assert sink.ended is EndReason.SUPERSEDED


async def test_a_judgement_elsewhere_ends_the_session(world: World, here: Engine) -> None:
    worker = await world.worker(here, lease_ms=1_000)
    sink, _ = await world.session(here, worker)
    there = await world.start()
    await world.watch(there, 60_000)
    command = JudgeLeases(sighted_ms=60_000, amount=10, judge_readiness=there.judge_readiness)
    assert (await there.submit(command)).count == 1
    await eventually(lambda: sink.ended)
    assert sink.ended is EndReason.LEASE_EXPIRED


async def test_a_waiting_poll_ends_with_its_worker(
    world: World, here: Engine, there: Engine
) -> None:
    drained, evicted = await world.worker(here), await world.worker(here)
    polls = [world.poll(here, worker) for worker in (drained, evicted)]
    await world.settle(here)
    await there.submit(DrainWorker(namespace=NAMESPACE, worker_id=drained))
    await there.submit(EvictWorker(namespace=NAMESPACE, worker_id=evicted))
    assert await asyncio.wait_for(polls[0], 30) == ()
    with pytest.raises(WorkerInactive) as caught:
        await asyncio.wait_for(polls[1], 30)
    assert caught.value.fields == {"reason": "evicted"}


async def test_a_worker_that_has_no_row_any_more_is_told_to_register_again(world: World) -> None:
    here = await world.start(**LOOKING)
    worker = await world.worker(here)
    sink, _ = await world.session(here, worker)
    await world.database.execute("DELETE FROM workers")
    await eventually(lambda: sink.ended)
    assert sink.ended is EndReason.LEASE_EXPIRED


async def test_a_session_that_has_a_later_one_elsewhere_is_left_alone(world: World) -> None:
    faults = Faults()
    here = await world.start(faults=faults, **LOOKING)
    there = await world.start(**LOOKING)
    worker = await world.worker(here)
    old, _ = await world.session(here, worker)
    (task,) = await running(world, here, worker, old)
    new, _ = await world.session(there, worker, ref(task))
    await eventually(lambda: not here.has_credit(worker))
    await here.submit(CancelTask(namespace=NAMESPACE, task_id=task.id))
    await eventually(lambda: new.cancelled)
    assert (old.cancelled, old.ended, old.drained) == ([], None, False)


async def test_a_claim_that_finds_a_worker_drained_or_gone_tells_its_session(world: World) -> None:
    here, there = await world.start(), await world.start(pooled=True)
    drained, evicted = await world.worker(here), await world.worker(here)
    sinks = [(await world.session(here, worker))[0] for worker in (drained, evicted)]
    await there.submit(DrainWorker(namespace=NAMESPACE, worker_id=drained))
    await there.submit(EvictWorker(namespace=NAMESPACE, worker_id=evicted))
    await world.add(here)
    await world.settle(here)
    assert (sinks[0].drained, sinks[1].ended) == (True, EndReason.EVICTED)
    assert [sink.given for sink in sinks] == [[], []]


async def test_a_look_that_fails_is_repeated(world: World) -> None:
    faults = Faults()
    here = await world.start(faults=faults, **LOOKING)
    there = await world.start()
    worker = await world.worker(here)
    sink, _ = await world.session(here, worker)
    lost = Lost("gone", reason="connection_lost")
    faults.raise_at("read_news", lost)
    faults.raise_at("load_cancelling", lost)
    await there.submit(EvictWorker(namespace=NAMESPACE, worker_id=worker))
    await eventually(lambda: sink.ended)


async def test_a_heartbeat_that_reports_less_frees_the_slot_without_any_news(world: World) -> None:
    here, there = await world.start(), await world.start(pooled=True)
    worker = await world.worker(here)
    first, second = await world.add(here, 2)
    sink, _ = await world.session(here, worker, window=1)
    await there.submit(TerminateTask(namespace=NAMESPACE, task_id=first))
    assert [task.id for task in sink.take()] == [first]
    await here.heartbeat(heartbeat(here, worker, 1, active_count=0))
    await eventually(lambda: sink.given)
    assert [task.id for task in sink.take()] == [second]


async def test_many_sessions_are_looked_after_together(world: World) -> None:
    faults = Faults()
    here, there = await world.start(faults=faults, **LOOKING), await world.start()
    workers = [await world.worker(here) for _ in range(40)]
    sinks = {worker: (await world.session(here, worker))[0] for worker in workers}
    faults.points.clear()
    await asyncio.gather(
        *(there.submit(EvictWorker(namespace=NAMESPACE, worker_id=each)) for each in workers)
    )
    await eventually(lambda: all(sink.ended for sink in sinks.values()))
    assert faults.points.count("read_news") < len(workers)


@pytest.mark.parametrize("dialect", ["postgres"])
async def test_a_server_that_lost_its_side_connection_listens_again(world: World) -> None:
    here, there = await world.start(**HINTED), await world.start()
    await world.database.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE query LIKE 'LISTEN%' OR query LIKE '%pg_notify%' AND pid <> pg_backend_pid()"
    )
    await eventually(lambda: not here.store.is_listening)
    await HintChannel().run_once(here)
    await HintChannel().run_once(there)
    assert here.store.is_listening
    worker = await world.worker(here)
    sink, _ = await world.session(here, worker)
    await there.submit(EvictWorker(namespace=NAMESPACE, worker_id=worker))
    await eventually(lambda: sink.ended)
