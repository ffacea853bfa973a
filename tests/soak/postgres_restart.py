"""An immediate restart of PostgreSQL under load: what was acknowledged is there."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Final

import msgspec

from tests.chaos import checker, journal
from tests.chaos.process import EngineProcess
from tests.postgres import PostgresServer
from tests.soak.result import Result
from tests.soak.sqlite_kill import wait_for_lines


class Size(msgspec.Struct, frozen=True):
    """How often the server is restarted, and after how many acknowledged operations at least."""

    restarts: int
    operations: int
    callers: int


SIZES: Final = {False: Size(10, 3_000, 32), True: Size(2, 150, 6)}
RESUME_SECONDS_PROMISED: Final = 15.0


async def run(small: bool) -> list[Result]:
    """Crash all processes of PostgreSQL again and again while one engine works on it."""
    size = SIZES[small]
    server = await asyncio.to_thread(PostgresServer.start, durable=True)
    try:
        name = await asyncio.to_thread(server.create_database)
        with tempfile.TemporaryDirectory(prefix="tenure-soak-") as folder:
            return await _play(server, server.dsn(name), Path(folder), size)
    finally:
        await asyncio.to_thread(server.close)


async def _play(server: PostgresServer, dsn: str, folder: Path, size: Size) -> list[Result]:
    path = folder / "journal"
    engine = await EngineProcess.start(
        dsn, path, claimers=size.callers, producers=size.callers, seed=1
    )
    complaints: list[str] = []
    pauses = []
    try:
        for _ in range(size.restarts):
            await wait_for_lines(engine, journal.count_lines(path) + size.operations)
            await asyncio.to_thread(server.stop, "immediate")
            told = journal.read([path])
            await asyncio.to_thread(server.resume)
            up_at = time.monotonic()
            complaints += checker.check(told, await checker.read_postgres(dsn))
            await wait_for_lines(engine, journal.count_lines(path) + 1)
            pauses.append(time.monotonic() - up_at)
        await wait_for_lines(engine, journal.count_lines(path) + size.operations)
    finally:
        await engine.stop()
    told = journal.read([path])
    complaints += checker.check(told, await checker.read_postgres(dsn))
    return [
        Result(
            f"PostgreSQL: {size.restarts} immediate restarts under load",
            "every acknowledged enqueue and completion is there",
            f"{len(told.enqueued):,} enqueues, {told.done_count:,} completions, "
            f"{len(complaints)} broken promises",
            held=not complaints,
            details=tuple(complaints),
        ),
        Result(
            "PostgreSQL: the engine goes on by itself",
            f"within {RESUME_SECONDS_PROMISED:.0f} s",
            f"at the latest {max(pauses):.2f} s after the server was up",
            held=max(pauses) < RESUME_SECONDS_PROMISED,
        ),
    ]
