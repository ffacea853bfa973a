"""Whether the server can accept work, according to the last batches."""

from __future__ import annotations

from typing import Final

from tenure.engine.batch.working_set import WorkingSet

# A full disk still has room for a few rows: only a stored new task shows that there is space.
_STORAGE: Final = frozenset({"storage_full", "storage_error"})
# These reasons are about the batch, not about the store.
_HARMLESS: Final = frozenset({"conflict", "internal", "shutting_down"})


class Acceptance:
    """Keeps the reason why the last batch could not be stored, until one could."""

    def __init__(self) -> None:
        """Start without a reason."""
        self.problem: str | None = None

    @property
    def has_no_space(self) -> bool:
        """Return whether the space has to be checked again."""
        return self.problem in _STORAGE

    def lost(self, reason: str) -> None:
        """Note that the store did not accept a batch."""
        if reason not in _HARMLESS:
            self.problem = reason

    def committed(self, ws: WorkingSet) -> None:
        """Note that the store accepted a batch."""
        if self.problem is not None and (ws.tasks.new or not self.has_no_space):
            self.problem = None

    def found_space(self) -> None:
        """Note that the store accepted as much data as a large task needs."""
        if self.has_no_space:
            self.problem = None
