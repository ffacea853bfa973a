"""The life of a worker: registration, sessions, held sets, drain, and its end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenure.core.task.attempt import Outcome
from tenure.core.task.effect import Stop, StopCause
from tenure.core.task.record import TaskState
from tenure.core.worker.record import EndReason, WorkerMode, WorkerStatus
from tenure.engine.command import TaskRef
from tenure.engine.engine import Engine
from tenure.engine.services.claim_fallback import ClaimFallback
from tenure.engine.services.held_release import HeldRelease
from tenure.engine.task.command import CancelTask, TerminateTask
from tenure.engine.worker.command import (
    DeregisterWorker,
    DrainWorker,
    EvictWorker,
    FailCall,
    HeldAnswer,
    OpenSession,
    ReportHeld,
)
from tenure.errors import AlreadyExists, NotFound, WorkerInactive, WrongState
from tests.engine.world import NAMESPACE, OTHER_NAMESPACE, Sink, World, codes, heartbeat, ref, stop
from tests.polling import eventually


async def drain(engine: Engine, worker: str, **fields: Any) -> Any:
    command = DrainWorker(**{"namespace": NAMESPACE, "worker_id": worker, **fields})
    return await engine.submit(command)


async def evict(engine: Engine, worker: str) -> Any:
    return await engine.submit(EvictWorker(namespace=NAMESPACE, worker_id=worker))


async def deregister(engine: Engine, worker: str) -> Any:
    return await engine.submit(DeregisterWorker(namespace=NAMESPACE, worker_id=worker))


async def report_held(engine: Engine, worker: str, **fields: Any) -> HeldAnswer:
    command = ReportHeld(**{"namespace": NAMESPACE, "worker_id": worker, **fields})
    answer: HeldAnswer = await engine.submit(command)
    return answer


class TestRegistration:
    @pytest.mark.parametrize(
        ("mode", "lease_ms", "interval_ms"),
        [
            (WorkerMode.SESSION, 15_000, 5_000),
            (WorkerMode.POLL, 30_000, 10_000),
            (WorkerMode.SERVED, 60_000, 5_000),
        ],
    )
    async def test_a_worker_gets_an_id_a_token_and_the_lease_of_its_mode(
        self, world: World, engine: Engine, mode: WorkerMode, lease_ms: int, interval_ms: int
    ) -> None:
        answer = await world.register(engine, mode=mode, labels={"zone": "a"}, pid=1)
        assert (answer.lease.token, answer.lease.lease_ms) == (1, lease_ms)
        assert answer.interval_ms == interval_ms
        view = await world.view(answer.worker.id)
        assert view.worker == answer.worker
        assert (view.lease, view.worker.status) == (answer.lease, WorkerStatus.ONLINE)

    async def test_a_lease_is_granted_within_the_limits(self, world: World) -> None:
        engine = await world.start(lease_least_ms=1_000, lease_most_ms=5_000)
        granted = [
            (await world.register(engine, lease_ms=asked)).lease.lease_ms
            for asked in (1, 2_000, 9_000)
        ]
        assert granted == [1_000, 2_000, 5_000]

    async def test_the_same_instance_key_is_the_same_worker(
        self, world: World, engine: Engine
    ) -> None:
        first = await world.register(engine, instance_key="k")
        again = await world.register(engine, instance_key="k")
        assert again == first
        other = await world.register(engine, instance_key="k", namespace=OTHER_NAMESPACE)
        assert other.worker.id != first.worker.id

    async def test_the_same_instance_key_twice_in_one_batch_is_one_worker(
        self, world: World, engine: Engine
    ) -> None:
        answers = await asyncio.gather(
            *(world.register(engine, instance_key="k") for _ in range(3))
        )
        assert len({each.worker.id for each in answers}) == 1
        assert len((await world.dump("workers"))["workers"]) == 1

    async def test_of_two_servers_that_register_one_key_both_answer_with_one_worker(
        self, world: World, engine: Engine
    ) -> None:
        other = await world.start()
        answers = await asyncio.gather(
            world.register(engine, instance_key="k"), world.register(other, instance_key="k")
        )
        assert len({each.worker.id for each in answers}) == 1

    async def test_an_ended_incarnation_is_not_revived_by_its_key(
        self, world: World, engine: Engine
    ) -> None:
        first = await world.register(engine, instance_key="k")
        await evict(engine, first.worker.id)
        for changes in ({}, {"software_version": "2"}):
            with pytest.raises(WorkerInactive) as caught:
                await world.register(engine, instance_key="k", **changes)
            assert caught.value.fields == {"reason": "evicted"}

    @pytest.mark.parametrize(
        ("changes", "field"),
        [
            ({"software_version": "2"}, "version"),
            ({"labels": {"zone": "b"}}, "labels"),
            ({"labels": {}}, "labels"),
            ({"types": ("mail", "sms")}, "types"),
            ({"slots": 7}, "maxConcurrent"),
            ({"queue": "other"}, "queue"),
            ({"mode": WorkerMode.SESSION}, "mode"),
            ({"name": "mailer"}, "name"),
            ({"hostname": "other"}, "hostname"),
            ({"pid": 2}, "pid"),
            ({"slots": 7, "pid": 2, "types": ("sms",)}, "types, maxConcurrent, pid"),
        ],
    )
    async def test_an_instance_key_with_other_content_is_refused_with_what_differs(
        self, world: World, engine: Engine, changes: dict[str, Any], field: str
    ) -> None:
        content = {"instance_key": "k", "software_version": "1", "labels": {"zone": "a"}, "pid": 1}
        await world.register(engine, **content)
        before = await world.dump()
        with pytest.raises(AlreadyExists) as caught:
            await world.register(engine, **{**content, **changes})
        assert caught.value.fields == {"field": field}
        assert field in caught.value.message
        assert await world.dump() == before

    async def test_the_order_of_types_and_the_lease_asked_for_are_no_other_content(
        self, world: World, engine: Engine
    ) -> None:
        first = await world.register(engine, "mail", "sms", instance_key="k", lease_ms=20_000)
        again = await world.register(engine, "sms", "mail", instance_key="k", lease_ms=30_000)
        assert again == first

    @pytest.mark.parametrize("is_one_server", [True, False])
    async def test_of_two_contents_registered_at_once_with_one_key_the_first_lives(
        self, world: World, engine: Engine, is_one_server: bool
    ) -> None:
        other = engine if is_one_server else await world.start()
        for number in range(10):
            answers = await asyncio.gather(
                world.register(engine, instance_key=f"k{number}", software_version="1"),
                world.register(other, instance_key=f"k{number}", software_version="2"),
                return_exceptions=True,
            )
            (refusal,) = [each for each in answers if isinstance(each, BaseException)]
            assert isinstance(refusal, AlreadyExists)
            assert refusal.fields == {"field": "version"}

    async def test_a_new_incarnation_of_a_name_supersedes_the_old_one(
        self, world: World, engine: Engine
    ) -> None:
        old = await world.worker(engine, name="mailer-1")
        sink, _ = await world.session(engine, old)
        await world.add(engine)
        await world.settle(engine)
        (task,) = sink.take()
        await world.confirm(engine, old, task)
        new = await world.worker(engine, name="mailer-1")
        await world.settle(engine)
        view = await world.view(old)
        assert (view.worker.status, view.worker.end_reason) == (
            WorkerStatus.OFFLINE,
            EndReason.SUPERSEDED,
        )
        assert (view.lease, sink.ended) == (None, EndReason.SUPERSEDED)
        assert (await world.view(new)).worker.status is WorkerStatus.ONLINE
        assert (await world.task(task.id)).last_outcome is Outcome.WORKER_LOST

    async def test_a_name_is_unique_in_its_namespace_only(
        self, world: World, engine: Engine
    ) -> None:
        old = await world.worker(engine, name="mailer-1")
        await world.worker(engine, name="mailer-1", namespace=OTHER_NAMESPACE)
        assert (await world.view(old)).worker.status is WorkerStatus.ONLINE

    async def test_of_two_incarnations_of_a_name_in_one_batch_the_later_one_lives(
        self, world: World, engine: Engine
    ) -> None:
        answers = await asyncio.gather(*(world.register(engine, name="mailer-1") for _ in range(2)))
        statuses = [(await world.view(each.worker.id)).worker.status for each in answers]
        assert sorted(statuses) == [WorkerStatus.OFFLINE, WorkerStatus.ONLINE]

    async def test_registrations_of_one_name_at_several_servers_at_once_are_all_accepted(
        self, world: World, engine: Engine
    ) -> None:
        servers = [engine, await world.start(), await world.start()]
        for _ in range(20):
            answers = await asyncio.gather(
                *(world.register(each, name="mailer-1") for each in servers)
            )
            views = [await world.view(each.worker.id) for each in answers]
            statuses = sorted(each.worker.status for each in views)
            assert statuses == [WorkerStatus.OFFLINE] * 2 + [WorkerStatus.ONLINE]

    async def test_an_unknown_namespace_is_not_found(self, world: World, engine: Engine) -> None:
        with pytest.raises(NotFound):
            await world.register(engine, namespace="nobody/default")


class TestDrain:
    async def test_after_the_answer_nothing_is_handed_out(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        sink, _ = await world.session(engine, worker)
        drained = await drain(engine, worker, deadline_ms=5_000)
        assert drained.status is WorkerStatus.DRAINING
        assert drained.drain_at_ms == world.clock.now_ms() + 5_000
        (task_id,) = await world.add(engine)
        await world.settle(engine)
        assert (sink.drained, sink.given) == (True, [])
        assert await world.state(task_id) is TaskState.PENDING

    async def test_a_drain_by_another_server_stops_the_hand_out_here(
        self, world: World, engine: Engine
    ) -> None:
        other = await world.start()
        worker = await world.worker(engine)
        sink, _ = await world.session(engine, worker)
        await drain(other, worker)
        (task_id,) = await world.add(engine)
        await world.settle(engine)
        assert sink.given == []
        assert await world.state(task_id) is TaskState.PENDING

    async def test_a_draining_worker_keeps_and_finishes_what_it_holds(
        self, world: World, engine: Engine
    ) -> None:
        answer = await world.register(engine)
        worker = answer.worker.id
        task = await world.held(engine, worker)
        await drain(engine, worker)
        renewed = await world.beat(engine, worker, 1, wants_cancels=True)
        assert renewed.should_drain
        assert codes(await world.confirm(engine, worker, task)) == ["running"]
        assert codes([await world.finish(engine, worker, task)]) == ["succeeded"]

    async def test_draining_twice_keeps_the_first_deadline(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        first = await drain(engine, worker, deadline_ms=5_000)
        again = await drain(engine, worker, deadline_ms=9_000)
        assert again.drain_at_ms == first.drain_at_ms

    async def test_an_offline_worker_cannot_be_drained(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine)
        await evict(engine, worker)
        with pytest.raises(WrongState) as caught:
            await drain(engine, worker)
        assert caught.value.fields == {"state": "OFFLINE"}


class TestEnd:
    @pytest.mark.parametrize(
        ("end", "reason"), [(evict, EndReason.EVICTED), (deregister, EndReason.DEREGISTERED)]
    )
    async def test_the_end_puts_back_what_is_held_and_is_final(
        self, world: World, engine: Engine, end: Any, reason: EndReason
    ) -> None:
        worker = await world.worker(engine)
        held, running = await world.held(engine, worker), await world.running(engine, worker)
        ended = await end(engine, worker)
        assert (ended.status, ended.end_reason) == (WorkerStatus.OFFLINE, reason)
        await world.settle(engine)
        for task in (held, running):
            stored = await world.task(task.id)
            assert (stored.state, stored.last_outcome) == (TaskState.PENDING, Outcome.WORKER_LOST)
        assert not (await world.view(worker)).worker.release_pending
        with pytest.raises(WorkerInactive) as caught:
            await world.claim(engine, worker)
        assert caught.value.fields == {"reason": reason.value}
        with pytest.raises(WorkerInactive):
            await world.session(engine, worker)

    async def test_saying_goodbye_twice_is_fine(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine)
        first = await deregister(engine, worker)
        assert (await deregister(engine, worker)).ended_at_ms == first.ended_at_ms

    async def test_an_evicted_worker_cannot_say_goodbye(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine)
        await evict(engine, worker)
        with pytest.raises(WorkerInactive) as caught:
            await deregister(engine, worker)
        assert caught.value.fields == {"reason": "evicted"}

    async def test_a_foreign_or_unknown_worker_is_not_found_by_operators(
        self, world: World, engine: Engine
    ) -> None:
        foreign = await world.worker(engine, namespace=OTHER_NAMESPACE)
        before = await world.dump()
        for worker in (foreign, world.clock.new_id()):
            with pytest.raises(NotFound):
                await drain(engine, worker)
            with pytest.raises(NotFound):
                await evict(engine, worker)
            with pytest.raises(WorkerInactive) as caught:
                await deregister(engine, worker)
            assert caught.value.fields == {"reason": "unknown"}
        assert await world.dump() == before


class TestRelease:
    async def test_held_work_is_put_back_in_bounded_batches(self, world: World) -> None:
        engine = await world.start(work_batch_max=20)
        worker = await world.worker(engine, slots=100)
        await world.add(engine, 50)
        assert len(await world.claim(engine, worker, max_tasks=50)) == 50
        world.faults.points.clear()
        await evict(engine, worker)
        await world.settle(engine)
        assert world.faults.points.count("load_held") == 3
        tasks = await world.database.rows("SELECT state, attempt FROM tasks")
        assert {(row["state"], row["attempt"]) for row in tasks} == {("pending", 1)}
        assert len((await world.dump("attempts"))["attempts"]) == 50

    async def test_a_crash_in_between_loses_nothing(self, world: World) -> None:
        engine = await world.start(work_batch_max=20)
        worker = await world.worker(engine, slots=100)
        await world.add(engine, 50)
        await world.claim(engine, worker, max_tasks=50)
        await evict(engine, worker)
        await world.kill(engine)
        other = await world.start()
        assert (await world.view(worker)).worker.release_pending
        report = await HeldRelease().run_once(other)
        while report.has_more:
            report = await HeldRelease().run_once(other)
        assert not (await world.view(worker)).worker.release_pending
        tasks = await world.database.rows("SELECT state, attempt, version FROM tasks")
        assert {row["state"] for row in tasks} == {"pending"}
        assert len((await world.dump("attempts"))["attempts"]) == 50

    async def test_two_servers_put_each_attempt_back_once(
        self, world: World, engine: Engine
    ) -> None:
        other = await world.start()
        worker = await world.worker(engine, slots=100)
        await world.add(engine, 50)
        await world.claim(engine, worker, max_tasks=50)
        await evict(engine, worker)
        await asyncio.gather(*(HeldRelease().run_once(each) for each in (engine, other) * 2))
        await world.settle(engine)
        tasks = await world.database.rows("SELECT state, attempt FROM tasks")
        assert {(row["state"], row["attempt"]) for row in tasks} == {("pending", 1)}
        assert len((await world.dump("attempts"))["attempts"]) == 50

    async def test_put_back_work_is_handed_out_to_who_waits(
        self, world: World, engine: Engine
    ) -> None:
        worker, other = await world.worker(engine), await world.worker(engine)
        task = await world.running(engine, worker)
        poll = world.poll(engine, other)
        await world.settle(engine)
        await evict(engine, worker)
        (again,) = await poll
        assert (again.id, again.attempt, again.worker_id) == (task.id, 2, other)


class TestSessions:
    async def test_each_session_has_a_higher_number(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine)
        numbers = [(await world.session(engine, worker))[1].worker.session_no for _ in range(3)]
        assert numbers == [1, 2, 3]

    async def test_the_opening_set_ends_unconfirmed_attempts_that_it_lacks_as_undelivered(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        sink, _ = await world.session(engine, worker)
        await world.add(engine, 2)
        await world.settle(engine)
        kept, missed = sink.take()
        engine.set_window(worker, 0)
        _, answer = await world.session(engine, worker, ref(kept), window=0)
        assert (answer.stop, answer.held) == ((), frozenset({ref(kept)}))
        assert await world.state(kept.id) is TaskState.RUNNING
        stored = await world.task(missed.id)
        assert (stored.state, stored.last_outcome) == (TaskState.PENDING, Outcome.UNDELIVERED)

    async def test_a_confirmed_attempt_that_the_opening_set_lacks_is_lost_once_it_was_heard(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        early = await world.running(engine, worker)
        await world.advance(10)
        await world.beat(engine, worker, 1)
        await world.advance(10)
        late = await world.running(engine, worker)
        _, answer = await world.session(engine, worker, window=0)
        assert answer.held == frozenset({ref(late)})
        stored = await world.task(early.id)
        assert (stored.state, stored.last_outcome) == (TaskState.PENDING, Outcome.LOST_TASK)
        assert await world.state(late.id) is TaskState.RUNNING

    async def test_what_is_not_live_any_more_has_to_be_stopped(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        task = await world.running(engine, worker)
        await world.finish(engine, worker, task)
        unknown = TaskRef(world.clock.new_id(), 1)
        _, answer = await world.session(engine, worker, ref(task), unknown)
        assert answer.stop == (
            stop(task, StopCause.COMPLETED),
            Stop(unknown.task_id, 1, StopCause.LOST_LEASE),
        )

    async def test_a_session_is_told_what_is_being_cancelled(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        task = await world.running(engine, worker)
        await engine.submit(CancelTask(namespace=NAMESPACE, task_id=task.id))
        _, answer = await world.session(engine, worker, ref(task))
        assert answer.cancel == (ref(task),)

    async def test_a_session_starts_with_what_its_worker_holds_in_the_store(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        tasks = [await world.running(engine, worker) for _ in range(3)]
        await world.add(engine, 5)
        sink, answer = await world.session(engine, worker, *map(ref, tasks), window=4)
        assert len(answer.held) == 3
        assert len(sink.take()) == 1

    async def test_opening_a_session_in_another_namespace_is_refused(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine, namespace=OTHER_NAMESPACE)
        with pytest.raises(WorkerInactive):
            await world.session(engine, worker)

    async def test_a_session_that_was_given_up_and_comes_late_is_refused(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)

        def opening(session_no: int) -> OpenSession:
            return OpenSession(
                namespace=NAMESPACE,
                worker_id=worker,
                held=(),
                window=1,
                sink=Sink(),
                session_no=session_no,
            )

        await engine.submit(opening(2))
        for late in (1, 2):
            with pytest.raises(WrongState):
                await engine.submit(opening(late))
        assert (await engine.submit(opening(3))).worker.session_no == 3

    async def test_a_session_gets_nothing_once_its_worker_has_one_on_another_server(
        self, world: World, engine: Engine
    ) -> None:
        other = await world.start()
        worker = await world.worker(engine)
        here, _ = await world.session(engine, worker)
        there, _ = await world.session(other, worker)
        (task_id,) = await world.add(engine)
        await world.settle(engine)
        assert here.take() == []
        await world.advance(1_000)
        await world.round(ClaimFallback(), other)
        assert [task.id for task in there.take()] == [task_id]

    async def test_an_attempt_that_another_server_ended_frees_its_slot_with_the_next_heartbeat(
        self, world: World, engine: Engine
    ) -> None:
        other = await world.start()
        worker = await world.worker(engine)
        first, second = await world.add(engine, 2)
        sink, _ = await world.session(engine, worker, window=1)
        assert [task.id for task in sink.take()] == [first]
        await other.submit(TerminateTask(namespace=NAMESPACE, task_id=first))
        await engine.heartbeat(heartbeat(engine, worker, 1, active_count=0))
        await eventually(lambda: sink.given)
        assert [task.id for task in sink.take()] == [second]
        # Told by the heartbeat, and on a busy machine by the news of the other server as well.
        assert set(sink.stopped) == {Stop(first, 1, StopCause.TERMINATED)}

    async def test_after_the_clock_went_back_no_confirmed_attempt_is_taken_for_lost(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        await world.beat(engine, worker, 1)
        await world.jump(-60_000)
        task = await world.running(engine, worker)
        await world.session(engine, worker, window=0)
        assert await world.state(task.id) is TaskState.RUNNING


class TestHeldSets:
    async def test_a_binding_confirms_and_an_unbinding_loses(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        task = await world.held(engine, worker)
        assert (await report_held(engine, worker, bound=(ref(task),))).stop == ()
        assert await world.state(task.id) is TaskState.RUNNING
        await report_held(engine, worker, unbound=(ref(task),))
        stored = await world.task(task.id)
        assert (stored.state, stored.last_outcome) == (TaskState.PENDING, Outcome.LOST_TASK)
        assert stored.progress.interruption_count == 1

    async def test_repeated_deltas_count_once(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine)
        task = await world.running(engine, worker)
        for _ in range(2):
            await report_held(engine, worker, unbound=(ref(task),))
        assert (await world.task(task.id)).progress.interruption_count == 1

    async def test_an_empty_delta_touches_no_task(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine)
        await world.held(engine, worker)
        before = await world.dump("tasks")
        world.faults.points.clear()
        assert await report_held(engine, worker) == HeldAnswer()
        assert not {"load_tasks", "load_held", "update_tasks"} & set(world.faults.points)
        assert await world.dump("tasks") == before

    async def test_a_full_set_loses_what_it_lacks_unless_the_confirmation_may_have_crossed(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        early = await world.running(engine, worker)
        heard_at_ms = world.clock.now_ms()
        await world.advance(1)
        late = await world.running(engine, worker)
        unconfirmed = await world.held(engine, worker)
        await report_held(engine, worker, held=(), previous_beat_at_ms=heard_at_ms)
        states = [await world.state(task.id) for task in (early, late, unconfirmed)]
        assert states == [TaskState.PENDING, TaskState.RUNNING, TaskState.DISPATCHED]

    async def test_a_full_set_confirms_and_names_what_to_stop(
        self, world: World, engine: Engine
    ) -> None:
        worker, other = await world.worker(engine), await world.worker(engine)
        mine, foreign = await world.held(engine, worker), await world.held(engine, other)
        stale = TaskRef(mine.id, 7)
        answer = await report_held(engine, worker, held=(ref(mine), ref(foreign), stale))
        lost = StopCause.LOST_LEASE
        assert answer.stop == (stop(foreign, lost), Stop(stale.task_id, 7, lost))
        assert await world.state(mine.id) is TaskState.RUNNING
        assert await world.state(foreign.id) is TaskState.DISPATCHED

    async def test_a_set_from_another_namespace_changes_nothing(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        task = await world.running(engine, worker)
        before = await world.dump()
        await world.advance(100)
        await report_held(
            engine,
            worker,
            namespace=OTHER_NAMESPACE,
            held=(),
            unbound=(ref(task),),
            previous_beat_at_ms=world.clock.now_ms(),
        )
        assert await world.dump() == before


async def test_a_failed_call_to_a_served_worker_is_counted(world: World, engine: Engine) -> None:
    worker = await world.worker(engine, mode=WorkerMode.SERVED)
    for _ in range(2):
        await engine.submit(FailCall(namespace=NAMESPACE, worker_id=worker))
    lease = (await world.view(worker)).lease
    assert lease is not None
    assert lease.failures == 2
    with pytest.raises(WorkerInactive):
        await engine.submit(FailCall(namespace=OTHER_NAMESPACE, worker_id=worker))
