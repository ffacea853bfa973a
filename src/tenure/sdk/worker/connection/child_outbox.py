"""What runs report of their children: spawns and cancels, until the server has answered.

Pure, as ``run_outbox``. A report that comes again does nothing, so whatever is not answered is
sent again with the same number. The reports of a run go in their order. Several are on their way
at a time, but not where one needs what another does:

* A cancel waits for the answers to the spawns before it.
* The parts of a group go one after the other: the server counts what it has of the group.
* Nothing follows a mark of ``patched`` that is not recorded: without it a re-run would take the
  other branch, and find children that nobody calls.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from typing import Final

import msgspec

from tenure.sdk.worker.connection.page_requests import Ref
from tenure.sdk.worker.connection.run_outbox import RunOutbox
from tenure.sdk.worker.executor_protocol import AnsweredReport, ChildReport
from tenure.v1 import journal_pb2

# What the server could not take is tried again after this time, then twice that, and so on.
_AGAIN_S: Final = 0.2
_AGAIN_S_MAX: Final = 10.0


class _Report(msgspec.Struct, eq=False):
    """A report that is not answered."""

    message: ChildReport
    size: int
    # The number of a mark that must be recorded before; 0 without one.
    mark_no: int
    refusal_count: int = 0


class _Line(msgspec.Struct, eq=False):
    """The reports of one run."""

    ref: Ref
    unsent: deque[_Report] = msgspec.field(default_factory=deque)
    sent: dict[int, _Report] = {}
    # Of those that are sent: how many spawns, and of which groups.
    spawn_count: int = 0
    groups: set[str] = set()
    # After a refusal; 0 without one.
    not_before_s: float = 0.0

    @property
    def is_held_up(self) -> bool:
        """Whether the next report needs what another one does that is on its way."""
        message = self.unsent[0].message
        if isinstance(message, journal_pb2.ChildCancel):
            return self.spawn_count > 0
        return message.group_key in self.groups

    def send(self) -> _Report:
        """Take the next report."""
        report = self.unsent.popleft()
        message = report.message
        self.sent[message.number] = report
        if isinstance(message, journal_pb2.SpawnReport):
            self.spawn_count += 1
            if message.group_key:
                self.groups.add(message.group_key)
        return report

    def take_sent(self, number: int) -> _Report | None:
        """Return a report that is no longer on its way."""
        report = self.sent.pop(number, None)
        if report is not None and isinstance(report.message, journal_pb2.SpawnReport):
            self.spawn_count -= 1
            self.groups.discard(report.message.group_key)
        return report

    def put_back(self, numbers: Iterable[int]) -> list[_Report]:
        """Let reports wait again, in their order; return them."""
        found = [each for number in numbers if (each := self.take_sent(number)) is not None]
        if found:
            both = sorted((*found, *self.unsent), key=lambda each: each.message.number)
            self.unsent = deque(both)
        return found


class ChildOutbox:
    """The reports of the runs of one incarnation."""

    def __init__(self, entries: RunOutbox) -> None:
        """Look at ``entries`` for marks that are not recorded."""
        self._entries = entries
        self._lines: dict[Ref, _Line] = {}
        # Those whose next report can go, and those whose next one waits for a mark or for time.
        self._ready: dict[Ref, _Line] = {}
        self._marked: dict[Ref, _Line] = {}
        self._later: dict[Ref, _Line] = {}

    @property
    def has_news(self) -> bool:
        """Whether there is something to send."""
        return bool(self._ready) or any(map(self._is_recorded, self._marked.values()))

    def next_at_s(self) -> float:
        """Return when something is to be tried again."""
        return min((each.not_before_s for each in self._later.values()), default=math.inf)

    def put(self, reports: Iterable[ChildReport]) -> None:
        """Keep reports until they are answered."""
        for message in reports:
            ref = (message.task_id, message.attempt)
            line = self._lines.get(ref)
            if line is None:
                line = self._lines[ref] = _Line(ref)
            line.unsent.append(_Report(message, message.ByteSize(), self._entries.mark_no(ref)))
            if len(line.unsent) == 1:
                self._sort(line)

    def drop(self, ref: Ref) -> None:
        """Forget a run that is no longer held."""
        if self._lines.pop(ref, None) is not None:
            for lines in (self._ready, self._marked, self._later):
                lines.pop(ref, None)

    # -- What is sent

    def take(self, bytes_max: int) -> tuple[list[ChildReport], int]:
        """Return reports to send, and how large they are."""
        taken: list[ChildReport] = []
        size = 0
        for line in [each for each in self._marked.values() if self._is_recorded(each)]:
            self._sort(line)
        while self._ready and size < bytes_max:
            line = next(iter(self._ready.values()))
            report = line.send()
            self._sort(line)
            taken.append(report.message)
            size += report.size
        return taken, size

    def _sort(self, line: _Line) -> None:
        """Put a run where its next report belongs."""
        for lines in (self._ready, self._marked, self._later):
            lines.pop(line.ref, None)
        if not line.unsent or line.is_held_up:
            return
        if line.not_before_s:
            self._later[line.ref] = line
        elif self._is_recorded(line):
            self._ready[line.ref] = line
        else:
            self._marked[line.ref] = line

    def _is_recorded(self, line: _Line) -> bool:
        """Return whether the mark is recorded that the next report of a run follows from."""
        return not self._entries.is_open(line.ref, line.unsent[0].mark_no)

    # -- What the server says

    def acknowledge(self, ack: journal_pb2.ChildAck) -> AnsweredReport | None:
        """Return what is answered for good; None if nobody waits for it."""
        line = self._lines.get((ack.task_id, ack.attempt))
        if line is None or line.take_sent(ack.number) is None:
            return None
        if line.unsent or line.sent:
            self._sort(line)
        else:
            self.drop(line.ref)
        error = ack.error if ack.HasField("error") else None
        return AnsweredReport(ack.task_id, ack.attempt, ack.number, error)

    def refused(self, ref: Ref, number: int, now_s: float, pause_s: float) -> None:
        """Try a report again later, and what its run reports behind it."""
        line = self._lines.get(ref)
        if line is None:
            return
        for report in line.put_back([number]):
            own_s = min(_AGAIN_S * 2**report.refusal_count, _AGAIN_S_MAX)
            report.refusal_count += 1
            line.not_before_s = max(line.not_before_s, now_s + max(pause_s, own_s))
            self._sort(line)

    def ripen(self, now_s: float) -> None:
        """Try again what was put off until now."""
        for line in [each for each in self._later.values() if each.not_before_s <= now_s]:
            line.not_before_s = 0.0
            self._sort(line)

    def session_opened(self) -> None:
        """Send everything again on a new session: whatever was on its way may be stored or not."""
        for line in self._lines.values():
            line.put_back(list(line.sent))
            line.not_before_s = 0.0
            self._sort(line)

    def restart(self, reports: Iterable[ChildReport]) -> None:
        """Send reports again, because a call was not answered."""
        numbers: dict[Ref, list[int]] = {}
        for each in reports:
            numbers.setdefault((each.task_id, each.attempt), []).append(each.number)
        for ref, those in numbers.items():
            line = self._lines.get(ref)
            if line is not None:
                line.put_back(those)
                self._sort(line)
