"""gRPC through a process that speaks it for one that cannot."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tenure import Client
from tenure.errors import NotFound, Unavailable
from tenure.sdk.transport import fork_guard
from tests.bounds import WORK_S
from tests.polling import eventually
from tests.sdk.client.stage import RawWorker, ServerStage, double

UNKNOWN_ID = "0190c2ad-c23e-7232-8b43-2789e93f4cff"


@pytest.fixture
async def client(stage: ServerStage, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    """A client that takes this process for the child of one with gRPC."""
    monkeypatch.setattr(fork_guard, "needs_relay", lambda: True)
    async with Client(stage.target) as made:
        yield made


def relays() -> list[int]:
    """Return the relay processes of this one."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    found = []
    for child in children:
        command = Path(f"/proc/{child}/cmdline")
        if command.exists() and b"tenure.sdk.transport.relay" in command.read_bytes():
            found.append(int(child))
    return found


@pytest.mark.usefixtures("worker")
async def test_tasks_are_enqueued_and_results_come_back(client: Client) -> None:
    results = await asyncio.gather(*(client.run(double, n) for n in range(300)))
    assert results == [2 * n for n in range(300)]
    assert len([each async for each in client.list()]) == 300
    assert len(relays()) == 1


async def test_refusals_are_as_typed_as_without_it(client: Client) -> None:
    with pytest.raises(NotFound):
        await client.handle(UNKNOWN_ID).describe()
    with pytest.raises(NotFound):
        await client.handle(UNKNOWN_ID).result()


async def test_a_server_that_is_away_is_named_and_found_again(
    stage: ServerStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fork_guard, "needs_relay", lambda: True)
    await stage.stop()
    async with Client(stage.target, timeout="1s") as client:
        with pytest.raises(Unavailable, match="No server answers at"):
            await client.enqueue(double, 1)
    await stage.start()
    async with Client(stage.target) as client:
        handle = await client.enqueue(double, 1)
        waiting = asyncio.ensure_future(handle.result())
        await eventually(lambda: stage.watched_count == 1)
        await stage.stop()
        await stage.start()
        async with RawWorker(stage.target), asyncio.timeout(WORK_S):
            assert await waiting == 2


async def test_a_relay_that_died_is_started_again(client: Client, stage: ServerStage) -> None:
    handle = await client.enqueue(double, 1)
    waiting = asyncio.ensure_future(handle.result())
    await eventually(lambda: stage.watched_count == 1)
    (first,) = relays()
    os.kill(first, signal.SIGKILL)
    async with RawWorker(stage.target), asyncio.timeout(WORK_S):
        assert await waiting == 2
        assert await client.run(double, 2) == 4
    assert relays() != [first]


async def test_a_wait_that_is_cancelled_leaves_nothing_at_the_server(
    client: Client, stage: ServerStage
) -> None:
    handle = await client.enqueue(double, 1)
    waiting = asyncio.ensure_future(handle.result())
    await eventually(lambda: stage.watched_count == 1)
    waiting.cancel()
    await eventually(lambda: stage.watched_count == 0)
    await client.close()
    assert relays() == []
