"""Server processes of Tenure on a store, as an operator starts them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.bounds import START_S
from tests.wire.process import Process

_ADDRESS: Final = re.compile(r"127\.0\.0\.1:\d+")


class ServerProcess:
    """One ``tenure server``, with ports of its own choice."""

    def __init__(self, process: Process, http: str, grpc: str) -> None:
        self.process = process
        self.http = http
        self.grpc = grpc

    @classmethod
    async def start(
        cls, store: str, log: Path, settings: Mapping[str, int], options: Sequence[str] = ()
    ) -> ServerProcess:
        """Start one and wait until it serves."""
        said = [
            each for name, value in settings.items() for each in ("--setting", f"{name}={value}")
        ]
        process = await Process.spawn(
            (
                *("-m", "tenure.cli", "server", "--store", store),
                *("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", *said, *options),
            ),
            log,
        )
        async with asyncio.timeout(START_S):
            found: list[str] = []
            while len(found) < 2:
                line = (await process.stdout.readline()).decode()
                if not line:
                    text = await asyncio.to_thread(log.read_text, errors="replace")
                    code = await process.wait()
                    raise RuntimeError(f"the server ended with {code}: {text[-4_000:]}")
                found += _ADDRESS.findall(line)
        return cls(process, http=found[0], grpc=found[1])

    async def kill(self) -> None:
        await self.process.kill()
