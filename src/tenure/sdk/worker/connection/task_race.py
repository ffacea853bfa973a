"""Runs coroutines until the first one ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


async def run_together(*parts: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """Run coroutines until the first ends or raises; the others are cancelled."""
    tasks = [asyncio.ensure_future(part()) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    # If several ended at once, the result of the first in the list counts.
    for task in tasks:
        if task in done:
            task.result()


async def forever() -> None:
    """Wait until cancelled."""
    await asyncio.get_running_loop().create_future()
