"""What batches of this server leave to its scheduler: ended tasks, and namespaces enabled again.

It is bounded, and may be lost: a sweep finds ends, and held schedules look again by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable

from tenure.core.limits import ENDED_FIRES_MAX, SETTLED_FIRES_MAX
from tenure.engine.batch.working_set import WorkingSet
from tenure.engine.schedule.command import EndedFire


class ScheduleNews:
    """What happened since the last round of the scheduler."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._ended: dict[EndedFire, None] = {}
        self._enabled: dict[str, str] = {}

    def committed(self, ws: WorkingSet) -> bool:
        """Take in what a batch has done; tell whether the scheduler has something to do now."""
        if not ws.ended_fires and not ws.namespaces.changed:
            return False
        self.add_ended(ws.ended_fires)
        enabled = [each.name for each in ws.namespaces.changed.values() if not each.is_disabled]
        self._enabled.update(dict.fromkeys(enabled, ""))
        return bool(ws.ended_fires or enabled)

    def add_ended(self, ended: Iterable[EndedFire]) -> None:
        """Remember tasks of fires that have ended, as many as there is room for."""
        for each in ended:
            if len(self._ended) >= ENDED_FIRES_MAX:
                return
            self._ended[each] = None

    @property
    def has_ended(self) -> bool:
        """Whether there are more of them."""
        return bool(self._ended)

    def take_ended(self) -> tuple[EndedFire, ...]:
        """Return some of them, which are forgotten here."""
        taken = tuple(self._ended)[:SETTLED_FIRES_MAX]
        for each in taken:
            del self._ended[each]
        return taken

    def next_enabled(self) -> tuple[str, str] | None:
        """Return a namespace that was enabled, and up to which schedule that is known there."""
        return next(iter(self._enabled.items()), None)

    def note_woken(self, namespace: str, last_id: str) -> None:
        """Go on behind a schedule; an empty id is the end."""
        if last_id:
            self._enabled[namespace] = last_id
        else:
            self._enabled.pop(namespace, None)
