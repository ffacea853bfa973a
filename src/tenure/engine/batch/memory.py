"""What one batch keeps in memory for the next: rows, the store's time, receivers, namespaces."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from tenure.core.limits import ENQUEUE_YOUNG_MS
from tenure.engine.access.access_cache import AccessCache
from tenure.engine.batch import run as batch
from tenure.engine.batch.row_cache import RowCache
from tenure.engine.batch.single_write import SingleWriter
from tenure.engine.batch.store_time import StoreTime
from tenure.engine.batch.working_set import WorkingSet
from tenure.engine.claim.plan import ClaimPlan
from tenure.engine.clock import Clock
from tenure.engine.run.journal_cache import JournalCache
from tenure.engine.run.journal_log import note_large
from tenure.engine.settings import Settings
from tenure.store.table.journal import JournalRows
from tenure.store.transaction import Store


class BatchMemory:
    """Everything here can be read again from the store; a batch without it only takes longer."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        settings: Settings,
        server_id: str,
        access_cache: AccessCache,
    ) -> None:
        """Start without having seen a batch."""
        self.clock = clock
        self.rows = RowCache(is_on=settings.cached_rows)
        self.journals = JournalCache()
        self._settings = settings
        self._server_id = server_id
        self._access_cache = access_cache
        self._namespaces: frozenset[str] = frozenset()
        self._time = StoreTime()
        self.single_writer = SingleWriter(store, self._time)

    def context(
        self, plan: ClaimPlan, waiting_since_mono_ms: int | None, *, copies_rows: bool = False
    ) -> batch.Context:
        """Return what a run of a batch needs in addition to its commands.

        After a long wait, or a run that failed (``None``), ids do not show the age of enqueues: the
        clock of the store may have been set back meanwhile. Then all are looked up.
        """
        mono_ms, since_ms = self.clock.monotonic_ms(), waiting_since_mono_ms
        is_sure = since_ms is not None and mono_ms - since_ms <= ENQUEUE_YOUNG_MS
        return batch.Context(
            self.clock,
            self._server_id,
            self._settings,
            dict(self.rows.rows) if copies_rows else self.rows.rows,
            self._access_cache.enabled(self._namespaces),
            plan,
            self._time.ahead_ms(mono_ms) if is_sure else None,
            self._access_cache.disabled,
            journal_ends=dict(self.journals.ends) if copies_rows else self.journals.ends,
        )

    def bare_context(self) -> batch.Context:
        """Return a context for a single command, on rows that are read."""
        return replace(self.context(ClaimPlan(), None), cache={})

    def learn(self, committed: batch.Committed) -> None:
        """Take in what a committed batch has read; its rows are passed one by one."""
        ws = committed.ws
        if committed.store_ahead_ms is not None:
            self._time.learn(now_ms=ws.now_ms, ahead_ms=committed.store_ahead_ms)
            if committed.plan.hands:
                self.single_writer.learn(ws.rows.receivers)
        if ws.namespaces:
            self._namespaces |= ws.namespaces.keys() - ws.namespaces.disabled

    def saved(self, ws: WorkingSet) -> None:
        """Keep copies of what a committed batch has written."""
        for tasks, are_new in ((ws.tasks.new, True), (ws.tasks.changed, False)):
            self.rows.saved(tasks, are_new=are_new)
        if JournalRows in ws.rows.made and ws.journals.ends:
            self.journals.saved(ws.journals.ends, self.rows.rows)
            note_large(ws.journals)

    def forget(self, ids: Iterable[str]) -> None:
        """Forget rows by task id, and what is remembered beside them."""
        stale = frozenset(ids)
        self.rows.forget(stale)
        self.journals.forget(stale)

    def doubt(self) -> None:
        """Drop the rows and read access again: the result of a commit is unknown."""
        self.rows.clear()
        self.journals.clear()
        self._access_cache.hear()
