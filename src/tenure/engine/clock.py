"""Time, ids and randomness: the only place of the server that reads a clock or draws a number."""

from __future__ import annotations

import random
import secrets
import time
from typing import Protocol

import uuid_utils


class Clock(Protocol):
    """Clocks, ids and randomness for the engine; injected everywhere."""

    def now_ms(self) -> int:
        """Return wall-clock time; it is the store's time if the store has no clock."""
        ...

    def monotonic_ms(self) -> int:
        """Return time for waiting, which never goes back."""
        ...

    def new_id(self) -> str:
        """Return a new UUIDv7."""
        ...

    def jitter(self) -> float:
        """Return a number in [0, 1)."""
        ...

    def random_bytes(self, count: int) -> bytes:
        """Return bytes that cannot be guessed, for keys."""
        ...


class SystemClock:
    """The clocks and the randomness of this machine."""

    def __init__(self) -> None:
        """Seed the randomness from the system."""
        self._random = random.Random()  # noqa: S311 (jitter, not a secret)

    def now_ms(self) -> int:
        """Return wall-clock time."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Return monotonic time."""
        return time.monotonic_ns() // 1_000_000

    def new_id(self) -> str:
        """Return a new UUIDv7."""
        return str(uuid_utils.uuid7())

    def jitter(self) -> float:
        """Return a number in [0, 1)."""
        return self._random.random()

    def random_bytes(self, count: int) -> bytes:
        """Return bytes of the system's generator for secrets."""
        return secrets.token_bytes(count)
