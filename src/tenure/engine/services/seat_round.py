"""Takes seats of workers that are driven by servers, and gives back surplus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.engine.service import Report

if TYPE_CHECKING:
    from tenure.engine.engine import Engine


class SeatRound:
    """Lets this server have its fair share of the seats."""

    name = "seat_round"

    def interval_ms(self, engine: Engine) -> int:
        """Return the interval of the rounds."""
        return engine.settings.seat_round_ms

    async def run_once(self, engine: Engine) -> Report:
        """Take free seats up to the share, and give back what is above."""
        return Report(await engine.seats.round())
