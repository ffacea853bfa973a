"""What a run says of what it waits for: the line of the call, and since when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tenure.sdk.workflow.context import WorkflowContext
from tenure.sdk.workflow.definition import Workflow, workflow
from tenure.sdk.workflow.ending import Ending, Yielded
from tenure.sdk.workflow.signal import signal
from tenure.sdk.workflow.sync.context import SyncWorkflowContext
from tests.sdk.workflow.model import BEGUN_AT_MS, Holder, Model

DAY_MS = 86_400_000
go = signal("go")
stop = signal("stop")


@workflow
async def sleeps(ctx: WorkflowContext) -> None:
    await ctx.sleep("1d")
    async with asyncio.timeout(2 * 86_400):
        await ctx.wait_signal(go)


@workflow
def plain(ctx: SyncWorkflowContext) -> None:
    ctx.sleep("1d")
    ctx.wait_signal(go, timeout="2d")


@workflow
async def asks_twice(ctx: WorkflowContext) -> None:
    first = asyncio.ensure_future(ctx.wait_signal(go))
    await asyncio.gather(first, ctx.wait_signal(go), ctx.wait_signal(stop))


def line_of(body: Workflow[..., Any], number: int) -> str:
    """Return a line of a body, counted from its decorator."""
    function = body.function
    return f"test_wait.py:{function.__code__.co_firstlineno + number} in {function.__name__}"


def yields_of(model: Model, act: Callable[[], None]) -> list[Yielded]:
    """Play a run; return each of its yields, and let something happen after 2 days."""
    found: list[Yielded] = []
    ended = model.ended

    def note(holder: Holder, ending: Ending) -> None:
        if isinstance(ending, Yielded):
            found.append(ending)
        ended(holder, ending)

    model.ended = note  # type: ignore[method-assign]
    model.at(BEGUN_AT_MS + 2 * DAY_MS, act)
    model.play()
    return found


def test_a_timer_has_the_line_where_it_was_set_and_since_when() -> None:
    model = Model(sleeps)
    asleep, waiting = yields_of(model, lambda: model.signal("go", None))
    (sleep,) = asleep.waits
    assert (sleep.kind, sleep.line, sleep.since_ms) == ("timer", line_of(sleeps, 2), BEGUN_AT_MS)
    timeout, wait = waiting.waits
    assert (timeout.kind, timeout.line) == ("timer", line_of(sleeps, 3))
    assert (wait.kind, wait.key, wait.line) == ("signal", "go", line_of(sleeps, 4))
    # The body began to wait when its sleep ended, whenever it is asked.
    assert timeout.since_ms == wait.since_ms == model.journal[0].at_ms == BEGUN_AT_MS + DAY_MS


def test_a_plain_body_waits_at_its_own_lines() -> None:
    model = Model(plain)
    (sleep,), (timeout, wait) = (
        each.waits for each in yields_of(model, lambda: model.signal("go", None))
    )
    assert (sleep.line, sleep.since_ms) == (line_of(plain, 2), BEGUN_AT_MS)
    assert timeout.line == wait.line == line_of(plain, 3)
    assert timeout.since_ms == wait.since_ms == BEGUN_AT_MS + DAY_MS


def test_who_waits_for_a_signal_for_the_longest_speaks_for_all() -> None:
    model = Model(asks_twice)

    def answer() -> None:
        for name in ("go", "go", "stop"):
            model.signal(name, None)

    first = yields_of(model, answer)[0]
    # Tasks by themselves wait where the body waits for them.
    line = line_of(asks_twice, 3)
    assert [(each.key, each.line, each.since_ms) for each in first.waits] == [
        ("go", line, BEGUN_AT_MS),
        ("stop", line, BEGUN_AT_MS),
    ]
    assert first.wait_count == 2
