"""Outages of the store in the log: one line when it goes, one when it is back.

While a store is away every loop and every request of a server fails, many times a second. They are
counted here; whoever met such a failure asks, and writes nothing about it.
"""

from __future__ import annotations

from typing import Final

import structlog

from tenure.engine.acceptance import Acceptance
from tenure.engine.clock import Clock
from tenure.errors import Unavailable
from tenure.store.failure import MISCONFIGURED, Lost, StoreError

log = structlog.get_logger("tenure.engine")

# What is wrong with the store itself, and not with one batch or one read.
_REASONS: Final = frozenset(
    {
        "store_unreachable",
        "store_slow",
        # What a probe for readiness is told.
        "store_away",
        "old_primary",
        "storage_full",
        "storage_error",
        "storage_damaged",
        MISCONFIGURED,
    }
)
# It is back when nothing has failed for so long: connections come back one after the other.
_QUIET_MS: Final = 1_000


def is_outage(error: BaseException) -> bool:
    """Tell whether an error says that the store is away."""
    return _reason(error) in _REASONS


def _reason(error: BaseException) -> object:
    if isinstance(error, Lost):
        return error.reason
    return error.fields.get("reason") if isinstance(error, Unavailable) else None


class StoreOutage:
    """Knows since when the store of a server is away, and what has failed since."""

    def __init__(self, clock: Clock, acceptance: Acceptance) -> None:
        """Start with a store that is there."""
        self._clock = clock
        self._acceptance = acceptance
        self._began_mono_ms: int | None = None
        self._failed_mono_ms = 0
        self._back_mono_ms: int | None = None
        self._failure_count = 0
        self._refused_count = 0

    def failed(self, error: BaseException) -> bool:
        """Take in a failure inside this server; tell whether it is about an outage."""
        if not is_outage(error):
            return False
        self._note(error)
        self._failure_count += 1
        return True

    def refused(self, error: BaseException) -> bool:
        """Take in a request that was refused; tell whether that is about an outage."""
        if not is_outage(error):
            return False
        self._note(error)
        self._refused_count += 1
        return True

    def _note(self, error: BaseException) -> None:
        self._failed_mono_ms = self._clock.monotonic_ms()
        self._back_mono_ms = None
        if self._began_mono_ms is None:
            self._began_mono_ms = self._failed_mono_ms
            self._failure_count = self._refused_count = 0
            # What a caller is told says less than what the store said.
            cause = error.__cause__ if isinstance(error.__cause__, StoreError) else error
            log.warning("store.unavailable", reason=_reason(error), error=str(cause))

    def committed(self) -> None:
        """Take in that the store took a heartbeat, which is tried again and again."""
        if self._began_mono_ms is None:
            return
        now_mono_ms = self._clock.monotonic_ms()
        if self._back_mono_ms is None:
            self._back_mono_ms = now_mono_ms
        is_quiet = now_mono_ms - self._failed_mono_ms >= _QUIET_MS
        # A disk that is full takes heartbeats and no tasks.
        if is_quiet and self._acceptance.problem is None:
            log.warning(
                "store.available",
                outage_ms=self._back_mono_ms - self._began_mono_ms,
                failure_count=self._failure_count,
                refused_count=self._refused_count,
            )
            self._began_mono_ms = None
