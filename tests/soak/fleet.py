"""Thousands of workers in sessions on one server: nobody is judged, heartbeats are quick."""

from __future__ import annotations

import asyncio
import time
from typing import Final

import msgspec

from tests.polling import eventually
from tests.soak.process_usage import Usage, usage_of
from tests.soak.result import Result
from tests.soak.scene import SCALES, Scale, on_both_stores
from tests.wire import checker
from tests.wire.client import Client, make_task
from tests.wire.journal import Line, Tail
from tests.wire.process import Process
from tests.wire.stage import Stage

FOREVER_MS: Final = 7_200_000
P99_MS: Final = 500.0
PROCESSES: Final = 2
SETTLE_S: Final = 5.0
CHUNK: Final = 500


class Size(msgspec.Struct, frozen=True):
    """How many workers with how many tasks each, and for how long each fleet is watched."""

    fleets: tuple[tuple[int, float], ...]
    held: int
    scale: Scale


SIZES: Final = {
    False: Size(((500, 60.0), (1_000, 60.0), (2_000, 300.0)), 20, SCALES[False]),
    True: Size(((20, 3.0),), 5, SCALES[True]),
}


async def run(small: bool) -> list[Result]:
    """Watch fleets of growing size, each on a server of its own, on both stores."""
    size = SIZES[small]
    results: list[Result] = []
    for count, seconds in size.fleets:

        async def scene(
            stage: Stage, dialect: str, count: int = count, seconds: float = seconds
        ) -> list[Result]:
            return await _Fleet(stage, size, count).play(dialect, seconds)

        results += await on_both_stores(size.scale, scene)
    return results


class _Fleet:
    """One fleet on one server."""

    def __init__(self, stage: Stage, size: Size, count: int) -> None:
        self._stage = stage
        self._size = size
        self._count = count
        self._tails: list[Tail] = []

    async def play(self, dialect: str, seconds: float) -> list[Result]:
        server = await self._stage.server()
        client = await self._stage.client(server.grpc)
        await client.workers()
        empty = usage_of(server.process.pid)
        processes = [await self._start(server.grpc, number) for number in range(PROCESSES)]
        try:
            await self._load(client)
            # Confirmations are over, and every worker has beaten.
            await asyncio.sleep(SETTLE_S * (self._size.scale.session_lease_s / 15))
            before = usage_of(server.process.pid)
            await asyncio.sleep(seconds)
            after = usage_of(server.process.pid)
            online = len(await client.workers("ONLINE"))
        finally:
            for process in processes:
                await process.kill()
        return self._judge(f"fleet, {dialect}", (empty, before, after), online)

    async def _start(self, target: str, number: int) -> Process:
        journal = self._stage.folder / f"fleet-{number}.jsonl"
        share = self._count // PROCESSES
        process = await Process.spawn(
            (
                *("-m", "tests.wire.many_workers", "--target", target, "--workers", str(share)),
                *("--slots", str(self._size.held), "--journal", str(journal)),
            ),
            self._stage.folder / f"fleet-{number}.log",
        )
        self._tails.append(Tail(journal))
        return process

    def _of(self, *events: str) -> list[Line]:
        return [line for tail in self._tails for line in tail.of(*events)]

    async def _load(self, client: Client) -> None:
        """Let every worker in, and give each as many tasks as it takes."""
        patience_s = 60.0 + self._count / 10
        await eventually(
            lambda: len(self._of("welcomed")) >= self._count, "all sessions", within_s=patience_s
        )
        whole = self._count * self._size.held
        for start in range(0, whole, CHUNK):
            amount = min(CHUNK, whole - start)
            await client.enqueue([make_task(FOREVER_MS) for _ in range(amount)])
        deadline = time.monotonic() + patience_s
        while len(self._of("start")) < whole:
            assert time.monotonic() < deadline, f"{len(self._of('start'))} of {whole} started"
            await asyncio.sleep(0.5)

    def _judge(self, name: str, usages: tuple[Usage, Usage, Usage], online: int) -> list[Result]:
        empty, before, after = usages
        beats = sorted(
            float(line.text)
            for line in self._of("beat")
            if before.at_s <= line.mono_s <= after.at_s
        )
        p99_ms = beats[int(len(beats) * 0.99)]
        seconds = after.at_s - before.at_s
        judged = checker.check_calm(self._of("over", "odd"))
        broken = len(self._of("disconnected"))
        held = self._size.held
        name = f"{name}: {self._count:,} workers with {held} tasks each, {seconds:.0f} s"
        cpu = (after.cpu_s - before.cpu_s) / seconds
        memory = after.memory_bytes - empty.memory_bytes
        return [
            Result(
                f"{name}: judgement",
                "nobody judged",
                f"{len(judged)} judged, {online:,} online, {broken} connections lost",
                held=not judged and online == self._count,
                details=tuple(judged),
            ),
            Result(
                f"{name}: heartbeats",
                f"p99 under {P99_MS:.0f} ms",
                f"p99 {p99_ms:.1f} ms, median {beats[len(beats) // 2]:.1f} ms, "
                f"longest {beats[-1]:.1f} ms of {len(beats):,}",
                held=p99_ms < P99_MS * self._size.scale.slack,
            ),
            Result(
                f"{name}: cost of the server",
                "reported",
                f"{100 * cpu:.1f} % of a core ({1e6 * cpu / self._count:.0f} µs per worker and "
                f"second), {after.memory_bytes / 2**20:.0f} MiB "
                f"({memory / self._count / 1024:.0f} KiB per worker)",
            ),
        ]
