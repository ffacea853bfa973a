"""What a client does with runs at a real server: start, wait, signal, ask, change."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec
import pytest

from tenure import (
    Client,
    PayloadError,
    RemoteError,
    RunHandle,
    RunStatus,
    SyncClient,
    TaskCancelled,
    TaskFailed,
    TaskTerminated,
    WorkflowContext,
    signal,
    workflow,
)
from tenure.errors import (
    AlreadyExists,
    IdempotencyConflict,
    NotFound,
    TaskAlreadyTerminal,
    WrongState,
)
from tenure.sdk.payload import Payload
from tenure.v1 import task_pb2
from tests.bounds import WORK_S
from tests.polling import eventually
from tests.sdk.client.stage import RawWorker, ServerStage, double, failed, hold, succeeded
from tests.sdk.client.test_fault import lose_first_answer
from tests.wire.proxy import Proxy

UNKNOWN_ID = "0190c2ad-c23e-7232-8b43-2789e93f4cff"


class Order(msgspec.Struct):
    number: int
    items: list[str] = []


class Approval(msgspec.Struct):
    by: str


approve = signal("approve", Approval)
stop = signal("stop")


@workflow(name="sell", timeout="30d")
async def sell(ctx: WorkflowContext, order: Order) -> Order:
    """Stand for a workflow whose code is elsewhere: the raw worker ends its runs."""
    raise NotImplementedError


def pack(task: task_pb2.AssignedTask) -> task_pb2.TaskFinish:
    """Return the order with one item more."""
    order = json.loads(task.input)["order"]
    return succeeded(task, json.dumps({**order, "items": ["box"]}).encode())


def parked(task: task_pb2.AssignedTask) -> task_pb2.TaskFinish:
    return task_pb2.TaskFinish(
        task_id=task.task_id,
        attempt=task.attempt,
        kind=task_pb2.FINISH_KIND_PARKED,
        error=task_pb2.TaskError(message="the journal has charge", type="journal_mismatch"),
    )


def waiting(task: task_pb2.AssignedTask) -> task_pb2.TaskFinish:
    return task_pb2.TaskFinish(
        task_id=task.task_id,
        attempt=task.attempt,
        kind=task_pb2.FINISH_KIND_YIELDED,
        patience_n=1,
        waits=[task_pb2.Wait(kind="signal", key="approve")],
        wait_count=1,
    )


@pytest.fixture
async def run(client: Client) -> RunHandle[Order]:
    return await client.start(sell, Order(7))


async def run_count(client: Client) -> int:
    return len([each async for each in client.list_runs()])


async def becomes(run: RunHandle[Any], status: RunStatus) -> None:
    async def is_so() -> bool:
        return await run.status() is status

    await eventually(is_so)


async def test_a_run_is_started_and_its_result_comes_back_typed(any_stage: ServerStage) -> None:
    async with Client(any_stage.target) as client, RawWorker(any_stage.target, pack):
        run = await client.start(sell, Order(7))
        assert await run.result(timeout=WORK_S) == Order(7, ["box"])
        assert await client.run_handle(run.run_id, result=Order).result() == Order(7, ["box"])
        assert await client.run_handle(run.run_id).result() == {"number": 7, "items": ["box"]}
        info = await run.describe()
        assert (info.status, info.attempt, info.entry_count) == (RunStatus.COMPLETED, 1, 0)
        named = await client.start_named("sell", {"order": Order(8)}, result=Order)
        assert await named.result() == Order(8, ["box"])


async def test_what_does_not_fit_is_refused_before_anything_is_sent(
    client: Client, run: RunHandle[Order]
) -> None:
    with pytest.raises(TypeError, match="workflow sell: missing a required argument"):
        await client.start(sell)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="workflow sell: parameter order must be Order, not str"):
        await client.start(sell, "order")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="double is an activity"):
        await client.start(double, 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="signal approve: The value must be Approval, not str"):
        await run.signal(approve, "yes")  # type: ignore[misc]
    with pytest.raises(ValueError, match="name"):
        await client.start_named("a b")
    with pytest.raises(ValueError, match="run_id"):
        client.run_handle("order-1")
    assert await run_count(client) == 1
    assert (await run.describe()).entry_count == 0


async def test_options_arrive_at_the_server(client: Client) -> None:
    special = sell.with_options(
        queue="other", priority=1, labels={"team": "a"}, idempotency_key="o-1", delay="1h"
    )
    before = datetime.now(UTC)
    info = await (await client.start(special, Order(7))).describe()
    assert (info.type, info.queue, info.priority) == ("sell", "other", 1)
    assert (info.labels, info.idempotency_key) == ({"team": "a"}, "o-1")
    assert info.status is RunStatus.PENDING
    assert info.input == Payload("json", b'{"order":{"number":7,"items":[]}}')
    assert info.run_at is not None
    assert 3_500 < (info.run_at - before).total_seconds() < 3_700


async def test_the_same_idempotency_key_gives_the_same_run(client: Client) -> None:
    keyed = sell.with_options(idempotency_key="order-7")
    first = await client.start(keyed, Order(7))
    assert (await client.start(keyed, Order(7))).run_id == first.run_id
    with pytest.raises(IdempotencyConflict) as caught:
        await client.start(keyed, Order(8))
    assert caught.value.fields["task_id"] == first.run_id
    assert await run_count(client) == 1


CALLS: dict[str, Callable[[Client], Awaitable[Any]]] = {
    "a run": lambda client: client.start(sell, Order(7)),
    "with a key": lambda client: client.start(sell.with_options(idempotency_key="k"), Order(7)),
}


@pytest.mark.parametrize("name", CALLS)
async def test_a_lost_answer_never_starts_twice(any_stage: ServerStage, name: str) -> None:
    async with Proxy(any_stage.target) as proxy, Client(proxy.address) as client:
        await lose_first_answer(proxy, CALLS[name](client))
        assert await run_count(client) == 1


async def test_a_change_of_a_run_whose_answer_was_lost_is_a_success(stage: ServerStage) -> None:
    async with Proxy(stage.target) as proxy, Client(proxy.address) as client:
        runs = [await client.start(sell, Order(number)) for number in range(2)]
        await lose_first_answer(proxy, runs[0].signal(approve, Approval("ann")))
        assert (await runs[0].describe()).entry_count == 1
        proxy.lost_count = 0
        await lose_first_answer(proxy, runs[0].cancel())
        assert await runs[0].status() is RunStatus.CANCELLED
        proxy.lost_count = 0
        assert await lose_first_answer(proxy, runs[1].terminate()) is RunStatus.FAILED


async def test_a_signal_with_an_id_is_recorded_once(run: RunHandle[Order]) -> None:
    for _ in range(3):
        await run.signal(approve, Approval("ann"), id="answer-1")
    assert (await run.describe()).entry_count == 1
    for _ in range(2):
        await run.signal(stop)
    await run.signal("approve", {"by": "bob"})
    assert (await run.describe()).entry_count == 4


async def test_a_run_that_never_began_is_cancelled_at_once(run: RunHandle[Order]) -> None:
    await run.cancel("sold out")
    with pytest.raises(TaskCancelled, match=f"Run {run.run_id} was cancelled: sold out") as caught:
        await run.result()
    assert caught.value.task_id == run.run_id
    info = await run.describe()
    assert (info.status, info.cancel_reason) == (RunStatus.CANCELLED, "sold out")
    with pytest.raises(TaskAlreadyTerminal):
        await run.cancel()
    with pytest.raises(TaskAlreadyTerminal):
        await run.signal(stop)


async def test_a_terminated_run_says_so(run: RunHandle[Order]) -> None:
    assert await run.terminate() is RunStatus.FAILED
    with pytest.raises(TaskTerminated, match=f"Run {run.run_id} was terminated"):
        await run.result()


async def test_the_failure_of_a_run_is_the_cause(stage: ServerStage, client: Client) -> None:
    work = partial(failed, message="no such card", type="CardError", stack_trace="at line 7")
    async with RawWorker(stage.target, work):
        run = await client.start(sell, Order(7))
        with pytest.raises(TaskFailed, match=f"Run {run.run_id} failed") as caught:
            await run.result()
    assert isinstance(caught.value.error, RemoteError)
    assert caught.value.error.type == "CardError"


async def test_a_parked_run_says_why_and_is_tried_again_on_resume(
    stage: ServerStage, client: Client
) -> None:
    async with RawWorker(stage.target, parked) as worker:
        run = await client.start(sell, Order(7))
        await becomes(run, RunStatus.PARKED)
        info = await run.describe()
        assert info.park_error is not None
        assert info.park_error.message == "the journal has charge"
        assert info.park_count == 1
        assert info.wake_at is not None
        assert [each.run_id async for each in client.list_runs(status="parked")] == [run.run_id]
        await run.resume()
        await worker.holds(2)


async def test_a_run_shows_what_it_waits_for(stage: ServerStage, client: Client) -> None:
    async with RawWorker(stage.target, waiting) as worker:
        run = await client.start(sell, Order(7))
        await becomes(run, RunStatus.WAITING)
        (wait,) = (await run.describe()).waits
        assert (wait.kind, wait.key) == ("signal", "approve")
        with pytest.raises(WrongState):
            await run.resume()
        await run.signal(approve, Approval("ann"))
        await worker.holds(2)


async def test_what_a_run_publishes_is_read_typed(stage: ServerStage, client: Client) -> None:
    async with RawWorker(stage.target, hold) as worker:
        run = await client.start(sell, Order(7))
        assert await run.state(Order) is None
        await worker.holds(1)
        await worker.beat(run.run_id, details=b'{"number":7,"items":["box"]}')

        async def is_there() -> bool:
            return await run.state() is not None

        await eventually(is_there)
        assert await run.state(Order) == Order(7, ["box"])
        assert await run.state() == {"number": 7, "items": ["box"]}
        with pytest.raises(PayloadError, match=f"The state of run {run.run_id} cannot be read"):
            await run.state(int)


async def test_a_task_is_no_run(client: Client) -> None:
    task = await client.enqueue(double, 1)
    for run_id in (task.task_id, UNKNOWN_ID):
        run = client.run_handle(run_id)
        for asked in (run.describe(), run.cancel(), run.signal(stop), run.state()):
            with pytest.raises(NotFound, match="Run"):
                await asked
    assert await run_count(client) == 0


async def test_runs_are_listed_by_what_is_asked_for(client: Client) -> None:
    runs = [await client.start(sell, Order(number)) for number in range(3)]
    await runs[0].terminate()
    marked = await client.start(sell.with_options(labels={"team": "a"}, queue="q"), Order(9))

    async def listed(**where: Any) -> list[str]:
        return [each.run_id async for each in client.list_runs(**where)]

    assert await listed() == [marked.run_id, *(each.run_id for each in reversed(runs))]
    assert await listed(status="failed") == [runs[0].run_id]
    assert await listed(status=RunStatus.PENDING, limit=1) == [marked.run_id]
    assert await listed(labels={"team": "a"}) == [marked.run_id]
    assert await listed(queue="q", type="sell") == [marked.run_id]
    assert await listed(type="other") == []
    with pytest.raises(ValueError, match=r"'gone' is not a status of a run\. They are: pending"):
        await listed(status="gone")


async def test_a_wait_that_is_too_long_names_the_run(run: RunHandle[Order]) -> None:
    with pytest.raises(TimeoutError, match=f"Run {run.run_id} has not ended within 0.01 s"):
        await run.result(timeout="10ms")
    explanation = await run.explain()
    assert explanation.reasons


async def test_the_synchronous_client_does_the_same(stage: ServerStage) -> None:
    def work() -> None:
        with SyncClient(stage.target) as client:
            run = client.start(sell, Order(7))
            assert run.result(timeout=WORK_S) == Order(7, ["box"])
            assert run.status() is RunStatus.COMPLETED
            assert run.state(Order) is None
            again = client.run_handle(run.run_id, result=Order)
            assert again.result() == Order(7, ["box"])
            assert [each.run_id for each in client.list_runs()] == [run.run_id]
            assert client.start_named("sell", {"order": Order(8)}).result()["number"] == 8
            later = client.start(sell.with_options(queue="elsewhere"), Order(9))
            later.signal(approve, Approval("ann"))
            assert later.describe().entry_count == 1
            later.cancel("why")
            assert later.status() is RunStatus.CANCELLED

    async with RawWorker(stage.target, pack), asyncio.timeout(WORK_S):
        await asyncio.to_thread(work)


async def test_an_id_of_the_user_stands_for_its_run(any_stage: ServerStage) -> None:
    mine = sell.with_options(id="order-42")
    async with Client(any_stage.target) as client:
        run = await client.start(mine, Order(7))
        assert (await client.start(mine, Order(7))).run_id == run.run_id
        with pytest.raises(AlreadyExists, match=run.run_id):
            await client.start(mine.with_options(on_live="reject"), Order(7))
        same = client.run_handle("external:order-42", result=Order)
        info = await same.describe()
        assert (info.run_id, info.id) == (run.run_id, "order-42")
        await same.signal(stop)
        assert (await same.explain()).reasons
        assert [each.run_id async for each in client.list_runs(id="order")] == [run.run_id]
        assert [each async for each in client.list_runs(id="other")] == []
        async with RawWorker(any_stage.target, pack):
            assert await same.result(timeout=WORK_S) == Order(7, ["box"])
        ended = await client.start(mine.with_options(on_finished="return"), Order(7))
        assert ended.run_id == run.run_id
        with pytest.raises(AlreadyExists):
            await client.start(mine.with_options(on_finished="reject"), Order(7))
        assert (await client.start(mine, Order(7))).run_id != run.run_id


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"id": ""}, "id must not be empty"),
        ({"id": "a\nb"}, "id must not be empty or have control characters"),
        ({"id": "x" * 256}, "id must have at most 255 bytes"),
        ({"on_live": "allow"}, "on_live must be one of return, reject, not 'allow'"),
        ({"on_finished": 3}, "on_finished must be one of allow, return, reject, not 3"),
    ],
)
def test_a_bad_id_and_what_to_do_with_it_are_refused_at_once(
    options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValueError, match=f"workflow sell: {problem}"):
        sell.with_options(**options)


async def test_a_handle_of_a_bad_external_id_is_refused(client: Client) -> None:
    with pytest.raises(ValueError, match="run_id"):
        client.run_handle("external:")


async def test_a_finished_run_is_retried(any_stage: ServerStage) -> None:
    async with Client(any_stage.target) as client:
        run = await client.start(sell.with_options(id="order-42"), Order(7))
        with pytest.raises(WrongState):
            await run.retry()
        await run.terminate()
        again = await client.run_handle("external:order-42", result=Order).retry()
        info = await again.describe()
        assert (info.retry_of, info.id, info.status) == (run.run_id, "order-42", RunStatus.PENDING)
        with pytest.raises(NotFound, match="Retry it without a step"):
            await run.retry(from_step="last")
        async with RawWorker(any_stage.target, pack):
            assert await again.result(timeout=WORK_S) == Order(7, ["box"])
