"""The guide to children, fan-out and endless runs: its code is run as it stands there."""

from __future__ import annotations

import ast
import asyncio
import re
import textwrap
from typing import Any, Final

import msgspec
import pytest

from tenure import (
    ApplicationError,
    Client,
    Results,
    RunStatus,
    TaskFailed,
    Workflow,
    WorkflowContext,
    activity,
    signal,
    workflow,
)
from tenure.testing import TestEngine
from tests.examples.stage import FOLDER

PAGE: Final = (FOLDER.parent / "docs/guide/workflows-children.md").read_text()
README: Final = (FOLDER.parent / "README.md").read_text()
go: Final = signal("go", int)


class Order(msgspec.Struct):
    id: str = "42"


class Receipt(msgspec.Struct):
    text: str


@activity(start_to_close="30s")
async def charge(order: Order) -> Receipt:
    return Receipt(f"receipt of {order.id}")


@activity(start_to_close="30s")
async def pack(order: Order) -> None: ...


@activity(start_to_close="30s")
async def resize(image: str) -> int:
    if not image:
        raise ApplicationError("no image", type="NoImage", non_retryable=True)
    return len(image)


@activity(start_to_close="30s")
async def notify(shipment: str, status: str) -> None: ...


@workflow
async def close_shop(ctx: WorkflowContext, shop: str) -> int:
    if shop == "cph":
        return await ctx.wait_signal(go)
    return await ctx.step(len, shop)


@workflow
async def wait_for_go(ctx: WorkflowContext) -> int:
    return await ctx.wait_signal(go)


NAMES: Final = {
    **{each.name: each for each in (charge, pack, resize, notify)},
    "close_shop": close_shop,
    "workflow": workflow,
    "WorkflowContext": WorkflowContext,
    "Order": Order,
    "Receipt": Receipt,
    "Results": Results,
    "TaskFailed": TaskFailed,
    "asyncio": asyncio,
    "go": go,
}
CODE: Final = [charge, pack, resize, notify, close_shop, wait_for_go]


def blocks(title: str, page: str = PAGE) -> list[str]:
    """Return the Python code under a heading."""
    part = page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", part, re.DOTALL)


def declared(code: str, name: str, **names: Any) -> Workflow[..., Any]:
    """Return a workflow that a piece of code declares."""
    scope: dict[str, Any] = {**NAMES, **names, "__name__": "guide"}
    exec(compile(code, "guide.py", "exec"), scope)  # noqa: S102 (ours)
    found: Workflow[..., Any] = scope[name]
    return found


def bodied(code: str, result: str, **names: Any) -> Workflow[..., Any]:
    """Return a workflow whose body is a piece of code."""
    body = textwrap.indent(f"{code}\nreturn {result}", "    ")
    return declared(f"@workflow\nasync def shown(ctx):\n{body}", "shown", **names)


def test_the_code_of_the_page_is_python() -> None:
    for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        compile(code, "guide", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


async def test_queued_steps_run_in_their_queues(engine: TestEngine) -> None:
    sell = declared(blocks("Queued steps")[0], "sell")
    async with engine.worker([sell, charge]), engine.worker([pack], queue="warehouse"):
        run = await engine.start(sell, Order())
        assert await engine.advance_until(run.result()) == Receipt("receipt of 42")


async def test_child_runs_are_gathered(engine: TestEngine) -> None:
    flow = bodied(blocks("Child runs")[0], "reports", shops=["oslo", "bergen"])
    async with engine.worker([flow, close_shop]):
        run = await engine.start(flow)
        assert await engine.advance_until(run.result()) == [4, 6]


async def test_a_parent_signals_its_child_and_another_run(engine: TestEngine) -> None:
    flow = bodied(blocks("Child runs")[1], "total")
    async with engine.worker([flow, *CODE]):
        other = await engine.start(wait_for_go.with_options(id="close-osl"))
        run = await engine.start(flow)
        assert await engine.advance_until(run.result()) == 3
        assert await engine.advance_until(other.result()) == 4


async def test_items_are_mapped_and_counted(engine: TestEngine) -> None:
    mapped, summed = blocks("Many items")
    shown: list[tuple[int, ...]] = []
    names = {"images": ["a", "", "ccc"], "print": lambda *said: shown.append(said)}
    flow = bodied(f"{mapped}\n{summed}", "total", **names)
    async with engine.worker([flow, resize]):
        run = await engine.start(flow)
        assert await engine.advance_until(run.result()) == 4
    assert shown[0] == (3, 1)


async def test_the_first_failed_item_raises_its_error(engine: TestEngine) -> None:
    code = blocks("Many items")[0].replace('"collect"', '"fail"')
    flow = bodied(code, "None", images=["a", "", "ccc"])
    async with engine.worker([flow, resize]):
        run = await engine.start(flow)
        with pytest.raises(TaskFailed, match="no image"):
            await engine.advance_until(run.result())


async def test_a_watch_continues_as_new(engine: TestEngine) -> None:
    looks = iter([*["on its way"] * 9, "delivered"])

    def track(shipment: str) -> str:
        return next(looks) if shipment else ""

    watch = declared(blocks("Endless runs")[0].replace("500", "4"), "watch", track=track)
    async with engine.worker([watch, notify]):
        run = await engine.start(watch, "parcel")
        assert await engine.advance_until(run.result()) == "delivered"
        assert (await run.describe()).generation == 2


async def test_a_run_is_found_by_its_external_id(engine: TestEngine) -> None:
    sell = declared(blocks("Queued steps")[0], "sell")
    names: dict[str, Any] = {**NAMES, "sell": sell, "client": engine.client(), "order": Order()}
    body = textwrap.indent(blocks("Ids of your own")[0], "    ")
    exec(f"async def show():\n{body}    return run, same", names)  # noqa: S102 (ours)
    run, same = await names["show"]()
    again = await engine.client().start(sell.with_options(id="order-42"), Order())
    assert again.run_id == run.run_id
    async with engine.worker([sell, charge]), engine.worker([pack], queue="warehouse"):
        assert await engine.advance_until(same.result()) == Receipt("receipt of 42")
    assert (await same.describe()).run_id == run.run_id


async def test_a_finished_run_is_repeated_from_a_step(engine: TestEngine) -> None:
    sell = declared(blocks("Queued steps")[0], "sell")
    async with engine.worker([sell, charge]), engine.worker([pack], queue="warehouse"):
        run = await engine.start(sell, Order())
        await engine.advance_until(run.result())
        names: dict[str, Any] = {"run": run}
        body = textwrap.indent(blocks("Trying again")[0], "    ")
        exec(f"async def show():\n{body}    return again", names)  # noqa: S102
        again = await names["show"]()
        assert again.run_id != run.run_id
        assert await engine.advance_until(again.result()) == Receipt("receipt of 42")
        assert (await run.describe()).status is RunStatus.COMPLETED


async def test_the_workflow_of_the_readme_greets(engine: TestEngine, engine_client: Client) -> None:
    first, second = blocks("Try it", README)
    scope: dict[str, Any] = {**NAMES, "__name__": "readme"}
    exec(first + second, scope)  # noqa: S102 (ours)
    async with engine.worker([scope["welcome"], scope["greet"]]):
        run = await engine_client.start(scope["welcome"], "world")
        assert await engine.advance_until(run.result()) == "Hello, world!"
