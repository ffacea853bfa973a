"""Explaining tasks from what is in the store: each case, on both databases."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.core.explain.fact import TaskExplanation, WaitingReason
from tenure.core.limits import EXPLAINED_MAX
from tenure.core.task.record import TaskState
from tenure.core.worker.health import Health
from tenure.engine.access.command import SetQueue
from tenure.engine.engine import Engine
from tenure.engine.read import query
from tenure.engine.read.explanation import explain_task
from tenure.engine.services.deaf_watch import DeafWatch
from tenure.engine.services.due_tasks import DueTasks
from tenure.engine.task.command import CancelTask, FinishKind, PauseTask
from tenure.engine.worker.command import DrainWorker, EvictWorker
from tenure.errors import InvalidArgument, NotFound, Unavailable
from tenure.store.failure import Lost
from tenure.store.table import explain as reads
from tenure.store.table.listing import Onlooker
from tests.engine.world import NAMESPACE, OTHER_NAMESPACE, World, spec

LEASE_MS = 30_000


async def explained(engine: Engine, task_id: str) -> TaskExplanation:
    return await explain_task(engine.store, namespace=NAMESPACE, task_id=task_id, deaf=engine.deaf)


async def first(engine: Engine, task_id: str) -> WaitingReason:
    return (await explained(engine, task_id)).reasons[0]


async def codes(engine: Engine, task_id: str) -> list[str]:
    return [each.code for each in (await explained(engine, task_id)).reasons]


async def lose(world: World, engine: Engine, task_id: str, times: int) -> list[str]:
    """Let workers take a task and be lost with it; return who they were."""
    lost = []
    for _ in range(times):
        worker = await world.worker(engine)
        (task,) = await world.claim(engine, worker)
        assert task.id == task_id
        await world.confirm(engine, worker, task)
        await engine.submit(EvictWorker(namespace=NAMESPACE, worker_id=worker))
        await world.settle(engine)
        lost.append(worker)
    return lost


class TestWorkers:
    async def test_without_any_worker(self, world: World, engine: Engine) -> None:
        (task_id,) = await world.add(engine)
        found = await explained(engine, task_id)
        assert (found.task.id, found.task.state) == (task_id, TaskState.PENDING)
        assert [each.code for each in found.reasons] == ["no_worker"]
        assert found.text.startswith("No worker serves queue default.")

    async def test_the_worker_that_ended_last_is_named(self, world: World, engine: Engine) -> None:
        for name in ("early", "late"):
            worker = await world.worker(engine, name=name)
            await world.advance(10)
            await engine.submit(EvictWorker(namespace=NAMESPACE, worker_id=worker))
        other = await world.worker(engine, queue="slow", name="other")
        await world.advance(10)
        await engine.submit(EvictWorker(namespace=NAMESPACE, worker_id=other))
        (task_id,) = await world.add(engine)
        reason = await first(engine, task_id)
        assert reason.code == "no_worker"
        assert reason.evidence["lastWorker"] == "late"
        assert reason.evidence["lastEndReason"] == "evicted"

    async def test_workers_that_offer_other_types(self, world: World, engine: Engine) -> None:
        await world.worker(engine, "sms", name="texter")
        await world.worker(engine, "mail", queue="slow", name="snail")
        await world.worker(engine, "sms", queue="slow")
        (task_id,) = await world.add(engine)
        reason = await first(engine, task_id)
        assert reason.code == "no_worker_for_type"
        assert reason.evidence["workerCount"] == "1"
        assert reason.evidence["workers"] == "texter (default)"
        assert "mail is offered on queue slow" in reason.message

    async def test_workers_of_other_queues_alone(self, world: World, engine: Engine) -> None:
        await world.worker(engine, "mail", queue="slow", name="snail")
        (task_id,) = await world.add(engine)
        reason = await first(engine, task_id)
        assert reason.code == "no_worker"
        assert reason.evidence["offeredElsewhereBy"] == "snail (slow)"

    async def test_all_drain(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine)
        await engine.submit(DrainWorker(namespace=NAMESPACE, worker_id=worker))
        (task_id,) = await world.add(engine)
        assert await codes(engine, task_id) == ["all_draining"]

    async def test_all_are_full(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine, name="alice", slots=2)
        for _ in range(2):
            await world.held(engine, worker)
        (task_id,) = await world.add(engine)
        reason = await first(engine, task_id)
        assert reason.code == "workers_busy"
        assert reason.evidence["workers"] == "alice (2 of 2 slots in use)"

    async def test_many_workers_are_counted_and_the_first_are_named(
        self, world: World, engine: Engine
    ) -> None:
        for number in range(EXPLAINED_MAX + 2):
            await world.held(engine, await world.worker(engine, slots=1, name=f"w-{number}"))
        (task_id,) = await world.add(engine)
        reason = await first(engine, task_id)
        assert reason.evidence["workerCount"] == str(EXPLAINED_MAX + 2)
        assert len(reason.evidence["workers"].split(", ")) == EXPLAINED_MAX

    async def test_a_suspected_a_late_a_blocked_and_a_stuck_worker(
        self, world: World, engine: Engine
    ) -> None:
        (task_id,) = await world.add(engine)
        worker = await world.worker(engine, lease_ms=LEASE_MS)
        await world.beat(engine, worker, 1, loop_lag_ms=5_000)
        assert (await first(engine, task_id)).evidence["blocked"] == "1"
        await world.beat(engine, worker, 2, stuck_count=1)
        assert (await first(engine, task_id)).evidence["stuck"] == "1"
        await world.beat(engine, worker, 3)
        assert await codes(engine, task_id) == ["next"]
        await world.advance(LEASE_MS - 5_000)
        reason = await first(engine, task_id)
        assert (reason.code, reason.evidence["late"]) == ("workers_unhealthy", "1")
        await world.beat(engine, worker, 4)
        await world.session(engine, worker, window=1)
        (other,) = await world.add(engine)
        engine.lose_session(NAMESPACE, worker, 1)
        await world.settle(engine)
        reason = await first(engine, other)
        assert (reason.code, reason.evidence["suspect"]) == ("workers_unhealthy", "1")

    async def test_a_deaf_worker(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine, lease_ms=LEASE_MS)
        (task_id,) = await world.add(engine)
        watch = DeafWatch()
        await watch.run_once(engine)
        await world.advance(LEASE_MS)
        await world.beat(engine, worker, 1)
        await watch.run_once(engine)
        assert engine.deaf == {worker}
        assert (await first(engine, task_id)).evidence["deaf"] == "1"

    async def test_one_that_waits_for_work_lets_it_be_next(
        self, world: World, engine: Engine
    ) -> None:
        await world.worker(engine)
        ids = await world.add(engine, 3)
        assert await codes(engine, ids[0]) == ["next"]
        reason = await first(engine, ids[2])
        assert (reason.code, reason.evidence["aheadCount"]) == ("work_ahead", "2")
        (urgent,) = await world.add(engine, priority=0)
        assert await codes(engine, urgent) == ["next"]
        assert (await first(engine, ids[0])).evidence["aheadCount"] == "1"

    async def test_what_came_back_to_the_line_is_counted_too(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        returned = await world.held(engine, worker)
        (task_id,) = await world.add(engine)
        await world.finish(engine, worker, returned, FinishKind.RELEASED)
        assert (await first(engine, task_id)).evidence["aheadCount"] == "1"

    async def test_the_judgement_in_sql_is_that_of_the_core(
        self, world: World, engine: Engine
    ) -> None:
        (task_id,) = await world.add(engine)
        worker = await world.worker(engine, lease_ms=LEASE_MS)
        token = 1
        for age_ms in (0, LEASE_MS):
            for fields in ({}, {"loop_lag_ms": 1_001}, {"stuck_count": 1}):
                await world.beat(engine, worker, token, **fields)
                token += 1
                await world.advance(age_ms)
                for deaf in (frozenset[str](), frozenset({worker})):
                    engine.deaf = deaf
                    assert await self._health(world, engine, task_id) is await self._judged(
                        engine, worker
                    )

    async def _health(self, world: World, engine: Engine, task_id: str) -> Health:
        task = await world.task(task_id)
        onlooker = Onlooker(world.clock.now_ms(), engine.deaf)
        (crew,) = await engine.store.read(lambda tx: reads.list_crews(tx, task, onlooker))
        return crew.health

    async def _judged(self, engine: Engine, worker_id: str) -> Health | None:
        view = await query.get_worker(
            engine.store, namespace=NAMESPACE, worker_id=worker_id, deaf=engine.deaf
        )
        return view.health


class TestBrakes:
    async def test_a_paused_queue(self, world: World, engine: Engine) -> None:
        await world.worker(engine)
        (task_id,) = await world.add(engine)
        await engine.submit(SetQueue(namespace=NAMESPACE, name="default", is_paused=True))
        assert await codes(engine, task_id) == ["queue_paused"]

    async def test_a_full_queue_names_the_first_ten_that_hold_it_up(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine, name="alice")
        await engine.submit(SetQueue(namespace=NAMESPACE, name="default", concurrency_max=11))
        held = [await world.held(engine, worker) for _ in range(11)]
        (task_id,) = await world.add(engine)
        reason = await first(engine, task_id)
        assert (reason.code, reason.evidence["heldCount"]) == ("queue_full", "11")
        named = reason.evidence["held"].split("), ")
        assert len(named) == EXPLAINED_MAX
        assert named[0].startswith(f"{held[0].id} (mail, by alice since ")

    async def test_a_disabled_namespace(self, world: World, engine: Engine) -> None:
        await world.worker(engine)
        (task_id,) = await world.add(engine)
        flag = "true" if world.dialect == "postgres" else "1"
        await world.database.execute(
            f"UPDATE namespaces SET is_disabled = {flag} WHERE name = '{NAMESPACE}'"
        )
        assert await codes(engine, task_id) == ["namespace_disabled"]


class TestTime:
    async def test_a_task_for_later(self, world: World, engine: Engine) -> None:
        await world.worker(engine)
        (task_id,) = await world.add(engine, run_at_ms=world.clock.now_ms() + 1_000)
        assert await codes(engine, task_id) == ["not_before"]
        await world.advance(1_000)
        await world.round(DueTasks(), engine)
        assert await codes(engine, task_id) == ["next"]

    async def test_a_failed_attempt(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine)
        task = await world.running(engine, worker)
        await world.finish(engine, worker, task, FinishKind.FAILED)
        reason = await first(engine, task.id)
        assert reason.code == "backing_off"
        assert reason.evidence["errorType"] == "ValueError"
        assert reason.evidence["failureCount"] == "1"

    async def test_lost_workers_are_named(self, world: World, engine: Engine) -> None:
        (task_id,) = await world.add(engine)
        lost = await lose(world, engine, task_id, 2)
        await world.worker(engine)
        reason = await first(engine, task_id)
        assert reason.code == "crash_guard"
        assert reason.evidence["lossCount"] == "2"
        assert reason.evidence["lostWorkers"] == ", ".join(lost)

    async def test_a_suspect_waits_for_a_worker_without_one(
        self, world: World, engine: Engine
    ) -> None:
        suspects = []
        for _ in range(2):
            (task_id,) = await world.add(engine)
            await lose(world, engine, task_id, 2)
            suspects.append(task_id)
        await world.advance(1_000)
        await world.round(DueTasks(), engine)
        worker = await world.worker(engine)
        (task,) = await world.claim(engine, worker)
        (other,) = set(suspects) - {task.id}
        reason = await first(engine, other)
        assert reason.code == "crash_guard"
        assert "holds no other suspected task" in reason.message


class TestStates:
    async def test_a_paused_task(self, world: World, engine: Engine) -> None:
        (task_id,) = await world.add(engine)
        await engine.submit(PauseTask(namespace=NAMESPACE, task_id=task_id))
        assert await codes(engine, task_id) == ["task_paused", "no_worker"]

    async def test_a_held_task(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine, name="alice", lease_ms=LEASE_MS)
        task = await world.held(engine, worker)
        assert (await first(engine, task.id)).message.startswith("It was handed to worker alice")
        await world.confirm(engine, worker, task)
        reason = await first(engine, task.id)
        assert (reason.code, reason.evidence["workerHealth"]) == ("held", "healthy")
        await world.advance(LEASE_MS)
        assert (await first(engine, task.id)).evidence["workerHealth"] == "late"

    async def test_a_task_whose_worker_is_gone(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine)
        task = await world.running(engine, worker)
        await world.database.execute(f"DELETE FROM leases WHERE worker_id = '{worker}'")
        reason = await first(engine, task.id)
        assert reason.evidence["workerStatus"] == "online"
        assert "workerHealth" not in reason.evidence
        await world.database.execute(f"DELETE FROM workers WHERE id = '{worker}'")
        assert "That worker is gone" in (await first(engine, task.id)).message

    async def test_a_task_that_is_being_cancelled(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine, name="alice")
        task = await world.running(engine, worker)
        await engine.submit(CancelTask(namespace=NAMESPACE, task_id=task.id, reason="enough"))
        reason = await first(engine, task.id)
        assert reason.code == "cancelling"
        assert "worker alice" in reason.message

    async def test_a_task_that_is_completed_from_outside(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        task = await world.running(engine, worker, spec=spec(heartbeat_timeout_ms=5_000))
        await world.finish(engine, worker, task, FinishKind.DEFERRED)
        reason = await first(engine, task.id)
        assert (reason.code, reason.evidence["for"]) == ("waiting", "completion")
        assert {"startToCloseAt", "heartbeatTimeoutAt"} <= reason.evidence.keys()

    async def test_a_finished_task(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine)
        task = await world.running(engine, worker)
        await world.finish(engine, worker, task)
        found = await explained(engine, task.id)
        assert found.task.state is TaskState.SUCCEEDED
        assert [each.code for each in found.reasons] == ["finished"]


class TestRefusals:
    async def test_what_is_not_there_is_not_found_in_the_same_words(
        self, world: World, engine: Engine
    ) -> None:
        (task_id,) = await world.add(engine)
        for namespace in (OTHER_NAMESPACE, "nobody/default"):
            with pytest.raises(NotFound, match=f"Task {task_id} was not found."):
                await explain_task(engine.store, namespace=namespace, task_id=task_id)

    @pytest.mark.parametrize("bad", [{"task_id": "no id"}, {"namespace": "a/b/c"}])
    async def test_bad_input_is_refused(
        self, world: World, engine: Engine, bad: dict[str, Any]
    ) -> None:
        (task_id,) = await world.add(engine)
        with pytest.raises(InvalidArgument):
            await explain_task(engine.store, **{"namespace": NAMESPACE, "task_id": task_id, **bad})

    async def test_a_store_that_is_away_is_unavailable(self, world: World, engine: Engine) -> None:
        (task_id,) = await world.add(engine)
        world.faults.raise_at("list_crews", Lost("Gone.", reason="connection"))
        with pytest.raises(Unavailable):
            await explained(engine, task_id)
