"""What the workers of a campaign run: each notes its start and its end, whatever the end is.

The names are those of where it runs. ``sole`` ones are exclusive. What one returns names its own
attempt, so a result tells which attempt was accepted.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Generator
from typing import Any, Final

import msgspec

from tenure import ApplicationError, RetryPolicy, activity
from tenure.sdk.activity.definition import Activity
from tests.soak.sdk_activity import note

STEP_S: Final = 0.05
# Nothing ends by a timeout in a campaign: whatever is repeated was lost, or failed on purpose.
_LONG: Final = "1h"
# Of children that were killed, and of failures on purpose.
_RETRY: Final = RetryPolicy(initial_interval="200ms", maximum_interval="1s")


class Done(msgspec.Struct, frozen=True):
    """What every activity returns."""

    number: int
    attempt: int


@contextlib.contextmanager
def _noted(number: int) -> Generator[Done]:
    info = activity.info()
    try:
        _note("start", f"{info.type} {number}")
        yield Done(number, info.attempt)
        _note("returned")
    except Exception:
        _note("raised")
        raise
    except BaseException:
        _note("stopped")
        raise


def _note(event: str, text: str = "") -> None:
    """Write a line; a stop that comes meanwhile waits for its end."""
    with activity.shield():
        note(event, text)


@activity(start_to_close=_LONG)
async def in_loop(number: int, duration_ms: int) -> Done:
    with _noted(number) as done:
        await asyncio.sleep(duration_ms / 1_000)
    return done


@activity(start_to_close=_LONG)
def in_thread(number: int, duration_ms: int) -> Done:
    with _noted(number) as done:
        time.sleep(duration_ms / 1_000)
    return done


@activity(start_to_close=_LONG, executor="process", retry=_RETRY)
def in_process(number: int, duration_ms: int) -> Done:
    with _noted(number) as done:
        time.sleep(duration_ms / 1_000)
    return done


@activity(start_to_close=_LONG, heartbeat_timeout="5m")
def with_heartbeats(number: int, duration_ms: int) -> Done:
    """Take small steps and go on after the last one that was told."""
    with _noted(number) as done:
        count = max(round(duration_ms / 1_000 / STEP_S), 1)
        first = activity.heartbeat_details(int) + 1 if activity.has_heartbeat_details() else 0
        for step in range(first, count):
            time.sleep(STEP_S)
            activity.heartbeat(step)
    return done


@activity(start_to_close=_LONG, exclusive=True)
async def sole_in_loop(number: int, duration_ms: int) -> Done:
    with _noted(number) as done:
        await asyncio.sleep(duration_ms / 1_000)
    return done


@activity(start_to_close=_LONG, exclusive=True)
def sole_in_thread(number: int, duration_ms: int) -> Done:
    with _noted(number) as done:
        # In steps, so that a stop is seen.
        for _ in range(max(round(duration_ms / 1_000 / STEP_S), 1)):
            time.sleep(STEP_S)
    return done


@activity(start_to_close=_LONG, exclusive=True, executor="process", retry=_RETRY)
def sole_in_process(number: int, duration_ms: int) -> Done:
    with _noted(number) as done:
        time.sleep(duration_ms / 1_000)
    return done


@activity(start_to_close=_LONG, retry=_RETRY)
async def failing_at_first(number: int, duration_ms: int) -> Done:
    """Fail once or twice, then succeed."""
    with _noted(number) as done:
        await asyncio.sleep(duration_ms / 1_000)
        if activity.info().failure_count <= number % 2:
            raise ApplicationError("not yet")
    return done


@activity(start_to_close=_LONG)
async def refusing(number: int, duration_ms: int) -> Done:
    """Fail for good."""
    with _noted(number):
        await asyncio.sleep(duration_ms / 1_000)
        raise ApplicationError("never", non_retryable=True)


ACTIVITIES: Final[list[Activity[..., Any]]] = [
    in_loop,
    in_thread,
    in_process,
    with_heartbeats,
    sole_in_loop,
    sole_in_thread,
    sole_in_process,
    failing_at_first,
    refusing,
]
EXCLUSIVE: Final = frozenset(each.name for each in ACTIVITIES if each.traits.is_exclusive)
# How a task ends that does not succeed, by its type.
REASONS: Final = {refusing.name: "NON_RETRYABLE"}
