"""What runs ask of the server: pages of their journals, open children, results of groups.

Pure, as ``run_outbox``. A request is sent until it is answered.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from itertools import islice

from tenure.core.limits import JOURNAL_REQUESTS_MAX
from tenure.sdk.worker.executor_protocol import WantedPage
from tenure.v1 import journal_pb2, task_pb2

Ref = tuple[str, int]
"""(task id, attempt)"""


class PageRequests:
    """The requests of all runs of one incarnation."""

    def __init__(self) -> None:
        """Ask for nothing yet."""
        self._unsent: dict[WantedPage, None] = {}
        # Sent and not answered, by run.
        self._sent: dict[Ref, dict[WantedPage, None]] = {}
        self._later: deque[tuple[float, WantedPage]] = deque()

    @property
    def has_news(self) -> bool:
        """Whether there is something to send."""
        return bool(self._unsent)

    def next_at_s(self) -> float:
        """Return when something is to be asked for again."""
        return min((at_s for at_s, _ in self._later), default=math.inf)

    def ask(self, wanted: WantedPage) -> None:
        """Ask for a page."""
        self._unsent[wanted] = None

    def take(self) -> list[journal_pb2.JournalRequest]:
        """Return the requests to send, as many as a server reads at a time."""
        unsent = list(islice(self._unsent, JOURNAL_REQUESTS_MAX))
        for each in unsent:
            del self._unsent[each]
            self._sent.setdefault(each[:2], {})[each] = None
        return [journal_pb2.JournalRequest(**each._asdict()) for each in unsent]

    def answered(self, page: task_pb2.JournalPage) -> None:
        """Hear an answer; other pages come without a request."""
        self._take_sent(page)

    def refused(self, page: task_pb2.JournalPage, at_s: float) -> None:
        """Ask again later for what the server could not answer."""
        for each in self._take_sent(page):
            self._later.append((at_s, each))

    def _take_sent(self, page: task_pb2.JournalPage) -> list[WantedPage]:
        """Forget the requests that a page answers, and return them."""
        ref = (page.task_id, page.attempt)
        sent = self._sent.get(ref)
        if sent is None:
            return []
        taken = [
            each for each in sent if (each.after, each.group_key) == (page.after, page.group_key)
        ]
        for each in taken:
            del sent[each]
        if not sent:
            del self._sent[ref]
        return taken

    def ripen(self, now_s: float) -> None:
        """Ask for what was put off until now."""
        if self._later and now_s >= self.next_at_s():
            later, self._later = self._later, deque()
            for at_s, wanted in later:
                if at_s > now_s:
                    self._later.append((at_s, wanted))
                else:
                    self.ask(wanted)

    def session_opened(self) -> None:
        """Forget everything on a new session: runs ask again for what they lack."""
        self._unsent.clear()
        self._sent.clear()
        self._later.clear()

    def restart(self, requests: Iterable[journal_pb2.JournalRequest]) -> None:
        """Ask again, because a call was not answered."""
        for each in requests:
            wanted = wanted_by(each)
            if wanted in self._sent.get(wanted[:2], ()):
                self.ask(wanted)

    def drop(self, ref: Ref) -> None:
        """Forget a run that is no longer held."""
        self._sent.pop(ref, None)
        if self._unsent:
            self._unsent = {each: None for each in self._unsent if each[:2] != ref}
        if self._later:
            self._later = deque(each for each in self._later if each[1][:2] != ref)


def wanted_by(request: journal_pb2.JournalRequest) -> WantedPage:
    """Return what a request asks for."""
    return WantedPage(
        request.task_id, request.attempt, request.after, request.group_key, request.open_after
    )
