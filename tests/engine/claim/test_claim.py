"""Claims: polls and what they may get, queues and their brakes, fairness, cancelled callers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenure.core.task.attempt import Outcome
from tenure.core.task.record import Line, TaskState
from tenure.engine.access.command import SetQueue
from tenure.engine.engine import Engine
from tenure.engine.services.claim_fallback import ClaimFallback
from tenure.engine.services.due_tasks import DueTasks
from tenure.engine.task.command import CancelTask, CompleteById, Finish, FinishKind
from tenure.engine.worker.command import DrainWorker, EvictWorker
from tenure.errors import InvalidArgument, WorkerDraining, WorkerInactive
from tests.engine.world import NAMESPACE, OTHER_NAMESPACE, QUEUE, World

TWO_TYPES: Any = frozenset({"mail", "sms"})


async def set_queue(engine: Engine, **brakes: Any) -> Any:
    return await engine.submit(SetQueue(**{"namespace": NAMESPACE, "name": QUEUE, **brakes}))


class TestPolls:
    async def test_a_claimed_task_is_dispatched_to_the_worker_with_the_next_attempt(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        task = await world.held(engine, worker, input=b"in")
        assert (task.state, task.attempt, task.worker_id) == (TaskState.DISPATCHED, 1, worker)
        assert (task.input, task.handed_at_ms) == (b"in", world.clock.now_ms())
        stored = await world.task(task.id)
        assert (stored.state, stored.attempt, stored.line) == (TaskState.DISPATCHED, 1, Line.NONE)
        assert stored.due_at_ms == world.clock.now_ms() + 20_000

    async def test_a_poll_gets_at_most_what_it_asks_for(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine)
        ids = await world.add(engine, 5)
        first = await world.claim(engine, worker, max_tasks=3)
        rest = await world.claim(engine, worker, max_tasks=3)
        assert [task.id for task in first] == ids[:3]
        assert [task.id for task in rest] == ids[3:]

    async def test_a_poll_returns_empty_at_its_deadline(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine)
        assert await world.poll(engine, worker, wait_ms=5) == ()

    async def test_a_poll_waits_for_work(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine)
        poll = world.poll(engine, worker)
        await world.settle(engine)
        assert not poll.done()
        (task_id,) = await world.add(engine)
        assert [task.id for task in await poll] == [task_id]

    async def test_one_task_wakes_one_poll(self, world: World, engine: Engine) -> None:
        polls = [world.poll(engine, await world.worker(engine)) for _ in range(3)]
        await world.settle(engine)
        await world.add(engine)
        await world.settle(engine)
        assert [poll.done() for poll in polls] == [True, False, False]

    async def test_nothing_is_handed_out_after_a_deadline(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        assert await world.poll(engine, worker, wait_ms=1) == ()
        (task_id,) = await world.add(engine)
        await world.settle(engine)
        assert await world.state(task_id) is TaskState.PENDING

    async def test_the_task_of_a_caller_that_went_away_is_given_back_at_once(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        (task_id,) = await world.add(engine)
        poll = world.poll(engine, worker)
        world.faults.call_at("before COMMIT", poll.cancel)
        await world.settle(engine)
        task = await world.task(task_id)
        assert (task.state, task.last_outcome) == (TaskState.PENDING, Outcome.UNDELIVERED)
        assert (task.attempt, task.progress.failure_count) == (1, 0)
        (again,) = await world.claim(engine, worker)
        assert (again.id, again.attempt) == (task_id, 2)

    async def test_a_waiting_poll_whose_caller_went_away_gets_nothing(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        poll = world.poll(engine, worker)
        await world.settle(engine)
        poll.cancel()
        await asyncio.sleep(0)
        (task_id,) = await world.add(engine)
        await world.settle(engine)
        task = await world.task(task_id)
        assert (task.state, task.attempt) == (TaskState.PENDING, 0)

    async def test_after_three_undelivered_hand_outs_a_task_backs_off(
        self, world: World, engine: Engine
    ) -> None:
        worker, other = await world.worker(engine), await world.worker(engine)
        (task_id,) = await world.add(engine)
        for _ in range(3):
            poll = world.poll(engine, worker)
            world.faults.call_at("before COMMIT", poll.cancel)
            await world.settle(engine)
        task = await world.task(task_id)
        assert (task.line, task.run_at_ms) == (Line.NONE, world.clock.now_ms() + 1_000)
        assert task.progress.avoid_worker_id == worker
        assert await world.claim(engine, other) == ()


class TestWhoMayClaim:
    async def test_an_unknown_worker_is_inactive(self, world: World, engine: Engine) -> None:
        with pytest.raises(WorkerInactive) as caught:
            await world.claim(engine, world.clock.new_id())
        assert caught.value.fields == {"reason": "unknown"}

    async def test_a_worker_of_another_namespace_is_inactive(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine, namespace=OTHER_NAMESPACE)
        (task_id,) = await world.add(engine)
        with pytest.raises(WorkerInactive) as caught:
            await world.claim(engine, worker)
        assert caught.value.fields == {"reason": "unknown"}
        assert await world.state(task_id) is TaskState.PENDING

    async def test_a_draining_worker_is_told_so(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine)
        await engine.submit(DrainWorker(namespace=NAMESPACE, worker_id=worker))
        await world.add(engine)
        with pytest.raises(WorkerDraining):
            await world.claim(engine, worker)

    @pytest.mark.parametrize("task_count", [0, 1], ids=["alone", "beside a poll that is served"])
    async def test_a_draining_worker_is_told_so_by_a_poll_for_which_there_is_nothing(
        self, world: World, engine: Engine, task_count: int
    ) -> None:
        served, draining = await world.worker(engine, "mail"), await world.worker(engine, "post")
        # From now on this server knows that no such task waits.
        assert await world.claim(engine, draining, types=frozenset({"post"})) == ()
        await engine.submit(DrainWorker(namespace=NAMESPACE, worker_id=draining))
        if task_count:
            await world.add(engine, task_count)
        polls = [
            world.poll(engine, served, types=frozenset({"mail"})),
            world.poll(engine, draining, types=frozenset({"post"})),
        ]
        with pytest.raises(WorkerDraining):
            await polls[1]
        await world.settle(engine)
        assert polls[0].done() == bool(task_count)

    async def test_a_drain_ends_the_polls_that_wait(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine)
        poll = world.poll(engine, worker)
        await world.settle(engine)
        await engine.submit(DrainWorker(namespace=NAMESPACE, worker_id=worker))
        assert await poll == ()

    async def test_an_eviction_refuses_the_polls_that_wait(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        poll = world.poll(engine, worker)
        await world.settle(engine)
        await engine.submit(EvictWorker(namespace=NAMESPACE, worker_id=worker))
        with pytest.raises(WorkerInactive) as caught:
            await poll
        assert caught.value.fields == {"reason": "evicted"}

    @pytest.mark.parametrize(
        ("asked", "field"),
        [
            ({"types": TWO_TYPES}, "types"),
            ({"queue": "other"}, "queue"),
            ({"queue": "other", "types": TWO_TYPES}, "queue"),
        ],
    )
    async def test_a_poll_for_what_the_worker_is_not_registered_for_blames_what_is_wrong(
        self, world: World, engine: Engine, asked: dict[str, Any], field: str
    ) -> None:
        worker = await world.worker(engine, "mail")
        with pytest.raises(InvalidArgument) as caught:
            await world.claim(engine, worker, **asked)
        assert caught.value.fields == {"field": field}
        assert caught.value.message.startswith(f"{field} must be ")

    async def test_a_refused_poll_leaves_its_neighbours_alone(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        (task_id,) = await world.add(engine)
        good, bad = await asyncio.gather(
            world.claim(engine, worker),
            world.claim(engine, world.clock.new_id()),
            return_exceptions=True,
        )
        assert isinstance(bad, WorkerInactive)
        assert not isinstance(good, BaseException)
        assert [task.id for task in good] == [task_id]


class TestCapabilities:
    async def test_a_worker_gets_only_types_that_it_offers(
        self, world: World, engine: Engine
    ) -> None:
        mailer = await world.worker(engine, "mail")
        both = await world.worker(engine, "mail", "sms")
        await world.add(engine, 30, type="sms")
        mails = await world.add(engine, 2)
        claimed = await world.claim(engine, mailer)
        assert [task.id for task in claimed] == mails
        claimed = await world.claim(engine, both, types=TWO_TYPES, max_tasks=40)
        assert {task.type for task in claimed} == {"sms"}

    async def test_a_poll_may_name_fewer_types_than_the_worker_has(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine, "mail", "sms")
        await world.add(engine, type="sms")
        (mail,) = await world.add(engine)
        claimed = await world.claim(engine, worker)
        assert [task.id for task in claimed] == [mail]

    async def test_types_are_mixed_by_order_not_by_name(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine, "mail", "sms")
        expected = []
        for _ in range(3):
            expected += await world.add(engine, type="sms")
            expected += await world.add(engine, type="mail")
        claimed = await world.claim(engine, worker, types=TWO_TYPES)
        assert [task.id for task in claimed] == expected

    async def test_a_queue_of_another_namespace_is_out_of_reach(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        await world.enqueue(engine, world.new(), namespace=OTHER_NAMESPACE)
        assert await world.claim(engine, worker) == ()


class TestFairness:
    async def test_tasks_go_round_among_the_polls_that_wait(
        self, world: World, engine: Engine
    ) -> None:
        workers = [await world.worker(engine) for _ in range(3)]
        await world.add(engine, 6)
        await set_queue(engine, is_paused=True)
        polls = [world.poll(engine, each, max_tasks=4) for each in workers]
        await world.settle(engine)
        assert [poll.done() for poll in polls] == [False] * 3
        await set_queue(engine, is_paused=False)
        await world.round(ClaimFallback(), engine)
        assert [len(await poll) for poll in polls] == [2, 2, 2]

    async def test_who_waited_longest_is_served_first(self, world: World, engine: Engine) -> None:
        workers = [await world.worker(engine) for _ in range(3)]
        polls = [world.poll(engine, each) for each in workers]
        await world.settle(engine)
        for number in range(3):
            await world.add(engine)
            await world.settle(engine)
            assert [poll.done() for poll in polls] == [index <= number for index in range(3)]

    async def test_a_session_that_was_served_goes_to_the_end(
        self, world: World, engine: Engine
    ) -> None:
        sinks = []
        for _ in range(2):
            sink, _answer = await world.session(engine, await world.worker(engine))
            sinks.append(sink)
        for _ in range(4):
            await world.add(engine)
            await world.settle(engine)
        assert [len(sink.given) for sink in sinks] == [2, 2]


class TestBrakes:
    async def test_a_paused_queue_hands_out_nothing_until_it_goes_on(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        queue = await set_queue(engine, is_paused=True)
        assert (queue.is_paused, queue.concurrency_max) == (True, 0)
        poll = world.poll(engine, worker)
        (task_id,) = await world.add(engine)
        await world.settle(engine)
        assert not poll.done()
        assert await world.state(task_id) is TaskState.PENDING
        await set_queue(engine, is_paused=False)
        await world.round(ClaimFallback(), engine)
        assert [task.id for task in await poll] == [task_id]

    async def test_opening_a_queue_again_serves_who_waits_without_a_fallback_round(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        await set_queue(engine, is_paused=True)
        poll = world.poll(engine, worker)
        await world.add(engine)
        await world.settle(engine)
        await set_queue(engine, is_paused=False)
        await world.settle(engine)
        assert poll.done()

    async def test_other_queues_go_on(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine)
        await set_queue(engine, is_paused=True, name="other")
        (task_id,) = await world.add(engine)
        assert [task.id for task in await world.claim(engine, worker)] == [task_id]

    async def test_a_limit_bounds_what_all_workers_hold_together(
        self, world: World, engine: Engine
    ) -> None:
        first, second = await world.worker(engine), await world.worker(engine)
        await set_queue(engine, concurrency_max=3)
        ids = await world.add(engine, 5)
        held = [*await world.claim(engine, first, max_tasks=2)]
        held += await world.claim(engine, second)
        assert [task.id for task in held] == ids[:3]
        assert await world.claim(engine, second) == ()
        await world.finish(engine, first, held[0])
        assert [task.id for task in await world.claim(engine, second)] == [ids[3]]

    async def test_the_end_of_what_nobody_holds_frees_no_place_in_a_limit(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        outside = await world.running(engine, worker)
        await world.finish(engine, worker, outside, FinishKind.DEFERRED)
        await engine.submit(CancelTask(namespace=NAMESPACE, task_id=outside.id))
        await world.held(engine, worker)
        await set_queue(engine, concurrency_max=1)
        await world.add(engine)
        finish = Finish(task_id=outside.id, attempt=0, kind=FinishKind.SUCCEEDED)
        # In one batch, so that the claim counts before the end of the task is saved.
        completed = engine.submit(CompleteById(namespace=NAMESPACE, finish=finish))
        claimed = world.poll(engine, worker, wait_ms=0)
        assert (await completed).state is TaskState.SUCCEEDED
        assert await claimed == ()

    async def test_two_engines_keep_one_limit(self, world: World, engine: Engine) -> None:
        other = await world.start()
        worker = await world.worker(engine)
        await set_queue(engine, concurrency_max=4)
        await world.add(engine, 20)
        claims = [world.claim(each, worker, max_tasks=3) for each in (engine, other) * 3]
        claimed = await asyncio.gather(*claims)
        assert sum(map(len, claimed)) == 4

    async def test_the_best_tasks_pass_a_limit_first(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine, "mail", "sms")
        await set_queue(engine, concurrency_max=1)
        await world.add(engine, priority=7)
        (urgent,) = await world.add(engine, type="sms", priority=0)
        claimed = await world.claim(engine, worker, types=TWO_TYPES)
        assert [task.id for task in claimed] == [urgent]

    async def test_zero_means_no_limit_and_none_leaves_it_as_it_is(
        self, world: World, engine: Engine
    ) -> None:
        await set_queue(engine, concurrency_max=2)
        queue = await set_queue(engine, is_paused=True)
        assert (queue.is_paused, queue.concurrency_max) == (True, 2)
        queue = await set_queue(engine, is_paused=False, concurrency_max=0)
        worker = await world.worker(engine)
        await world.add(engine, 5)
        assert len(await world.claim(engine, worker)) == 5


class TestGuard:
    async def test_a_task_suspected_of_killing_workers_is_alone_of_its_kind_on_a_worker(
        self, world: World, engine: Engine
    ) -> None:
        ids = await world.add(engine, 2)
        for _ in range(2):
            worker = await world.worker(engine)
            assert len(await world.claim(engine, worker)) == 2
            await engine.submit(EvictWorker(namespace=NAMESPACE, worker_id=worker))
            await world.settle(engine)
        await world.advance(1_000)
        await world.round(DueTasks(), engine)
        assert [(await world.task(each)).is_guarded for each in ids] == [True, True]
        worker, other = await world.worker(engine), await world.worker(engine)
        assert [task.id for task in await world.claim(engine, worker)] == ids[:1]
        assert await world.claim(engine, worker) == ()
        assert [task.id for task in await world.claim(engine, other)] == ids[1:]


async def test_what_another_engine_enqueued_is_found_by_a_waiting_poll(
    world: World, engine: Engine
) -> None:
    other = await world.start()
    worker = await world.worker(engine)
    poll = world.poll(engine, worker)
    await world.settle(engine)
    (task_id,) = await world.add(other)
    await world.advance(1_000)
    await world.round(ClaimFallback(), engine)
    assert [task.id for task in await poll] == [task_id]


@pytest.mark.parametrize("dialect", ["postgres"], indirect=True)
async def test_a_notification_wakes_the_polls_of_another_engine(
    world: World, engine: Engine
) -> None:
    other = await world.start()
    worker = await world.worker(engine)
    poll = world.poll(engine, worker)
    await world.settle(engine)
    (task_id,) = await world.add(other)
    async with asyncio.timeout(5):
        assert [task.id for task in await poll] == [task_id]


async def test_a_session_without_a_listener_gives_its_tasks_back(
    world: World, engine: Engine
) -> None:
    worker = await world.worker(engine)
    sink, _ = await world.session(engine, worker)
    sink.is_open = False
    (task_id,) = await world.add(engine)
    await world.settle(engine)
    assert sink.given == []
    assert (await world.task(task_id)).last_outcome is Outcome.UNDELIVERED


class TestLate:
    async def test_a_worker_that_missed_a_heartbeat_gets_nothing_until_it_is_heard(
        self, world: World, engine: Engine
    ) -> None:
        registered = await world.register(engine)
        worker = registered.worker.id
        (task_id,) = await world.add(engine)
        await world.advance(2 * registered.interval_ms)
        assert await world.claim(engine, worker) == ()
        await world.beat(engine, worker, registered.lease.token)
        assert [task.id for task in await world.claim(engine, worker)] == [task_id]

    async def test_a_worker_that_is_not_late_yet_gets_work(
        self, world: World, engine: Engine
    ) -> None:
        registered = await world.register(engine)
        (task_id,) = await world.add(engine)
        await world.advance(2 * registered.interval_ms - 1)
        claimed = await world.claim(engine, registered.worker.id)
        assert [task.id for task in claimed] == [task_id]
