"""Whether work can be accepted, as far as the last batches have shown."""

from __future__ import annotations

from typing import Final

from tenure.engine.batch.working_set import WorkingSet

# A disk that is full still has room for a row here and there: only new tasks tell that it is well.
_STORAGE: Final = frozenset({"storage_full", "storage_error"})
# About the batch, not about the store.
_HARMLESS: Final = frozenset({"conflict", "internal", "shutting_down"})


class Acceptance:
    """Remembers why the last batch could not be stored, until one could."""

    def __init__(self) -> None:
        """Start well."""
        self.problem: str | None = None

    @property
    def has_no_space(self) -> bool:
        """Tell whether somebody should look whether there is space again."""
        return self.problem in _STORAGE

    def lost(self, reason: str) -> None:
        """Take in that the store did not take a batch."""
        if reason not in _HARMLESS:
            self.problem = reason

    def committed(self, ws: WorkingSet) -> None:
        """Take in that the store took a batch."""
        if self.problem is not None and (ws.tasks.new or not self.has_no_space):
            self.problem = None

    def found_space(self) -> None:
        """Take in that the store took as much as a large task needs."""
        if self.has_no_space:
            self.problem = None
