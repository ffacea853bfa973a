"""Clients that enqueue as long as they are let, and remember what was acknowledged."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from tests.wire.client import Client, make_task


class Load:
    """Tasks in small batches, one batch after the other."""

    def __init__(
        self,
        client: Client,
        *,
        sleep_ms: int = 0,
        batch: int = 5,
        pause_s: float = 0.05,
        queue: str = "default",
    ) -> None:
        self._client = client
        self._sleep_ms = sleep_ms
        self._batch = batch
        self._pause_s = pause_s
        self._queue = queue
        self.ids: list[str] = []
        self.is_stopping = False

    async def run(self) -> None:
        while not self.is_stopping:
            tasks = [make_task(self._sleep_ms, queue=self._queue) for _ in range(self._batch)]
            self.ids += await self._client.enqueue(tasks)
            await asyncio.sleep(self._pause_s)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run it beside what happens in the block; its last batch is answered at the end."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.run())
            try:
                yield
            finally:
                self.is_stopping = True
