"""What is handed to an endpoint is pushed once, and the answer to the POST decides what follows."""

from __future__ import annotations

import pytest

from tenure.core import limits
from tenure.core.endpoint.record import Endpoint, Pause
from tenure.core.endpoint.verdict import Delivery, Verdict
from tenure.core.task.attempt import Outcome
from tenure.core.task.callback import CallbackReport, CallbackTimes
from tenure.core.task.record import Reason, TaskState
from tenure.core.worker.record import WorkerMode, WorkerStatus
from tenure.engine.callback.command import CompleteCallback, StartCallback
from tenure.engine.command import TaskRef
from tenure.engine.endpoint import command as c
from tenure.engine.engine import Engine
from tenure.engine.read.explanation import explain_task
from tenure.engine.services.due_tasks import DueTasks
from tenure.engine.services.endpoint_removal import EndpointRemoval
from tenure.engine.task.command import CancelTask, FinishKind
from tenure.engine.worker.command import DrainWorker
from tenure.errors import AlreadyExists, InvalidArgument, NotFound, WrongState
from tenure.store.table import endpoint as endpoint_table
from tests.engine.endpoint.posted import FAILED, create, driven, quiet
from tests.engine.world import NAMESPACE, World, finish, spec


async def start(engine: Engine, task_id: str, attempt: int = 1) -> None:
    said = CallbackReport(worker="one")
    item = TaskRef(task_id, attempt)
    await engine.submit(StartCallback(namespace=NAMESPACE, run_id=task_id, item=item, said=said))


async def complete(world: World, engine: Engine, task_id: str) -> None:
    task = await world.task(task_id)
    item = finish(task, FinishKind.SUCCEEDED, said=CallbackReport(worker="one"))
    await engine.submit(CompleteCallback(namespace=NAMESPACE, run_id=task_id, item=item))


async def stored(engine: Engine, name: str = "hook") -> Endpoint | None:
    return await engine.store.read(
        lambda tx: endpoint_table.find_endpoint(tx, namespace=NAMESPACE, name=name)
    )


async def test_a_task_is_pushed_once_and_its_process_completes_it(world: World) -> None:
    engine, posted, endpoint = await driven(world)
    (task_id,) = await world.add(engine)
    await quiet(world, engine)
    assert posted.refs == [(task_id, 1)]
    task = await world.task(task_id)
    assert (task.state, task.worker_id) == (TaskState.DISPATCHED, endpoint.id)
    assert task.progress.callback is not None
    assert task.progress.callback.accepted_at_ms
    await start(engine, task_id)
    await complete(world, engine, task_id)
    assert await world.state(task_id) is TaskState.SUCCEEDED
    assert posted.refs == [(task_id, 1)]
    assert await world.dump("stops") == {"stops": []}


async def test_an_endpoint_has_a_worker_row_without_a_lease(world: World) -> None:
    engine, _, endpoint = await driven(world, concurrency=3)
    view = await world.view(endpoint.id)
    assert view.lease is None
    assert (view.worker.mode, view.worker.slots) == (WorkerMode.CALLBACK, 3)
    assert view.worker.labels == {"tenure.endpoint": "hook"}
    assert view.worker.name == ""
    with pytest.raises(InvalidArgument, match="mode must not be CALLBACK"):
        await world.worker(engine, mode=WorkerMode.CALLBACK)


async def test_never_more_than_the_concurrency_are_pushed(world: World) -> None:
    engine, posted, _ = await driven(world, concurrency=2)
    tasks = await world.add(engine, 5)
    await quiet(world, engine)
    assert len(posted.tasks) == 2
    await complete(world, engine, posted.tasks[0].id)
    await quiet(world, engine)
    assert len(posted.tasks) == 3
    assert {task.id for task in posted.tasks} < set(tasks)


async def test_an_accepted_attempt_has_the_time_of_the_endpoint_to_start(world: World) -> None:
    times = CallbackTimes(delivery_timeout_ms=50_000)
    engine, _, _ = await driven(world, times=times)
    (task_id,) = await world.add(engine)
    await quiet(world, engine)
    await world.watch(engine, limits.DELIVERY_TIMEOUT_MS + 1_000)
    await world.round(DueTasks(), engine)
    assert await world.state(task_id) is TaskState.DISPATCHED
    await world.watch(engine, 30_000)
    await world.round(DueTasks(), engine)
    assert (await world.task(task_id)).progress.failure_count == 0
    attempts = await world.dump("attempts")
    assert [row for row in attempts["attempts"] if Outcome.UNDELIVERED in row]


async def test_an_attempt_that_nobody_accepted_is_undelivered_after_the_delivery_check(
    world: World,
) -> None:
    engine, posted, _ = await driven(world)
    posted.gate.clear()
    (task_id,) = await world.add(engine)
    await quiet(world, engine)
    await world.watch(engine, limits.DELIVERY_TIMEOUT_MS)
    await world.round(DueTasks(), engine)
    assert (await world.task(task_id)).progress.failure_count == 0
    assert (task_id, 2) in posted.refs
    posted.gate.set()
    await quiet(world, engine)


@pytest.mark.parametrize("status", [400, 413, 415, 422])
async def test_a_refused_envelope_fails_the_task_for_good(world: World, status: int) -> None:
    engine, posted, _ = await driven(world)
    posted.answer = lambda _: Delivery(
        verdict=Verdict.REFUSED, error=f"The endpoint answered {status}."
    )
    (task_id,) = await world.add(engine)
    await quiet(world, engine)
    task = await world.task(task_id)
    assert (task.state, task.progress.reason) == (TaskState.FAILED, Reason.NON_RETRYABLE)
    assert task.progress.error is not None
    assert (task.progress.error.category, task.progress.error.message) == (
        "CONFIGURATION",
        f"The endpoint answered {status}.",
    )


async def test_a_busy_endpoint_gets_nothing_before_its_time(world: World) -> None:
    engine, posted, _ = await driven(world)
    posted.answer = lambda _: Delivery(verdict=Verdict.BUSY, error="429", busy_ms=7_000)
    (task_id,) = await world.add(engine)
    await quiet(world, engine)
    assert len(posted.tasks) == 1
    task = await world.task(task_id)
    assert (task.state, task.progress.failure_count) == (TaskState.PENDING, 0)
    found = await stored(engine)
    assert found is not None
    assert (found.failure_count, found.last_error) == (0, "429")
    assert found.is_held(world.clock.now_ms() + 6_999)
    assert not found.is_held(world.clock.now_ms() + 7_000)


async def test_an_endpoint_that_is_gone_is_paused_until_it_is_resumed(world: World) -> None:
    engine, posted, endpoint = await driven(world)
    posted.answer = lambda _: Delivery(verdict=Verdict.GONE, error="410")
    (task_id,) = await world.add(engine)
    await quiet(world, engine)
    found = await stored(engine)
    assert found is not None
    assert found.pause is Pause.GONE
    assert len(posted.tasks) == 1
    await engine.submit(
        c.PauseEndpoint(namespace=NAMESPACE, endpoint_id=endpoint.id, is_paused=False)
    )
    await engine.seats.round()
    await quiet(world, engine)
    assert posted.refs == [(task_id, 1), (task_id, 2)]


async def test_failures_in_a_row_hold_the_endpoint_and_one_success_opens_it(world: World) -> None:
    engine, posted, _ = await driven(world, concurrency=5)
    posted.answer = lambda _: FAILED
    await world.add(engine, 20)
    await quiet(world, engine)
    found = await stored(engine)
    assert found is not None
    # Those that were on their way fail too; nothing more is pushed.
    assert found.failure_count >= limits.ENDPOINT_FAILURES_MAX
    assert len(posted.tasks) < 20
    assert found.held_until_ms > world.clock.now_ms()
    assert found.last_error == "no answer"
    before = len(posted.tasks)
    await quiet(world, engine)
    assert len(posted.tasks) == before


async def test_after_a_start_the_outcome_of_the_post_means_nothing(world: World) -> None:
    engine, posted, _ = await driven(world)
    posted.gate.clear()
    posted.answer = lambda _: FAILED
    (task_id,) = await world.add(engine)
    await quiet(world, engine)
    await start(engine, task_id)
    posted.gate.set()
    await quiet(world, engine)
    assert await world.state(task_id) is TaskState.RUNNING
    found = await stored(engine)
    assert found is not None
    assert found.failure_count == 0


async def test_nothing_is_handed_out_after_the_answer_to_a_pause(world: World) -> None:
    engine, posted, endpoint = await driven(world)
    await engine.submit(
        c.PauseEndpoint(namespace=NAMESPACE, endpoint_id=endpoint.id, is_paused=True)
    )
    (task_id,) = await world.add(engine)
    await quiet(world, engine)
    await engine.seats.round()
    await quiet(world, engine)
    assert posted.tasks == []
    assert await world.state(task_id) is TaskState.PENDING


async def test_a_changed_endpoint_pushes_by_its_new_values(world: World) -> None:
    engine, posted, endpoint = await driven(world, concurrency=1)
    change = c.EndpointChange(types=("mail", "sms"), concurrency=3, heartbeat_timeout_ms=70_000)
    await engine.submit(c.SetEndpoint(namespace=NAMESPACE, endpoint_id=endpoint.id, change=change))
    await engine.seats.round()
    await world.add(engine, 1, type="sms")
    await world.add(engine, 4)
    await quiet(world, engine)
    assert len(posted.tasks) == 3
    assert {task.type for task in posted.tasks} == {"mail", "sms"}
    callback = posted.tasks[0].progress.callback
    assert callback is not None
    assert callback.times.heartbeat_timeout_ms == 70_000
    view = await world.view(endpoint.id)
    assert (view.worker.types, view.worker.slots) == (("mail", "sms"), 3)


async def test_a_change_that_does_not_fit_changes_nothing(world: World) -> None:
    engine, _, endpoint = await driven(world)
    before = await world.dump("endpoints", "workers")
    change = c.EndpointChange(heartbeat_interval_ms=60_000)
    with pytest.raises(InvalidArgument, match="at least twice"):
        await engine.submit(
            c.SetEndpoint(namespace=NAMESPACE, endpoint_id=endpoint.id, change=change)
        )
    assert await world.dump("endpoints", "workers") == before


async def test_attempts_in_progress_go_on_when_the_endpoint_is_changed(world: World) -> None:
    engine, posted, endpoint = await driven(world)
    posted.gate.clear()
    (task_id,) = await world.add(engine)
    await quiet(world, engine)
    await engine.submit(c.RotateEndpointSecret(namespace=NAMESPACE, endpoint_id=endpoint.id))
    await engine.seats.round()
    posted.gate.set()
    await quiet(world, engine)
    assert posted.refs == [(task_id, 1)]
    assert (await world.task(task_id)).attempt == 1


async def test_a_rotated_secret_signs_beside_the_old_one_for_a_day(world: World) -> None:
    engine, _, endpoint = await driven(world)
    made = await engine.submit(c.RotateEndpointSecret(namespace=NAMESPACE, endpoint_id=endpoint.id))
    now_ms = world.clock.now_ms()
    old = endpoint.secrets[0].value
    assert made.endpoint.live_secrets(now_ms) == (made.secret, old)
    assert made.endpoint.live_secrets(now_ms + limits.ENDPOINT_SECRET_OVERLAP_MS) == (made.secret,)
    assert str(old) not in repr(endpoint)


async def test_a_deleted_endpoint_is_gone_when_it_holds_nothing(world: World) -> None:
    engine, posted, endpoint = await driven(world)
    (task_id,) = await world.add(engine)
    await quiet(world, engine)
    await engine.submit(c.DeleteEndpoint(namespace=NAMESPACE, endpoint_id=endpoint.id))
    (later,) = await world.add(engine)
    await world.round(EndpointRemoval(), engine)
    assert await stored(engine) is not None
    with pytest.raises(WrongState, match="is being deleted"):
        await engine.submit(
            c.PauseEndpoint(namespace=NAMESPACE, endpoint_id=endpoint.id, is_paused=True)
        )
    await complete(world, engine, task_id)
    await world.round(EndpointRemoval(), engine)
    assert await stored(engine) is None
    assert (await world.view(endpoint.id)).worker.status is WorkerStatus.OFFLINE
    assert await world.state(later) is TaskState.PENDING
    assert posted.refs == [(task_id, 1)]
    await create(engine)


async def test_an_endpoint_can_be_drained_like_any_worker(world: World) -> None:
    engine, posted, endpoint = await driven(world)
    await engine.submit(DrainWorker(namespace=NAMESPACE, worker_id=endpoint.id))
    await world.add(engine)
    await quiet(world, engine)
    assert posted.tasks == []


async def test_a_name_is_used_once_and_an_unknown_endpoint_is_not_found(world: World) -> None:
    engine, _, _ = await driven(world)
    with pytest.raises(AlreadyExists):
        await create(engine)
    unknown = world.clock.new_id()
    with pytest.raises(NotFound):
        await engine.submit(c.DeleteEndpoint(namespace=NAMESPACE, endpoint_id=unknown))


async def test_a_cancel_waits_for_the_heartbeat(world: World) -> None:
    engine, _, _ = await driven(world)
    (task_id,) = await world.add(engine)
    await quiet(world, engine)
    await start(engine, task_id)
    await engine.submit(CancelTask(namespace=NAMESPACE, task_id=task_id))
    await quiet(world, engine)
    task = await world.task(task_id)
    assert (task.state, task.progress.grace_at_ms) == (TaskState.CANCELLING, 0)


@pytest.mark.parametrize("dialect", ["postgres"], indirect=True)
async def test_a_new_owner_ends_what_the_former_one_had_not_delivered(world: World) -> None:
    engine, posted, endpoint = await driven(world)
    (accepted,) = await world.add(engine)
    await quiet(world, engine)
    posted.gate.clear()
    (lost,) = await world.add(engine)
    await quiet(world, engine)
    assert len(posted.tasks) == 2
    await world.kill(engine)
    await world.advance(limits.SEAT_STALE_MS + 1)
    other, again = await world.start(), type(posted)()
    await world.watch(other, 1)
    other.seats.open_endpoints(again)
    await other.seats.round()
    await quiet(world, other)
    assert again.refs == [(lost, 2)]
    assert (await world.task(lost)).progress.failure_count == 0
    assert (await world.task(accepted)).attempt == 1
    assert again.endpoints[0].id == endpoint.id
    await complete(world, other, accepted)


async def test_the_time_of_a_task_comes_before_that_of_its_endpoint(world: World) -> None:
    engine, posted, _ = await driven(world)
    await world.add(engine, spec=spec(heartbeat_timeout_ms=5_000, heartbeat_interval_ms=1_000))
    await quiet(world, engine)
    await start(engine, posted.tasks[0].id)
    task = await world.task(posted.tasks[0].id)
    assert task.due_at_ms == world.clock.now_ms() + 5_000


async def test_a_task_that_only_a_paused_endpoint_could_run_says_so(world: World) -> None:
    engine, _, endpoint = await driven(world)
    await engine.submit(
        c.PauseEndpoint(namespace=NAMESPACE, endpoint_id=endpoint.id, is_paused=True)
    )
    (task_id,) = await world.add(engine)
    found = await explain_task(engine.store, namespace=NAMESPACE, task_id=task_id, deaf=engine.deaf)
    assert [each.code for each in found.reasons] == ["endpoint_paused"]
