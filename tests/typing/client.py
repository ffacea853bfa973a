"""What a type checker knows of the clients; `make check` reads it, nothing runs it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final, assert_type

import msgspec

from tenure import (
    BackfillResult,
    Client,
    Completion,
    Handle,
    PlannedFire,
    Schedule,
    ScheduleFire,
    ScheduleInfo,
    SyncClient,
    SyncCompletion,
    SyncHandle,
    SyncSchedules,
    TaskInfo,
    WorkflowContext,
    activity,
    workflow,
)
from tenure.core.task.record import TaskState
from tenure.sdk.client import AttemptInfo, HeartbeatAnswer

START: Final = datetime(2030, 5, 1, tzinfo=UTC)
END: Final = datetime(2030, 6, 1, tzinfo=UTC)


class Order(msgspec.Struct):
    number: int


class Receipt(msgspec.Struct):
    amount: float


@activity(start_to_close="30s")
async def charge(order: Order, *, note: str = "") -> Receipt:
    return Receipt(order.number + len(note))


@activity(start_to_close="30s")
def ship(order: Order) -> None: ...


class Payments:
    @activity(start_to_close="30s")
    async def refund(self, order: Order) -> Receipt:
        return Receipt(order.number)


async def asynchronous(client: Client, payments: Payments, order: Order) -> None:
    handle = await client.enqueue(charge, order, note="soon")
    assert_type(handle, Handle[Receipt])
    assert_type(await handle.result(timeout="1m", on_progress=print), Receipt)
    assert_type(await client.run(charge.with_options(priority=1), order), Receipt)
    assert_type(await client.run(charge, order, note="x", timeout="1m"), Receipt)
    assert_type(await client.enqueue(ship, order), Handle[None])
    assert_type(await client.enqueue(payments.refund, order), Handle[Receipt])
    assert_type(await client.enqueue_many([charge.call(order)]), list[Handle[Receipt]])
    await client.enqueue(charge)  # type: ignore[call-arg]
    await client.enqueue(charge, "order")  # type: ignore[arg-type]
    await client.enqueue(charge, order, nota="x")  # type: ignore[call-arg]
    await client.run(payments.refund, order, order)  # type: ignore[call-overload]
    charge.call(7)  # type: ignore[arg-type]
    charge.with_options(prio=1)  # type: ignore[call-arg]

    named = await client.enqueue_named("charge", {"order": order}, result=Receipt, delay="5m")
    assert_type(named, Handle[Receipt])
    assert_type(await client.enqueue_named("charge", b"raw"), Handle[Any])
    assert_type(client.handle("id", result=Receipt), Handle[Receipt])
    assert_type(client.handle("id"), Handle[Any])
    assert_type(await handle.describe(), TaskInfo)
    assert_type(await handle.attempts(), list[AttemptInfo])
    assert_type(await handle.cancel("why"), TaskState)
    assert_type(await handle.retry(), Handle[Receipt])
    async for info in client.list(state="pending"):
        assert_type(info, TaskInfo)
    completion = client.completion(token="t")
    assert_type(completion, Completion)
    assert_type(await completion.heartbeat({"row": 1}, percent=5), HeartbeatAnswer)


def synchronous(client: SyncClient, payments: Payments, order: Order) -> None:
    handle = client.enqueue(charge, order, note="soon")
    assert_type(handle, SyncHandle[Receipt])
    assert_type(handle.result(timeout=60), Receipt)
    assert_type(client.run(charge, order), Receipt)
    assert_type(client.run(charge, order, timeout=60), Receipt)
    assert_type(client.enqueue(payments.refund, order), SyncHandle[Receipt])
    assert_type(client.enqueue_many([charge.call(order)]), list[SyncHandle[Receipt]])
    client.enqueue(charge, "order")  # type: ignore[arg-type]
    assert_type(client.enqueue_named("charge", result=Receipt), SyncHandle[Receipt])
    assert_type(client.handle("id", result=Receipt), SyncHandle[Receipt])
    assert_type(handle.describe(), TaskInfo)
    assert_type(handle.retry(), SyncHandle[Receipt])
    assert_type(handle.task_id, str)
    assert_type(client.list(queue="q"), Iterator[TaskInfo])
    assert_type(client.completion(task_id="id"), SyncCompletion)


@workflow
async def checkout(ctx: WorkflowContext, order: Order) -> Receipt:
    return await ctx.execute(charge, order)


async def scheduled(client: Client, payments: Payments, order: Order) -> None:
    nightly = Schedule("0 2 * * *", zone="Europe/Berlin", overlap="skip")
    assert_type(await client.schedules.create("a", nightly, charge, order, note="x"), ScheduleInfo)
    assert_type(await client.schedules.put("b", "0 2 * * *", checkout, order), ScheduleInfo)
    assert_type(await client.schedules.put("c", nightly, payments.refund, order), ScheduleInfo)
    assert_type(await client.schedules.put("d", nightly, ship.with_options(), order), ScheduleInfo)
    await client.schedules.create("a", nightly, charge)  # type: ignore[call-arg]
    await client.schedules.create("a", nightly, charge, "order")  # type: ignore[arg-type]
    await client.schedules.put("b", nightly, checkout, order, 7)  # type: ignore[call-arg]
    await client.schedules.put("b", nightly, checkout, nota=1)  # type: ignore[call-arg]
    Schedule("0 2 * * *", overlap="never")  # type: ignore[arg-type]
    assert_type(await client.schedules.trigger("a", trigger_id="t"), ScheduleFire)
    assert_type(await client.schedules.backfill("a", START, END), BackfillResult)
    assert_type(await client.schedules.next(nightly, count=3), list[PlannedFire])
    assert_type(await client.schedules.next("a"), list[PlannedFire])
    async for info in client.schedules.list(paused=True):
        assert_type(info, ScheduleInfo)
    async for fire in client.schedules.fires("a"):
        assert_type(fire.lateness, timedelta)


def scheduled_in_a_script(client: SyncClient, order: Order) -> None:
    assert_type(client.schedules, SyncSchedules)
    assert_type(client.schedules.put("a", Schedule(every="5m"), charge, order), ScheduleInfo)
    assert_type(client.schedules.create("b", "@daily", checkout, order), ScheduleInfo)
    client.schedules.put("a", "@daily", charge, "order")  # type: ignore[arg-type]
    assert_type(client.schedules.get("a").schedule, Schedule)
    assert_type(client.schedules.list(), Iterator[ScheduleInfo])
    assert_type(client.schedules.fires("a", limit=3), Iterator[ScheduleFire])
