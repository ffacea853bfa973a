"""What runs report and ask for, together: entries, children and pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tenure.sdk.worker.connection.child_outbox import ChildOutbox
from tenure.sdk.worker.connection.page_requests import PageRequests, Ref
from tenure.sdk.worker.connection.run_outbox import RunOutbox
from tenure.sdk.worker.executor_protocol import ChildReport
from tenure.v1 import journal_pb2


class RunMessages(NamedTuple):
    """What goes out of runs at a time: entries before what follows from them."""

    steps: Sequence[journal_pb2.StepReport] = ()
    children: Sequence[ChildReport] = ()
    requests: Sequence[journal_pb2.JournalRequest] = ()

    @property
    def spawns(self) -> list[journal_pb2.SpawnReport]:
        """The children to store."""
        return [each for each in self.children if isinstance(each, journal_pb2.SpawnReport)]

    @property
    def child_cancels(self) -> list[journal_pb2.ChildCancel]:
        """The children to end."""
        return [each for each in self.children if isinstance(each, journal_pb2.ChildCancel)]


class RunReports:
    """The reports and requests of all runs of one incarnation."""

    def __init__(self) -> None:
        """Hold nothing yet."""
        self.pages = PageRequests()
        self.entries = RunOutbox(self.pages)
        self.children = ChildOutbox(self.entries)

    @property
    def has_news(self) -> bool:
        """Whether there is something to send."""
        return self.entries.has_news or self.children.has_news or self.pages.has_news

    def next_at_s(self) -> float:
        """Return when something is to be tried again."""
        return min(each.next_at_s() for each in (self.entries, self.children, self.pages))

    def ripen(self, now_s: float) -> None:
        """Try again what was put off until now."""
        self.entries.ripen(now_s)
        self.children.ripen(now_s)
        self.pages.ripen(now_s)

    def take(self, bytes_max: int) -> tuple[RunMessages, int]:
        """Return what to send, and about how large it is."""
        steps, steps_size = self.entries.take(bytes_max)
        children, children_size = self.children.take(bytes_max - steps_size)
        messages = RunMessages(steps, children, self.pages.take())
        return messages, steps_size + children_size

    def drop(self, ref: Ref) -> None:
        """Forget a run that is no longer held."""
        self.entries.drop(ref)
        self.children.drop(ref)
        self.pages.drop(ref)

    def session_opened(self) -> None:
        """Begin again on a new session: whatever was on its way has arrived or not."""
        self.pages.session_opened()
        self.entries.session_opened()
        self.children.session_opened()

    def restart(self, messages: RunMessages) -> None:
        """Hear that calls with these were not answered."""
        self.entries.restart(messages.steps)
        self.children.restart(messages.children)
        self.pages.restart(messages.requests)
