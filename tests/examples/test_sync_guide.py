"""The guide to plain functions: what it shows runs, and what it names exists."""

from __future__ import annotations

import re
import textwrap
from typing import Any, Final

import pytest

from tenure import (
    SyncStep,
    SyncWorkflowContext,
    TaskCancelled,
    Workflow,
    WorkflowContext,
    signal,
    workflow,
)
from tenure.sdk.workflow.sync.step import SyncChildRun
from tenure.testing import TestEngine
from tests.examples.stage import FOLDER

PAGE: Final = (FOLDER.parent / "docs/guide/sync-workflows.md").read_text()
SELL, BEGIN, CANCEL = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def _workflow(body: str, **names: Any) -> Workflow[..., Any]:
    scope: dict[str, Any] = dict(names)
    exec(f"def shown(ctx):\n{textwrap.indent(body, '    ')}", scope)  # noqa: S102 (ours)
    made: Workflow[..., Any] = workflow(scope["shown"])
    return made


async def test_the_first_function_of_the_guide_sells(engine: TestEngine) -> None:
    scope: dict[str, Any] = {
        "reserve": lambda item: f"one {item}",
        "ship": lambda parcel: f"{parcel} is on its way",
    }
    for name in ("reserve", "ship"):
        scope[name].__name__ = name
    exec(SELL, scope)  # noqa: S102 (ours)
    async with engine.worker([scope["sell"]]):
        run = await engine.start(scope["sell"], "lamp")
        assert await engine.advance_until(run.result()) == "one lamp is on its way"


async def test_two_calls_begin_as_the_guide_shows(engine: TestEngine) -> None:
    def book_flight(trip: str) -> str:
        return f"flight {trip}"

    def book_hotel(trip: str) -> str:
        return f"hotel {trip}"

    names = {"trip": "t-1", "book_flight": book_flight, "book_hotel": book_hotel}
    shown = _workflow(BEGIN, Booking=lambda *booked: list(booked), **names)
    async with engine.worker([shown]):
        run = await engine.start(shown)
        assert await engine.advance_until(run.result()) == ["flight t-1", "hotel t-1"]


async def test_a_cancelled_function_cleans_up_as_the_guide_shows(engine: TestEngine) -> None:
    cancelled: list[str] = []

    def cancel(order_id: str) -> None:
        cancelled.append(order_id)

    # The guide runs it elsewhere.
    body = f"import asyncio\n{CANCEL}".replace("ctx.execute", "ctx.step")
    shown = _workflow(body, delivered=signal("delivered"), cancel=cancel, order_id="o-1")
    async with engine.worker([shown]):
        run = await engine.start(shown)
        await engine.advance("1h")
        await run.cancel("not needed")
        with pytest.raises(TaskCancelled, match="not needed"):
            await engine.advance_until(run.result())
    assert cancelled == ["o-1"]


def test_the_guide_names_every_call_and_no_other() -> None:
    named = set(re.findall(r"\bctx\.(\w+)", PAGE))
    named |= set(re.findall(r"`(\w+)`", PAGE.partition("Everything else has the same")[2][:300]))
    known = {name for name in vars(SyncWorkflowContext) if not name.startswith("_")}
    inner = {name for name in dir(WorkflowContext) if not name.startswith("_")}
    assert known <= named
    assert named <= known | inner | {"log", "info"}
    of_handles = {name for name in dir(SyncChildRun) if not name.startswith("_")}
    assert set(re.findall(r"`(?:call|child)\.(\w+)", PAGE)) <= of_handles
    assert {name for name in vars(SyncStep) if not name.startswith("_")} <= of_handles
