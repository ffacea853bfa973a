"""The parent's side of an engine process: start it, kill it, stop it, by its own id only."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Self

from tests.bounds import START_S, STOP_S


class EngineProcess:
    """One engine process that this parent started."""

    def __init__(self, process: asyncio.subprocess.Process, journal: Path) -> None:
        self._process = process
        self.journal = journal

    @classmethod
    async def start(
        cls, store: str, journal: Path, *, claimers: int, producers: int, seed: int
    ) -> Self:
        """Start one and wait until it serves."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.chaos.engine_process",
            *("--store", store, "--journal", str(journal)),
            *("--claimers", str(claimers), "--producers", str(producers), "--seed", str(seed)),
            stdout=asyncio.subprocess.PIPE,
        )
        made = cls(process, journal)
        assert process.stdout is not None
        async with asyncio.timeout(START_S):
            line = await process.stdout.readline()
        assert line == b"ready\n", f"the engine process ended with {await process.wait()}"
        return made

    @property
    def is_running(self) -> bool:
        """Tell whether it has not ended by itself."""
        return self._process.returncode is None

    async def kill(self) -> None:
        """End it as the kernel does when memory is short."""
        self._process.send_signal(signal.SIGKILL)
        await self._process.wait()

    async def stop(self) -> None:
        """Let it finish what it accepted."""
        if not self.is_running:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_S):
                await self._process.wait()
        except TimeoutError:
            await self.kill()
            raise
