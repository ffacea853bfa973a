"""Workflows whose steps write a journal of what they do, and die where they are told to."""

from __future__ import annotations

import asyncio
import os
import signal
from datetime import UTC, datetime
from typing import Any, Final

from tenure import SyncWorkflowContext, WorkflowContext, workflow
from tenure import signal as make_signal
from tenure.sdk.transport.channel import Stream
from tenure.sdk.worker.connection.incarnation import Incarnation
from tenure.v1 import session_service_pb2 as pb
from tests.soak.sdk_activity import note

STEPS: Final = 10
POINTS: Final = ("begin", "ran", "sent", "recorded")
"""Where a worker may die: before a step, after it, with its report, with the acknowledgement."""

go_on = make_signal("go_on", int)
# The point at which this process dies, and the number of the step.
_death: tuple[str, int] = ("", 0)


def die_at(point: str, number: int) -> None:
    """Let this process die at a point of a step, as if it were killed then."""
    global _death  # noqa: PLW0603 (a process dies once)
    _death = (point, number)
    if point == "sent":
        _die_after_write(number)
    elif point == "recorded":
        _die_with_answer(number)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _die_after_write(number: int) -> None:
    write = Stream.write

    async def watched(self: Any, frame: Any) -> None:
        await write(self, frame)
        if isinstance(frame, pb.ClientFrame) and any(
            each.first_no == number for each in frame.steps
        ):
            _die()

    Stream.write = watched  # type: ignore[method-assign]


def _die_with_answer(number: int) -> None:
    take_entries = Incarnation.take_entries

    def watched(self: Incarnation, acks: Any, *others: Any) -> None:
        if any(ack.no == number for ack in acks):
            _die()
        take_entries(self, acks, *others)

    Incarnation.take_entries = watched  # type: ignore[method-assign, assignment]


async def take_step(number: int) -> int:
    """Do something that must show how often it was done."""
    return take_step_in_thread(number)


async def take_long_step(number: int, milliseconds: int) -> int:
    note("begin", str(number))
    await asyncio.sleep(milliseconds / 1_000)
    note("step", str(number))
    return number


@workflow
async def ten_steps(ctx: WorkflowContext) -> list[int]:
    """Take ten steps, one after the other."""
    return [await ctx.step(take_step, number) for number in range(1, STEPS + 1)]


def take_step_in_thread(number: int) -> int:
    """Do something that must show how often it was done, in a thread of the worker."""
    if _death == ("begin", number):
        _die()
    note("step", str(number))
    if _death == ("ran", number):
        _die()
    return number


@workflow
def plain_ten_steps(ctx: SyncWorkflowContext) -> list[int]:
    """Take ten steps, one after the other, in a body that is a plain function."""
    return [ctx.step(take_step_in_thread, number) for number in range(1, STEPS + 1)]


@workflow
async def steps_and_sleeps(ctx: WorkflowContext, rounds: int, milliseconds: int) -> list[int]:
    """Work and sleep in turns."""
    found = []
    for number in range(1, rounds + 1):
        found.append(await ctx.step(take_long_step, number, milliseconds))
        await ctx.sleep(milliseconds / 1_000)
    return found


@workflow
async def long_step(ctx: WorkflowContext, milliseconds: int) -> list[int]:
    """Take a long step between two short ones."""
    return [
        await ctx.step(take_step, 1),
        await ctx.step(take_long_step, 2, milliseconds),
        await ctx.step(take_step, 3),
    ]


@workflow
async def wait_often(ctx: WorkflowContext, times: int) -> int:
    """Wait for many signals, and clean up at the end."""
    total = 0
    try:
        for _ in range(times):
            total += await ctx.wait_signal(go_on)
    finally:
        await ctx.step(take_step, 1)
    return total


@workflow
def plain_wait_often(ctx: SyncWorkflowContext, times: int) -> int:
    """Wait for many signals, and clean up at the end, in a plain function."""
    total = 0
    try:
        for _ in range(times):
            total += ctx.wait_signal(go_on)
    finally:
        ctx.step(take_step_in_thread, 1)
    return total


@workflow
async def nap_until(ctx: WorkflowContext, until_s: float) -> int:
    """Sleep, then take a step."""
    await ctx.sleep_until(datetime.fromtimestamp(until_s, UTC))
    return await ctx.step(take_step, 1)


@workflow
async def sleep_and_wait(ctx: WorkflowContext, milliseconds: int) -> list[int]:
    """Sleep, and wait for a signal, between steps."""
    found = [await ctx.step(take_step, 1)]
    await ctx.sleep(milliseconds / 1_000)
    found.append(await ctx.step(take_step, 2))
    await ctx.wait_signal(go_on)
    return [*found, await ctx.step(take_step, 3)]


WORKFLOWS: Final = [
    ten_steps,
    plain_ten_steps,
    steps_and_sleeps,
    long_step,
    wait_often,
    plain_wait_often,
    nap_until,
    sleep_and_wait,
]
