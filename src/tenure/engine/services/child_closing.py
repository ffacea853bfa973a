"""Closes the children of runs and groups that have ended, by their policies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.core.limits import CLOSED_CHILDREN_MAX
from tenure.engine.run.child_command import CloseChildren
from tenure.engine.service import Report

if TYPE_CHECKING:
    from tenure.engine.engine import Engine


class ChildClosing:
    """Takes one owner at a time; a crash in between leaves the rest for the next round."""

    name = "child_closing"

    def interval_ms(self, engine: Engine) -> int:
        """Return the interval; what ended here wakes the service at once."""
        return engine.settings.fallback_poll_ms

    async def run_once(self, engine: Engine) -> Report:
        """Close some children of the owner that ended first."""
        engine.alarms[self.name].clear()
        done = await engine.submit(CloseChildren(amount=CLOSED_CHILDREN_MAX))
        return Report(done.count, has_more=done.has_more)
