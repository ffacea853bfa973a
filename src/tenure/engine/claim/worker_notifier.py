"""Sends messages to workers, through the sinks of their offers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from tenure.core.journal.entry import JournalPage
from tenure.core.task.effect import Stop, StopCause, TellStop
from tenure.core.worker.record import EndReason
from tenure.engine.claim.offer import Group, Offer, OfferBook
from tenure.engine.command import AnyCommand, TaskRef
from tenure.engine.task import command as c
from tenure.engine.worker.command import StopsTold

Post = Callable[[AnyCommand], "asyncio.Future[object] | None"]


class WorkerNotifier:
    """Notifies workers through the offers of this server. Notifying twice does no harm."""

    def __init__(self, book: OfferBook, *, post: Post, touch: Callable[[Group], None]) -> None:
        """Find offers in ``book``; ``touch`` reads a queue where a slot has become free."""
        self.book = book
        self._post = post
        self._touch = touch

    def cancel(self, worker_id: str, ref: TaskRef) -> bool:
        """Send a cancel to a worker; return whether it has a session here."""
        session = self.book.session_of(worker_id)
        if session is not None:
            self.cancel_all(session, [ref])
        return session is not None

    def cancel_all(self, session: Offer, refs: Sequence[TaskRef]) -> None:
        """Send a session the cancels that it does not know yet; the grace begins now.

        The driver of a seat begins it when a call that carried the cancel was answered.
        """
        told = session.told_cancels
        new = tuple(ref for ref in refs if told.get(ref.task_id) != ref.attempt)
        if not new:
            return
        session.sink.cancel(new)
        if session.is_driven:
            told.update((ref.task_id, ref.attempt) for ref in new)
        else:
            self.signalled(session, new)

    def signalled(self, session: Offer, refs: Sequence[TaskRef]) -> None:
        """Start the grace of cancel requests that a session has been sent."""
        future = self._post(c.SignalCancels(namespace=session.group[0], items=tuple(refs)))
        if future is None:
            # The next read sends them again, so that the grace begins.
            return
        session.told_cancels.update((ref.task_id, ref.attempt) for ref in refs)
        future.add_done_callback(lambda done: _tell_again(session, refs, done))

    def stop(self, told: TellStop) -> bool:
        """Send a stop for an attempt to a worker; return whether it has a session here.

        A message that the stream loses is sent again to the next session of the worker.
        """
        session = self.book.session_of(told.worker_id)
        if session is not None:
            session.sink.stop([told.stop])
            if self.holds(told):
                self.book.drop(session, [told.stop.task_id])
                self._touch(session.group)
            self._post(
                StopsTold(
                    worker_id=told.worker_id, session_no=session.session_no, items=(told.stop,)
                )
            )
        return session is not None

    def page(self, worker_id: str, ref: TaskRef, page: JournalPage) -> bool:
        """Send a worker entries of a run that it holds; return whether it has a session here."""
        session = self.book.session_of(worker_id)
        if session is not None:
            session.sink.page(ref, page)
        return session is not None

    def holds(self, told: TellStop) -> bool:
        """Return whether a session here still seems to hold an attempt that has ended."""
        session = self.book.session_of(told.worker_id)
        return session is not None and session.held.get(told.stop.task_id) == told.stop.attempt

    def forget_held(self, session: Offer, refs: Sequence[TaskRef]) -> None:
        """Free the slots of attempts that other servers ended, and notify the worker."""
        gone = [ref for ref in refs if session.held.get(ref.task_id) == ref.attempt]
        if gone:
            self.book.drop(session, [ref.task_id for ref in gone])
            lost = StopCause.LOST_LEASE
            session.sink.stop([Stop(ref.task_id, ref.attempt, lost) for ref in gone])
            self._touch(session.group)

    def drain(self, worker_id: str) -> bool:
        """Send a drain to a worker, once; return whether it has a session here.

        Its polls end. Its session stays: cancellations and its end still have to reach it.
        """
        session = self.book.session_of(worker_id)
        for offer in self.book.of_worker(worker_id):
            if offer is not session:
                self.book.remove(offer.id)
                offer.sink.drain()
        if session is not None and not session.is_draining:
            session.is_draining = True
            self.book.set_window(session, 0)
            session.sink.drain()
        return session is not None

    def end(self, worker_id: str, reason: EndReason) -> bool:
        """Send a worker that it is offline; return whether it had a session here."""
        had_session = self.book.session_of(worker_id) is not None
        for offer in self.book.of_worker(worker_id):
            self.book.remove(offer.id)
            offer.sink.end(reason)
        return had_session


def _tell_again(session: Offer, refs: Sequence[TaskRef], done: asyncio.Future[object]) -> None:
    """Forget that cancel requests were sent whose grace could not begin."""
    if done.cancelled() or done.exception() is not None:
        for ref in refs:
            session.told_cancels.pop(ref.task_id, None)
