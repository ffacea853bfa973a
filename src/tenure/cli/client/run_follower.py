"""Following one run: how it stands, and what its journal has got since the last look."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from tenure.cli.client.run_client import RunClient
    from tenure.cli.show.run_view import ShownEntry, ShownRun

# More are taken at the next look, so that whoever reads sees that it goes on.
_ENTRIES_MAX: Final = 1_000


class RunNews(NamedTuple):
    """What a look has found; a run that has begun anew has a new journal."""

    run: ShownRun
    entries: list[ShownEntry]
    is_anew: bool
    is_over: bool


class RunFollower:
    """Knows up to where the journal of a run was seen."""

    def __init__(self, runs: RunClient, run: ShownRun, *, after: int = 0) -> None:
        """Follow what comes behind a position."""
        self._runs = runs
        self._run_id = run.run_id
        self._generation = run.generation
        self._after = after

    def look(self) -> RunNews:
        """Return what is new; it is over when the run has ended and all is seen."""
        run = self._runs.get_run(self._run_id)
        is_anew = run.generation != self._generation
        if is_anew:
            self._generation, self._after = run.generation, 0
        if (run.entry_count or 0) <= self._after:
            return RunNews(run, [], is_anew, run.is_ended)
        journal = self._runs.read_journal(self._run_id, after=self._after)
        entries = list(itertools.islice(journal, _ENTRIES_MAX))
        if self._runs.get_run(self._run_id).generation != self._generation:
            # They may be of its next journal, with the positions of the one that was seen.
            entries = []
        # Without entries a part of the journal is gone: there is nothing to wait for.
        self._after = entries[-1].pos if entries else self._after
        is_whole = not entries or self._after >= (run.entry_count or 0)
        return RunNews(run, entries, is_anew, run.is_ended and is_whole)
