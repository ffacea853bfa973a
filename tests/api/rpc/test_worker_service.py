"""The life of a worker that polls, and the registry, over gRPC."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from tenure.core.limits import LONG_POLL_MS, PAYLOAD_BYTES_MAX
from tenure.engine.engine import Engine
from tenure.v1 import admin_service_pb2 as admin_pb
from tenure.v1 import task_pb2, task_service_pb2, worker_pb2
from tenure.v1 import workflow_service_pb2 as pb
from tests.api.rpc.wire import Wire, open_wire, ref, refused, state_name, succeeded
from tests.engine.world import NAMESPACE, OTHER_NAMESPACE, World
from tests.polling import eventually

UNKNOWN = "019b0000-0000-7000-8000-00000000dead"


async def test_the_server_says_how_often_to_beat_and_how_long_the_lease_is(wire: Wire) -> None:
    poll = await wire.register()
    session = await wire.register(mode=worker_pb2.WORKER_MODE_SESSION)
    assert (poll.heartbeat_interval_secs, poll.lease_duration.seconds) == (10, 30)
    assert (session.heartbeat_interval_ms, session.lease_duration.seconds) == (5_000, 15)


async def test_a_worker_may_ask_for_another_lease_within_the_limits(wire: Wire) -> None:
    made = await wire.register(lease_duration=Duration(seconds=60))
    assert (made.heartbeat_interval_secs, made.lease_duration.seconds) == (20, 60)
    renewed = await wire.beat(made.worker_id, made.token, lease_duration=Duration(seconds=90_000))
    assert renewed.lease_duration.seconds == 600


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"workflow_types": []}, "workflow_types"),
        ({"task_queue": ""}, "task_queue"),
        ({"max_concurrent": -1}, "max_concurrent"),
        ({"mode": 99}, "mode"),
        ({"mode": worker_pb2.WORKER_MODE_SERVED}, "address"),
        ({"lease_duration": Duration(seconds=-1)}, "lease_duration"),
        ({"instance_key": "a b"}, "instance_key"),
        ({"name": "a/b"}, "name"),
        ({"pid": -1}, "pid"),
        ({"labels": {"a": "x" * 257}}, "labels.a"),
    ],
)
async def test_a_bad_registration_is_refused_and_changes_nothing(
    wire: Wire, world: World, fields: dict[str, Any], field: str
) -> None:
    before = await world.dump()
    request = pb.RegisterWorkerRequest(
        **{"namespace_id": NAMESPACE, "task_queue": "default", "workflow_types": ["mail"], **fields}
    )
    status, refusal = await refused(wire.workflows.RegisterWorker(request))
    assert (status, refusal.field) == ("INVALID_ARGUMENT", field)
    assert await world.dump() == before


async def test_an_instance_key_with_other_content_is_refused(wire: Wire) -> None:
    first = await wire.register(instance_key="one", max_concurrent=0, mode=0)
    # Said or left out, the default is the same content.
    again = await wire.register(
        instance_key="one", max_concurrent=100, mode=worker_pb2.WORKER_MODE_POLL
    )
    assert again == first
    status, refusal = await refused(wire.register(instance_key="one", version="2"))
    assert (status, refusal.code, refusal.field) == ("ALREADY_EXISTS", "already_exists", "version")


async def test_the_same_instance_key_gives_the_same_worker(wire: Wire) -> None:
    first = await wire.register(instance_key="one")
    again = await wire.register(instance_key="one")
    other = await wire.register(instance_key="two")
    assert first.worker_id == again.worker_id != other.worker_id


async def test_a_new_worker_of_the_same_name_supersedes_the_old_one(wire: Wire) -> None:
    old = await wire.register(name="mailer")
    await wire.register(name="mailer")
    status, refusal = await refused(wire.beat(old.worker_id, old.token))
    assert (status, refusal.code) == ("FAILED_PRECONDITION", "worker_inactive")
    assert refusal.reason == "superseded"
    shown = await wire.worker(old.worker_id)
    assert (shown.status, shown.end_reason) == (worker_pb2.WORKER_STATUS_OFFLINE, "superseded")


async def test_registrations_have_a_limit_that_never_slows_heartbeats(engine: Engine) -> None:
    async with open_wire(engine, registrations_per_s=2) as wire:
        made = await wire.register()
        await wire.register()
        status, refusal = await refused(wire.register())
        assert (status, refusal.code) == ("RESOURCE_EXHAUSTED", "rate_limited")
        assert refusal.retry_after_ms > 0
        token = made.token
        for _ in range(10):
            token = (await wire.beat(made.worker_id, token)).token


async def test_a_stale_token_changes_nothing_and_is_told_the_current_one(wire: Wire) -> None:
    made = await wire.register()
    first = await wire.beat(made.worker_id, made.token, total_completed=3)
    status, refusal = await refused(wire.beat(made.worker_id, made.token, total_completed=9))
    assert (status, refusal.code) == ("ABORTED", "token_mismatch")
    assert refusal.current_token == first.token
    assert (await wire.worker(made.worker_id)).total_completed == 3
    await wire.beat(made.worker_id, refusal.current_token, total_completed=9)
    assert (await wire.worker(made.worker_id)).total_completed == 9


async def test_the_totals_of_a_worker_are_shown_after_its_end(wire: Wire) -> None:
    made = await wire.register()
    await wire.beat(made.worker_id, made.token, total_completed=10, total_failed=2)
    await wire.workflows.DeregisterWorker(
        pb.DeregisterWorkerRequest(namespace_id=NAMESPACE, worker_id=made.worker_id)
    )
    shown = await wire.worker(made.worker_id)
    assert (shown.end_reason, shown.total_completed, shown.total_failed) == ("deregistered", 10, 2)


async def test_an_empty_token_is_that_of_the_first_heartbeat(wire: Wire) -> None:
    made = await wire.register()
    assert (await wire.beat(made.worker_id, "")).accepted
    assert (await refused(wire.beat(made.worker_id, "")))[1].code == "token_mismatch"


GARBLED = ["x", "-1", "2 ", "0", "٢", "9" * 18, "9" * 19, "x" * 100_000]


@pytest.mark.parametrize("token", GARBLED)
async def test_a_garbled_token_is_a_mismatch_and_is_told_the_current_one(
    wire: Wire, token: str
) -> None:
    made = await wire.register()
    first = await wire.beat(made.worker_id, made.token, total_completed=3)
    status, refusal = await refused(wire.beat(made.worker_id, token, total_completed=9))
    assert (status, refusal.code) == ("ABORTED", "token_mismatch")
    assert refusal.current_token == first.token
    assert (await wire.worker(made.worker_id)).total_completed == 3
    await wire.workflows.DeregisterWorker(
        pb.DeregisterWorkerRequest(namespace_id=NAMESPACE, worker_id=made.worker_id)
    )
    status, refusal = await refused(wire.beat(made.worker_id, token))
    assert (refusal.code, refusal.reason) == ("worker_inactive", "deregistered")


async def test_deltas_count_only_with_a_matching_token(wire: Wire) -> None:
    made = await wire.register()
    token = (await wire.beat(made.worker_id, made.token, completed_delta=2, failed_delta=1)).token
    await refused(wire.beat(made.worker_id, made.token, completed_delta=2))
    await wire.beat(made.worker_id, token, completed_delta=5)
    shown = await wire.worker(made.worker_id)
    assert (shown.total_completed, shown.total_failed) == (7, 1)


async def test_bindings_confirm_tasks_and_foreign_ones_are_to_be_stopped(wire: Wire) -> None:
    (task_id,) = await wire.enqueue()
    made = await wire.register()
    (task,) = await wire.poll(made.worker_id)
    foreign = task_pb2.TaskRef(task_id=UNKNOWN, attempt=1)
    answer = await wire.beat(made.worker_id, made.token, bound_activities=[ref(task), foreign])
    assert await wire.state(task_id) == "RUNNING"
    assert list(answer.stop) == [
        task_pb2.TaskRef(task_id=UNKNOWN, attempt=1, stop_reason="lost_lease")
    ]


async def test_a_full_held_set_without_a_confirmed_task_ends_its_attempt(
    wire: Wire, world: World
) -> None:
    (task_id,) = await wire.enqueue()
    made = await wire.register()
    (task,) = await wire.poll(made.worker_id)
    bound = await wire.beat(made.worker_id, made.token, bound_activities=[ref(task)])
    await world.advance(1_000)
    again = await wire.beat(made.worker_id, bound.token)
    await wire.beat(made.worker_id, again.token, held_activities=pb.HeldActivities())
    assert await wire.state(task_id) == "PENDING"
    assert (await wire.get(task_id)).interruption_count == 1


async def test_a_heartbeat_carries_what_to_cancel_and_the_wish_to_drain(wire: Wire) -> None:
    (task_id,) = await wire.enqueue()
    made = await wire.register()
    (task,) = await wire.poll(made.worker_id)
    first = await wire.beat(made.worker_id, made.token, bound_activities=[ref(task)])
    assert not first.should_drain
    await wire.tasks.CancelTask(_cancel(task_id))
    drain = admin_pb.DrainWorkerRequest(namespace_id=NAMESPACE, worker_id=made.worker_id)
    await wire.admin.DrainWorker(drain)
    second = await wire.beat(made.worker_id, first.token)
    assert list(second.cancel) == [ref(task)]
    assert second.should_drain


def _cancel(task_id: str) -> Any:
    return task_service_pb2.CancelTaskRequest(namespace_id=NAMESPACE, task_id=task_id)


async def test_an_unknown_worker_is_inactive_for_calls_and_not_found_for_reads(wire: Wire) -> None:
    status, refusal = await refused(wire.beat(UNKNOWN, "1"))
    assert (status, refusal.code, refusal.reason) == (
        "FAILED_PRECONDITION",
        "worker_inactive",
        "unknown",
    )
    assert (await refused(wire.poll(UNKNOWN)))[1].code == "worker_inactive"
    assert (await refused(wire.worker(UNKNOWN)))[1].code == "not_found"
    request = admin_pb.EvictWorkerRequest(namespace_id=NAMESPACE, worker_id=UNKNOWN)
    assert (await refused(wire.admin.EvictWorker(request)))[1].code == "not_found"


async def test_a_worker_of_another_namespace_is_not_there(wire: Wire) -> None:
    made = await wire.register()
    get = pb.GetWorkerRequest(namespace_id=OTHER_NAMESPACE, worker_id=made.worker_id)
    assert (await refused(wire.workflows.GetWorker(get)))[1].code == "not_found"
    beat = pb.WorkerHeartbeatRequest(namespace_id=OTHER_NAMESPACE, worker_id=made.worker_id)
    assert (await refused(wire.workflows.WorkerHeartbeat(beat)))[1].code == "worker_inactive"


async def test_a_poll_gets_only_types_that_it_names_within_the_registered_ones(wire: Wire) -> None:
    mail, fax = await wire.enqueue(wire.new("mail"), wire.new("fax"))
    made = await wire.register("mail", "fax")
    (task,) = await wire.poll(made.worker_id, supported_workflow_types=["fax"])
    assert task.task_id == fax
    assert await wire.state(mail) == "PENDING"
    for types in (["call"], []):
        call = wire.poll(made.worker_id, supported_workflow_types=types)
        assert (await refused(call))[1].code == "invalid_argument"
    elsewhere = wire.poll(made.worker_id, task_queue="other")
    assert (await refused(elsewhere))[1].code == "invalid_argument"


async def test_the_first_fields_of_a_poll_repeat_the_first_task(wire: Wire) -> None:
    (task_id,) = await wire.enqueue(wire.new(input=b"in"))
    made = await wire.register()
    answer = await wire.polling(made.worker_id, max_tasks=0)
    assert (answer.run_id, answer.workflow_type) == (task_id, "mail")
    assert answer.workflow_input == b"in"
    assert not await wire.poll(made.worker_id)


async def test_a_long_poll_gets_a_task_that_is_enqueued_later(wire: Wire, engine: Engine) -> None:
    made = await wire.register()
    waiting = asyncio.ensure_future(wire.poll(made.worker_id, wait=Duration(seconds=60)))
    await eventually(lambda: engine.has_credit(made.worker_id))
    (task_id,) = await wire.enqueue()
    (task,) = await waiting
    assert (task.task_id, task.attempt) == (task_id, 1)


async def test_a_wait_beyond_the_limit_is_refused(wire: Wire) -> None:
    made = await wire.register()
    too_long = Duration(seconds=LONG_POLL_MS // 1000 + 1)
    assert (await refused(wire.poll(made.worker_id, wait=too_long)))[1].field == "wait"
    assert (await refused(wire.poll(made.worker_id, wait=Duration(seconds=-1))))[1].field == "wait"


async def test_a_draining_worker_gets_nothing_and_its_open_polls_return(
    wire: Wire, engine: Engine
) -> None:
    made = await wire.register()
    waiting = asyncio.ensure_future(wire.poll(made.worker_id, wait=Duration(seconds=60)))
    await eventually(lambda: engine.has_credit(made.worker_id))
    request = pb.DeregisterWorkerRequest(
        namespace_id=NAMESPACE, worker_id=made.worker_id, drain=True
    )
    await wire.workflows.DeregisterWorker(request)
    assert await waiting == []
    (task_id,) = await wire.enqueue()
    status, refusal = await refused(wire.poll(made.worker_id))
    assert (status, refusal.code) == ("FAILED_PRECONDITION", "worker_draining")
    assert await wire.state(task_id) == "PENDING"


async def test_a_poll_whose_caller_is_gone_gives_its_task_to_the_next(
    wire: Wire, engine: Engine
) -> None:
    made = await wire.register()
    call: Any = wire.polling(made.worker_id, wait=Duration(seconds=60))
    gone = asyncio.ensure_future(call)
    await eventually(lambda: engine.has_credit(made.worker_id))
    gone.cancel()
    await eventually(lambda: not engine.has_credit(made.worker_id))
    (task_id,) = await wire.enqueue()
    (task,) = await wire.poll(made.worker_id)
    assert task.task_id == task_id


async def test_what_does_not_fit_one_answer_goes_back_at_once(wire: Wire) -> None:
    big = b"x" * (PAYLOAD_BYTES_MAX - 1)
    ids = [(await wire.enqueue(wire.new(input=big)))[0] for _ in range(3)]
    made = await wire.register()
    tasks = await wire.poll(made.worker_id)
    assert [task.task_id for task in tasks] == ids[:1]
    assert [await wire.state(each) for each in ids] == ["DISPATCHED", "PENDING", "PENDING"]


async def test_a_late_result_of_an_ended_attempt_is_refused(wire: Wire) -> None:
    (task_id,) = await wire.enqueue()
    made, other = await wire.register(), await wire.register()
    (task,) = await wire.poll(made.worker_id)
    evict = admin_pb.EvictWorkerRequest(namespace_id=NAMESPACE, worker_id=made.worker_id)
    await wire.admin.EvictWorker(evict)
    (second,) = await wire.poll(other.worker_id, wait=Duration(seconds=20))
    assert second.attempt == 2
    (late,) = await wire.finish(made.worker_id, succeeded(task, b"late"))
    assert (late.error.code, late.error.reason) == ("worker_inactive", "evicted")
    (stale,) = await wire.finish(other.worker_id, succeeded(task, b"stale"))
    assert stale.error.code == "attempt_mismatch"
    assert (stale.error.expected_attempt, stale.error.received_attempt) == (2, 1)
    (good,) = await wire.finish(other.worker_id, succeeded(second, b"good"))
    (again,) = await wire.finish(other.worker_id, succeeded(second, b"good"))
    assert state_name(good.state) == state_name(again.state) == "SUCCEEDED"
    assert (await wire.get(task_id)).output == b"good"


async def test_a_worker_that_is_offline_cannot_be_evicted_or_drained(wire: Wire) -> None:
    made = await wire.register()
    await wire.workflows.DeregisterWorker(
        pb.DeregisterWorkerRequest(namespace_id=NAMESPACE, worker_id=made.worker_id)
    )
    evict = admin_pb.EvictWorkerRequest(namespace_id=NAMESPACE, worker_id=made.worker_id)
    drain = admin_pb.DrainWorkerRequest(namespace_id=NAMESPACE, worker_id=made.worker_id)
    for call in (wire.admin.EvictWorker(evict), wire.admin.DrainWorker(drain)):
        status, refusal = await refused(call)
        assert (status, refusal.code) == ("FAILED_PRECONDITION", "wrong_state")
        assert refusal.state == "OFFLINE"


@pytest.mark.parametrize("way", ["at once", "drain"])
async def test_a_worker_that_is_offline_or_unknown_is_inactive_when_it_leaves(
    wire: Wire, way: str
) -> None:
    evicted, gone = await wire.register(), await wire.register()
    evict = admin_pb.EvictWorkerRequest(namespace_id=NAMESPACE, worker_id=evicted.worker_id)
    await wire.admin.EvictWorker(evict)
    await wire.workflows.DeregisterWorker(
        pb.DeregisterWorkerRequest(namespace_id=NAMESPACE, worker_id=gone.worker_id)
    )
    reasons = {evicted.worker_id: "evicted", UNKNOWN: "unknown"}
    is_drain = way == "drain"
    if is_drain:
        # A goodbye may be said twice; a drain comes too late.
        reasons[gone.worker_id] = "deregistered"
    for worker_id, reason in reasons.items():
        request = pb.DeregisterWorkerRequest(
            namespace_id=NAMESPACE, worker_id=worker_id, drain=is_drain
        )
        status, refusal = await refused(wire.workflows.DeregisterWorker(request))
        assert (status, refusal.code) == ("FAILED_PRECONDITION", "worker_inactive")
        assert refusal.reason == reason


async def test_an_eviction_may_be_asked_for_twice(wire: Wire) -> None:
    made = await wire.register()
    evict = admin_pb.EvictWorkerRequest(namespace_id=NAMESPACE, worker_id=made.worker_id)
    first = await wire.admin.EvictWorker(evict)
    assert await wire.admin.EvictWorker(evict) == first


async def test_goodbye_puts_back_what_is_held_and_may_be_said_twice(wire: Wire) -> None:
    (task_id,) = await wire.enqueue()
    made = await wire.register()
    await wire.poll(made.worker_id)
    request = pb.DeregisterWorkerRequest(namespace_id=NAMESPACE, worker_id=made.worker_id)
    await wire.workflows.DeregisterWorker(request)
    await wire.workflows.DeregisterWorker(request)
    await wire.until_state(task_id, "PENDING")
    assert (await refused(wire.beat(made.worker_id, made.token)))[1].reason == "deregistered"


async def test_workers_are_listed_by_queue_status_label_and_version_with_real_counts(
    wire: Wire,
) -> None:
    labels = {"region": "eu"}
    one = await wire.register(labels=labels, version="1", hostname="h", pid=7, max_concurrent=3)
    two = await wire.register(labels={"region": "us"}, version="2")
    other = await wire.register(task_queue="other", labels=labels, version="2")
    await wire.workflows.DeregisterWorker(
        pb.DeregisterWorkerRequest(namespace_id=NAMESPACE, worker_id=two.worker_id)
    )
    for fields, expected in (
        ({}, [one, two, other]),
        ({"task_queue": "default"}, [one, two]),
        ({"filter_status": "ONLINE"}, [one, other]),
        ({"labels": labels}, [one, other]),
        ({"labels": labels, "version": "2"}, [other]),
        ({"filter_status": "DRAINING"}, []),
    ):
        request = pb.ListWorkersRequest(namespace_id=NAMESPACE, **fields)
        answer = await wire.workflows.ListWorkers(request)
        ids = {each.worker_id for each in answer.workers}
        assert ids == {each.worker_id for each in expected}, fields
        assert answer.total_count == len(expected)
    shown = await wire.worker(one.worker_id)
    assert (shown.hostname, shown.pid, shown.version) == ("h", 7, "1")
    assert (dict(shown.labels), shown.max_concurrent) == (labels, 3)
    assert (shown.health, shown.held_count) == (worker_pb2.WORKER_HEALTH_HEALTHY, 0)
    bad = pb.ListWorkersRequest(namespace_id=NAMESPACE, filter_status="GONE")
    assert (await refused(wire.workflows.ListWorkers(bad)))[1].field == "filter_status"


async def test_workers_are_paged(wire: Wire) -> None:
    made = {(await wire.register()).worker_id for _ in range(5)}
    seen: list[str] = []
    token = ""
    while True:
        request = pb.ListWorkersRequest(namespace_id=NAMESPACE, page_size=2, page_token=token)
        page = await wire.workflows.ListWorkers(request)
        seen += [each.worker_id for each in page.workers]
        assert page.total_count == 5
        token = page.next_page_token
        if not token:
            break
    assert len(seen) == 5
    assert set(seen) == made


async def test_all_workers_of_a_version_are_drained_together(wire: Wire) -> None:
    old = {(await wire.register(version="1")).worker_id for _ in range(3)}
    new = await wire.register(version="2")
    request = admin_pb.DrainWorkersRequest(namespace_id=NAMESPACE, version="1")
    assert set((await wire.admin.DrainWorkers(request)).worker_ids) == old
    assert (await wire.worker(new.worker_id)).status == worker_pb2.WORKER_STATUS_ONLINE
    for each in old:
        assert (await wire.worker(each)).status == worker_pb2.WORKER_STATUS_DRAINING
    nobody = admin_pb.DrainWorkersRequest(namespace_id=NAMESPACE)
    assert (await refused(wire.admin.DrainWorkers(nobody)))[1].code == "invalid_argument"


async def test_queues_are_shown_paused_and_limited(wire: Wire) -> None:
    await wire.enqueue(wire.new("mail"), wire.new("fax"))
    request = admin_pb.SetQueueRequest(namespace_id=NAMESPACE, name="default", is_paused=True)
    await wire.admin.SetQueue(request)
    limit = admin_pb.SetQueueRequest(namespace_id=NAMESPACE, name="default", concurrency_max=1)
    queue = (await wire.admin.SetQueue(limit)).queue
    assert (queue.is_paused, queue.concurrency_max) == (True, 1)
    counts = {each.type: dict(each.counts) for each in queue.types}
    assert counts == {"mail": {"PENDING": 1}, "fax": {"PENDING": 1}}
    listed = await wire.admin.ListQueues(admin_pb.ListQueuesRequest(namespace_id=NAMESPACE))
    assert [each.name for each in listed.queues] == ["default"]
    got = await wire.admin.GetQueue(
        admin_pb.GetQueueRequest(namespace_id=NAMESPACE, name="default")
    )
    assert got.queue == queue
    made = await wire.register()
    assert await wire.poll(made.worker_id) == []


async def test_namespaces_are_made_once_and_listed(wire: Wire) -> None:
    request = admin_pb.CreateNamespaceRequest(name="fresh")
    assert (await wire.admin.CreateNamespace(request)).name == "fresh/default"
    status, refusal = await refused(wire.admin.CreateNamespace(request))
    assert (status, refusal.code) == ("ALREADY_EXISTS", "already_exists")
    listed = await wire.admin.ListNamespaces(admin_pb.ListNamespacesRequest())
    assert "fresh/default" in listed.names
    lost = pb.ListWorkersRequest(namespace_id="nowhere")
    assert (await refused(wire.workflows.ListWorkers(lost)))[1].code == "not_found"
