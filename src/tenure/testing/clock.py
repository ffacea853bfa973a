"""Clocks under the control of a test.

`now_ms()` is store time: it may jump, also backwards. `monotonic_ms()` is for waiting: it never
goes back and no jump moves it.
"""

import secrets
from typing import Final

import uuid_utils

START_AT_MS: Final = 1_767_225_600_000  # 2026-01-01, UTC: a confusion of s and ms would show.


class ManualClock:
    """Stands still until the test moves it."""

    def __init__(self, *, start_at_ms: int = START_AT_MS) -> None:
        self._now_ms = start_at_ms
        self._monotonic_ms = 0

    def now_ms(self) -> int:
        """Return store time."""
        return self._now_ms

    def monotonic_ms(self) -> int:
        """Return the time that has passed for this party since its clock was made."""
        return self._monotonic_ms

    def advance(self, ms: int) -> None:
        """Let time pass."""
        if ms < 0:
            raise ValueError(f"time cannot pass by {ms} ms; use jump() to set the clock back")
        self._now_ms += ms
        self._monotonic_ms += ms

    def jump(self, ms: int) -> None:
        """Set the clock forwards or, when negative, backwards; no time passes."""
        self._now_ms += ms


class ServerClock(ManualClock):
    """The clock of a server whose time stands still; its ids and its keys are real."""

    def new_id(self) -> str:
        """Return a new UUIDv7, by the real time: those of clients are, too."""
        return str(uuid_utils.uuid7())

    def jitter(self) -> float:
        """Return the middle: a retry comes after exactly the interval of its policy."""
        return 0.5

    def random_bytes(self, count: int) -> bytes:
        """Return bytes that nobody can guess."""
        return secrets.token_bytes(count)
