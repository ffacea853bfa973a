"""Random workflows that are plain functions: every way in which they run calls beside each other.

Like those of ``tests/sdk/workflow/program.py``: each call returns the place that it was made at,
and what happens is the result.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from tenure.sdk.failure import StepFailed, TaskFailed
from tenure.sdk.workflow.child import OnCancel
from tenure.sdk.workflow.definition import Workflow, workflow
from tenure.sdk.workflow.sync.context import SyncWorkflowContext
from tenure.sdk.workflow.sync.results import SyncResults
from tenure.sdk.workflow.sync.step import SyncStep
from tests.sdk.workflow.program import (
    WrongValue,
    child_echo,
    echo,
    ping,
    queued_echo,
    queued_refuse,
    refuse,
)

Node = Callable[["State"], None]


class State:
    """What one execution of a program shares, or one branch of it."""

    def __init__(self, ctx: SyncWorkflowContext, story: list[str], numbers: list[int]) -> None:
        self.ctx = ctx
        self.story = story
        self.numbers = numbers

    def step(self, place: str) -> None:
        """Call a step, and look at what comes back."""
        self.numbers[0] += 1
        sent = f"{place}.{self.numbers[0]}"
        self.check(sent, self.ctx.step(echo, sent))
        self.story.append(f"step {sent}")

    def check(self, sent: str, got: object) -> None:
        """Look whether a call got its own value."""
        if got != sent:
            raise WrongValue(f"{sent} got {got}")

    def branch(self, name: str) -> State:
        """Return what a branch shares."""
        return State(self.ctx.branch(name), self.story, self.numbers)


def make(seed: int, *, depth: int = 3) -> Workflow[..., list[str]]:
    """Return the program of a seed."""
    chance = random.Random(f"plain program {seed}")
    root = _node(chance, depth, "r")
    turns = chance.choice((1, 1, 1, 2))

    @workflow(name=f"plain-program-{seed}")
    def body(ctx: SyncWorkflowContext, turn: int = 1) -> list[str]:
        state = State(ctx, [], [0])
        try:
            root(state)
        except asyncio.CancelledError:
            state.story.append("cancelled")
            state.step("clean-up")
            ctx.sleep("1s")
            state.step("clean-up")
        if turn < turns:
            ctx.continue_as_new(turn + 1)
        return state.story

    return body


def _node(chance: random.Random, depth: int, place: str) -> Node:
    if depth == 0:
        return chance.choice(_LEAVES)(chance, place)
    count = chance.randrange(1, 4)
    parts = [_node(chance, depth - 1, f"{place}{number}") for number in range(count)]
    return chance.choice(_BRANCHES)(chance, parts, place)


# -- Leaves


def _step(_chance: random.Random, place: str) -> Node:
    return lambda state: state.step(place)


def _failing_step(_chance: random.Random, place: str) -> Node:
    def run(state: State) -> None:
        try:
            state.ctx.step(refuse, place)
        except StepFailed as error:
            if place not in str(error):
                raise WrongValue(f"{place} got {error}") from None
            state.story.append(f"refused {place}")

    return run


def _sleep(chance: random.Random, place: str) -> Node:
    duration = chance.choice(("0s", "20ms", "100ms", "3s"))

    def run(state: State) -> None:
        state.ctx.sleep(duration)
        state.story.append(f"slept {place} {state.ctx.now().timestamp():.3f}")

    return run


def _signal(chance: random.Random, place: str) -> Node:
    timeout = chance.choice(("20ms", "2s"))

    def run(state: State) -> None:
        unread = state.ctx.unread(ping)
        try:
            value = state.ctx.wait_signal(ping, timeout=timeout)
            state.story.append(f"signal {place} {value} of {unread}")
        except TimeoutError:
            state.story.append(f"no signal {place}")

    return run


def _execute(chance: random.Random, place: str) -> Node:
    on_cancel: OnCancel = chance.choice(("try", "wait", "abandon"))

    def run(state: State) -> None:
        state.check(place, state.ctx.execute(queued_echo, place, on_cancel=on_cancel))
        state.story.append(f"executed {place}")

    return run


def _failing_task(_chance: random.Random, place: str) -> Node:
    def run(state: State) -> None:
        try:
            state.ctx.execute(queued_refuse, f"{place}1")
        except TaskFailed as error:
            if f"{place}1" not in str(error):
                raise WrongValue(f"{place} got {error}") from None
            state.story.append(f"refused {place}")

    return run


def _child(chance: random.Random, place: str) -> Node:
    is_signalled = chance.random() < 0.5

    def run(state: State) -> None:
        child = state.ctx.begin(child_echo, place)
        if is_signalled:
            child.signal(ping, 1)
        state.check(place, child.result())
        state.story.append(f"child {place} {child.id}")

    return run


def _map(chance: random.Random, place: str) -> Node:
    items = [f"{place}.{number}" for number in range(chance.randrange(6))]
    is_in_step = chance.random() < 0.3

    def run(state: State) -> None:
        done = state.ctx.map(queued_refuse, items, on_error="collect")
        if is_in_step:
            state.story.append(state.ctx.step(names_in, done))
            return
        for item, value in done:
            if item not in str(value):
                raise WrongValue(f"{item} got {value}")
            state.story.append(f"item {item} {type(value).__name__}")

    return run


def names_in(done: SyncResults[Any]) -> str:
    return " ".join(type(value).__name__ for value in done.list())


def _failing_map(_chance: random.Random, place: str) -> Node:
    def run(state: State) -> None:
        try:
            state.ctx.map(queued_refuse, (f"{place}{number}" for number in range(3)))
        except TaskFailed:
            state.story.append(f"map {place} failed")

    return run


def _patched(_chance: random.Random, place: str) -> Node:
    def run(state: State) -> None:
        if state.ctx.patched(f"p{place}"):
            state.step(f"{place}new")
        else:
            state.ctx.sleep("10ms")

    return run


def _chance_and_log(_chance: random.Random, place: str) -> Node:
    def run(state: State) -> None:
        state.ctx.log.info("at %s", place)
        state.ctx.progress(50, place)
        state.story.append(f"chance {state.ctx.uuid4()} {state.ctx.random().random()}")

    return run


# -- Branches: ``begin`` a call for each part, do the parts, and look what became of the calls.


def _begin(state: State, chance_name: str, place: str, number: int) -> SyncStep[str]:
    sent = f"{place}{number}"
    if chance_name == "queued":
        return state.ctx.begin(queued_echo, sent)
    if chance_name == "child":
        return state.ctx.begin(child_echo, sent)
    return state.ctx.begin(echo, sent)


def _kinds(chance: random.Random, parts: list[Node]) -> list[str]:
    return [chance.choice(("local", "queued", "child")) for _ in parts]


def _sequence(_chance: random.Random, parts: list[Node], _place: str) -> Node:
    def run(state: State) -> None:
        for part in parts:
            part(state)

    return run


def _gather(chance: random.Random, parts: list[Node], place: str) -> Node:
    kinds = _kinds(chance, parts)

    def run(state: State) -> None:
        calls = [_begin(state, kind, place, number) for number, kind in enumerate(kinds)]
        for part in parts:
            part(state)
        got = state.ctx.gather(*calls)
        state.check(str([f"{place}{number}" for number in range(len(kinds))]), str(got))
        state.story.append(f"gathered {place}")

    return run


def _first_of(chance: random.Random, parts: list[Node], place: str) -> Node:
    kinds = _kinds(chance, parts)

    def run(state: State) -> None:
        calls = [_begin(state, kind, place, number) for number, kind in enumerate(kinds)]
        done, pending = state.ctx.wait(calls, return_when="first")
        state.story.append(f"{place} first {[each.result() for each in done]}")
        for part in parts:
            part(state)
        for call in pending:
            call.cancel()
        ends = state.ctx.gather(*pending, return_exceptions=True)
        state.story.append(f"{place} rest {[type(end).__name__ for end in ends]}")

    return run


def _in_time(chance: random.Random, parts: list[Node], place: str) -> Node:
    timeout = chance.choice(("10ms", "100ms", "1s"))
    kinds = _kinds(chance, parts)

    def run(state: State) -> None:
        for number, part in enumerate(parts):
            call = _begin(state, kinds[number], place, number)
            part(state)
            try:
                state.check(f"{place}{number}", call.result(timeout=timeout))
            except TimeoutError:
                state.story.append(f"{place} late")
                call.cancel()

    return run


def _all_in_time(chance: random.Random, parts: list[Node], place: str) -> Node:
    timeout = chance.choice(("10ms", "100ms", "1s"))
    kinds = _kinds(chance, parts)

    def run(state: State) -> None:
        calls = [_begin(state, kind, place, number) for number, kind in enumerate(kinds)]
        done, pending = state.ctx.wait(calls, timeout=timeout)
        state.story.append(f"{place} in time {[calls.index(each) for each in done]}")
        for part in parts:
            part(state)
        for call in pending:
            state.check(f"{place}{calls.index(call)}", call.result())

    return run


def _branches(_chance: random.Random, parts: list[Node], place: str) -> Node:
    def run(state: State) -> None:
        for number, part in enumerate(parts):
            part(state.branch(f"{place}-{number}"))

    return run


def _finally(_chance: random.Random, parts: list[Node], place: str) -> Node:
    def run(state: State) -> None:
        try:
            for part in parts:
                part(state)
        finally:
            state.step(f"{place}f")
            state.ctx.sleep("20ms")

    return run


_LEAVES: list[Callable[[random.Random, str], Node]] = [
    _step,
    _step,
    _failing_step,
    _sleep,
    _signal,
    _execute,
    _failing_task,
    _child,
    _map,
    _failing_map,
    _patched,
    _chance_and_log,
]
_BRANCHES: list[Callable[[random.Random, list[Node], str], Node]] = [
    _sequence,
    _gather,
    _first_of,
    _in_time,
    _all_in_time,
    _branches,
    _finally,
]
