"""The application of somebody who makes mistakes."""

from __future__ import annotations

import time

from tenure import RetryPolicy, activity

once = RetryPolicy(max_attempts=1)


@activity(start_to_close="30s")
def greet(name: str) -> str:
    """Say hello."""
    return f"Hello, {name}!"


@activity(start_to_close="30s")
def total(numbers: dict[str, int]) -> int:
    """Add up."""
    return sum(numbers.values())


@activity(start_to_close="30s", retry=once)
def price(article: str) -> int:
    """Look up what is not there."""
    return {"tea": 3}[article]


@activity(start_to_close="500ms", retry=once)
def nap() -> None:
    """Take longer than allowed."""
    time.sleep(0.8)


@activity(start_to_close="30s")
async def freeze(seconds: float) -> None:
    """Block the event loop."""
    time.sleep(seconds)  # noqa: ASYNC251 (the mistake)


@activity(start_to_close="30s")
def upload(data: object) -> None:
    """Take anything."""
