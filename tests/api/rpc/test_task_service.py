"""Tasks over gRPC: enqueue, read, change, watch, complete from outside."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from tenure.core.limits import COMPLETION_TOKEN_MS, PAYLOAD_BYTES_MAX
from tenure.v1 import task_pb2
from tenure.v1 import task_service_pb2 as pb
from tests.api.rpc.wire import Wire, detail, refused, state_name, succeeded
from tests.bounds import ANSWER_S
from tests.engine.world import NAMESPACE, OTHER_NAMESPACE, World

UNKNOWN = "019b0000-0000-7000-8000-00000000dead"


async def test_an_enqueued_task_is_shown_with_everything_that_was_asked_for(wire: Wire) -> None:
    options = task_pb2.TaskOptions(
        start_to_close_ms=5_000,
        heartbeat_timeout_ms=2_000,
        retry=task_pb2.RetryPolicy(maximum_attempts=3, non_retryable_error_types=["Bad"]),
        encoding="json",
        resources={"gpu": "1"},
    )
    new = wire.new(
        input=b"\x00\xff", labels={"team": "a"}, priority=0, options=options, idempotency_key="k"
    )
    (task_id,) = await wire.enqueue(new)
    task = await wire.get(task_id)
    assert (task.input, dict(task.labels), task.priority) == (b"\x00\xff", {"team": "a"}, 0)
    assert task.options.retry.maximum_attempts == 3
    assert task.options.retry.initial_interval_ms == 1_000
    assert list(task.options.retry.non_retryable_error_types) == ["Bad"]
    assert (task.options.encoding, dict(task.options.resources)) == ("json", {"gpu": "1"})
    assert (task.namespace_id, task.idempotency_key) == (NAMESPACE, "k")
    assert state_name(task.state) == "PENDING"


async def test_without_a_namespace_the_default_one_is_meant(wire: Wire) -> None:
    answer = await wire.tasks.EnqueueTasks(pb.EnqueueTasksRequest(tasks=[wire.new()]))
    got = await wire.tasks.GetTask(pb.GetTaskRequest(task_id=answer.results[0].task_id))
    assert got.task.namespace_id == "default/default"


async def test_a_task_of_another_namespace_is_not_found(wire: Wire) -> None:
    (task_id,) = await wire.enqueue()
    request = pb.GetTaskRequest(namespace_id=OTHER_NAMESPACE, task_id=task_id)
    theirs = await refused(wire.tasks.GetTask(request))
    unknown = await refused(wire.tasks.GetTask(pb.GetTaskRequest(task_id=UNKNOWN)))
    assert theirs[0] == unknown[0] == "NOT_FOUND"
    assert theirs[1].code == "not_found"
    assert theirs[1].message.replace(task_id, "") == unknown[1].message.replace(UNKNOWN, "")


async def test_a_bulk_enqueue_is_all_or_nothing(wire: Wire, world: World) -> None:
    before = await world.dump()
    call = wire.enqueue(wire.new(), wire.new(type="bad type"))
    status, refusal = await refused(call)
    assert (status, refusal.code, refusal.field) == ("INVALID_ARGUMENT", "invalid_argument", "type")
    assert await world.dump() == before


async def test_independent_tasks_are_answered_each_on_its_own(wire: Wire) -> None:
    tasks = [wire.new(), wire.new(type="bad type"), wire.new(idempotency_key="k", input=b"1")]
    request = pb.EnqueueTasksRequest(namespace_id=NAMESPACE, tasks=tasks, independent=True)
    first = (await wire.tasks.EnqueueTasks(request)).results
    assert [each.error.code for each in first] == ["", "invalid_argument", ""]
    other = wire.new(idempotency_key="k", input=b"2")
    request = pb.EnqueueTasksRequest(namespace_id=NAMESPACE, tasks=[other], independent=True)
    (second,) = (await wire.tasks.EnqueueTasks(request)).results
    assert (second.error.code, second.error.task_id) == ("idempotency_conflict", first[2].task_id)
    assert second.error.field == "input"


async def test_a_marked_resend_returns_the_task_of_the_first_call(wire: Wire, world: World) -> None:
    new = wire.new(task_id=world.clock.new_id())
    request = pb.EnqueueTasksRequest(namespace_id=NAMESPACE, tasks=[new])
    first = await wire.tasks.EnqueueTasks(request)
    request.is_resend = True
    again = await wire.tasks.EnqueueTasks(request)
    assert first.results[0].is_new
    assert not again.results[0].is_new
    assert again.results[0].task_id == first.results[0].task_id


async def test_lists_are_paged_counted_and_without_payloads(wire: Wire) -> None:
    ids = await wire.enqueue(*[wire.new(input=b"x") for _ in range(5)])
    seen: list[str] = []
    token = ""
    while True:
        request = pb.ListTasksRequest(
            namespace_id=NAMESPACE, page_size=2, page_token=token, wants_total=True
        )
        page = await wire.tasks.ListTasks(request)
        assert page.total_count == 5
        assert all(task.input == b"" for task in page.tasks)
        seen += [task.task_id for task in page.tasks]
        token = page.next_page_token
        if not token:
            break
    assert seen == sorted(ids, reverse=True)


async def test_a_cursor_of_another_namespace_is_refused(wire: Wire) -> None:
    await wire.enqueue(wire.new(), wire.new())
    request = pb.ListTasksRequest(namespace_id=NAMESPACE, page_size=1)
    token = (await wire.tasks.ListTasks(request)).next_page_token
    request = pb.ListTasksRequest(namespace_id=OTHER_NAMESPACE, page_size=1, page_token=token)
    status, refusal = await refused(wire.tasks.ListTasks(request))
    assert (status, refusal.field) == ("INVALID_ARGUMENT", "page_token")


async def test_a_pending_task_is_paused_resumed_cancelled_and_retried(wire: Wire) -> None:
    (task_id,) = await wire.enqueue()
    names: dict[str, Any] = {"namespace_id": NAMESPACE, "task_id": task_id}
    paused = await wire.tasks.PauseTask(pb.PauseTaskRequest(**names))
    resumed = await wire.tasks.ResumeTask(pb.ResumeTaskRequest(**names))
    cancelled = await wire.tasks.CancelTask(pb.CancelTaskRequest(reason="no", **names))
    states = [state_name(each.state) for each in (paused, resumed, cancelled)]
    assert states == ["PAUSED", "PENDING", "CANCELLED"]
    assert (await wire.get(task_id)).cancel_reason == "no"
    retried = await wire.tasks.RetryTask(pb.RetryTaskRequest(**names))
    assert (await wire.get(retried.task_id)).retry_of == task_id
    status, refusal = await refused(wire.tasks.PauseTask(pb.PauseTaskRequest(**names)))
    assert (status, refusal.code) == ("FAILED_PRECONDITION", "wrong_state")
    assert refusal.state == "CANCELLED"


async def test_a_requested_pause_of_a_held_task_is_shown_until_it_is_taken_back(wire: Wire) -> None:
    (task_id,) = await wire.enqueue()
    made = await wire.register()
    await wire.poll(made.worker_id)
    names: dict[str, Any] = {"namespace_id": NAMESPACE, "task_id": task_id}
    answer = await wire.tasks.PauseTask(pb.PauseTaskRequest(**names))
    assert state_name(answer.state) == "DISPATCHED"
    assert (await wire.get(task_id)).is_pause_requested
    (listed,) = (await wire.tasks.ListTasks(pb.ListTasksRequest(namespace_id=NAMESPACE))).tasks
    assert listed.is_pause_requested
    await wire.tasks.ResumeTask(pb.ResumeTaskRequest(**names))
    assert not (await wire.get(task_id)).is_pause_requested


async def test_a_terminated_task_fails_at_once(wire: Wire) -> None:
    (task_id,) = await wire.enqueue()
    request = pb.TerminateTaskRequest(namespace_id=NAMESPACE, task_id=task_id)
    await wire.tasks.TerminateTask(request)
    task = await wire.get(task_id)
    assert (state_name(task.state), task.failure_reason) == ("FAILED", "TERMINATED")


async def test_one_stream_gives_the_results_of_many_tasks_as_they_end(wire: Wire) -> None:
    ids = await wire.enqueue(*[wire.new() for _ in range(3)])
    worker = await wire.register()
    watch = wire.tasks.WatchTasks()
    await watch.write(pb.WatchTasksRequest(namespace_id=NAMESPACE, add=ids[:2]))
    tasks = await wire.poll(worker.worker_id)
    await wire.finish(worker.worker_id, *[succeeded(task, b"done") for task in tasks])
    await watch.write(pb.WatchTasksRequest(add=[ids[2], UNKNOWN]))
    await watch.done_writing()
    results = {each.task_id: each async for frame in watch for each in frame.results}
    assert results.keys() == {*ids, UNKNOWN}
    assert all(results[each].output == b"done" for each in ids)
    assert results[UNKNOWN].refusal.code == "not_found"


async def test_a_result_says_how_its_output_is_encoded(wire: Wire) -> None:
    options = task_pb2.TaskOptions(start_to_close_ms=5_000, encoding="json")
    ids = await wire.enqueue(*[wire.new(options=options) for _ in range(3)])
    assert (await wire.get(ids[0])).output_encoding == "json"
    worker = await wire.register()
    finishes = [succeeded(task, b"1") for task in await wire.poll(worker.worker_id)]
    said = dict(zip(ids, ("", "json", "bytes"), strict=True))
    for each in finishes:
        each.output_encoding = said[each.task_id]
    await wire.finish(worker.worker_id, *finishes)
    watch = wire.tasks.WatchTasks()
    await watch.write(pb.WatchTasksRequest(namespace_id=NAMESPACE, add=ids))
    await watch.done_writing()
    told = {each.task_id: each.output_encoding async for frame in watch for each in frame.results}
    assert [told[each] for each in ids] == ["json", "json", "bytes"]
    shown = await wire.get(ids[2])
    assert (shown.options.encoding, shown.output_encoding) == ("json", "bytes")
    request = pb.ListTasksRequest(namespace_id=NAMESPACE)
    listed = (await wire.tasks.ListTasks(request)).tasks
    assert {each.task_id: each.output_encoding for each in listed} == told


async def test_a_bad_encoding_of_an_output_is_refused_and_changes_nothing(
    wire: Wire, world: World
) -> None:
    (task_id,) = await wire.enqueue()
    worker = await wire.register()
    (task,) = await wire.poll(worker.worker_id)
    before = await world.dump()
    bad = succeeded(task)
    bad.output_encoding = "a b"
    kind, bad_name = task_pb2.FINISH_KIND_SUCCEEDED, "x" * 256
    by_token = pb.CompleteByTokenRequest(
        task_token=task.task_token, kind=kind, output_encoding=bad_name
    )
    by_id = pb.CompleteByIdRequest(
        namespace_id=NAMESPACE, task_id=task_id, kind=kind, output_encoding=bad_name
    )
    for call in (
        wire.finish(worker.worker_id, bad),
        wire.tasks.CompleteByToken(by_token),
        wire.tasks.CompleteById(by_id),
    ):
        status, refusal = await refused(call)
        assert (status, refusal.code) == ("INVALID_ARGUMENT", "invalid_argument")
        assert refusal.field == "output_encoding"
    assert await world.dump() == before


async def test_a_stream_of_results_stays_in_its_namespace(wire: Wire) -> None:
    watch = wire.tasks.WatchTasks()
    await watch.write(pb.WatchTasksRequest(namespace_id=NAMESPACE, add=[]))
    await watch.write(pb.WatchTasksRequest(namespace_id=OTHER_NAMESPACE, add=[]))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await watch.read()
    assert detail(caught.value).field == "namespace_id"


async def test_a_stopping_server_ends_the_streams_of_results_at_once(wire: Wire) -> None:
    (task_id,) = await wire.enqueue()
    watch = wire.tasks.WatchTasks()
    await watch.write(pb.WatchTasksRequest(namespace_id=NAMESPACE, add=[task_id, UNKNOWN]))
    assert (await watch.read()).results[0].task_id == UNKNOWN
    await wire.server.stop(60)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await watch.read()
    refusal = detail(caught.value)
    assert (refusal.code, refusal.reason) == ("unavailable", "shutting_down")


async def test_a_removed_id_is_not_waited_for(wire: Wire) -> None:
    first, second = await wire.enqueue(wire.new(), wire.new())
    watch = wire.tasks.WatchTasks()
    await watch.write(pb.WatchTasksRequest(namespace_id=NAMESPACE, add=[first, second]))
    await watch.write(pb.WatchTasksRequest(remove=[second]))
    await watch.done_writing()
    await wire.tasks.CancelTask(pb.CancelTaskRequest(namespace_id=NAMESPACE, task_id=first))
    async with asyncio.timeout(ANSWER_S):
        frames = [frame async for frame in watch]
    assert [each.task_id for frame in frames for each in frame.results] == [first]


async def test_a_deferred_task_is_completed_by_its_token_and_only_once(wire: Wire) -> None:
    await wire.enqueue()
    worker = await wire.register()
    (task,) = await wire.poll(worker.worker_id)
    deferred = task_pb2.TaskFinish(
        task_id=task.task_id, attempt=1, kind=task_pb2.FINISH_KIND_DEFERRED
    )
    await wire.finish(worker.worker_id, deferred)
    beat = pb.HeartbeatByTokenRequest(task_token=task.task_token, progress_percent=50)
    assert state_name((await wire.tasks.HeartbeatByToken(beat)).state) == "WAITING"
    assert (await wire.get(task.task_id)).progress_percent == 50
    request = pb.CompleteByTokenRequest(
        task_token=task.task_token,
        kind=task_pb2.FINISH_KIND_SUCCEEDED,
        output=b"42",
        output_encoding="bytes",
    )
    assert state_name((await wire.tasks.CompleteByToken(request)).state) == "SUCCEEDED"
    assert state_name((await wire.tasks.CompleteByToken(request)).state) == "SUCCEEDED"
    for change in ({"output": b"43"}, {"output_encoding": "json"}):
        other = pb.CompleteByTokenRequest()
        other.CopyFrom(request)
        other.MergeFrom(pb.CompleteByTokenRequest(**change))
        status, refusal = await refused(wire.tasks.CompleteByToken(other))
        assert (status, refusal.code) == ("FAILED_PRECONDITION", "task_already_terminal")
    shown = await wire.get(task.task_id)
    assert (shown.output, shown.output_encoding) == (b"42", "bytes")


async def test_a_forged_or_expired_token_is_refused(wire: Wire, world: World) -> None:
    await wire.enqueue()
    worker = await wire.register()
    (task,) = await wire.poll(worker.worker_id)
    kind = task_pb2.FINISH_KIND_SUCCEEDED
    forged = task.task_token[:-2] + ("AA" if not task.task_token.endswith("AA") else "BB")
    request = pb.CompleteByTokenRequest(task_token=forged, kind=kind)
    assert (await refused(wire.tasks.CompleteByToken(request)))[0] == "UNAUTHENTICATED"
    await world.advance(COMPLETION_TOKEN_MS)
    request = pb.CompleteByTokenRequest(task_token=task.task_token, kind=kind)
    status, refusal = await refused(wire.tasks.CompleteByToken(request))
    assert (status, refusal.code) == ("UNAUTHENTICATED", "invalid_token")


async def test_the_holder_of_an_attempt_gets_a_token_and_nobody_else(wire: Wire) -> None:
    await wire.enqueue()
    holder, other = await wire.register(), await wire.register()
    (task,) = await wire.poll(holder.worker_id)
    item = task_pb2.TaskRef(task_id=task.task_id, attempt=1)
    request = pb.CreateTaskTokenRequest(
        namespace_id=NAMESPACE, worker_id=holder.worker_id, item=item
    )
    assert (await wire.tasks.CreateTaskToken(request)).task_token
    request.worker_id = other.worker_id
    status, refusal = await refused(wire.tasks.CreateTaskToken(request))
    assert (status, refusal.code) == ("FAILED_PRECONDITION", "attempt_mismatch")


async def test_a_running_task_is_completed_by_id(wire: Wire) -> None:
    (task_id,) = await wire.enqueue()
    worker = await wire.register()
    (task,) = await wire.poll(worker.worker_id)
    start = pb.StartTasksRequest(
        namespace_id=NAMESPACE,
        worker_id=worker.worker_id,
        items=[task_pb2.TaskRef(task_id=task_id, attempt=task.attempt)],
    )
    assert state_name((await wire.tasks.StartTasks(start)).results[0].state) == "RUNNING"
    beat = pb.HeartbeatByIdRequest(namespace_id=NAMESPACE, task_id=task_id, message="on its way")
    await wire.tasks.HeartbeatById(beat)
    assert (await wire.get(task_id)).progress_message == "on its way"
    request = pb.CompleteByIdRequest(
        namespace_id=NAMESPACE,
        task_id=task_id,
        kind=task_pb2.FINISH_KIND_FAILED,
        error=task_pb2.TaskError(message="bad row", category=task_pb2.ERROR_CATEGORY_DATA_QUALITY),
    )
    assert state_name((await wire.tasks.CompleteById(request)).state) == "FAILED"
    shown = await wire.get(task_id)
    assert (shown.failure_reason, shown.error.message) == ("NON_RETRYABLE", "bad row")


async def test_a_completion_by_id_may_name_the_encoding_of_its_output(wire: Wire) -> None:
    (task_id,) = await wire.enqueue()
    worker = await wire.register()
    (task,) = await wire.poll(worker.worker_id)
    start = pb.StartTasksRequest(
        namespace_id=NAMESPACE,
        worker_id=worker.worker_id,
        items=[task_pb2.TaskRef(task_id=task_id, attempt=task.attempt)],
    )
    await wire.tasks.StartTasks(start)
    request = pb.CompleteByIdRequest(
        namespace_id=NAMESPACE,
        task_id=task_id,
        kind=task_pb2.FINISH_KIND_SUCCEEDED,
        output=b"\xff",
        output_encoding="bytes",
    )
    assert state_name((await wire.tasks.CompleteById(request)).state) == "SUCCEEDED"
    shown = await wire.get(task_id)
    assert (shown.output, shown.options.encoding, shown.output_encoding) == (b"\xff", "", "bytes")


@pytest.mark.parametrize(
    ("fields", "code", "field"),
    [
        ({"type": ""}, "invalid_argument", "type"),
        ({"task_queue": "a b"}, "invalid_argument", "task_queue"),
        ({"task_id": "../etc"}, "invalid_argument", "task_id"),
        ({"priority": 10}, "invalid_argument", "priority"),
        ({"priority": -1}, "invalid_argument", "priority"),
        ({"run_at_ms": -1}, "invalid_argument", "run_at_ms"),
        ({"run_at_ms": 2**63 - 1}, "invalid_argument", "run_at_ms"),
        ({"labels": {"__proto__": "x"}}, "invalid_argument", "labels"),
        ({"labels": {"a": "\u202e"}}, "invalid_argument", "labels.a"),
        ({"idempotency_key": "\0"}, "invalid_argument", "idempotency_key"),
        ({"options": task_pb2.TaskOptions()}, "invalid_argument", "start_to_close_ms"),
        ({"options": task_pb2.TaskOptions(start_to_close_ms=-1)}, "invalid_argument", None),
        ({"options": task_pb2.TaskOptions(kind=99)}, "invalid_argument", "options.kind"),  # type: ignore[arg-type]
        (
            {
                "options": task_pb2.TaskOptions(
                    start_to_close_ms=1,
                    retry=task_pb2.RetryPolicy(backoff_coefficient=float("nan")),
                )
            },
            "invalid_argument",
            "retry.backoff_coefficient",
        ),
        ({"input": b"x" * (PAYLOAD_BYTES_MAX + 1)}, "payload_too_large", ""),
    ],
)
async def test_bad_input_gets_its_typed_error_and_changes_nothing(
    wire: Wire, world: World, fields: dict[str, Any], code: str, field: str | None
) -> None:
    before = await world.dump()
    _, refusal = await refused(wire.enqueue(wire.new(**fields)))
    assert refusal.code == code
    assert field is None or refusal.field == field
    assert await world.dump() == before


async def test_reports_of_nobody_and_of_nothing_are_refused(wire: Wire) -> None:
    worker = await wire.register()
    nobody = pb.FinishTasksRequest(items=[succeeded(task_pb2.TaskRef(task_id=UNKNOWN, attempt=1))])
    assert (await refused(wire.tasks.FinishTasks(nobody)))[1].field == "worker_id"
    nothing = pb.FinishTasksRequest(worker_id=worker.worker_id)
    assert (await refused(wire.tasks.FinishTasks(nothing)))[1].field == "items"
    odd = task_pb2.TaskFinish(task_id=UNKNOWN, attempt=1)
    assert (await refused(wire.finish(worker.worker_id, odd)))[1].field == "kind"
    zero = succeeded(task_pb2.TaskRef(task_id=UNKNOWN, attempt=0))
    assert (await refused(wire.finish(worker.worker_id, zero)))[1].field == "attempt"


async def test_an_unreadable_message_is_invalid_input_and_no_internal_error(wire: Wire) -> None:
    call: Any = wire.channel.unary_unary(
        "/tenure.v1.TaskService/GetTask", request_serializer=lambda data: data
    )
    status, refusal = await refused(call(b"\xff\xff"))
    assert (status, refusal.code) == ("INVALID_ARGUMENT", "invalid_argument")
    stream: Any = wire.channel.stream_stream(
        "/tenure.v1.TaskService/WatchTasks", request_serializer=lambda data: data
    )()
    await stream.write(b"\xff\xff")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stream.read()
    assert detail(caught.value).code == "invalid_argument"
