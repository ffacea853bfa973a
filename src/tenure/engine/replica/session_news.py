"""Reads changes of other servers for the workers that have a session or a poll here.

A cancel request, a drain, an eviction, an ended attempt: the server that did it sends the worker's
id, and this server reads. It also reads at an interval, because a hint may be lost. A server that
is alone on its database needs none of this, except for what a worker's own heartbeat shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from tenure.core.limits import WATCH_IDS_MAX
from tenure.core.task.effect import TellStop
from tenure.core.worker.record import EndReason, WorkerStatus
from tenure.engine.claim.offer import Offer
from tenure.engine.claim.worker_notifier import WorkerNotifier
from tenure.engine.command import TaskRef
from tenure.engine.replica.polling_loop import PollingLoop
from tenure.engine.settings import Settings
from tenure.engine.store_outage import StoreOutage
from tenure.store.table import news as news_rows
from tenure.store.table import stop as stop_table
from tenure.store.table import task as task_table
from tenure.store.table.news import Known, News
from tenure.store.transaction import Store, Tx

# Counting the tasks of 2,000 sessions with 100 tasks each takes 100 ms: hints avoid most of it.
COUNTED_EVERY: Final = 5
# More than any session can hold: its tasks are read whatever the count.
ANY: Final = 2**31 - 1


class SessionNews:
    """Reads for the offers of this server."""

    def __init__(
        self, store: Store, notifier: WorkerNotifier, settings: Settings, outage: StoreOutage
    ) -> None:
        """Read from ``store``, notify with ``notifier``."""
        self._store = store
        self._notifier = notifier
        self._book = notifier.book
        self._settings = settings
        self._unread: dict[str, None] = {}
        self._full_count = 0
        # A server starts without sessions, so its first read has nothing to make up for.
        self._polling_loop = PollingLoop(
            "session_news",
            self._look,
            self._period_ms,
            outage=outage,
            first_ms=settings.news_poll_ms,
        )

    def hear(self, worker_ids: Iterable[str], *, is_all: bool = False) -> None:
        """Read about the workers that have an offer here."""
        offered = self._book.workers()
        told = offered if is_all else [each for each in worker_ids if each in offered]
        if told:
            self._unread.update(dict.fromkeys(told))
            self._polling_loop.call()

    def recount(self, worker_id: str, active_count: int) -> None:
        """Read the tasks of a session again when its worker reports fewer.

        Another server may have ended an attempt; without this its slot would never be free again.
        """
        session = self._book.session_of(worker_id)
        if session is not None and len(session.held) > active_count:
            self.hear([worker_id])

    async def serve(self) -> None:
        """Read until cancelled."""
        await self._polling_loop.serve()

    def _period_ms(self) -> int | None:
        if not self._store.is_shared:
            return None
        settings = self._settings
        return settings.fallback_poll_ms if self._store.is_listening else settings.news_poll_ms

    async def _look(self, is_full: bool) -> None:  # noqa: FBT001 (the polling loop's signature)
        told, self._unread = self._unread, {}
        everybody = dict.fromkeys(self._book.workers()) if is_full else told
        self._full_count += is_full
        is_counted = not self._store.is_listening or self._full_count % COUNTED_EVERY == 0
        try:
            for workers in _chunks(everybody):
                believed = [self._known(each, told, is_counted=is_counted) for each in workers]
                await self._read([each for each in believed if each is not None])
        except BaseException:
            self._unread.update(told)
            raise

    def _known(self, worker_id: str, told: dict[str, None], *, is_counted: bool) -> Known | None:
        """Return what this server knows of a worker; ``told`` names those with a hint."""
        session = self._book.session_of(worker_id)
        if session is None:
            polls = self._book.of_worker(worker_id)
            return Known(*polls[0].group, worker_id, ANY, 0) if polls else None
        held_count = len(session.held) if is_counted else 0
        if session.held and worker_id in told:
            held_count = ANY
        return Known(*session.group, worker_id, session.session_no, held_count)

    async def _read(self, known: Sequence[Known]) -> None:
        async def body(tx: Tx) -> tuple[list[News], list[tuple[str, str, int]], list[TellStop]]:
            sessions = [each.worker_id for each in known if each.session_no != ANY]
            found = await news_rows.read_news(tx, known)
            cancelling = await task_table.load_cancelling(tx, sessions)
            return found, cancelling, await stop_table.read_stops(tx, sessions)

        found, cancelling, stops = await self._store.read(body)
        expected = {each.worker_id: each for each in known}
        below = [each for each in found if self._take(each, expected[each.worker_id])]
        for worker_id, task_id, attempt in cancelling:
            self._notifier.cancel(worker_id, TaskRef(task_id, attempt))
        for told in stops:
            self._notifier.stop(told)
        await self._compare([each.worker_id for each in below])

    def _take(self, news: News, known: Known) -> bool:
        """Send a worker what is new; return whether to read its tasks."""
        worker_id = news.worker_id
        if news.status is None or news.status is WorkerStatus.OFFLINE:
            self._notifier.end(worker_id, news.end_reason or EndReason.LEASE_EXPIRED)
            return False
        session = self._book.session_of(worker_id)
        if session is not None and (news.session_no or 0) > session.session_no:
            # The worker uses another server by now; this stream is an old one.
            self._book.remove(session.id)
            return False
        if news.status is WorkerStatus.DRAINING:
            self._notifier.drain(worker_id)
        return news.held_count < known.held_count

    async def _compare(self, worker_ids: Sequence[str]) -> None:
        """Compare the tasks of sessions here with the store; free what is gone, and notify."""
        sessions: list[tuple[Offer, dict[str, int]]] = []
        for worker_id in worker_ids:
            session = self._book.session_of(worker_id)
            if session is not None:
                # Tasks handed out from now on are not in this copy; ended ones stay ended.
                sessions.append((session, dict(session.held)))
        if not sessions:
            return
        asked = [(*session.group, session.receiver_id) for session, _ in sessions]

        async def body(tx: Tx) -> tuple[dict[str, dict[str, int]], list[TellStop]]:
            # In this order: what has ended by the first read has its reason in the second.
            held = await news_rows.read_held(tx, asked)
            return held, await stop_table.read_stops(tx, [worker for *_, worker in asked])

        found, stops = await self._store.read(body)
        for told in stops:
            if self._notifier.holds(told):
                self._notifier.stop(told)
        for session, before in sessions:
            held = found.get(session.receiver_id, {})
            gone = [TaskRef(*each) for each in before.items() if held.get(each[0]) != each[1]]
            self._notifier.forget_held(session, gone)


def _chunks(workers: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(workers)
    while some := list(islice(rest, WATCH_IDS_MAX)):
        yield some
