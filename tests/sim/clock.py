"""The clock of a simulated loop: it may drift, jump and pause."""

from typing import Final

from tenure.testing.clock import START_AT_MS
from tests.sim.loop import SimulatedLoop

# Sums of float seconds end just below a whole millisecond; they count as having reached it.
ROUNDING_MS: Final = 0.001


class LoopClock:
    """Follows the time of a simulated loop.

    One party has one clock. `drift` is how fast its monotonic clock runs: 1.01 gains 10 ms in a
    second. Only what is read here drifts and pauses; timers of the loop stay exact.
    """

    def __init__(
        self, loop: SimulatedLoop, *, start_at_ms: int = START_AT_MS, drift: float = 1.0
    ) -> None:
        if drift <= 0:
            raise ValueError(f"a monotonic clock cannot run at {drift} times the speed")
        self._loop = loop
        self._offset_ms = start_at_ms
        self._drift = drift
        self._counted_ms = 0.0  # Of monotonic time, up to the last pause.
        self._running_since_ms: float | None = self._loop_ms()

    def now_ms(self) -> int:
        """Return store time."""
        return self._offset_ms + _whole(self._loop_ms())

    def jump(self, ms: int) -> None:
        """Set the clock forwards or, when negative, backwards; monotonic time does not notice."""
        self._offset_ms += ms

    def monotonic_ms(self) -> int:
        """Return the time that has passed for this party since its clock was made."""
        return _whole(self._monotonic())

    def pause(self) -> None:
        """Stop monotonic time, like a machine that is suspended; store time goes on."""
        self._counted_ms = self._monotonic()
        self._running_since_ms = None

    def resume(self) -> None:
        """Let monotonic time go on from where it was paused."""
        self._counted_ms = self._monotonic()
        self._running_since_ms = self._loop_ms()

    def _monotonic(self) -> float:
        if self._running_since_ms is None:
            return self._counted_ms
        return self._counted_ms + (self._loop_ms() - self._running_since_ms) * self._drift

    def _loop_ms(self) -> float:
        return self._loop.time() * 1000


def _whole(ms: float) -> int:
    return int(ms + ROUNDING_MS)
