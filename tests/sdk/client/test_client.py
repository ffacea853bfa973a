"""What a client does at a real server: enqueue, wait, ask, change."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from tenure import (
    ApplicationError,
    Client,
    Payload,
    PayloadError,
    RemoteError,
    TaskCancelled,
    TaskFailed,
    TaskTerminated,
    activity,
)
from tenure.api.rpc.session import flush_delay
from tenure.core.task.record import TaskState
from tenure.errors import (
    IdempotencyConflict,
    InvalidToken,
    NotFound,
    PayloadTooLarge,
    TaskAlreadyTerminal,
    WrongState,
)
from tenure.sdk.client import TaskProgress, task_stream
from tenure.v1 import task_pb2
from tests.polling import eventually
from tests.sdk.client.stage import (
    RawWorker,
    ServerStage,
    double,
    echo,
    failed,
    hold,
    nothing,
    shout,
    succeeded,
)

UNKNOWN_ID = "0190c2ad-c23e-7232-8b43-2789e93f4cff"


class Order(msgspec.Struct):
    number: int
    items: list[str] = []


@activity(start_to_close="10m", name="untyped")
def ship(order: Order) -> Order:
    return order


async def test_a_task_is_enqueued_and_its_result_comes_back_typed(any_stage: ServerStage) -> None:
    async with Client(any_stage.target) as client, RawWorker(any_stage.target):
        assert await (await client.enqueue(double, 21)).result() == 42
        assert await client.run(shout, "ho", times=2) == "HOHO"
        assert await client.run(echo, b"\x00\xff") == b"\x00\xff"
        await (await client.enqueue(nothing)).result(timeout="30s")


async def test_arguments_that_do_not_fit_are_refused_before_anything_is_sent(
    client: Client, stage: ServerStage
) -> None:
    with pytest.raises(TypeError, match="missing a required argument"):
        await client.enqueue(double)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="parameter text must be str, not object"):
        await client.enqueue(shout, object())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="parameter number must be int, not str"):
        await client.run(double, "7")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="parameter number must be int, not float"):
        await client.enqueue_many([double.call(1), double.call(1.5)])  # type: ignore[arg-type]
    assert await stage.task_count() == 0


async def test_concurrent_calls_get_each_their_own_result(
    client: Client, worker: RawWorker
) -> None:
    results = await asyncio.gather(*(client.run(double, number) for number in range(2_000)))
    assert results == [2 * number for number in range(2_000)]
    assert len(set(worker.started)) == 2_000


async def test_a_call_does_not_wait_for_the_result_of_the_one_before(
    client: Client, stage: ServerStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if the server kept the answers to enqueues until there is a result.
    monkeypatch.setattr(flush_delay, "LULL_MS", 3_600_000)
    monkeypatch.setattr(task_stream, "_ANSWER_SECONDS", 3_600)
    calls = []
    for number in (1, 2, 3):
        calls.append(asyncio.create_task(client.run(double, number)))

        async def are_there(number: int = number) -> bool:
            return await stage.task_count() >= number

        # Far less than the 30 s after which the client would take another way.
        await eventually(are_there, within_s=10)
    async with RawWorker(stage.target):
        assert await asyncio.gather(*calls) == [2, 4, 6]


@pytest.mark.usefixtures("worker")
async def test_bulk_enqueue_returns_handles_in_order(client: Client) -> None:
    handles = await client.enqueue_many(double.call(number) for number in range(2_500))
    results = await asyncio.gather(*(handle.result() for handle in handles))
    assert results == [2 * number for number in range(2_500)]
    assert await client.enqueue_many([]) == []


async def test_a_bulk_request_is_all_or_nothing(client: Client, stage: ServerStage) -> None:
    other = double.with_options(idempotency_key="k")
    await client.enqueue(other, 1)
    with pytest.raises(IdempotencyConflict) as caught:
        await client.enqueue_many([*(double.call(n) for n in range(10)), other.call(2)])
    assert "0 other tasks" in caught.value.__notes__[0]
    assert await stage.task_count() == 1


async def test_a_conflict_names_what_differs_as_python_names_it(client: Client) -> None:
    await client.enqueue(double.with_options(idempotency_key="k"), 1)
    with pytest.raises(IdempotencyConflict) as caught:
        await client.enqueue(double.with_options(idempotency_key="k", start_to_close="77s"), 1)
    assert "'k' was used for task" in str(caught.value)
    assert "another value of start_to_close." in str(caught.value)
    assert caught.value.fields["field"] == "start_to_close"


async def test_large_payloads_are_spread_over_requests(client: Client, stage: ServerStage) -> None:
    data = b"x" * 1_500_000
    handles = await client.enqueue_many([echo.call(data) for _ in range(5)])
    assert len({handle.task_id for handle in handles}) == 5
    await asyncio.gather(*(client.enqueue(echo, data) for _ in range(5)))
    assert await stage.task_count() == 10


@pytest.mark.usefixtures("worker")
async def test_a_payload_that_is_too_large_is_refused_and_harms_no_other(client: Client) -> None:
    answers = await asyncio.gather(
        client.run(double, 1),
        client.enqueue(echo, b"x" * 3_000_000),
        client.enqueue(echo, b"x" * 5_000_000),
        client.run(double, 2),
        return_exceptions=True,
    )
    assert (answers[0], answers[3]) == (2, 4)
    assert isinstance(answers[1], PayloadTooLarge)
    assert isinstance(answers[2], PayloadTooLarge)


@pytest.mark.usefixtures("worker")
async def test_one_refused_task_does_not_disturb_those_that_were_combined_with_it(
    client: Client,
) -> None:
    keyed = double.with_options(idempotency_key="one")
    first = await client.enqueue(keyed, 1)
    answers = await asyncio.gather(
        client.run(double, 5),
        client.enqueue(keyed, 2),
        client.run(double, 6),
        return_exceptions=True,
    )
    assert (answers[0], answers[2]) == (10, 12)
    assert isinstance(answers[1], IdempotencyConflict)
    assert answers[1].fields["task_id"] == first.task_id


async def test_the_same_idempotency_key_gives_the_same_task(client: Client) -> None:
    keyed = double.with_options(idempotency_key="one")
    first = await client.enqueue(keyed, 1)
    assert (await client.enqueue(keyed, 1)).task_id == first.task_id
    (again,) = await client.enqueue_many([keyed.call(1)])
    assert again.task_id == first.task_id


async def test_options_arrive_at_the_server(client: Client) -> None:
    special = double.with_options(
        queue="other",
        priority=1,
        labels={"team": "a"},
        idempotency_key="o-1",
        heartbeat_timeout="10s",
        delay="1h",
    )
    before = datetime.now(UTC)
    info = await (await client.enqueue(special, 7)).describe()
    assert (info.queue, info.priority, info.labels) == ("other", 1, {"team": "a"})
    assert (info.type, info.state, info.idempotency_key) == ("double", TaskState.PENDING, "o-1")
    assert info.run_at is not None
    assert timedelta(minutes=59) < info.run_at - before < timedelta(minutes=61)
    assert info.input is not None
    assert json.loads(info.input.data) == {"number": 7}
    at = datetime(2040, 1, 1, tzinfo=UTC)
    info = await (await client.enqueue(double.with_options(run_at=at), 7)).describe()
    assert info.run_at == at


@pytest.mark.usefixtures("worker")
async def test_an_activity_can_be_enqueued_by_name(client: Client) -> None:
    handle = await client.enqueue_named(
        "double", {"number": 4}, result=int, start_to_close="30s", priority=2
    )
    assert await handle.result() == 8
    assert (await handle.describe()).priority == 2
    assert (
        await (await client.enqueue_named("echo", b"raw", start_to_close="1m")).result() == b"raw"
    )
    with pytest.raises(ValueError, match="start_to_close"):
        await client.enqueue_named("double")
    with pytest.raises(ValueError, match="name"):
        await client.enqueue_named("", start_to_close="30s")


async def test_a_failure_carries_what_happened_in_the_worker(
    client: Client, stage: ServerStage
) -> None:
    def fail(task: task_pb2.AssignedTask) -> task_pb2.TaskFinish:
        return failed(
            task,
            message="the card is blocked",
            type="CardBlocked",
            category=task_pb2.ERROR_CATEGORY_DATA_QUALITY,
            stack_trace="in charge()",
            details=b'["4711"]',
        )

    async with RawWorker(stage.target, fail):
        with pytest.raises(TaskFailed, match="the card is blocked") as caught:
            await client.run(double, 1)
    cause = caught.value.__cause__
    assert isinstance(cause, RemoteError)
    assert (cause.type, cause.details(str)) == ("CardBlocked", ("4711",))


@pytest.mark.parametrize("output", [b"{", b'"text"', b""])
async def test_a_result_that_cannot_be_read_is_an_error_and_never_none(
    client: Client, stage: ServerStage, output: bytes
) -> None:
    async with RawWorker(stage.target, lambda task: succeeded(task, output)):
        with pytest.raises(PayloadError, match="succeeded, but its result cannot be read"):
            await client.run(double, 1)


async def test_a_result_in_an_unknown_encoding_is_an_error(
    client: Client, stage: ServerStage
) -> None:
    async with RawWorker(stage.target, lambda task: succeeded(task, b"1", "rot13")):
        with pytest.raises(PayloadError, match="rot13"):
            await client.run(double, 1)


async def test_a_result_that_does_not_come_in_time_raises_and_the_task_goes_on(
    client: Client, stage: ServerStage
) -> None:
    handle = await client.enqueue(double, 3)
    with pytest.raises(TimeoutError, match=handle.task_id):
        await handle.result(timeout="50ms")
    async with RawWorker(stage.target):
        assert await handle.result(timeout="1m") == 6


async def test_progress_is_told_while_somebody_waits(client: Client, stage: ServerStage) -> None:
    seen: list[TaskProgress] = []
    async with RawWorker(stage.target, hold) as worker:
        handle = await client.enqueue(double, 1)
        waiting = asyncio.ensure_future(handle.result(on_progress=seen.append))
        await worker.holds(1)
        await worker.beat(handle.task_id, progress_percent=40.0, message="half way")
        await eventually(lambda: bool(seen))
        await worker.beat(handle.task_id, progress_percent=90.0)
        ref = task_pb2.AssignedTask(task_id=handle.task_id, attempt=1)
        await worker.finish(succeeded(ref, b"2"))
        assert await waiting == 2
    assert seen[0] == TaskProgress(40.0, "half way")
    assert seen[-1].percent == 90.0


async def test_an_exception_of_the_progress_callback_reaches_the_caller(
    client: Client, stage: ServerStage
) -> None:
    def refuse(_: TaskProgress) -> None:
        raise ZeroDivisionError

    async with RawWorker(stage.target, hold) as worker:
        handle = await client.enqueue(double, 1)
        await worker.holds(1)
        await worker.beat(handle.task_id, progress_percent=1.0)
        with pytest.raises(ZeroDivisionError):
            await handle.result(on_progress=refuse)


async def test_a_pause_that_waits_for_the_end_of_an_attempt_is_seen(
    client: Client, stage: ServerStage
) -> None:
    async with RawWorker(stage.target, hold) as worker:
        handle = await client.enqueue(double, 1)
        await worker.holds(1)
        await handle.pause()
        assert (await handle.describe()).is_pause_requested
        await handle.resume()
        assert not (await handle.describe()).is_pause_requested


async def test_a_task_can_be_cancelled_paused_resumed_terminated_and_retried(
    client: Client, stage: ServerStage
) -> None:
    cancelled = await client.enqueue(double, 1)
    assert await cancelled.cancel("no longer wanted") is TaskState.CANCELLED
    with pytest.raises(TaskCancelled, match="no longer wanted"):
        await cancelled.result()
    with pytest.raises(TaskAlreadyTerminal):
        await cancelled.cancel()

    held = await client.enqueue(double, 2)
    assert await held.pause() is TaskState.PAUSED
    assert not (await held.describe()).is_pause_requested
    assert await held.resume() is TaskState.PENDING
    with pytest.raises(WrongState):
        await held.retry()
    assert await held.terminate() is TaskState.FAILED
    with pytest.raises(TaskTerminated):
        await held.result()
    again = await held.retry()
    assert again.task_id != held.task_id
    assert (await again.describe()).retry_of == held.task_id
    async with RawWorker(stage.target):
        assert await again.result() == 4
    (attempt,) = await again.attempts()
    assert (attempt.attempt, attempt.outcome) == (1, "succeeded")


@pytest.mark.usefixtures("worker")
async def test_no_delay_and_an_instant_that_has_passed_run_at_once(client: Client) -> None:
    for settings in (
        {"delay": "0s"},
        {"delay": timedelta(0)},
        {"run_at": datetime(1960, 1, 1, tzinfo=UTC)},
    ):
        at_once = double.with_options(**settings)
        assert await client.run(at_once, 21) == 42
        (handle,) = await client.enqueue_many([at_once.call(4)])
        assert await handle.result() == 8


@pytest.mark.usefixtures("worker")
async def test_a_handle_of_a_known_id_gets_the_result_typed(client: Client) -> None:
    handle = await client.enqueue_named("untyped", {"order": {"number": 1}}, start_to_close="1m")
    await handle.result()
    assert await client.handle(handle.task_id).result() is None
    with pytest.raises(PayloadError):
        await client.handle(handle.task_id, result=Order).result()
    with pytest.raises(NotFound):
        await client.handle(UNKNOWN_ID).result()
    with pytest.raises(NotFound):
        await client.handle(UNKNOWN_ID).describe()
    with pytest.raises(ValueError, match="UUID"):
        client.handle("garbage")


async def test_lists_go_through_all_pages_with_filters(client: Client) -> None:
    await client.enqueue_many(double.call(number) for number in range(250))
    other = await client.enqueue(shout.with_options(queue="other"), "a")
    assert len([info async for info in client.list()]) == 251
    assert [info.task_id async for info in client.list(queue="other")] == [other.task_id]
    assert [info.task_id async for info in client.list(type="shout", state="PENDING")] == [
        other.task_id
    ]
    assert len([info async for info in client.list(limit=120, type="double")]) == 120
    assert [info async for info in client.list(state=TaskState.FAILED)] == []
    with pytest.raises(ValueError, match="not a state of a task"):
        [info async for info in client.list(state="lost")]


def defer(task: task_pb2.AssignedTask) -> task_pb2.TaskFinish:
    return task_pb2.TaskFinish(
        task_id=task.task_id, attempt=task.attempt, kind=task_pb2.FINISH_KIND_DEFERRED
    )


async def all_wait(client: Client, count: int) -> None:
    async def do_wait() -> bool:
        return len([each async for each in client.list(state="waiting")]) >= count

    await eventually(do_wait, f"{count} tasks that wait")


async def test_an_attempt_is_completed_from_outside_by_its_id(
    client: Client, stage: ServerStage
) -> None:
    async with RawWorker(stage.target, defer):
        first, second, third = [await client.enqueue(double, n) for n in range(3)]
        await all_wait(client, 3)
        completion = client.completion(task_id=first.task_id)
        answer = await completion.heartbeat({"row": 7}, percent=50.0, message="asked")
        assert (answer.state, answer.should_cancel) == (TaskState.WAITING, False)
        assert (await first.describe()).progress == TaskProgress(50.0, "asked")
        assert await completion.complete(11) is TaskState.SUCCEEDED
        assert await first.result() == 11
        # The same again is the same; another one is refused.
        assert await completion.complete(11) is TaskState.SUCCEEDED
        with pytest.raises(TaskAlreadyTerminal):
            await client.completion(task_id=first.task_id, attempt=2).complete(12)

        failing = client.completion(task_id=second.task_id, attempt=1)
        assert await failing.fail(ApplicationError("not today", type="Busy")) is TaskState.PENDING
        info = await second.describe()
        assert info.error is not None
        assert (info.error.type, info.failure_count) == ("Busy", 1)
        await third.cancel()
        assert (await client.completion(task_id=third.task_id).heartbeat()).should_cancel
        assert await client.completion(task_id=third.task_id).cancel() is TaskState.CANCELLED


async def test_an_attempt_is_completed_from_outside_by_its_token(
    client: Client, stage: ServerStage
) -> None:
    async with RawWorker(stage.target, hold) as worker:
        handle = await client.enqueue(double, 1)
        await worker.holds(1)
        token = await worker.token(handle.task_id)
        await worker.finish(defer(task_pb2.AssignedTask(task_id=handle.task_id, attempt=1)))
        completion = client.completion(token=token)
        assert token not in repr(completion)
        assert (await completion.heartbeat()).state is TaskState.WAITING
        assert await completion.complete(5) is TaskState.SUCCEEDED
        assert await handle.result() == 5
        with pytest.raises(TaskAlreadyTerminal):
            await completion.fail("too late")
    with pytest.raises(InvalidToken):
        await client.completion(token="made up").cancel()
    with pytest.raises(ValueError, match="either the token"):
        client.completion()
    with pytest.raises(ValueError, match="Leave attempt out"):
        client.completion(token="t", attempt=1)


async def test_namespaces_do_not_see_each_other(client: Client, stage: ServerStage) -> None:
    handle = await client.enqueue(double, 1)
    async with Client(stage.target, namespace="team-a") as other:
        with pytest.raises(NotFound):
            await other.handle(handle.task_id).describe()
    with pytest.raises(ValueError, match="namespace"):
        Client(namespace="no such/thing/at all")


class Mirror:
    """A codec that hides nothing and changes everything."""

    def encode(self, payload: Payload) -> Payload:
        return Payload(f"mirror:{payload.encoding}", payload.data[::-1])

    def decode(self, payload: Payload) -> Payload:
        inner = payload.encoding.removeprefix("mirror:")
        return payload if inner == payload.encoding else Payload(inner, payload.data[::-1])


async def test_payloads_go_through_the_codec_both_ways(stage: ServerStage) -> None:
    def give_back(task: task_pb2.AssignedTask) -> task_pb2.TaskFinish:
        return succeeded(task, task.input, task.encoding)

    async with Client(stage.target, codec=Mirror()) as client, RawWorker(stage.target, give_back):
        handle = await client.enqueue_named("untyped", {"secret": 1}, start_to_close="1m")
        assert await handle.result() == {"secret": 1}
        info = await handle.describe()
        assert info.input == Payload("mirror:json", b'}1:"terces"{')
        async with Client(stage.target) as other:
            with pytest.raises(PayloadError, match="mirror"):
                await other.handle(handle.task_id).result()
