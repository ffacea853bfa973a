"""What runs record: from the run to the acknowledgement of the server.

Pure: nothing here waits, reads a clock or sends. Whoever reports again must not report twice. So
after anything but an acknowledgement the tail of the journal is asked for, and then what is not
there is sent again with the same numbers, each entry alone: between two of them the server may
have recorded something else.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from typing import Final

import msgspec

from tenure.core.limits import STEP_ENTRIES_MAX
from tenure.sdk.worker.connection.page_requests import PageRequests, Ref
from tenure.sdk.worker.executor_protocol import NumberedEntry, RecordedEntries, WantedPage
from tenure.v1 import journal_pb2, task_pb2

# What an entry needs on the wire besides its output and its error.
_ENTRY_BYTES: Final = 256
_PATCH: Final = task_pb2.ENTRY_KIND_PATCH


class _Line(msgspec.Struct, eq=False):
    """The entries of one run that are not acknowledged."""

    ref: Ref
    entries: dict[int, NumberedEntry] = {}
    # Numbers that are not sent yet, and the reports that are: last number to first number.
    unsent: deque[int] = msgspec.field(default_factory=deque)
    sent: dict[int, int] = {}
    # Before anything is sent again: from which position on the journal is asked for.
    asked_after: int | None = None
    # Up to this number, entries may have been sent before.
    alone_to: int = 0
    # The last mark of ``patched``.
    mark_no: int = 0


class RunOutbox:
    """The entries of all runs of one incarnation."""

    def __init__(self, pages: PageRequests) -> None:
        """Ask for the tails of journals by ``pages``."""
        self._pages = pages
        self._lines: dict[Ref, _Line] = {}
        # Those with something to send.
        self._ready: dict[Ref, _Line] = {}
        self._later: deque[tuple[float, Ref]] = deque()

    @property
    def has_news(self) -> bool:
        """Whether there is something to send."""
        return bool(self._ready)

    def next_at_s(self) -> float:
        """Return when something is to be tried again."""
        return min((at_s for at_s, _ in self._later), default=math.inf)

    # -- What runs say

    def put(self, entries: Iterable[NumberedEntry]) -> None:
        """Keep entries until they are acknowledged."""
        for each in entries:
            ref = (each.task_id, each.attempt)
            line = self._lines.get(ref)
            if line is None:
                line = self._lines[ref] = _Line(ref)
            line.entries[each.no] = each
            if each.entry.kind == _PATCH:
                line.mark_no = each.no
            if line.asked_after is None:
                line.unsent.append(each.no)
                self._ready[ref] = line

    def mark_no(self, ref: Ref) -> int:
        """Return the number of the last mark of a run that is not acknowledged; 0 without one.

        What follows from a mark of ``patched`` must not be there without it.
        """
        line = self._lines.get(ref)
        return line.mark_no if line is not None and line.mark_no in line.entries else 0

    def is_open(self, ref: Ref, no: int) -> bool:
        """Return whether an entry is not acknowledged."""
        line = self._lines.get(ref)
        return line is not None and no in line.entries

    def drop(self, ref: Ref) -> None:
        """Forget a run that is no longer held."""
        if self._lines:
            self._lines.pop(ref, None)
            self._ready.pop(ref, None)

    # -- What is sent

    def take(self, bytes_max: int) -> tuple[list[journal_pb2.StepReport], int]:
        """Return reports to send, and about how large they are."""
        taken: list[journal_pb2.StepReport] = []
        size = 0
        while self._ready and size < bytes_max:
            ref, line = next(iter(self._ready.items()))
            numbers, report_size = self._numbers(line, bytes_max - size)
            if not line.unsent:
                del self._ready[ref]
            entries = [line.entries[no].entry for no in numbers]
            line.sent[numbers[-1]] = numbers[0]
            taken.append(
                journal_pb2.StepReport(
                    task_id=ref[0], attempt=ref[1], first_no=numbers[0], entries=entries
                )
            )
            size += report_size
        return taken, size

    def _numbers(self, line: _Line, bytes_max: int) -> tuple[list[int], int]:
        """Take the next entries of a run for one report."""
        numbers: list[int] = []
        size = 0
        while line.unsent and size < bytes_max and len(numbers) < STEP_ENTRIES_MAX:
            no = line.unsent.popleft()
            numbers.append(no)
            entry = line.entries[no].entry
            size += _ENTRY_BYTES + len(entry.output)
            if entry.HasField("error"):
                size += entry.error.ByteSize()
            if no <= line.alone_to:
                break
        return numbers, size

    # -- What the server says

    def acknowledge(self, ack: journal_pb2.StepAck) -> RecordedEntries | None:
        """Return what an answer says to be recorded; None if nobody waits for it."""
        line = self._lines.get((ack.task_id, ack.attempt))
        if line is None:
            return None
        first_no = line.sent.pop(ack.no, None) or _split(line, ack.no)
        if first_no is None:
            return None
        for no in range(first_no, ack.no + 1):
            del line.entries[no]
        return RecordedEntries(
            ack.task_id, ack.attempt, first_no, ack.no, pos=ack.pos, at_ms=ack.at_ms
        )

    def take_page(self, page: task_pb2.JournalPage) -> None:
        """See what of the own entries stands in the journal; go on when its end is known."""
        ref = (page.task_id, page.attempt)
        line = self._lines.get(ref)
        if line is None or line.asked_after != page.after:
            return
        last = page.after
        for entry in page.entries:
            last = entry.pos
            if entry.attempt == page.attempt and entry.no:
                line.entries.pop(entry.no, None)
        if last < page.end:
            line.asked_after = last
            self._pages.ask(WantedPage(*ref, last))
            return
        line.asked_after = None
        line.unsent.extend(line.entries)
        line.alone_to = max(line.entries, default=0)
        if line.unsent:
            self._ready[ref] = line

    def ask_again(self, ref: Ref, at_s: float | None = None) -> None:
        """Look at the journal before anything of a run is sent again; later, if that is said."""
        line = self._lines.get(ref)
        if line is None or not line.entries:
            return
        line.sent.clear()
        line.unsent.clear()
        self._ready.pop(ref, None)
        line.asked_after = min(each.seen for each in line.entries.values())
        if at_s is None:
            self._pages.ask(WantedPage(*ref, line.asked_after))
        elif all(each != ref for _, each in self._later):
            self._later.append((at_s, ref))

    def ripen(self, now_s: float) -> None:
        """Ask for what was put off until now."""
        if self._later and now_s >= self.next_at_s():
            later, self._later = self._later, deque()
            for at_s, ref in later:
                if at_s > now_s:
                    self._later.append((at_s, ref))
                else:
                    self.ask_again(ref)

    def session_opened(self) -> None:
        """Begin again on a new session: whatever was on its way may be recorded or not."""
        self._later.clear()
        for ref in list(self._lines):
            self.ask_again(ref)

    def restart(self, steps: Iterable[journal_pb2.StepReport]) -> None:
        """Hear that a call with these was not answered."""
        for report in steps:
            self.ask_again((report.task_id, report.attempt))


def _split(line: _Line, no: int) -> int | None:
    """Return where a report begins of which the first part is answered; keep the rest of it."""
    for last_no, first_no in line.sent.items():
        if first_no <= no < last_no:
            line.sent[last_no] = no + 1
            return first_no
    return None
