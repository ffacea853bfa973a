"""What the tests of the guidelines look at: states, and the times of attempts."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any, Final

from tenure import Handle
from tenure.core.task.record import TaskState
from tests.polling import eventually

LOOK_SECONDS: Final = 0.01


async def until_state(handle: Handle[Any], state: TaskState) -> None:
    """Wait until the server shows a task in a state."""

    async def is_there() -> bool:
        return (await handle.describe()).state is state

    await eventually(is_there, f"the state {state}")


async def until_progress(handle: Handle[Any], message: str) -> None:
    """Wait until the server shows what the activity has said of its progress."""

    async def is_told() -> bool:
        return (await handle.describe()).progress.message == message

    await eventually(is_told, f"the progress {message}")


async def outcomes(handle: Handle[Any]) -> list[str]:
    """Return how the attempts of a task ended, in their order."""
    return [each.outcome for each in await handle.attempts()]


async def lengths_s(handle: Handle[Any]) -> list[float]:
    """Return how long each attempt of an ended task took, by the server's clock."""
    return [
        (each.ended_at - each.handed_at).total_seconds()
        for each in await handle.attempts()
        if each.ended_at is not None and each.handed_at is not None
    ]


async def waits_s(handle: Handle[Any]) -> list[float]:
    """Return how long a task waited between its attempts, by the server's clock."""
    found = await handle.attempts()
    return [
        (after.handed_at - before.ended_at).total_seconds()
        for before, after in itertools.pairwise(found)
        if before.ended_at is not None and after.handed_at is not None
    ]


async def hang() -> None:
    """Wait for what never comes."""
    await asyncio.Event().wait()
