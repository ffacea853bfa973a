"""What a body cannot do is refused with its line; what it can do is the same on each re-run."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tenure.sdk.workflow.context import WorkflowContext
from tenure.sdk.workflow.definition import workflow
from tenure.sdk.workflow.ending import Raised, Returned
from tenure.sdk.workflow.guard import NotDurable
from tenure.sdk.workflow.signal import signal
from tests.sdk.workflow.model import Model

go = signal("go", int)


def one() -> int:
    return 1


async def connect() -> None:
    await asyncio.open_connection("127.0.0.1", 9)


async def block() -> None:
    time.sleep(0.001)  # noqa: ASYNC251 (what is refused)


async def dial() -> None:
    with socket.socket() as dialled:
        dialled.connect(("127.0.0.1", 9))


async def spawn() -> None:
    subprocess.Popen([sys.executable, "-c", ""])  # noqa: ASYNC220 (what is refused)


async def use_a_thread() -> None:
    await asyncio.to_thread(one)


async def await_another_loop() -> None:
    loop = asyncio.new_event_loop()
    try:
        await loop.create_future()
    finally:
        loop.close()


async def race_coroutines() -> None:
    coroutines = [use_a_thread(), use_a_thread()]
    try:
        for each in asyncio.as_completed(coroutines):
            await each
    finally:
        for coroutine in coroutines:
            coroutine.close()


@pytest.mark.parametrize(
    ("do", "what"),
    [
        (connect, "in connect uses "),
        (block, "in block blocks the thread (time.sleep): await ctx.sleep(…) instead"),
        (dial, "in dial connects a socket (socket.connect)"),
        (spawn, "in spawn starts a process (subprocess.Popen)"),
        (use_a_thread, "in use_a_thread uses a thread (loop.run_in_executor)"),
        (await_another_loop, "in await_another_loop uses a future of another event loop"),
    ],
    ids=lambda each: getattr(each, "__name__", None),
)
def test_what_would_not_survive_is_refused_with_its_line(
    do: Callable[[], Awaitable[None]], what: str
) -> None:
    @workflow
    async def body(_ctx: WorkflowContext) -> None:
        await do()

    ending = Model(body).play()

    assert isinstance(ending, Raised)
    assert isinstance(ending.error, NotDurable)
    assert "test_loop.py:" in str(ending.error)
    assert what in str(ending.error)


def test_coroutines_without_an_order_are_refused() -> None:
    @workflow
    async def body(_ctx: WorkflowContext) -> None:
        await race_coroutines()

    ending = Model(body).play()

    assert isinstance(ending, Raised)
    assert "asyncio.as_completed" in str(ending.error)


def test_the_user_s_own_code_may_block_outside_of_a_body() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> None:
        await ctx.step(one)

    Model(body).play()
    time.sleep(0)


def test_random_numbers_and_ids_are_the_same_on_each_re_run() -> None:
    seen: list[tuple[float, str, float]] = []

    @workflow
    async def body(ctx: WorkflowContext) -> None:
        seen.append((ctx.random().random(), str(ctx.uuid4()), ctx.now().timestamp()))
        await ctx.sleep("1h")
        seen.append((ctx.random().random(), str(ctx.uuid4()), ctx.now().timestamp()))
        await ctx.wait_signal(go)

    model = Model(body)
    for hour in (2, 3, 4):
        model.at(model.now_ms + hour * 3_600_000 - 1, lambda: model.hand_out(is_cold=True))
    model.at(model.now_ms + 5 * 3_600_000, lambda: model.signal("go", 1))
    model.play()

    assert len(set(seen)) == 2
    assert len(seen) > 4


def test_a_line_of_the_log_is_written_once(caplog: pytest.LogCaptureFixture) -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> None:
        ctx.log.warning("order %d", 7)
        await ctx.step(one)
        await ctx.step(one)

    model = Model(body)
    model.on_recorded = lambda entry: model.crash() if entry.pos < 3 else None
    model.play()

    assert [each.message for each in caplog.records] == [f"body {model.identity.run_id}: order 7"]


def test_a_clean_up_step_runs_once_however_often_the_run_is_put_aside(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> int:
        try:
            return await ctx.wait_signal(go)
        finally:
            await ctx.step(one)

    model = Model(body)
    for minute in range(50):
        at_ms = model.now_ms + (minute + 1) * 60_000
        model.at(at_ms, lambda: model.hand_out(is_cold=True))
    model.at(model.now_ms + 3_600_000, lambda: model.signal("go", 3))

    assert model.result() == 3
    assert model.executions == {"one": 1}
    assert not caplog.records


def test_steps_in_a_generator_that_nobody_closes_are_refused() -> None:
    problems: list[NotDurable] = []

    async def numbers(ctx: WorkflowContext) -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            try:
                await ctx.step(one)
            except NotDurable as error:
                problems.append(error)

    @workflow
    async def body(ctx: WorkflowContext) -> None:
        async for _ in numbers(ctx):
            break
        await ctx.step(one)

    assert isinstance(Model(body).play(), Returned)
    assert "aclosing" in str(problems[0])


def test_a_named_branch_keeps_its_keys_when_others_come_and_go() -> None:
    orders = ["a", "b"]

    @workflow
    async def body(ctx: WorkflowContext) -> None:
        await asyncio.gather(*(ship(ctx.branch(each)) for each in orders))

    async def ship(ctx: WorkflowContext) -> None:
        await ctx.step(one)

    model = Model(body)
    model.play()

    assert sorted(each.key for each in model.journal) == ["a/one", "b/one"]


def test_a_branch_needs_a_name_of_its_own() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> None:
        ctx.branch("a")
        ctx.branch("a")

    ending = Model(body).play()

    assert isinstance(ending, Raised)
    assert "there is a branch 'a' already" in str(ending.error)


def test_a_context_outside_of_its_body_says_so() -> None:
    kept: list[WorkflowContext] = []
    problems: list[str] = []

    @workflow
    async def body(ctx: WorkflowContext) -> int:
        kept.append(ctx)
        return await ctx.wait_signal(go)

    def misuse() -> None:
        with pytest.raises(RuntimeError, match="only in the body") as caught:
            kept[0].step(one)
        problems.append(str(caught.value))
        model.signal("go", 1)

    model = Model(body)
    model.at(model.now_ms + 1_000, misuse)

    assert model.result() == 1
    assert "test_loop.py:" in problems[0]
