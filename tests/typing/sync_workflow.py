"""What a type checker knows of workflows that are plain functions; `make check` reads it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, assert_type

from tenure import (
    ChildRun,
    Client,
    RunHandle,
    SyncChildRun,
    SyncResults,
    SyncStep,
    SyncWorkflowContext,
    TaskFailed,
    Waited,
    Workflow,
    WorkflowContext,
    workflow,
)
from tests.typing.workflow import (
    Order,
    Payments,
    Receipt,
    approve,
    charge,
    checkout,
    count,
    pack,
    pay,
    unsubscribe,
    watch,
)


@workflow
def refund(ctx: SyncWorkflowContext, order: Order, *, note: str = "") -> Receipt:
    assert_type(ctx.step(charge, order, note=note), Receipt)
    assert_type(ctx.step(count, note), int)
    ctx.step(charge, note)  # type: ignore[call-overload]
    assert_type(ctx.wait_signal(approve, timeout="3d"), Receipt)
    ctx.wait_signal(unsubscribe)
    assert_type(ctx.signals(approve), Iterator[Receipt])
    assert_type(ctx.now(), datetime)
    return ctx.step(charge, order)


@workflow(timeout="30d", labels={"team": "shop"})
def remind(ctx: SyncWorkflowContext, shipment: str) -> None: ...


assert_type(refund.with_options(id="order-1").name, str)
given: Workflow[[str], None] = remind
workflow(timeuot="30d")  # type: ignore[call-overload]


@workflow
def parent(ctx: SyncWorkflowContext, orders: list[Order]) -> list[Receipt]:
    order = orders[0]
    assert_type(ctx.execute(pay, order, note="soon"), Receipt)
    assert_type(ctx.execute(Payments.check.with_options(priority=1), order), bool)
    assert_type(ctx.execute(pay, order, on_cancel="wait"), Receipt)
    ctx.execute(pay)  # type: ignore[call-overload]
    ctx.execute(pay, "order")  # type: ignore[call-overload]
    assert_type(ctx.child(refund, order, note="soon"), Receipt)
    assert_type(ctx.child(checkout, order, id="c-1", on_close="abandon"), Receipt)
    ctx.child(refund, "order")  # type: ignore[call-overload]

    step = ctx.begin(pay, order, note="soon")
    assert_type(step, SyncStep[Receipt])
    assert_type(step.result(timeout="1m"), Receipt)
    assert_type(ctx.begin(charge, order), SyncStep[Receipt])
    assert_type(ctx.begin(count, "text"), SyncStep[int])
    child = ctx.begin(refund, order)
    assert_type(child, SyncChildRun[Receipt])
    assert_type(child.id, str)
    child.signal(approve, Receipt(1.0))
    child.signal(approve, "yes")  # type: ignore[misc]
    assert_type(ctx.begin(watch, "s-1", id="s-1", on_close="abandon"), SyncChildRun[None])
    ctx.begin(pay, "order")  # type: ignore[call-overload]
    ctx.begin(count, 7)  # type: ignore[call-overload]

    assert_type(ctx.gather(step, child), list[Receipt])
    assert_type(ctx.gather(step, child, return_exceptions=True), list[Receipt | BaseException])
    assert_type(ctx.wait([step], return_when="first", timeout="1h"), Waited[SyncStep[Receipt]])
    done, pending = ctx.wait([child])
    assert_type(done, list[SyncChildRun[Receipt]])
    assert_type(pending, list[SyncChildRun[Receipt]])
    ctx.wait([child], return_when="some")  # type: ignore[arg-type]

    results = ctx.map(pay, orders)
    assert_type(results, SyncResults[Receipt])
    for _, receipt in results:
        assert_type(receipt, Receipt)
    collected = ctx.map(Payments.refund, orders, on_error="collect")
    assert_type(collected.list(), list[Receipt | TaskFailed])
    ctx.map(pay, ["order"])  # type: ignore[arg-type]
    ctx.execute(pack, order)

    ctx.external("external:order-42").signal(approve, Receipt(1.0))
    assert_type(ctx.branch("left"), SyncWorkflowContext)
    assert_type(ctx.patched("fraud-check"), bool)
    if len(orders) > 1:
        ctx.continue_as_new(orders[1:])
    return results.list()


@workflow
async def mixed(ctx: WorkflowContext, order: Order) -> Receipt:
    assert_type(ctx.child(refund, order, note="soon"), ChildRun[Receipt])
    return await ctx.child(refund, order)


@workflow  # type: ignore[arg-type]
def no_context(order: Order) -> Receipt:
    return Receipt(order.number)


async def asynchronous(client: Client, order: Order) -> Any:
    assert_type(await client.start(refund, order, note="soon"), RunHandle[Receipt])
    await client.start(refund, "order")  # type: ignore[arg-type]
