"""The parent's side of a program: start, kill, pause and stop it, by its own id only."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

import tests.wire.parent_guard
from tests.bounds import STOP_S

_GUARD: Final = str(Path(tests.wire.parent_guard.__file__))


class Process:
    """One process that this parent started; it ends with its parent at the latest."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def spawn(cls, arguments: Sequence[str], log: Path | None = None) -> Self:
        """Run this Python with the given arguments; what it says on stderr goes to ``log``."""
        guard = (sys.executable, "-I", "-S", _GUARD)
        with (log or Path("/dev/null")).open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                *(*guard, sys.executable, *arguments),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors if log else None,
            )
        return cls(process)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.returncode is None

    @property
    def stdout(self) -> asyncio.StreamReader:
        assert self._process.stdout is not None
        return self._process.stdout

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def pause(self) -> None:
        """Let it stand still."""
        self.signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it go on after a pause."""
        self.signal(signal.SIGCONT)

    async def kill(self) -> None:
        """End it as the kernel does when memory is short."""
        if self.is_running:
            self.signal(signal.SIGKILL)
        await self._process.wait()

    async def wait(self, seconds_max: float = STOP_S) -> int:
        """Wait for its end and return its exit code; kill it if it does not come."""
        try:
            async with asyncio.timeout(seconds_max):
                # What it still prints must not block it.
                await self.stdout.read()
                return await self._process.wait()
        except TimeoutError:
            await self.kill()
            raise

    async def stop(self, seconds_max: float = STOP_S) -> int:
        """Ask it to end and wait for it."""
        if self.is_running:
            self.signal(signal.SIGTERM)
        return await self.wait(seconds_max)
