"""Requests that come too late, too often, for somebody else, or while the store is away."""

from __future__ import annotations

import base64
import json
from typing import Any

import grpc
import pytest

from tenure.core import limits
from tenure.core.access import task_token as tokens
from tenure.core.access.task_token import Claims, Purpose
from tenure.engine.services.due_tasks import DueTasks
from tenure.store.failure import Lost
from tenure.v1 import admin_service_pb2 as admin_pb
from tenure.v1 import task_pb2, worker_pb2
from tenure.v1 import task_service_pb2 as task_pb
from tenure.v1 import workflow_service_pb2 as workflow_pb
from tests.api.bad_input.both_edges import BothEdges, Refusal, enqueue, open_stand
from tests.api.http.site import UNKNOWN_ID
from tests.api.rpc.wire import refused, state_name
from tests.engine.world import NAMESPACE, OTHER_NAMESPACE
from tests.polling import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")
SUCCEEDED = task_pb2.FINISH_KIND_SUCCEEDED


def done(task: task_pb2.AssignedTask, output: bytes = b"") -> task_pb2.TaskFinish:
    return task_pb2.TaskFinish(
        task_id=task.task_id, attempt=task.attempt, kind=SUCCEEDED, output=output
    )


async def taken(stand: BothEdges, **fields: Any) -> tuple[str, task_pb2.AssignedTask]:
    """Return a worker and the one task that it holds."""
    queue = stand.world.clock.new_id()
    await stand.wire.enqueue(stand.wire.new(task_queue=queue, **fields))
    made = await stand.wire.register(task_queue=queue)
    (task,) = await stand.wire.poll(made.worker_id, task_queue=queue)
    return made.worker_id, task


async def start(stand: BothEdges, worker_id: str, task: task_pb2.AssignedTask) -> None:
    request = task_pb.StartTasksRequest(
        namespace_id=NAMESPACE,
        worker_id=worker_id,
        items=[task_pb2.TaskRef(task_id=task.task_id, attempt=task.attempt)],
    )
    await stand.wire.tasks.StartTasks(request)


async def test_what_is_unknown_is_answered_as_what_exists_elsewhere(stand: BothEdges) -> None:
    (task_id,) = await stand.wire.enqueue()
    worker_id = (await stand.wire.register()).worker_id
    site = stand.site
    elsewhere = {"tenure-namespace": OTHER_NAMESPACE}
    for path, known in (("/v1/tasks/{}", task_id), ("/v1/workers/{}", worker_id)):
        unknown = await site.client.get(path.format(UNKNOWN_ID))
        foreign = await site.client.get(path.format(known), headers=elsewhere)
        assert unknown.status_code == foreign.status_code == 404
        assert unknown.json() | {"message": ""} == foreign.json() | {"message": ""}
        assert known not in foreign.json()["message"].replace(known, "", 1)
        assert unknown.json()["message"].replace(UNKNOWN_ID, known) == foreign.json()["message"]
    for cancel in (
        task_pb.CancelTaskRequest(namespace_id=OTHER_NAMESPACE, task_id=task_id),
        task_pb.CancelTaskRequest(namespace_id=NAMESPACE, task_id=UNKNOWN_ID),
    ):
        refusal = await stand.grpc(stand.wire.tasks.CancelTask(cancel))
        assert refusal == Refusal("NOT_FOUND", "not_found")


async def test_a_stale_attempt_and_a_different_result_of_a_finished_task(stand: BothEdges) -> None:
    worker_id, task = await taken(stand)
    stale = task_pb2.TaskFinish(task_id=task.task_id, attempt=7, kind=SUCCEEDED)
    (result,) = await stand.wire.finish(worker_id, stale)
    assert (result.error.code, result.error.expected_attempt) == ("attempt_mismatch", 1)
    body = {"outcome": "SUCCEEDED", "attempt": 7}
    path = f"/v1/tasks/{task.task_id}/complete"
    status, code, fields = await stand.site.refused("POST", path, json=body)
    assert (status, code) == (409, "attempt_mismatch")
    assert fields == {"expectedAttempt": 1, "receivedAttempt": 7}
    (result,) = await stand.wire.finish(worker_id, done(task, b"1"))
    assert not result.HasField("error")
    before = await stand.world.dump()
    (result,) = await stand.wire.finish(worker_id, done(task, b"2"))
    assert result.error.code == "task_already_terminal"
    status, code, fields = await stand.site.refused("POST", path, json={"outcome": "CANCELLED"})
    assert (status, code, fields) == (409, "task_already_terminal", {"state": "SUCCEEDED"})
    assert await stand.world.dump() == before
    assert (await stand.wire.get(task.task_id)).output == b"1"


async def test_a_report_of_an_attempt_that_timed_out(stand: BothEdges) -> None:
    options = task_pb2.TaskOptions(
        start_to_close_ms=1_000, retry=task_pb2.RetryPolicy(maximum_attempts=1)
    )
    worker_id, task = await taken(stand, options=options)
    await start(stand, worker_id, task)
    await stand.world.advance(1_001)
    await stand.world.round(DueTasks(), stand.engine)
    # Its result is one of an attempt that is not live; its heartbeat learns that it is over.
    before = await stand.world.dump()
    (result,) = await stand.wire.finish(worker_id, done(task))
    assert result.error.code == "attempt_mismatch"
    path = f"/v1/tasks/{task.task_id}/complete"
    refusal = await stand.http("POST", path, json={"outcome": "SUCCEEDED", "attempt": 1})
    assert refusal == Refusal(409, "attempt_mismatch")
    beat = task_pb.HeartbeatByTokenRequest(task_token=task.task_token)
    refusal = await stand.grpc(stand.wire.tasks.HeartbeatByToken(beat))
    assert refusal == Refusal("FAILED_PRECONDITION", "task_expired")
    assert await stand.world.dump() == before


async def test_a_poll_while_draining_or_unregistered_or_without_types(stand: BothEdges) -> None:
    made = await stand.wire.register()
    refusal = await stand.grpc(stand.wire.polling(made.worker_id, supported_workflow_types=[]))
    assert refusal == Refusal("INVALID_ARGUMENT", "invalid_argument", "supported_workflow_types")
    refusal = await stand.grpc(stand.wire.polling(UNKNOWN_ID))
    assert refusal == Refusal("FAILED_PRECONDITION", "worker_inactive")
    drain = admin_pb.DrainWorkerRequest(namespace_id=NAMESPACE, worker_id=made.worker_id)
    await stand.wire.admin.DrainWorker(drain)
    refusal = await stand.grpc(stand.wire.polling(made.worker_id))
    # Nothing was held: the drain was over at once.
    assert refusal in {
        Refusal("FAILED_PRECONDITION", "worker_draining"),
        Refusal("FAILED_PRECONDITION", "worker_inactive"),
    }


async def test_one_idempotency_key_with_two_payloads_names_both_hashes(stand: BothEdges) -> None:
    key = {"idempotencyKey": "order-1"}
    task_id = await stand.site.enqueue(**key, input=1)
    before = await stand.world.dump()
    answer = await stand.site.client.post("/v1/tasks", json=enqueue(**key, input=2))
    assert (answer.status_code, answer.json()["error"]) == (409, "idempotency_conflict")
    assert answer.json()["taskId"] == task_id
    new = stand.wire.new(idempotency_key="order-1", input=b"2")
    status, detail = await stand.detail(stand.wire.enqueue(new))
    assert (status, detail.code, detail.task_id) == (
        "ALREADY_EXISTS",
        "idempotency_conflict",
        task_id,
    )
    for message in (answer.json()["message"], detail.message):
        hashes = [word.strip("().,") for word in message.split() if len(word.strip("().,")) == 32]
        assert len(set(hashes)) == 2, message
    assert await stand.world.dump() == before


def as_jwt(**header: str) -> str:
    """Return a token as libraries for JWT make them, signed by nobody."""
    parts = ({"typ": "JWT", **header}, {"sub": UNKNOWN_ID, "attempt": 1, "exp": 253_402_300_799})
    body = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts]
    return ".".join([*(part.decode() for part in body), ""])


async def test_tokens_of_another_algorithm_or_key_or_purpose(stand: BothEdges) -> None:
    _, task = await taken(stand)
    good = task.task_token
    raw = base64.urlsafe_b64decode(good + "=" * (-len(good) % 4))
    key = stand.engine.access_cache.token_keys.signer(0).secret
    claims = Claims(Purpose.COMPLETION, NAMESPACE, "", task.task_id, 1, 2**53)
    other_purpose = Claims(Purpose.CALLBACK, NAMESPACE, "", task.task_id, 1, 2**53)
    crafted = {
        "alg none": as_jwt(alg="none"),
        "alg of a public key": as_jwt(alg="RS256", kid="../../key"),
        "a key in the header": as_jwt(alg="HS256", jwk="{}", crit="x"),
        "another version": base64.urlsafe_b64encode(b"\x02" + raw[1:]).decode().rstrip("="),
        "another key number": base64.urlsafe_b64encode(b"\x01\x09" + raw[2:]).decode().rstrip("="),
        "no signature": base64.urlsafe_b64encode(raw[:2] + bytes(32) + raw[34:]).decode(),
        "signed by somebody else": tokens.sign(b"k" * 32, claims),
        "for another purpose": tokens.sign(key, other_purpose),
        "nothing": "",
        "too long": "A" * (limits.TASK_TOKEN_LENGTH_MAX + 1),
    }
    for name, bad in crafted.items():
        request = task_pb.CompleteByTokenRequest(task_token=bad, kind=SUCCEEDED)
        refusal = await stand.grpc(stand.wire.tasks.CompleteByToken(request))
        assert refusal == Refusal("UNAUTHENTICATED", "invalid_token"), name
        beat = task_pb.HeartbeatByTokenRequest(task_token=bad)
        refusal = await stand.grpc(stand.wire.tasks.HeartbeatByToken(beat))
        assert refusal == Refusal("UNAUTHENTICATED", "invalid_token"), name


async def test_a_token_says_its_own_task_and_attempt_and_is_over_with_it(stand: BothEdges) -> None:
    worker_id, task = await taken(stand)
    failed = task_pb2.TaskFinish(
        task_id=task.task_id,
        attempt=1,
        kind=task_pb2.FINISH_KIND_FAILED,
        error=task_pb2.TaskError(message="again"),
    )
    (result,) = await stand.wire.finish(worker_id, failed)
    assert not result.HasField("error")
    queue = (await stand.wire.get(task.task_id)).task_queue
    await stand.world.advance(60_000)
    await stand.world.round(DueTasks(), stand.engine)
    other = await stand.wire.register(task_queue=queue)
    (second,) = await stand.wire.poll(other.worker_id, task_queue=queue)
    assert second.attempt == 2
    old = task_pb.CompleteByTokenRequest(task_token=task.task_token, kind=SUCCEEDED)
    refusal = await stand.grpc(stand.wire.tasks.CompleteByToken(old))
    assert refusal == Refusal("FAILED_PRECONDITION", "attempt_mismatch")
    beat = task_pb.HeartbeatByTokenRequest(task_token=task.task_token)
    refusal = await stand.grpc(stand.wire.tasks.HeartbeatByToken(beat))
    assert refusal == Refusal("FAILED_PRECONDITION", "attempt_mismatch")
    # The token of the second attempt completes it, and nothing after it.
    await start(stand, other.worker_id, second)
    new = task_pb.CompleteByTokenRequest(task_token=second.task_token, kind=SUCCEEDED)
    assert state_name((await stand.wire.tasks.CompleteByToken(new)).state) == "SUCCEEDED"
    new.kind = task_pb2.FINISH_KIND_CANCELLED
    refusal = await stand.grpc(stand.wire.tasks.CompleteByToken(new))
    assert refusal == Refusal("FAILED_PRECONDITION", "task_already_terminal")


@pytest.mark.parametrize("reason", ["storage_full", "unreachable"])
async def test_a_store_that_is_full_or_away(reason: str) -> None:
    async with open_stand() as stand:
        for edge in ("http", "grpc"):
            before = await stand.world.dump()
            stand.world.faults.raise_at("before COMMIT", Lost("cut", reason=reason))
            if edge == "http":
                answer = await stand.site.client.post("/v1/tasks", json=enqueue())
                assert (answer.status_code, answer.json()["error"]) == (503, "unavailable")
                assert answer.json()["reason"] == reason
                assert int(answer.headers["retry-after"]) >= 1
            else:
                status, detail = await refused(stand.wire.enqueue())
                assert (status, detail.code) == ("UNAVAILABLE", "unavailable")
                assert (detail.reason, detail.retry_after_ms > 0) == (reason, True)
            assert await stand.world.dump() == before
        await stand.site.enqueue()
        await stand.wire.enqueue()


async def test_a_worker_that_names_the_task_or_the_session_of_another(stand: BothEdges) -> None:
    _, task = await taken(stand)
    thief = (await stand.wire.register()).worker_id
    before = await stand.world.dump()
    (result,) = await stand.wire.finish(thief, done(task, b"stolen"))
    assert result.error.code == "attempt_mismatch"
    token = task_pb.CreateTaskTokenRequest(
        namespace_id=NAMESPACE,
        worker_id=thief,
        item=task_pb2.TaskRef(task_id=task.task_id, attempt=task.attempt),
    )
    refusal = await stand.grpc(stand.wire.tasks.CreateTaskToken(token))
    assert refusal == Refusal("FAILED_PRECONDITION", "attempt_mismatch")
    foreign = workflow_pb.WorkerHeartbeatRequest(
        namespace_id=OTHER_NAMESPACE, worker_id=thief, token="1"
    )
    refusal = await stand.grpc(stand.wire.workflows.WorkerHeartbeat(foreign))
    assert refusal == Refusal("FAILED_PRECONDITION", "worker_inactive")
    assert await stand.world.dump() == before


async def test_workers_of_one_host_and_pid_live_side_by_side(stand: BothEdges) -> None:
    first, second = [await stand.wire.register(hostname="box", pid=1) for _ in range(2)]
    assert first.worker_id != second.worker_id
    for each in (first, second):
        assert (await stand.wire.beat(each.worker_id, each.token)).accepted


async def test_a_worker_gets_no_more_than_its_slots_whatever_it_asks_for(stand: BothEdges) -> None:
    queue = "greedy"
    await stand.wire.enqueue(*(stand.wire.new(task_queue=queue) for _ in range(10)))
    made = await stand.wire.register(task_queue=queue, max_concurrent=2)
    polled = await stand.wire.poll(made.worker_id, task_queue=queue, max_tasks=100)
    assert len(polled) == 2
    session = await stand.wire.register(
        task_queue=queue, max_concurrent=3, mode=worker_pb2.WORKER_MODE_SESSION
    )
    stream = await stand.wire.open_session(session.worker_id, session_no=1, window=10_000)
    assert stream.welcome.window == 3
    assert len(await stream.tasks(3)) == 3
    await stream.send(window=10_000)

    async def is_capped() -> bool:
        return (await stand.wire.worker(session.worker_id)).active_count <= 3

    await eventually(is_capped)
    pending = task_pb.ListTasksRequest(
        namespace_id=NAMESPACE, task_queue=queue, state=task_pb2.TASK_STATE_PENDING
    )
    assert len((await stand.wire.tasks.ListTasks(pending)).tasks) == 5
    # An operator can always take it away.
    evict = admin_pb.EvictWorkerRequest(namespace_id=NAMESPACE, worker_id=made.worker_id)
    await stand.wire.admin.EvictWorker(evict)
    refusal = await stand.grpc(stand.wire.polling(made.worker_id, task_queue=queue))
    assert refusal == Refusal("FAILED_PRECONDITION", "worker_inactive")
    stream.call.cancel()


async def test_progress_that_is_too_large_or_no_number(stand: BothEdges) -> None:
    worker_id, task = await taken(stand)
    ref: dict[str, Any] = {"task_id": task.task_id, "attempt": 1}
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"details": bytes(limits.PAYLOAD_BYTES_MAX + 1)}, "payload_too_large"),
        ({"progress_percent": float("nan")}, "invalid_argument"),
        ({"progress_percent": 1e300}, "invalid_argument"),
        ({"message": "x" * (limits.ERROR_MESSAGE_BYTES_MAX + 1)}, "invalid_argument"),
    )
    for fields, code in cases:
        request = task_pb.HeartbeatTasksRequest(
            namespace_id=NAMESPACE, worker_id=worker_id, items=[task_pb2.TaskBeat(**ref, **fields)]
        )
        _, detail = await stand.detail(stand.wire.tasks.HeartbeatTasks(request))
        assert detail.code == code, fields


async def test_a_mistake_of_ours_shows_neither_trace_nor_statement(stand: BothEdges) -> None:
    secret = "SELECT hunter2 FROM secrets"
    stand.world.faults.raise_at("before COMMIT", RuntimeError(secret))
    answer = await stand.site.client.post("/v1/tasks", json=enqueue())
    assert (answer.status_code, answer.json()["reason"]) == (503, "internal")
    stand.world.faults.raise_at("before COMMIT", RuntimeError(secret))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stand.wire.enqueue()
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    for text in (answer.text, str(answer.headers), repr(caught.value)):
        assert "hunter2" not in text
        assert "Traceback" not in text
    await stand.answers()
