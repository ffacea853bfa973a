"""Calls with new work that are let in wait for those that nobody has seen yet, and not for long."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest

from tenure.api.guard.rate_limit import Allowance
from tenure.api.rpc.reading_turns import ReadingTurns
from tenure.core import limits
from tests.api.rpc.wire import open_wire, refused
from tests.engine.world import Clock, World
from tests.polling import eventually

ENDLESS = 1_000_000


async def test_calls_pass_at_once_while_there_was_a_pause_just_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "QUIET_NAPS", ENDLESS)
    clock = Clock()
    turns = ReadingTurns(clock)
    clock.advance(limits.READING_MS - 1)
    async with asyncio.timeout(5):
        for _ in range(3):
            assert await turns.is_passed()


async def test_reading_pauses_for_as_long_as_calls_keep_coming(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    turns = ReadingTurns(clock)
    clock.advance(limits.READING_MS)
    waiting = asyncio.create_task(turns.is_passed())
    loop = asyncio.get_running_loop()
    ends_at_s = loop.time() + 10 * limits.QUIET_NAPS * limits.QUIET_NAP_MS / 1_000
    while loop.time() < ends_at_s:
        turns.arrived()
        await asyncio.sleep(0)
    assert not waiting.done()
    assert await waiting
    # The next ones need no pause of their own.
    monkeypatch.setattr(limits, "QUIET_NAPS", ENDLESS)
    async with asyncio.timeout(5):
        assert await turns.is_passed()


async def test_a_pause_ends_even_if_calls_never_stop_coming(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "QUIET_NAPS", ENDLESS)
    clock = Clock()
    turns = ReadingTurns(clock)
    clock.advance(limits.READING_MS)
    waiting = asyncio.create_task(turns.is_passed())
    await asyncio.sleep(0.005)
    assert not waiting.done()
    clock.advance(limits.READING_PAUSE_MS)
    async with asyncio.timeout(5):
        assert await waiting


async def test_a_call_that_waited_too_long_is_refused_and_changes_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A pause that only ends with time, which the test moves.
    monkeypatch.setattr(limits, "QUIET_NAPS", ENDLESS)
    engine = await world.start()
    allowance = Allowance(engine.clock)
    async with open_wire(engine, allowance=allowance) as wire:
        await wire.enqueue()
        before = await world.dump()
        with ExitStack() as stack:
            for _ in range(limits.CROWD_MIN):
                stack.enter_context(allowance.admission.work())
            world.clock.advance(limits.READING_MS)
            call = asyncio.create_task(refused(wire.enqueue()))
            await eventually(lambda: allowance.admission.open_count == limits.CROWD_MIN + 1)
            world.clock.advance(limits.OVERLOAD_WAIT_MS + 1)
            status, refusal = await call
        assert (status, refusal.code) == ("RESOURCE_EXHAUSTED", "rate_limited")
        assert refusal.retry_after_ms == limits.OVERLOAD_RETRY_MS
        assert allowance.admission.refused_count == 1
        assert await world.dump() == before
        await wire.enqueue()
