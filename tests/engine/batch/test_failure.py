"""Failures of the store: lost connections, conflicts, refusals, stale copies, restarts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from tenure.core.access.api_key import Role
from tenure.core.endpoint.verdict import Delivery, Verdict
from tenure.core.limits import ENQUEUE_DECIDED_MS
from tenure.core.task.attempt import Outcome
from tenure.core.task.callback import CallbackReport
from tenure.core.task.effect import Stop, StopCause
from tenure.core.task.record import TaskState
from tenure.core.worker.record import NewWorker, WorkerMode
from tenure.engine.access.command import (
    CreateKey,
    CreateNamespace,
    RevokeKey,
    SetNamespace,
    SetQueue,
)
from tenure.engine.callback.command import BeatCallback, CompleteCallback, StartCallback
from tenure.engine.command import WorkDone
from tenure.engine.command_table import ALL_SPECS
from tenure.engine.endpoint import command as endpoints
from tenure.engine.engine import Engine
from tenure.engine.seat.command import ApplySet, TakeSeat
from tenure.engine.services.due_tasks import DueTasks
from tenure.engine.services.held_release import HeldRelease
from tenure.engine.task.command import (
    CancelTask,
    CompleteById,
    ConfirmTasks,
    EnqueueTasks,
    Finish,
    FinishKind,
    FinishTasks,
    HeartbeatTasks,
    PauseTask,
    ProcessDue,
    ResumeTask,
    RetryTask,
    ReturnUndelivered,
    SignalCancels,
    TaskBeat,
    TerminateTask,
)
from tenure.engine.worker.command import (
    CloseSession,
    DeregisterWorker,
    DrainWorker,
    EvictWorker,
    FailCall,
    JudgeLeases,
    OpenSession,
    RegisterWorker,
    ReleaseHeldTasks,
    ReportHeld,
    SpareWorkers,
    StopsTold,
    TouchServer,
)
from tenure.errors import (
    AlreadyExists,
    TaskAlreadyTerminal,
    TenureError,
    TokenMismatch,
    Unavailable,
    WrongState,
)
from tenure.store.failure import Conflict, KeyTaken, Lost, Refused, RuleBroken
from tenure.store.transaction import LaneName
from tests.engine.endpoint.posted import create as create_endpoint
from tests.engine.run.prepared import OF_RUNS, RUN_CASES
from tests.engine.schedule.prepared import SCHEDULE_CASES, SCHEDULED
from tests.engine.world import (
    NAMESPACE,
    QUEUE,
    Clock,
    Sink,
    World,
    codes,
    finish,
    heartbeat,
    open_database,
    ref,
    spec,
)

Prepare = Callable[[World, Engine], Awaitable[Any]]
FAR: Final = 10**9


@asynccontextmanager
async def fresh_world(dialect: str) -> AsyncIterator[World]:
    clock = Clock()
    async with open_database(dialect, clock) as database:
        made = World(database, clock)
        try:
            yield made
        finally:
            await made.close()


# -- One prepared command of each type ---------------------------------------------------------


async def _enqueue(world: World, _engine: Engine) -> Any:
    tasks = (world.new(idempotency_key="k", input=b"in"), world.new())
    await world.advance(ENQUEUE_DECIDED_MS)
    return EnqueueTasks(namespace=NAMESPACE, tasks=tasks, is_resend=True)


async def _confirm(world: World, engine: Engine) -> Any:
    worker = await world.worker(engine)
    task = await world.held(engine, worker)
    return ConfirmTasks(namespace=NAMESPACE, worker_id=worker, items=(ref(task),))


async def _beat_tasks(world: World, engine: Engine) -> Any:
    worker = await world.worker(engine)
    task = await world.running(engine, worker)
    item = TaskBeat(task_id=task.id, attempt=1, details=b"7")
    return HeartbeatTasks(namespace=NAMESPACE, worker_id=worker, items=(item,))


def _finish_as(kind: FinishKind) -> Prepare:
    async def prepare(world: World, engine: Engine) -> Any:
        worker = await world.worker(engine)
        task = await world.running(engine, worker)
        items = (finish(task, kind),)
        return FinishTasks(namespace=NAMESPACE, worker_id=worker, items=items)

    return prepare


async def _complete(world: World, engine: Engine) -> Any:
    worker = await world.worker(engine)
    task = await world.running(engine, worker)
    item = Finish(task_id=task.id, attempt=0, kind=FinishKind.SUCCEEDED, output=b"out")
    return CompleteById(namespace=NAMESPACE, finish=item)


async def _set_endpoint(_world: World, engine: Engine) -> Any:
    made = await create_endpoint(engine)
    change = endpoints.EndpointChange(concurrency=2)
    return endpoints.SetEndpoint(namespace=NAMESPACE, endpoint_id=made.id, change=change)


async def _pause_endpoint(_world: World, engine: Engine) -> Any:
    made = await create_endpoint(engine)
    return endpoints.PauseEndpoint(namespace=NAMESPACE, endpoint_id=made.id, is_paused=True)


async def _delete_endpoint(_world: World, engine: Engine) -> Any:
    made = await create_endpoint(engine)
    return endpoints.DeleteEndpoint(namespace=NAMESPACE, endpoint_id=made.id)


async def _end_endpoint(_world: World, engine: Engine) -> Any:
    made = await create_endpoint(engine)
    await engine.submit(endpoints.DeleteEndpoint(namespace=NAMESPACE, endpoint_id=made.id))
    return endpoints.EndEndpoint(namespace=NAMESPACE, endpoint_id=made.id)


async def _take_endpoint(_world: World, engine: Engine) -> Any:
    made = await create_endpoint(engine)
    return endpoints.TakeEndpoint(namespace=NAMESPACE, worker_id=made.id, sink=Sink())


async def _report_delivery(world: World, engine: Engine) -> Any:
    made = await create_endpoint(engine)
    task = await world.held(engine, await world.worker(engine))
    return endpoints.ReportDelivery(
        namespace=NAMESPACE,
        worker_id=made.id,
        item=ref(task),
        delivery=Delivery(verdict=Verdict.BUSY, error="429", busy_ms=5_000),
        counts=True,
    )


async def _start_callback(world: World, engine: Engine) -> Any:
    task = await world.held(engine, await world.worker(engine))
    said = CallbackReport(worker="one")
    return StartCallback(namespace=NAMESPACE, run_id=task.id, item=ref(task), said=said)


async def _beat_callback(world: World, engine: Engine) -> Any:
    task = await world.held(engine, await world.worker(engine))
    item = TaskBeat(task_id=task.id, attempt=1, details=b"7", said=CallbackReport(worker="one"))
    return BeatCallback(namespace=NAMESPACE, run_id=task.id, item=item)


async def _complete_callback(world: World, engine: Engine) -> Any:
    task = await world.held(engine, await world.worker(engine))
    said = CallbackReport(worker="one", metrics={"ms": 1.0})
    item = finish(task, FinishKind.RELEASED, said=said)
    return CompleteCallback(namespace=NAMESPACE, run_id=task.id, item=item)


def _change(kind: Any, *, first: Any = None, is_running: bool = False) -> Prepare:
    async def prepare(world: World, engine: Engine) -> Any:
        worker = await world.worker(engine)
        task_id = (await world.running(engine, worker)).id if is_running else None
        if task_id is None:
            (task_id,) = await world.add(engine)
        if first is not None:
            await engine.submit(first(namespace=NAMESPACE, task_id=task_id))
        return kind(namespace=NAMESPACE, task_id=task_id)

    return prepare


async def _retry(world: World, engine: Engine) -> Any:
    (task_id,) = await world.add(engine)
    await engine.submit(CancelTask(namespace=NAMESPACE, task_id=task_id))
    new_id = world.clock.new_id()
    return RetryTask(namespace=NAMESPACE, task_id=task_id, new_task_id=new_id)


async def _signal(world: World, engine: Engine) -> Any:
    worker = await world.worker(engine)
    task = await world.running(engine, worker)
    await engine.submit(CancelTask(namespace=NAMESPACE, task_id=task.id))
    return SignalCancels(namespace=NAMESPACE, items=(ref(task),))


async def _return(world: World, engine: Engine) -> Any:
    worker = await world.worker(engine)
    task = await world.held(engine, worker)
    return ReturnUndelivered(namespace=NAMESPACE, worker_id=worker, items=(ref(task),))


async def _register(world: World, engine: Engine) -> Any:
    await world.worker(engine, name="mailer")
    new = NewWorker(instance_key="key", queue=QUEUE, types=("mail",), name="mailer")
    return RegisterWorker(namespace=NAMESPACE, new=new)


def _worker_command(kind: Any, **fields: Any) -> Prepare:
    async def prepare(world: World, engine: Engine) -> Any:
        worker = await world.worker(engine)
        await world.running(engine, worker)
        return kind(namespace=NAMESPACE, worker_id=worker, **fields)

    return prepare


async def _open_session(world: World, engine: Engine) -> Any:
    worker = await world.worker(engine)
    kept, _missed = await world.held(engine, worker), await world.held(engine, worker)
    return OpenSession(
        namespace=NAMESPACE, worker_id=worker, held=(ref(kept),), window=0, sink=Sink()
    )


async def _take_seat(world: World, engine: Engine) -> Any:
    worker = await world.worker(engine, mode=WorkerMode.SERVED)
    return TakeSeat(namespace=NAMESPACE, worker_id=worker, sink=Sink())


async def _apply_set(world: World, engine: Engine) -> Any:
    take = await _take_seat(world, engine)
    await engine.submit(take)
    return ApplySet(
        namespace=NAMESPACE, worker_id=take.worker_id, session_no=1, applied_at_ms=0, running=()
    )


async def _close_session(world: World, engine: Engine) -> Any:
    worker = await world.worker(engine)
    await world.session(engine, worker)
    return CloseSession(namespace=NAMESPACE, worker_id=worker, session_no=1)


async def _spare(world: World, engine: Engine) -> Any:
    close = await _close_session(world, engine)
    await engine.submit(close)
    return SpareWorkers(worker_ids=frozenset({close.worker_id}))


async def _stops_told(world: World, engine: Engine) -> Any:
    worker = await world.worker(engine)
    task = await world.running(engine, worker)
    await engine.submit(TerminateTask(namespace=NAMESPACE, task_id=task.id))
    told = (Stop(task.id, 1, StopCause.TERMINATED),)
    return StopsTold(worker_id=worker, session_no=0, items=told)


async def _report_held(world: World, engine: Engine) -> Any:
    worker = await world.worker(engine)
    bound, unbound = await world.held(engine, worker), await world.running(engine, worker)
    return ReportHeld(
        namespace=NAMESPACE, worker_id=worker, bound=(ref(bound),), unbound=(ref(unbound),)
    )


async def _set_queue(_world: World, _engine: Engine) -> Any:
    return SetQueue(namespace=NAMESPACE, name=QUEUE, is_paused=True, concurrency_max=3)


async def _create_namespace(_world: World, _engine: Engine) -> Any:
    return CreateNamespace(name="new/default")


async def _set_namespace(_world: World, _engine: Engine) -> Any:
    return SetNamespace(name=NAMESPACE, is_disabled=True)


async def _revoke_key(_world: World, engine: Engine) -> Any:
    made = await engine.submit(CreateKey(name="ci", role=Role.CLIENT))
    return RevokeKey(key_id=made.key.id)


async def _due(world: World, engine: Engine) -> Any:
    worker = await world.worker(engine)
    await world.running(engine, worker)
    await world.advance(600_000)
    return ProcessDue(sighted_ms=FAR, amount=10)


async def _judge(world: World, engine: Engine) -> Any:
    worker = await world.worker(engine)
    await world.running(engine, worker)
    await world.advance(60_000)
    return JudgeLeases(sighted_ms=FAR, amount=10)


async def _release(world: World, engine: Engine) -> Any:
    worker = await world.worker(engine)
    await world.running(engine, worker)
    # Offline behind the engine's back, so that it does not release by itself.
    await world.database.execute(
        "UPDATE workers SET status = 'offline', end_reason = 'evicted', ended_at_ms = 1, "
        "release_pending = (1 = 1)"
    )
    await world.database.execute("DELETE FROM leases")
    return ReleaseHeldTasks(worker_id=worker, amount=10)


CASES: Final[dict[str, tuple[Prepare, type[TenureError] | None]]] = {
    # With the refusal that a repetition may get when the first one was committed.
    "EnqueueTasks": (_enqueue, None),
    "ConfirmTasks": (_confirm, None),
    "HeartbeatTasks": (_beat_tasks, None),
    **{
        f"FinishTasks {kind}": (_finish_as(kind), None)
        for kind in FinishKind
        if kind not in OF_RUNS
    },
    "CompleteById": (_complete, None),
    "SetEndpoint": (_set_endpoint, None),
    "PauseEndpoint": (_pause_endpoint, None),
    "DeleteEndpoint": (_delete_endpoint, None),
    "EndEndpoint": (_end_endpoint, None),
    "TakeEndpoint": (_take_endpoint, None),
    "ReportDelivery": (_report_delivery, None),
    "StartCallback": (_start_callback, None),
    "BeatCallback": (_beat_callback, None),
    "CompleteCallback": (_complete_callback, None),
    "CancelTask": (_change(CancelTask), TaskAlreadyTerminal),
    "CancelTask running": (_change(CancelTask, is_running=True), None),
    "PauseTask": (_change(PauseTask), None),
    "ResumeTask": (_change(ResumeTask, first=PauseTask), WrongState),
    "TerminateTask": (_change(TerminateTask), TaskAlreadyTerminal),
    "RetryTask": (_retry, None),
    "SignalCancels": (_signal, None),
    "ReturnUndelivered": (_return, None),
    "RegisterWorker": (_register, None),
    "DrainWorker": (_worker_command(DrainWorker), None),
    "DeregisterWorker": (_worker_command(DeregisterWorker), None),
    "EvictWorker": (_worker_command(EvictWorker), None),
    "FailCall": (_worker_command(FailCall), None),
    "OpenSession": (_open_session, None),
    "TakeSeat": (_take_seat, None),
    "ApplySet": (_apply_set, None),
    "CloseSession": (_close_session, None),
    "SpareWorkers": (_spare, None),
    "StopsTold": (_stops_told, None),
    "ReportHeld": (_report_held, None),
    "SetQueue": (_set_queue, None),
    "CreateNamespace": (_create_namespace, AlreadyExists),
    "SetNamespace": (_set_namespace, None),
    "RevokeKey": (_revoke_key, None),
    "ProcessDue": (_due, None),
    "JudgeLeases": (_judge, None),
    "ReleaseHeldTasks": (_release, None),
    **RUN_CASES,
    **SCHEDULE_CASES,
}
# Of these a repetition makes new ones or counts again, which changes nothing that is promised.
UNSTABLE: Final[dict[str, tuple[str, ...] | None]] = {
    "version": None,
    # It says for which version of its row it is.
    "progress_checksum": None,
    "session_no": None,
    "failures": None,
    "id": ("workers", "audit", "fires"),
    "task_id": ("fires",),
    # It names the last task.
    "progress": ("schedules",),
    "worker_id": None,
    "server_id": None,
    # Made by the server, anew when the batch runs again.
    "journal_id": None,
}


def _is_unstable(table: str, name: str) -> bool:
    tables = UNSTABLE.get(name, ())
    return tables is None or table in tables


def _without_own_id(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row without an id that the server has made: of what a schedule starts or skips."""
    is_task = row.get("type") == SCHEDULED and "queue" in row
    own = "id" if is_task else "key" if row.get("kind") == "skipped" else ""
    return {name: value for name, value in row.items() if name != own}


async def observed(world: World) -> dict[str, list[str]]:
    """Return all rows, without what may differ after a repetition."""
    found = {}
    # A repetition may open a session of its own, which is a change of its own.
    for table in (await world.dump()).keys() - {"servers", "worker_changes"}:
        rows = await world.database.rows(f"SELECT * FROM {table}")
        kept = [
            {name: value for name, value in row.items() if not _is_unstable(table, name)}
            for row in map(_without_own_id, rows)
        ]
        found[table] = sorted(map(repr, kept))
    return found


def test_every_command_of_the_work_lane_has_a_case() -> None:
    # A second claim gets other tasks, and a second key is another key.
    types = {name.split()[0] for name in CASES} | {"ClaimTasks", "CreateKey", "RotateTokenKey"}
    # Its second secret is another one.
    types |= {"CreateEndpoint", "RotateEndpointSecret"}
    work = {each.kind.__name__ for each in ALL_SPECS if each.lane is LaneName.WORK}
    assert types == work


@pytest.mark.parametrize("point", ["before COMMIT", "after COMMIT"])
@pytest.mark.parametrize("case", CASES)
async def test_a_lost_connection_answers_unavailable_and_repeating_is_safe(
    dialect: str, case: str, point: str
) -> None:
    prepare, refusal = CASES[case]
    async with fresh_world(dialect) as world:
        engine = await world.start()
        await engine.submit(await prepare(world, engine))
        await world.settle(engine)
        await _finish_release(world, engine)
        expected = await observed(world)
    async with fresh_world(dialect) as world:
        engine = await world.start()
        command = await prepare(world, engine)
        world.faults.raise_at(point, Lost("cut"))
        with pytest.raises(Unavailable) as caught:
            await engine.submit(command)
        assert caught.value.fields == {"reason": "store_unreachable", "retry_after_ms": 500}
        await world.settle(engine)
        if point == "after COMMIT" and refusal is not None:
            with pytest.raises(refusal):
                await engine.submit(command)
        else:
            await engine.submit(command)
        await world.settle(engine)
        await _finish_release(world, engine)
        assert await observed(world) == expected


async def _finish_release(world: World, engine: Engine) -> None:
    """What an effect would have started is done by the service when the effect was lost."""
    await world.round(HeldRelease(), engine)


class TestLost:
    @pytest.mark.parametrize("point", ["before COMMIT", "after COMMIT"])
    async def test_everybody_in_the_batch_is_told_and_the_next_batch_works(
        self, world: World, engine: Engine, point: str
    ) -> None:
        worker = await world.worker(engine)
        world.faults.raise_at(point, Lost("cut", reason="storage_full"))
        new = [world.new() for _ in range(3)]
        answers = await asyncio.gather(
            *(world.enqueue(engine, each) for each in new),
            world.claim(engine, worker),
            return_exceptions=True,
        )
        assert [type(each) for each in answers] == [Unavailable] * 4
        reasons = {each.fields["reason"] for each in answers if isinstance(each, Unavailable)}
        assert reasons == {"storage_full"}
        await world.advance(ENQUEUE_DECIDED_MS)
        again = [(await world.enqueue(engine, each, is_resend=True))[0] for each in new]
        assert [each.is_new for each in again] == [point == "before COMMIT"] * 3

    async def test_a_hand_out_whose_answer_was_lost_is_returned_by_the_delivery_check(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        (task_id,) = await world.add(engine)
        world.faults.raise_at("after COMMIT", Lost("cut"))
        with pytest.raises(Unavailable):
            await world.claim(engine, worker)
        assert await world.claim(engine, worker) == ()
        await world.watch(engine, 20_000)
        await world.round(DueTasks(), engine)
        await world.beat(engine, worker, 1)
        (task,) = await world.claim(engine, worker)
        assert (task.id, task.attempt) == (task_id, 2)

    @pytest.mark.parametrize(("point", "token"), [("before COMMIT", 1), ("after COMMIT", 2)])
    async def test_a_heartbeat_whose_answer_was_lost_counts_once(
        self, world: World, engine: Engine, point: str, token: int
    ) -> None:
        worker = await world.worker(engine)
        world.faults.raise_at(point, Lost("cut"))
        with pytest.raises(Unavailable):
            await world.beat(engine, worker, 1, total_completed=5)
        if token == 2:
            with pytest.raises(TokenMismatch) as caught:
                await world.beat(engine, worker, 1, total_completed=5)
            assert caught.value.fields == {"current_token": "2"}
        await world.beat(engine, worker, token, total_completed=5)
        lease = (await world.view(worker)).lease
        assert lease is not None
        assert (lease.total_completed, lease.token) == (5, token + 1)

    async def test_a_lost_server_touch_is_repeated_by_the_next_round(
        self, world: World, engine: Engine
    ) -> None:
        world.faults.raise_at("before COMMIT", Lost("cut"))
        with pytest.raises(Unavailable):
            await engine.submit(TouchServer(server_id=engine.server_id))
        await engine.submit(TouchServer(server_id=engine.server_id))
        assert len((await world.dump("servers"))["servers"]) == 1

    async def test_no_copy_survives_a_lost_connection(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine)
        task = await world.held(engine, worker)
        world.faults.raise_at("after COMMIT", Lost("cut"))
        with pytest.raises(Unavailable):
            await world.finish(engine, worker, task)
        world.faults.points.clear()
        assert codes([await world.finish(engine, worker, task)]) == ["succeeded"]
        assert "load_tasks" in world.faults.points

    async def test_a_bug_in_a_batch_is_unavailable_and_not_the_end_of_the_lane(
        self, world: World, engine: Engine
    ) -> None:
        world.faults.raise_at("before COMMIT", ZeroDivisionError())
        with pytest.raises(Unavailable) as caught:
            await world.add(engine)
        assert caught.value.fields["reason"] == "internal"
        assert len(await world.add(engine)) == 1

    async def test_a_bug_in_a_batch_of_heartbeats_is_not_the_end_of_their_lane(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        for error in (ZeroDivisionError(), Conflict("busy")):
            world.faults.raise_at("before COMMIT", error)
            with pytest.raises(Unavailable):
                await world.beat(engine, worker, 1)
        assert (await world.beat(engine, worker, 1)).lease.token == 2


class TestMistakes:
    async def test_a_listener_that_fails_costs_its_batch_and_not_the_lane(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        task = await world.held(engine, worker)
        failures: list[Exception] = [ZeroDivisionError()]

        def fail(_: object) -> None:
            if failures:
                raise failures.pop()

        engine.on_finished(fail)
        with pytest.raises(Unavailable) as caught:
            await world.finish(engine, worker, task)
        assert caught.value.fields["reason"] == "internal"
        assert codes([await world.finish(engine, worker, task)]) == ["succeeded"]

    async def test_an_effect_that_finds_a_full_lane_is_made_up_for(self, world: World) -> None:
        engine = await world.start(lane_queue_max=2, work_batch_max=1)
        worker = await world.worker(engine)
        task = await world.running(engine, worker)
        nothing = SignalCancels(namespace=NAMESPACE, items=())
        fill = lambda: [engine.submit(nothing) for _ in range(2)]  # noqa: E731 (a hook)
        world.faults.call_at("before COMMIT", fill)
        await engine.submit(EvictWorker(namespace=NAMESPACE, worker_id=worker))
        assert await world.state(task.id) is TaskState.RUNNING
        await _finish_release(world, engine)
        assert await world.state(task.id) is TaskState.PENDING

    async def test_an_effect_whose_command_fails_is_made_up_for(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        task = await world.running(engine, worker)
        world.faults.raise_at("load_held", Lost("cut"))
        await engine.submit(EvictWorker(namespace=NAMESPACE, worker_id=worker))
        await world.settle(engine)
        assert await world.state(task.id) is TaskState.RUNNING
        await _finish_release(world, engine)
        assert await world.state(task.id) is TaskState.PENDING


class TestConflict:
    async def test_a_batch_that_met_a_conflict_runs_again(
        self, world: World, engine: Engine
    ) -> None:
        world.faults.raise_at("before COMMIT", *(Conflict("deadlock") for _ in range(3)))
        ids = await world.add(engine, 2)
        assert len(ids) == 2
        assert len((await world.dump("tasks"))["tasks"]) == 2

    async def test_conflicts_without_end_are_unavailable(
        self, world: World, engine: Engine
    ) -> None:
        world.faults.raise_at("before COMMIT", *(Conflict("deadlock") for _ in range(4)))
        with pytest.raises(Unavailable) as caught:
            await world.add(engine)
        assert caught.value.fields["reason"] == "conflict"
        assert len(await world.add(engine)) == 1

    async def test_a_hand_out_is_dealt_anew_after_a_conflict(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        (task_id,) = await world.add(engine)
        world.faults.raise_at("before COMMIT", Conflict("deadlock"))
        (task,) = await world.claim(engine, worker)
        assert (task.id, task.attempt) == (task_id, 1)


class TestRefused:
    async def test_the_guilty_are_found_by_halves_and_their_neighbours_are_undisturbed(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        task = await world.running(engine, worker)
        existing = await world.add(engine, 2)
        new: list[Any] = [world.new() for _ in range(20)]
        for place, task_id in zip((3, 17), existing, strict=True):
            new[place] = type(new[0])(id=task_id, type="mail", queue=QUEUE, spec=new[0].spec)
        answers = await asyncio.gather(
            *(world.enqueue(engine, each) for each in new),
            world.finish(engine, worker, task, output=b"out"),
            return_exceptions=True,
        )
        refused = [index for index, each in enumerate(answers) if isinstance(each, Exception)]
        assert refused == [3, 17]
        assert {type(answers[index]) for index in refused} == {AlreadyExists}
        assert await world.state(task.id) is TaskState.SUCCEEDED
        assert len((await world.dump("tasks"))["tasks"]) == 20

    async def test_a_poll_beside_a_refused_command_is_served_afterwards(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        (existing,) = await world.add(engine, type="sms")
        bad = type(world.new())(id=existing, type="mail", queue=QUEUE, spec=world.new().spec)
        (good,) = await world.add(engine)
        poll = world.poll(engine, worker)
        with pytest.raises(AlreadyExists):
            await world.enqueue(engine, bad)
        assert [task.id for task in await poll] == [good]

    async def test_a_refused_service_command_names_the_request(
        self, world: World, engine: Engine
    ) -> None:
        world.faults.raise_at("before COMMIT", Refused("data"), Refused("data"))
        with pytest.raises(TenureError) as caught:
            await engine.submit(SetQueue(namespace=NAMESPACE, name=QUEUE, is_paused=True))
        assert caught.value.code == "invalid_argument"
        assert caught.value.fields == {"field": "request"}

    async def test_a_race_that_is_lost_again_and_again_is_repeated(
        self, world: World, engine: Engine
    ) -> None:
        world.faults.raise_at("insert_workers", *[KeyTaken("workers_name")] * 7)
        assert (await world.register(engine, name="mailer-1")).worker.name == "mailer-1"

    @pytest.mark.parametrize(
        ("error", "reason"),
        [(KeyTaken("workers_name"), "conflict"), (RuleBroken("lease_ms"), "internal")],
    )
    async def test_what_a_constraint_forbids_for_good_is_not_the_mistake_of_the_caller(
        self, world: World, engine: Engine, error: Exception, reason: str
    ) -> None:
        world.faults.raise_at("insert_workers", *[error] * 12)
        neighbour = asyncio.ensure_future(world.add(engine, 2))
        with pytest.raises(Unavailable) as caught:
            await world.register(engine)
        assert caught.value.fields["reason"] == reason
        assert len(await neighbour) == 2

    async def test_a_conflict_while_the_guilty_is_looked_for_is_tried_again(
        self, world: World, engine: Engine
    ) -> None:
        world.faults.raise_at("before COMMIT", Refused("data"), Conflict("deadlock"))
        assert len(await world.add(engine)) == 1

    @pytest.mark.parametrize(
        ("error", "reason"),
        [(Lost("cut"), "store_unreachable"), (Conflict("deadlock"), "conflict")],
    )
    async def test_a_failure_while_the_guilty_is_looked_for_is_unavailable(
        self, world: World, engine: Engine, error: Exception, reason: str
    ) -> None:
        world.faults.raise_at("before COMMIT", Refused("data"), *[error] * 4)
        with pytest.raises(Unavailable) as caught:
            await world.add(engine)
        assert caught.value.fields["reason"] == reason
        assert (await world.dump("tasks"))["tasks"] == []


class TestStaleCopies:
    async def test_a_batch_on_a_stale_copy_runs_again_from_the_database(
        self, world: World, engine: Engine
    ) -> None:
        other = await world.start()
        worker = await world.worker(engine)
        stale, fresh = await world.held(engine, worker), await world.held(engine, worker)
        await world.confirm(other, worker, stale)
        world.faults.points.clear()
        items = (finish(stale, output=b"1"), finish(fresh, output=b"2"))
        command = FinishTasks(namespace=NAMESPACE, worker_id=worker, items=items)
        assert codes(await engine.submit(command)) == ["succeeded", "succeeded"]
        assert world.faults.points.count("finish_tasks") == 2
        assert (await world.task(stale.id)).output == b"1"

    async def test_a_task_that_another_server_finished_is_not_finished_again(
        self, world: World, engine: Engine
    ) -> None:
        other = await world.start()
        worker = await world.worker(engine)
        task = await world.held(engine, worker)
        await world.finish(other, worker, task, output=b"first")
        answer = await world.finish(engine, worker, task, output=b"second")
        assert codes([answer]) == ["task_already_terminal"]
        assert (await world.task(task.id)).output == b"first"

    async def test_a_refusal_is_never_given_on_a_copy_alone(
        self, world: World, engine: Engine
    ) -> None:
        other = await world.start()
        worker = await world.worker(engine)
        task = await world.held(engine, worker)
        await world.finish(other, worker, task, FinishKind.RELEASED)
        (again,) = await world.claim(other, worker)
        assert codes([await world.finish(engine, worker, again)]) == ["succeeded"]

    async def test_what_services_took_survives_a_second_look_at_copies(
        self, world: World, engine: Engine
    ) -> None:
        lost, worker = await world.worker(engine), await world.worker(engine)
        task = await world.running(engine, worker)
        await world.add(engine, spec=spec(schedule_to_close_ms=60_000))
        await world.advance(60_000)
        repeated = ConfirmTasks(namespace=NAMESPACE, worker_id=worker, items=(ref(task),))
        done = await asyncio.gather(
            engine.submit(repeated),
            engine.submit(ProcessDue(sighted_ms=FAR, amount=10)),
            engine.submit(JudgeLeases(sighted_ms=FAR, amount=10)),
        )
        assert codes(done[0]) == ["running"]
        assert done[2] == WorkDone(2)
        assert (await world.view(lost)).lease is None
        rows = await world.database.rows("SELECT state FROM history")
        assert [row["state"] for row in rows] == ["failed"]


class TestRestart:
    async def test_a_server_with_empty_memory_loses_nothing(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        held, running = await world.held(engine, worker), await world.running(engine, worker)
        (pending,) = await world.add(engine)
        (delayed,) = await world.add(engine, run_at_ms=world.clock.now_ms() + 5_000)
        keyed = world.new(idempotency_key="k", run_at_ms=world.clock.now_ms() + 90_000)
        await world.enqueue(engine, keyed)
        await world.kill(engine)
        other = await world.start()
        sink, answer = await world.session(other, worker, ref(held), ref(running), window=3)
        assert answer.stop == ()
        assert answer.held == frozenset({ref(held), ref(running)})
        assert [task.id for task in sink.take()] == [pending]
        assert codes([await world.finish(other, worker, running)]) == ["succeeded"]
        await world.advance(5_000)
        await world.round(DueTasks(), other)
        assert [task.id for task in sink.take()] == [delayed]
        same = type(keyed)(
            id=world.clock.new_id(),
            type="mail",
            queue=QUEUE,
            spec=keyed.spec,
            run_at_ms=keyed.run_at_ms,
            idempotency_key="k",
        )
        (repeated,) = await world.enqueue(other, same)
        assert repeated.task_id == keyed.id

    async def test_what_was_handed_out_and_never_arrived_is_found_after_a_restart(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        sink, _ = await world.session(engine, worker)
        await world.add(engine)
        await world.settle(engine)
        (task,) = sink.take()
        await world.kill(engine)
        other = await world.start()
        later, _ = await world.session(other, worker, window=1)
        (again,) = later.take()
        assert (again.id, again.attempt) == (task.id, 2)
        ended = await world.database.rows("SELECT outcome FROM attempts")
        assert [row["outcome"] for row in ended] == [Outcome.UNDELIVERED.value]


async def test_a_token_of_heartbeats_survives_a_restart(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    await world.beat(engine, worker, 1)
    await world.kill(engine)
    other = await world.start()
    renewed: Any = await other.submit(heartbeat(other, worker, 2))
    assert renewed.lease.token == 3
