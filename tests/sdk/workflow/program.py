"""Random workflows: every way in which asyncio lets branches run beside each other.

A program is a tree of nodes made from a seed. Each step returns the place that it was called from,
and the body looks whether it got its own. What happens is written down in its order, and that is
the result: two executions that agree in it have taken the same way.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Literal

from tenure.sdk.activity.decorator import activity
from tenure.sdk.failure import StepFailed, TaskFailed
from tenure.sdk.workflow.child import OnCancel
from tenure.sdk.workflow.context import WorkflowContext
from tenure.sdk.workflow.definition import Workflow, workflow
from tenure.sdk.workflow.signal import signal

Node = Callable[["State"], Awaitable[None]]
Leaves = list[Callable[[random.Random, str], Node]]
End = Literal["returns", "fails", "is cancelled"]
ping = signal("ping", int)


class WrongValue(AssertionError):
    """A call got the value of another one."""


class State:
    """What one execution of a program shares."""

    def __init__(self, ctx: WorkflowContext) -> None:
        self.ctx = ctx
        self.story: list[str] = []
        self.lock = asyncio.Lock()
        self.calls = 0

    async def step(self, place: str) -> None:
        """Call a step, and look at what comes back."""
        self.calls += 1
        sent = f"{place}.{self.calls}"
        got = await self.ctx.step(echo, sent)
        if got != sent:
            raise WrongValue(f"{sent} got {got}")
        self.story.append(f"step {sent}")


def echo(text: str) -> str:
    return text


def refuse(text: str) -> str:
    raise ValueError(text)


@activity(start_to_close="30s")
def queued_echo(text: str) -> str:
    return text


@activity(start_to_close="30s")
def queued_refuse(text: str) -> str:
    if text.endswith("1"):
        raise ValueError(text)
    return text


@workflow
async def child_echo(ctx: WorkflowContext, text: str) -> str:
    return await ctx.step(echo, text)


CODE = (queued_echo, queued_refuse, child_echo)


def make(
    seed: int, *, depth: int = 3, end: End = "returns", is_alone: bool = False
) -> Workflow[..., list[str]]:
    """Return the program of a seed: how deep its branches go, and how it ends if it can.

    One that is alone calls nothing elsewhere, and has one turn.
    """
    chance = random.Random(f"program {seed}")
    root = _node(chance, depth, "r", _ALONE if is_alone else _LEAVES)
    turns = 1 if is_alone else chance.choice((1, 1, 1, 2))

    @workflow(name=f"program-{seed}")
    async def body(ctx: WorkflowContext, turn: int = 1) -> list[str]:
        state = State(ctx)
        try:
            await root(state)
        except asyncio.CancelledError:
            state.story.append("cancelled")
            await state.step("clean-up")
            if end == "is cancelled":
                raise
        if turn < turns:
            ctx.continue_as_new(turn + 1)
        if end == "fails":
            raise ValueError(f"program {seed} fails")
        return state.story

    return body


def _node(chance: random.Random, depth: int, place: str, leaves: Leaves) -> Node:
    if depth == 0:
        return chance.choice(leaves)(chance, place)
    count = chance.randrange(1, 4)
    parts = [_node(chance, depth - 1, f"{place}{number}", leaves) for number in range(count)]
    return chance.choice(_BRANCHES)(chance, parts, place)


# -- Leaves


def _step(_chance: random.Random, place: str) -> Node:
    return lambda state: state.step(place)


def _steps_at_once(_chance: random.Random, place: str) -> Node:
    async def run(state: State) -> None:
        calls = [state.ctx.step(echo, f"{place}{number}") for number in range(3)]
        for call in asyncio.as_completed(calls):
            state.story.append(f"first {await call}")

    return run


def _failing_step(_chance: random.Random, place: str) -> Node:
    async def run(state: State) -> None:
        try:
            await state.ctx.step(refuse, place)
        except StepFailed as error:
            if place not in str(error):
                raise WrongValue(f"{place} got {error}") from None
            state.story.append(f"refused {place}")

    return run


def _sleep(chance: random.Random, place: str) -> Node:
    seconds = chance.choice((0.0, 0.02, 0.1, 3.0))

    async def run(state: State) -> None:
        await asyncio.sleep(seconds)
        state.story.append(f"slept {place} {state.ctx.now().timestamp():.3f}")

    return run


def _signal(chance: random.Random, place: str) -> Node:
    timeout = chance.choice(("20ms", "2s"))

    async def run(state: State) -> None:
        try:
            value = await state.ctx.wait_signal(ping, timeout=timeout)
            state.story.append(f"signal {place} {value}")
        except TimeoutError:
            state.story.append(f"no signal {place}")

    return run


def _execute(chance: random.Random, place: str) -> Node:
    on_cancel: OnCancel = chance.choice(("try", "wait", "abandon"))

    async def run(state: State) -> None:
        got = await state.ctx.execute(queued_echo, place, on_cancel=on_cancel)
        if got != place:
            raise WrongValue(f"{place} got {got}")
        state.story.append(f"executed {place}")

    return run


def _executes_at_once(_chance: random.Random, place: str) -> Node:
    async def run(state: State) -> None:
        calls = [state.ctx.execute(queued_echo, f"{place}{number}") for number in range(3)]
        for call in asyncio.as_completed(calls):
            state.story.append(f"first {await call}")

    return run


def _failing_task(_chance: random.Random, place: str) -> Node:
    async def run(state: State) -> None:
        try:
            await state.ctx.execute(queued_refuse, f"{place}1")
        except TaskFailed as error:
            if f"{place}1" not in str(error):
                raise WrongValue(f"{place} got {error}") from None
            state.story.append(f"refused {place}")

    return run


def _child(chance: random.Random, place: str) -> Node:
    is_signalled = chance.random() < 0.5

    async def run(state: State) -> None:
        child = state.ctx.child(child_echo, place)
        if is_signalled:
            await child.signal(ping, 1)
        got = await child
        if got != place:
            raise WrongValue(f"{place} got {got}")
        state.story.append(f"child {place} {child.id}")

    return run


def _map(chance: random.Random, place: str) -> Node:
    items = [f"{place}.{number}" for number in range(chance.randrange(6))]

    async def run(state: State) -> None:
        done = await state.ctx.map(queued_refuse, items, on_error="collect")
        async for item, value in done:
            is_right = item in str(value)
            if not is_right:
                raise WrongValue(f"{item} got {value}")
            state.story.append(f"item {item} {type(value).__name__}")

    return run


def _failing_map(_chance: random.Random, place: str) -> Node:
    async def run(state: State) -> None:
        try:
            await state.ctx.map(queued_refuse, [f"{place}{number}" for number in range(3)])
        except TaskFailed:
            state.story.append(f"map {place} failed")

    return run


def _patched(_chance: random.Random, place: str) -> Node:
    async def run(state: State) -> None:
        if state.ctx.patched(f"p{place}"):
            await state.step(f"{place}new")
        else:
            await state.ctx.sleep("10ms")

    return run


# -- Branches


def _sequence(_chance: random.Random, parts: list[Node], _place: str) -> Node:
    async def run(state: State) -> None:
        for part in parts:
            await part(state)

    return run


def _gather(_chance: random.Random, parts: list[Node], _place: str) -> Node:
    async def run(state: State) -> None:
        await asyncio.gather(*(part(state) for part in parts))

    return run


def _task_group(_chance: random.Random, parts: list[Node], _place: str) -> Node:
    async def run(state: State) -> None:
        async with asyncio.TaskGroup() as group:
            for part in parts:
                group.create_task(_coroutine(part, state))

    return run


def _first_of(_chance: random.Random, parts: list[Node], place: str) -> Node:
    async def run(state: State) -> None:
        tasks = [asyncio.create_task(_coroutine(part, state), name=place) for part in parts]
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        state.story.append(f"{place} first {sorted(tasks.index(each) for each in done)}")
        for task in pending:
            task.cancel()
        ends = await asyncio.gather(*pending, return_exceptions=True)
        state.story.append(f"{place} rest {[type(end).__name__ for end in ends]}")
        for task in done:
            task.result()

    return run


def _timeout(chance: random.Random, parts: list[Node], place: str) -> Node:
    seconds = chance.choice((0.01, 0.1, 1.0))

    async def run(state: State) -> None:
        try:
            async with asyncio.timeout(seconds):
                for part in parts:
                    await part(state)
        except TimeoutError:
            state.story.append(f"{place} timeout")

    return run


def _locked(_chance: random.Random, parts: list[Node], place: str) -> Node:
    async def one(state: State, part: Node, number: int) -> None:
        await part(state)
        async with state.lock:
            await state.step(f"{place}{number}")

    async def run(state: State) -> None:
        await asyncio.gather(*(one(state, part, number) for number, part in enumerate(parts)))

    return run


def _queue(_chance: random.Random, parts: list[Node], place: str) -> Node:
    async def run(state: State) -> None:
        queue: asyncio.Queue[int] = asyncio.Queue(1)

        async def produce(number: int, part: Node) -> None:
            await part(state)
            await queue.put(number)

        async def consume() -> None:
            for _ in parts:
                state.story.append(f"{place} item {await queue.get()}")
                await state.step(place)

        await asyncio.gather(consume(), *(produce(n, part) for n, part in enumerate(parts)))

    return run


def _cancelled(chance: random.Random, parts: list[Node], place: str) -> Node:
    seconds = chance.choice((0.0, 0.05, 0.3))

    async def run(state: State) -> None:
        task = asyncio.create_task(_coroutine(parts[0], state))
        await asyncio.sleep(seconds)
        task.cancel()
        (end,) = await asyncio.gather(task, return_exceptions=True)
        state.story.append(f"{place} ended {type(end).__name__}")
        for part in parts[1:]:
            await part(state)

    return run


def _shielded(_chance: random.Random, parts: list[Node], place: str) -> Node:
    async def run(state: State) -> None:
        task = asyncio.create_task(_coroutine(parts[0], state))
        try:
            async with asyncio.timeout(0.05):
                await asyncio.shield(task)
        except TimeoutError:
            state.story.append(f"{place} late")
            await task
        for part in parts[1:]:
            await part(state)

    return run


def _finally(_chance: random.Random, parts: list[Node], place: str) -> Node:
    async def run(state: State) -> None:
        try:
            for part in parts:
                await part(state)
        finally:
            await state.step(f"{place}f")

    return run


async def _coroutine(part: Node, state: State) -> None:
    await part(state)


_ALONE: Leaves = [_step, _step, _steps_at_once, _failing_step, _sleep, _signal, _patched]
_LEAVES: Leaves = [
    _step,
    _step,
    _steps_at_once,
    _failing_step,
    _sleep,
    _signal,
    _execute,
    _execute,
    _executes_at_once,
    _failing_task,
    _child,
    _map,
    _failing_map,
    _patched,
]
_BRANCHES: list[Callable[[random.Random, list[Node], str], Node]] = [
    _sequence,
    _gather,
    _task_group,
    _first_of,
    _timeout,
    _locked,
    _queue,
    _cancelled,
    _shielded,
    _finally,
]
