"""Judgement: who is taken offline, when, by whom, and who is spared."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenure.core.task.attempt import Outcome
from tenure.core.task.record import TaskState
from tenure.core.worker.health import Health
from tenure.core.worker.record import EndReason, WorkerMode, WorkerStatus
from tenure.engine.engine import GRACE_MARGIN_MS, Engine
from tenure.engine.services.due_tasks import DueTasks
from tenure.engine.services.lease_judgement import LeaseJudgement
from tenure.engine.worker import command as c
from tenure.errors import WorkerInactive
from tests.engine.world import NAMESPACE, World, heartbeat

LEASE_MS = 2_000
GRACE_MS = 500


@pytest.fixture
async def engine(world: World) -> Engine:
    return await world.start(
        poll_lease_ms=LEASE_MS,
        session_lease_ms=LEASE_MS,
        served_lease_ms=LEASE_MS,
        suspect_grace_ms=GRACE_MS,
    )


async def judge(world: World, engine: Engine) -> int:
    return (await world.round(LeaseJudgement(), engine)).count


async def status(world: World, worker: str) -> tuple[WorkerStatus, EndReason | None]:
    worker_row = (await world.view(worker)).worker
    return worker_row.status, worker_row.end_reason


ONLINE: Any = (WorkerStatus.ONLINE, None)
EXPIRED: Any = (WorkerStatus.OFFLINE, EndReason.LEASE_EXPIRED)


class TestLeaseEnd:
    async def test_a_silent_worker_is_taken_offline_and_its_work_is_put_back(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        held, running = await world.held(engine, worker), await world.running(engine, worker)
        await world.watch(engine, LEASE_MS - 1)
        assert await judge(world, engine) == 0
        await world.watch(engine, 1)
        assert await judge(world, engine) == 1
        assert await status(world, worker) == EXPIRED
        assert (await world.view(worker)).lease is None
        for task in (held, running):
            stored = await world.task(task.id)
            assert (stored.state, stored.last_outcome) == (TaskState.PENDING, Outcome.WORKER_LOST)
            assert (stored.attempt, stored.progress.interruption_count) == (1, 1)

    async def test_a_worker_that_beats_in_time_keeps_everything(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        task = await world.running(engine, worker)
        for token in range(1, 6):
            await world.watch(engine, LEASE_MS - 500)
            await world.beat(engine, worker, token)
            assert await judge(world, engine) == 0
        assert await world.state(task.id) is TaskState.RUNNING

    async def test_until_it_is_judged_a_late_heartbeat_renews(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        await world.watch(engine, 3 * LEASE_MS)
        await world.beat(engine, worker, 1)
        assert await judge(world, engine) == 0
        assert await status(world, worker) == ONLINE

    async def test_a_waiting_heartbeat_is_taken_before_the_judgement(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        await world.watch(engine, 2 * LEASE_MS)
        beat = engine.submit(heartbeat(engine, worker, 1))
        assert await judge(world, engine) == 0
        assert (await beat).lease.token == 2

    async def test_offline_is_final(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine)
        await world.watch(engine, LEASE_MS)
        await judge(world, engine)
        with pytest.raises(WorkerInactive) as caught:
            await world.beat(engine, worker, 1)
        assert caught.value.fields == {"reason": "lease_expired"}
        assert await status(world, worker) == EXPIRED

    async def test_of_two_servers_one_judges(self, world: World, engine: Engine) -> None:
        other = await world.start()
        worker = await world.worker(engine)
        await world.running(engine, worker)
        for _ in range(2):
            await world.watch(engine, 500)
            await world.watch(other, 500)
        await world.watch(engine, 500)
        await world.watch(other, 500)
        await world.watch(engine, 0)
        counts = [await judge(world, each) for each in (engine, other, engine)]
        assert sum(counts) == 1
        assert len((await world.dump("attempts"))["attempts"]) == 1

    async def test_a_judgement_takes_bounded_batches(self, world: World, engine: Engine) -> None:
        workers = [await world.worker(engine) for _ in range(7)]
        await world.watch(engine, LEASE_MS)
        command = c.JudgeLeases(sighted_ms=engine.sighted_ms, amount=5)
        first = await engine.submit(command)
        second = await engine.submit(command)
        assert [(each.count, each.has_more) for each in (first, second)] == [(5, True), (2, False)]
        assert {await status(world, each) for each in workers} == {EXPIRED}


class TestDeadServer:
    """A worker and its server that die together."""

    async def scene(self, world: World, engine: Engine, *, returning: int) -> tuple[str, int]:
        """Kill a server with four workers; let some come back elsewhere, and return one that died.

        The second value is for how long the other server has watched since.
        """
        other = await world.start(session_lease_ms=LEASE_MS)
        workers = [await world.worker(engine, mode=WorkerMode.SESSION) for _ in range(4)]
        await world.watch(engine, 0)
        await world.kill(engine)
        for worker in workers[:returning]:
            await world.session(other, worker)
        took_ms = 0
        while (await status(world, workers[3]))[0] is WorkerStatus.ONLINE:
            await world.watch(other, 500)
            took_ms += 500
            for number in range(returning):
                token = 1 + took_ms // 500 - 1
                await world.beat(other, workers[number], token)
            await judge(world, other)
        assert [await status(world, each) for each in workers[:returning]] == [ONLINE] * returning
        return workers[3], took_ms

    async def test_is_judged_soon_if_most_others_have_come_back(
        self, world: World, engine: Engine
    ) -> None:
        worker, took_ms = await self.scene(world, engine, returning=3)
        assert took_ms == LEASE_MS + 5_000
        assert await status(world, worker) == EXPIRED

    async def test_is_spared_for_long_if_most_others_have_not(
        self, world: World, engine: Engine
    ) -> None:
        _, took_ms = await self.scene(world, engine, returning=2)
        assert took_ms == 30_000


class TestServed:
    async def test_a_served_worker_needs_failed_calls_besides_a_lapsed_lease(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine, mode=WorkerMode.SERVED)
        await world.watch(engine, 2 * LEASE_MS)
        for count in range(3):
            assert await judge(world, engine) == 0, count
            await engine.submit(c.FailCall(namespace=NAMESPACE, worker_id=worker))
        assert await judge(world, engine) == 1
        assert await status(world, worker) == (WorkerStatus.OFFLINE, EndReason.UNREACHABLE)


class TestSight:
    async def test_a_server_that_just_started_judges_nobody_for_one_lease(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        await world.kill(engine)
        await world.advance(60_000)
        other = await world.start(poll_lease_ms=LEASE_MS)
        await world.watch(other, LEASE_MS - 1)
        assert await judge(world, other) == 0
        await world.watch(other, 1)
        assert await judge(world, other) == 1
        assert await status(world, worker) == EXPIRED

    async def test_a_server_that_stalled_judges_nobody_for_one_lease(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        await world.watch(engine, LEASE_MS - 500)
        await world.advance(1_001)
        assert await judge(world, engine) == 0
        await world.watch(engine, LEASE_MS - 500)
        assert await judge(world, engine) == 0
        await world.watch(engine, 500)
        assert await judge(world, engine) == 1
        assert await status(world, worker) == EXPIRED

    async def test_a_jump_of_the_store_s_clock_judges_nobody(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        await world.watch(engine, LEASE_MS)
        await world.beat(engine, worker, 1)
        await world.jump(60_000)
        assert await judge(world, engine) == 0
        assert await status(world, worker) == ONLINE

    async def test_after_the_clock_went_back_a_lease_is_not_longer_than_granted(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        await world.watch(engine, 500)
        await world.jump(-10_000)
        await world.watch(engine, 500)
        await judge(world, engine)
        await world.watch(engine, LEASE_MS)
        assert await judge(world, engine) == 1
        assert await status(world, worker) == EXPIRED

    async def test_the_workers_of_a_server_that_vanished_get_time_to_find_another(
        self, world: World, engine: Engine
    ) -> None:
        await world.watch(engine, 500)
        worker = await world.worker(engine)
        other = await world.start()
        await world.kill(engine)
        await world.watch(other, 29_500)
        assert await judge(world, other) == 0
        await world.watch(other, 500)
        assert await judge(world, other) == 1
        assert await status(world, worker) == EXPIRED


class TestSuspects:
    async def test_a_worker_whose_session_broke_is_lost_after_the_grace(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        sink, answer = await world.session(engine, worker)
        await world.add(engine)
        await world.settle(engine)
        (task,) = sink.take()
        await world.watch(engine, 1_000)
        engine.lose_session(NAMESPACE, worker, answer.worker.session_no)
        await world.settle(engine)
        assert (await world.view(worker)).health is Health.SUSPECT
        assert await judge(world, engine) == 0
        await world.watch(engine, GRACE_MS)
        assert await judge(world, engine) == 1
        assert await status(world, worker) == EXPIRED
        assert await world.state(task.id) is TaskState.PENDING

    async def test_leases_are_judged_at_the_end_of_each_grace_and_not_only_each_second(
        self, world: World, engine: Engine
    ) -> None:
        await world.watch(engine, 1_000)
        for pause_ms in (100, GRACE_MS - 100 + GRACE_MARGIN_MS):
            worker = await world.worker(engine)
            _, answer = await world.session(engine, worker)
            engine.lose_session(NAMESPACE, worker, answer.worker.session_no)
            await world.settle(engine)
            await world.watch(engine, pause_ms)
        for pause_ms in (0, 100):
            await world.watch(engine, pause_ms)
            async with asyncio.timeout(5):
                await engine.grace_alarm.wait(world.clock, most_ms=60_000)
            assert await judge(world, engine) == 1

    @pytest.mark.parametrize("sign", ["session", "heartbeat"])
    async def test_a_new_session_or_a_heartbeat_anywhere_ends_the_suspicion(
        self, world: World, engine: Engine, sign: str
    ) -> None:
        other = await world.start()
        worker = await world.worker(engine)
        await world.watch(engine, 1_000)
        _, answer = await world.session(engine, worker)
        engine.lose_session(NAMESPACE, worker, answer.worker.session_no)
        await world.settle(engine)
        if sign == "session":
            await world.session(other, worker)
        else:
            await world.beat(other, worker, 1)
        await world.watch(engine, GRACE_MS)
        assert await judge(world, engine) == 0
        assert await status(world, worker) == ONLINE
        assert (await world.view(worker)).health is not Health.SUSPECT

    async def test_a_heartbeat_that_was_on_its_way_when_the_session_broke_is_no_sign_of_life(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        _, answer = await world.session(engine, worker)
        await world.watch(engine, 1_000)
        sent = engine.submit(heartbeat(engine, worker, 1))
        # As the end of a stream does with all that waits behind it.
        sent.cancel()
        engine.lose_session(NAMESPACE, worker, answer.worker.session_no)
        # The store takes its time for the heartbeat.
        await world.advance(5)
        await world.watch(engine, 0)
        await world.settle(engine)
        assert (await world.view(worker)).health is Health.SUSPECT
        await world.watch(engine, GRACE_MS)
        assert await judge(world, engine) == 1

    async def test_a_heartbeat_behind_the_last_one_of_a_broken_session_is_a_sign_of_life(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        _, answer = await world.session(engine, worker)
        await world.watch(engine, 1_000)
        engine.submit(heartbeat(engine, worker, 1)).cancel()
        engine.lose_session(NAMESPACE, worker, answer.worker.session_no)
        await world.beat(engine, worker, 2)
        await world.settle(engine)
        await world.watch(engine, GRACE_MS)
        assert await judge(world, engine) == 0
        assert (await world.view(worker)).health is Health.HEALTHY

    async def test_the_end_of_an_earlier_session_says_nothing(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        _, first = await world.session(engine, worker)
        await world.session(engine, worker)
        engine.lose_session(NAMESPACE, worker, first.worker.session_no)
        await world.settle(engine)
        assert (await world.view(worker)).health is Health.HEALTHY

    async def test_a_suspicion_needs_its_own_period_of_sight(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        _, answer = await world.session(engine, worker)
        engine.lose_session(NAMESPACE, worker, answer.worker.session_no)
        await world.settle(engine)
        await world.advance(GRACE_MS)
        assert await judge(world, engine) == 0
        await world.watch(engine, GRACE_MS)
        assert await judge(world, engine) == 1

    async def test_when_many_sessions_end_together_nobody_is_cut_early(
        self, world: World, engine: Engine
    ) -> None:
        await world.watch(engine, 1_000)
        workers = [await world.worker(engine) for _ in range(11)]
        numbers = [(await world.session(engine, each))[1].worker.session_no for each in workers]
        for worker, number in zip(workers, numbers, strict=True):
            engine.lose_session(NAMESPACE, worker, number)
        await world.settle(engine)
        await world.watch(engine, GRACE_MS)
        assert await judge(world, engine) == 0
        assert {(await world.view(each)).health for each in workers} == {Health.HEALTHY}
        await world.watch(engine, LEASE_MS)
        assert await judge(world, engine) == 11

    async def test_sessions_that_end_at_different_times_do_not_add_up(
        self, world: World, engine: Engine
    ) -> None:
        await world.watch(engine, 1_000)
        workers = [await world.worker(engine, lease_ms=60_000) for _ in range(12)]
        for half in (workers[:6], workers[6:]):
            for worker in half:
                _, answer = await world.session(engine, worker)
                engine.lose_session(NAMESPACE, worker, answer.worker.session_no)
            await world.settle(engine)
            await world.watch(engine, 3_000)
        assert await judge(world, engine) == 12

    async def test_ten_sessions_that_end_together_are_ten_crashes(
        self, world: World, engine: Engine
    ) -> None:
        await world.watch(engine, 1_000)
        workers = [await world.worker(engine) for _ in range(10)]
        numbers = [(await world.session(engine, each))[1].worker.session_no for each in workers]
        for worker, number in zip(workers, numbers, strict=True):
            engine.lose_session(NAMESPACE, worker, number)
        await world.settle(engine)
        await world.watch(engine, GRACE_MS)
        assert await judge(world, engine) == 10


class TestCrashGuard:
    async def test_a_task_that_kills_its_workers_is_poisoned_and_its_neighbour_is_not_blamed(
        self, world: World, engine: Engine
    ) -> None:
        (killer,) = await world.add(engine)
        for loss in range(5):
            worker = await world.worker(engine)
            (task,) = await world.claim(engine, worker)
            assert (task.id, task.attempt) == (killer, loss + 1)
            await engine.submit(c.EvictWorker(namespace=NAMESPACE, worker_id=worker))
            await world.settle(engine)
            await world.advance(60_000)
            await world.round(DueTasks(), engine)
        stored = await world.task(killer)
        assert stored.state is TaskState.FAILED
        assert stored.progress.reason is not None
        assert stored.progress.reason.value == "POISONED"
        assert stored.attempt == 5
