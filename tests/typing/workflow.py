"""What a type checker knows of workflows; `make check` reads it, nothing runs it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, assert_type

import msgspec

from tenure import (
    ChildRun,
    Client,
    Results,
    RunDescription,
    RunHandle,
    RunStatus,
    RunStep,
    Signal,
    Step,
    StepKind,
    StepStatus,
    SyncClient,
    SyncRunHandle,
    TaskFailed,
    WorkflowContext,
    activity,
    signal,
    step,
    workflow,
)


class Order(msgspec.Struct):
    number: int


class Receipt(msgspec.Struct):
    amount: float


@step(timeout="30s")
async def charge(order: Order, *, note: str = "") -> Receipt:
    return Receipt(order.number + len(note))


def count(text: str) -> int:
    return len(text)


approve = signal("approve", Receipt)
unsubscribe = signal("unsubscribe")
assert_type(approve, Signal[Receipt])
assert_type(unsubscribe, Signal[None])
assert_type(signal("stop", None), Signal[None])


@workflow
async def checkout(ctx: WorkflowContext, order: Order, *, note: str = "") -> Receipt:
    assert_type(ctx.step(charge, order), Step[Receipt])
    assert_type(await ctx.step(count, note), int)
    ctx.step(charge, note)  # type: ignore[call-overload]
    assert_type(await ctx.wait_signal(approve, timeout="3d"), Receipt)
    await ctx.wait_signal(unsubscribe)
    async for each in ctx.signals(approve):
        assert_type(each, Receipt)
    return await ctx.step(charge, order, note=note)


@workflow(timeout="30d", labels={"team": "shop"})
async def watch(ctx: WorkflowContext, shipment: str) -> None: ...


workflow(timeuot="30d")  # type: ignore[call-overload]
watch.with_options(idempotency_key="w", delay="5m")
watch.with_options(name="other")  # type: ignore[call-arg]


@activity(start_to_close="30s")
async def pay(order: Order, *, note: str = "") -> Receipt:
    return Receipt(order.number + len(note))


@activity(start_to_close="30s")
def pack(order: Order) -> None: ...


class Payments:
    @activity(start_to_close="30s")
    async def refund(self, order: Order) -> Receipt:
        return Receipt(order.number)

    @activity(start_to_close="30s")
    def check(self, order: Order) -> bool:
        return order.number > 0


@workflow
async def parent(ctx: WorkflowContext, orders: list[Order]) -> list[Receipt]:
    order = orders[0]
    assert_type(ctx.execute(pay, order, note="soon"), Step[Receipt])
    assert_type(await ctx.execute(pack, order), None)
    assert_type(await ctx.execute(Payments.refund, order), Receipt)
    assert_type(await ctx.execute(Payments.check.with_options(priority=1), order), bool)
    assert_type(await ctx.execute(pay, order, on_cancel="wait"), Receipt)
    ctx.execute(pay)  # type: ignore[call-overload]
    ctx.execute(pay, "order")  # type: ignore[call-overload]
    ctx.execute(Payments.refund, order, order)  # type: ignore[call-overload]
    ctx.execute(pay, order, on_cancel="never")  # type: ignore[call-arg]

    child = ctx.child(checkout, order, note="soon")
    assert_type(child, ChildRun[Receipt])
    assert_type(child.id, str)
    assert_type(child.signal(approve, Receipt(1.0)), Step[None])
    await child.signal(unsubscribe)
    assert_type(await child, Receipt)
    assert_type(ctx.child(watch, "s-1", id="s-1", on_close="abandon"), ChildRun[None])
    ctx.child(checkout, "order")  # type: ignore[call-overload]
    ctx.child(checkout, order, on_close="never")  # type: ignore[call-arg]
    child.signal(approve, "yes")  # type: ignore[misc]

    done = await ctx.map(pay, orders)
    assert_type(done, Results[Receipt])
    async for _, receipt in done:
        assert_type(receipt, Receipt)
    collected = await ctx.map(Payments.refund, orders, on_error="collect")
    assert_type(await collected.list(), list[Receipt | TaskFailed])
    ctx.map(pay, ["order"])  # type: ignore[arg-type]

    await ctx.external("external:order-42").signal(approve, Receipt(1.0))
    assert_type(ctx.patched("fraud-check"), bool)
    if len(orders) > 1:
        ctx.continue_as_new(orders[1:])
    return await done.list()


workflow(changes="tolerate")(watch.function)
workflow(changes="ignore")  # type: ignore[call-overload]


async def asynchronous(client: Client, order: Order) -> None:
    run = await client.start(checkout, order, note="soon")
    assert_type(run, RunHandle[Receipt])
    assert_type(await run.result(timeout="1m", on_progress=print), Receipt)
    assert_type(await client.start(watch.with_options(priority=1), "s-1"), RunHandle[None])
    await client.start(checkout)  # type: ignore[call-arg]
    await client.start(checkout, "order")  # type: ignore[arg-type]
    await client.start(checkout, order, nota="x")  # type: ignore[call-arg]
    await client.start(charge, order)  # type: ignore[arg-type]

    await run.signal(approve, Receipt(1.0))
    await run.signal(approve, Receipt(1.0), id="once")
    await run.signal(unsubscribe)
    await run.signal("approve", {"amount": 1.0})
    await run.signal(approve, "yes")  # type: ignore[misc]
    await run.signal(approve)  # type: ignore[arg-type]

    assert_type(await run.state(Receipt), Receipt | None)
    assert_type(await run.state(), Any)
    assert_type(await run.describe(), RunDescription)
    assert_type(await run.status(), RunStatus)
    assert_type(await run.resume(), RunStatus)
    assert_type(await run.terminate(), RunStatus)
    await run.cancel("why")
    assert_type(client.run_handle("id", result=Receipt), RunHandle[Receipt])
    assert_type(client.run_handle("id"), RunHandle[Any])
    assert_type(await client.start_named("checkout", result=Receipt), RunHandle[Receipt])
    async for each in client.list_runs(status="parked"):
        assert_type(each, RunDescription)
    async for found in run.steps(key="charge"):
        assert_type(found, RunStep)
        assert_type((found.kind, found.status), tuple[StepKind, StepStatus])


def synchronous(client: SyncClient, order: Order) -> None:
    run = client.start(checkout, order)
    assert_type(run, SyncRunHandle[Receipt])
    assert_type(run.result(timeout=60), Receipt)
    assert_type(run.state(Receipt), Receipt | None)
    assert_type(run.run_id, str)
    assert_type(run.describe(), RunDescription)
    assert_type(run.steps(), Iterator[RunStep])
    run.signal(approve, Receipt(1.0))
    run.signal(approve, "yes")  # type: ignore[misc]
    client.start(checkout, "order")  # type: ignore[arg-type]
    assert_type(client.run_handle("id", result=Receipt), SyncRunHandle[Receipt])
    assert_type(client.list_runs(type="checkout"), Iterator[RunDescription])
