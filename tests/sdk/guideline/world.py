"""A server in real time with short leases, and workers as programs that can be killed."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from tenure.api.server import Server
from tenure.api.setting import Address, ServerSettings
from tenure.engine.clock import SystemClock
from tenure.engine.settings import Settings
from tenure.store.location import make_store
from tests.polling import eventually
from tests.wire.process import Process

# The grace after a closed connection is 3 s in production; its end is looked for more often.
_FAST: Final = Settings(suspect_grace_ms=300, judge_ms=50, fallback_poll_ms=100)


class World:
    """One server on a file, and the worker programs of a test."""

    def __init__(self, folder: Path, target: str) -> None:
        self.folder = folder
        self.target = target
        self._processes: list[Process] = []
        self._numbers = itertools.count(1)

    async def worker(self) -> Process:
        """Start a worker program, and return it when it is registered."""
        log = self.folder / f"worker-{next(self._numbers)}.log"
        process = await Process.spawn(("-m", "tests.sdk.guideline.program", self.target), log)
        self._processes.append(process)
        await eventually(lambda: "Registered as" in log.read_text())
        return process

    async def close(self) -> None:
        for process in self._processes:
            await process.kill()


@contextlib.asynccontextmanager
async def open_world(folder: Path) -> AsyncIterator[World]:
    clock = SystemClock()
    settings = ServerSettings(
        http=Address("127.0.0.1", 0), grpc=Address("127.0.0.1", 0), shutdown_ms=400
    )
    store = make_store(f"sqlite:///{folder}/tenure.db", clock=clock.now_ms)
    server = Server(store, settings, clock=clock, engine_settings=_FAST)
    await server.start()
    world = World(folder, f"127.0.0.1:{server.grpc_address.port}")
    try:
        yield world
    finally:
        await world.close()
        await server.stop()
