"""Reads that callers share for a moment: ten open screens cost as much as one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar, cast

T = TypeVar("T")


class SharedReads:
    """What was read in the last moment, by its key; whoever asks meanwhile gets the same."""

    def __init__(self, kept_ms: int) -> None:
        """Keep each answer for so long after it was asked for."""
        self._kept_s = kept_ms / 1000
        self._running: dict[Hashable, tuple[float, asyncio.Task[Any]]] = {}

    async def get(self, key: Hashable, read: Callable[[], Awaitable[T]]) -> T:
        """Return the answer for a key, read now or a moment ago; a failure is everybody's."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for old, (ends_at, task) in list(self._running.items()):
            if ends_at <= now and task.done():
                del self._running[old]
        known = self._running.get(key)
        if known is None:
            running = loop.create_task(_awaited(read()))
            known = self._running[key] = (now + self._kept_s, running)
        # A caller that leaves does not take the answer from the others.
        return cast("T", await asyncio.shield(known[1]))


async def _awaited(waiting: Awaitable[T]) -> T:
    return await waiting
