"""The health of the process, for heartbeats and probes.

The watchdog of the loop and the executor report it here, and log it.
"""

from __future__ import annotations

from typing import Final

from tenure.core.limits import LOOP_LAG_BLOCKED_MS

HEALTHY: Final = "healthy"


class HealthState:
    """The lag of the user's event loop, and abandoned threads."""

    def __init__(self) -> None:
        self.stuck_count = 0
        self._lag_ms = 0
        self._lag_peak_ms = 0

    def set_lag(self, milliseconds: int) -> None:
        """Set the current lag of the loop."""
        self._lag_ms = milliseconds
        self._lag_peak_ms = max(self._lag_peak_ms, milliseconds)

    def take_lag_ms(self) -> int:
        """Return the longest lag since the last heartbeat, so that no short block is missed."""
        peak_ms, self._lag_peak_ms = self._lag_peak_ms, self._lag_ms
        return peak_ms

    @property
    def health(self) -> str:
        """The health, as far as the worker can see it."""
        if self._lag_ms > LOOP_LAG_BLOCKED_MS:
            return "blocked"
        return "stuck" if self.stuck_count else HEALTHY
