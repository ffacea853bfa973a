"""What a client does with schedules at a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from tenure import Client, Schedule, ScheduleState, SyncClient, WorkflowContext, activity, workflow
from tenure.core.task.record import TaskKind
from tenure.errors import AlreadyExists, InvalidArgument, NotFound
from tenure.sdk.payload import Payload
from tests.bounds import WORK_S
from tests.polling import eventually
from tests.sdk.client.stage import RawWorker, ServerStage, double
from tests.sdk.client.test_fault import lose_first_answer
from tests.wire.proxy import Proxy

FIRST = datetime(2024, 1, 1, tzinfo=UTC)
YEARLY = "0 0 1 1 *"


class Order(msgspec.Struct):
    number: int


@activity(start_to_close="10m", queue="reports", priority=2, labels={"team": "a"})
async def report(order: Order, *, note: str = "") -> str:
    raise NotImplementedError


@workflow(name="sell", timeout="30d")
async def sell(ctx: WorkflowContext, order: Order) -> Order:
    raise NotImplementedError


@pytest.fixture
async def anywhere(any_stage: ServerStage) -> AsyncIterator[Client]:
    async with Client(any_stage.target) as made:
        yield made


async def test_a_schedule_of_an_activity_comes_back_as_it_was_put(anywhere: Client) -> None:
    said = Schedule(
        "0 2 * * *",
        zone="Europe/Berlin",
        overlap="skip",
        max_catchup=5,
        catchup_window=timedelta(hours=1),
        jitter=timedelta(seconds=30),
        starts_at=FIRST,
        ends_at=datetime(2090, 1, 1, tzinfo=UTC),
        pause_after_failures=3,
        note="for the shop",
    )
    info = await anywhere.schedules.create("nightly", said, report, Order(7), note="x")
    assert info == await anywhere.schedules.get("nightly")
    assert info.schedule == said
    assert (info.id, info.type, info.kind) == ("nightly", "report", TaskKind.ACTIVITY)
    assert (info.queue, info.priority, info.labels) == ("reports", 2, {"team": "a"})
    assert info.input == Payload("json", b'{"order":{"number":7},"note":"x"}')
    assert (info.state, info.error, info.failure_count) == (ScheduleState.ACTIVE, "", 0)
    assert info.next_fire_at is not None
    assert info.created_at is not None
    assert info.next_fire_at > info.created_at
    assert await anywhere.schedules.create("nightly", said, report, Order(7), note="x") == info
    with pytest.raises(AlreadyExists):
        await anywhere.schedules.create("nightly", said, report, Order(8), note="x")
    changed = await anywhere.schedules.put("nightly", Schedule(every="5m"), report, Order(8))
    assert changed.schedule == Schedule(every=timedelta(minutes=5))


async def test_a_schedule_of_a_workflow_starts_runs(client: Client) -> None:
    monthly = sell.with_options(id="month", on_live="reject", queue="runs")
    info = await client.schedules.put("monthly", "0 6 L * *", monthly, Order(7))
    assert (info.kind, info.queue, info.external_id) == (TaskKind.WORKFLOW, "runs", "month")
    fire = await client.schedules.trigger("monthly")
    described = await client.run_handle(fire.task_id).describe()
    assert (described.type, described.id) == ("sell", "month")


async def test_what_does_not_fit_is_refused_before_anything_is_sent(client: Client) -> None:
    schedules: Any = client.schedules
    for given in ((report,), (report, "order"), (report, Order(1), 2), (sell, 7), (sell,)):
        with pytest.raises(TypeError):
            await schedules.put("x", YEARLY, *given)
    for unfit in (len, "report", None):
        with pytest.raises(TypeError):
            await schedules.put("x", YEARLY, unfit, Order(1))
    for options in ({"delay": "5m"}, {"run_at": FIRST}, {"idempotency_key": "k"}):
        with pytest.raises(ValueError, match="a schedule decides about"):
            await schedules.put("x", YEARLY, report.with_options(**options), Order(1))
    with pytest.raises(ValueError, match="only finished ones"):
        await schedules.put("x", YEARLY, sell.with_options(on_finished="reject"), Order(1))
    assert [each async for each in client.schedules.list()] == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "needs a rule"),
        ({"rule": YEARLY, "every": "5m"}, "needs a rule"),
        ({"every": "soon"}, "every must be a duration"),
        ({"rule": YEARLY, "overlap": "never"}, "overlap must be one of allow, skip"),
        ({"rule": YEARLY, "starts_at": datetime(2030, 1, 1)}, "starts_at needs a time zone"),  # noqa: DTZ001 (that is the mistake)
        ({"rule": YEARLY, "catchup_window": 0}, "catchup_window must be between"),
    ],
)
def test_a_schedule_that_means_nothing_is_refused(given: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Schedule(**given)


async def test_refusals_of_the_server_name_things_as_python_does(client: Client) -> None:
    for schedule, field in (
        (Schedule("0 25 * * *"), "rule"),
        (Schedule(YEARLY, zone="Nowhere"), "zone"),
        (Schedule(every="10ms"), "every"),
        (Schedule(every="5m", offset="5m"), "offset"),
        (Schedule(YEARLY, max_catchup=10**9), "max_catchup"),
        (Schedule(YEARLY, pause_after_failures=-1), "pause_after_failures"),
    ):
        with pytest.raises(InvalidArgument) as caught:
            await client.schedules.put("x", schedule, double, 1)
        assert field in caught.value.message
    with pytest.raises(InvalidArgument, match="id"):
        await client.schedules.put("a b", YEARLY, double, 1)
    for asked in (client.schedules.get("x"), client.schedules.trigger("x")):
        with pytest.raises(NotFound):
            await asked


async def test_schedules_are_listed_by_id(client: Client) -> None:
    for name in ("c", "a", "b"):
        await client.schedules.put(name, YEARLY, double, 1)
    await client.schedules.pause("b", "a move")
    assert [each.id async for each in client.schedules.list()] == ["a", "b", "c"]
    assert [each.id async for each in client.schedules.list(limit=2)] == ["a", "b"]
    (paused,) = [each async for each in client.schedules.list(paused=True)]
    assert (paused.id, paused.state, paused.pause_note) == ("b", ScheduleState.PAUSED, "a move")
    assert paused.paused_at is not None
    assert paused.input is None
    assert [each async for each in client.schedules.list(type="shout")] == []
    resumed = await client.schedules.resume("b", mode="skip")
    assert (resumed.state, resumed.pause_note) == (ScheduleState.ACTIVE, "")


@pytest.mark.usefixtures("worker")
async def test_a_schedule_fires_and_its_tasks_have_results(client: Client) -> None:
    await client.schedules.put("often", Schedule(every="1s"), double, 21)

    async def has_fired() -> bool:
        fires = [each async for each in client.schedules.fires("often", limit=5)]
        return len(fires) > 1 and fires[-1].outcome == "succeeded"

    await eventually(has_fired)
    await client.schedules.delete("often")
    newest, *_ = [each async for each in client.schedules.fires("often")]
    assert (newest.kind, newest.schedule_id) == ("tick", "often")
    assert newest.lateness < timedelta(seconds=WORK_S)
    assert await client.handle(newest.task_id, result=int).result(timeout=WORK_S) == 42
    described = await client.handle(newest.task_id).describe()
    assert described.idempotency_key == newest.key


async def test_a_trigger_fires_once_for_each_trigger_id(client: Client) -> None:
    await client.schedules.put("x", YEARLY, double, 21)
    first = await client.schedules.trigger("x", trigger_id="one")
    assert first == await client.schedules.trigger("x", trigger_id="one")
    assert (await client.schedules.trigger("x")).task_id != first.task_id
    assert (first.kind, first.outcome, first.reason) == ("trigger", "", "")


async def test_a_backfill_may_be_repeated(client: Client) -> None:
    await client.schedules.put("x", Schedule(every="1h"), double, 21)
    last = FIRST + timedelta(hours=4)
    done = await client.schedules.backfill("x", FIRST, last)
    assert [each.at for each in done.started] == [FIRST + timedelta(hours=n) for n in range(1, 5)]
    again = await client.schedules.backfill("x", from_=FIRST, to=last)
    assert (again.started, len(again.known_keys)) == ((), 4)
    with pytest.raises(ValueError, match="to needs a time zone"):
        await client.schedules.backfill("x", FIRST, datetime(2024, 1, 1))  # noqa: DTZ001 (that is the mistake)


async def test_the_next_fires_of_a_schedule_and_of_one_that_is_not_stored(client: Client) -> None:
    nightly = Schedule("30 2 * * *", zone="Asia/Kolkata")
    planned = await client.schedules.next(nightly, count=3)
    assert len(planned) == 3
    assert {(each.local.hour, each.local.minute) for each in planned} == {(2, 30)}
    assert all(each.at == each.local for each in planned)
    assert {each.local.utcoffset() for each in planned} == {timedelta(hours=5, minutes=30)}
    await client.schedules.put("x", nightly, double, 1)
    assert await client.schedules.next("x", count=3) == planned
    assert len(await client.schedules.next("x")) == 10


async def test_a_delete_whose_answer_is_lost_has_been_done(stage: ServerStage) -> None:
    async with Client(stage.target) as direct:
        await direct.schedules.put("x", YEARLY, double, 1)
        async with Proxy(stage.target) as proxy, Client(proxy.address) as client:
            await lose_first_answer(proxy, client.schedules.delete("x"))
        with pytest.raises(NotFound):
            await direct.schedules.delete("x")


async def test_the_synchronous_client_has_the_same(stage: ServerStage) -> None:
    def work() -> None:
        with SyncClient(stage.target) as client:
            assert "SyncSchedules" in repr(client.schedules)
            info = client.schedules.create("x", Schedule(every="1h"), double, 21)
            assert client.schedules.put("x", Schedule(every="1h"), double, 21) == info
            assert client.schedules.get("x") == info
            assert [each.id for each in client.schedules.list()] == ["x"]
            assert client.schedules.pause("x").state is ScheduleState.PAUSED
            assert client.schedules.resume("x").state is ScheduleState.ACTIVE
            fire = client.schedules.trigger("x", trigger_id="one")
            done = client.schedules.backfill("x", FIRST, FIRST + timedelta(hours=2))
            assert len(done.started) == 2
            assert fire in [*client.schedules.fires("x")]
            assert len(client.schedules.next("x", count=4)) == 4
            client.schedules.delete("x")

    await asyncio.to_thread(work)


async def test_a_raw_worker_sees_which_fire_its_task_is_of(
    stage: ServerStage, client: Client
) -> None:
    seen: list[Any] = []

    def look(task: Any) -> None:
        seen.append(task)

    async with RawWorker(stage.target, look):
        await client.schedules.put("x", YEARLY, double, 21)
        fire = await client.schedules.trigger("x")
        await eventually(lambda: seen)
    assert (seen[0].schedule_id, seen[0].fire_at_ms) == ("x", round(fire.at.timestamp() * 1_000))
