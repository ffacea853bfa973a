"""Tells workers what others have appended to the journals of runs that they hold.

The server that has the session of the worker sends it the entries; any other one gets a hint, reads
the end of the journal and sends that. A hint that is lost costs time alone: a run that waits in its
slot gives it up soon, and is then found to be behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tenure.core.journal.entry import JournalPage
from tenure.core.limits import FRAME_BYTES, WATCH_IDS_MAX
from tenure.core.task.effect import TellRun
from tenure.core.task.record import Task
from tenure.engine.batch.working_set import WorkingSet
from tenure.engine.claim.worker_notifier import WorkerNotifier
from tenure.engine.command import TaskRef
from tenure.engine.replica.polling_loop import PollingLoop
from tenure.engine.replica.replica_hints import ReplicaHints
from tenure.engine.run.journal_cache import JournalCache
from tenure.engine.store_outage import StoreOutage
from tenure.store.table import journal as journal_table
from tenure.store.table import task as task_table
from tenure.store.table.task import TaskKey
from tenure.store.transaction import Store, Tx


class RunNews:
    """Sends to the sessions of this server, and hints to the other servers."""

    def __init__(
        self,
        store: Store,
        notifier: WorkerNotifier,
        replicas: ReplicaHints,
        journals: JournalCache,
        outage: StoreOutage,
    ) -> None:
        """Notify with ``notifier``; what ``journals`` remember may be stale after a hint."""
        self._store = store
        self._notifier = notifier
        self._replicas = replicas
        self._journals = journals
        self._unread: dict[TaskKey, None] = {}
        self._polling_loop = PollingLoop("run_news", self._look, lambda: None, outage=outage)

    def tell(self, ws: WorkingSet) -> None:
        """Send what a committed batch has appended to runs that workers hold."""
        told = [effect for effect in ws.effects if type(effect) is TellRun]
        if not told:
            return
        pages = ws.journals.news()
        for effect in dict.fromkeys(told):
            key = (effect.namespace, effect.task_id)
            ref = TaskRef(effect.task_id, effect.attempt)
            # Nothing is left of what was appended to a run that then began anew.
            page = pages.get(key)
            if page is not None and not self._notifier.page(effect.worker_id, ref, page):
                self._replicas.tell_run(key)

    def hear(self, keys: Iterable[TaskKey]) -> None:
        """Read about the runs that a session here holds."""
        told = dict.fromkeys(keys)
        self._journals.drop(told)
        held = {task_id for _, task_id in self._notifier.book.holders_of({key[1] for key in told})}
        mine = [key for key in told if key[1] in held]
        if mine:
            self._unread.update(dict.fromkeys(mine))
            self._polling_loop.call()

    async def serve(self) -> None:
        """Read until cancelled."""
        await self._polling_loop.serve()

    async def _look(self, is_full: bool) -> None:  # noqa: FBT001 (the polling loop's signature)
        del is_full
        while self._unread:
            keys = list(self._unread)[:WATCH_IDS_MAX]
            found = await self._store.read(lambda tx, keys=keys: _read_tails(tx, keys))  # type: ignore[misc]  # the default binds these keys
            for key in keys:
                self._unread.pop(key, None)
            for task, page in found:
                if task.worker_id is not None:
                    self._notifier.page(task.worker_id, TaskRef(task.id, task.attempt), page)


async def _read_tails(tx: Tx, keys: Sequence[TaskKey]) -> list[tuple[Task, JournalPage]]:
    """Read the last entry of each journal: mostly it is the one that its run lacks."""
    runs: dict[str, Task] = {}
    for task in await task_table.read_tasks(tx, keys):
        if task.link is not None and task.link.journal_id is not None:
            runs[task.link.journal_id] = task
    ends = await journal_table.read_ends(tx, runs)
    wanted = [(journal_id, end.pos - 1) for journal_id, end in ends.items()]
    pages = await journal_table.read_pages(tx, wanted, bytes_max=FRAME_BYTES)
    return [(runs[journal_id], page) for (journal_id, _), page in zip(wanted, pages, strict=True)]
