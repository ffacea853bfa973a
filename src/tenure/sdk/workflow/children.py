"""What a run asks the server about its children, and which of them it waits for."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from typing import Any, Final

from tenure.core.limits import FRAME_BYTES, SPAWN_CHILDREN_MAX
from tenure.sdk.workflow.child import ChildCall, GroupCall, SingleCall
from tenure.sdk.workflow.journal import Journal
from tenure.sdk.workflow.port import RunPort
from tenure.sdk.workflow.step import Step
from tenure.v1 import journal_pb2
from tenure.v1.error_pb2 import ErrorDetail

# A report leaves room for what else is in its frame.
_REPORT_BYTES: Final = FRAME_BYTES // 2
# Reports of a group that are made before the first of them is answered.
_UNANSWERED_MAX: Final = 2

_Calls = list[ChildCall]


class Children:
    """The calls of a run that end elsewhere: made, on their way, open, or to be cancelled.

    Nothing is sent but at the frontier. The reports of an attempt are numbered from 1 on, and a run
    does not yield before all of them are answered.
    """

    def __init__(self, port: RunPort, journal: Journal) -> None:
        """Begin with nothing."""
        self._port = port
        self._journal = journal
        self._number = 0
        # Made, and not known to the server as a whole.
        self._unsent: deque[ChildCall] = deque()
        # What the server has or will have, until it ends or nobody waits for it.
        self._open: dict[str, ChildCall] = {}
        self._to_cancel: dict[str, ChildCall] = {}
        self._unanswered: dict[int, _Calls] = {}

    def begin(self) -> None:
        """Begin an attempt."""
        assert not self._unanswered
        self._number = 0

    # -- What the body does

    def add(self, call: ChildCall) -> None:
        """Take a call; what the server does not have of it is sent at the frontier."""
        self._open[call.key] = call
        if not call.is_stored:
            self._unsent.append(call)

    def cancel(self, call: ChildCall) -> None:
        """Ask a call to end that is cancelled, if the server has it by then."""
        self._to_cancel[call.key] = call

    def give_up(self, call: ChildCall) -> None:
        """Forget a call that nobody waits for any more."""
        self._open.pop(call.key, None)
        if call.on_cancel != "abandon":
            self.cancel(call)

    def ended(self, key: str) -> None:
        """Hear that the end of a call was delivered."""
        self._open.pop(key, None)
        self._to_cancel.pop(key, None)

    # -- What the run asks

    @property
    def is_busy(self) -> bool:
        """Whether the server has not answered everything."""
        return bool(self._unanswered)

    @property
    def has_unsent(self) -> bool:
        """Whether something is still to be sent."""
        return any(not call.step.done() for call in self._unsent) or bool(self._to_cancel)

    @property
    def awaited(self) -> Collection[ChildCall]:
        """The calls whose end the body waits for."""
        return self._open.values()

    def coming(self, run_id: str) -> ChildCall | None:
        """Return the call that makes a run, if the server does not have it yet."""
        coming = (call for call in self._open.values() if call.is_coming)
        return next((call for call in coming if call.is_known_as(run_id)), None)

    def left_open(self) -> list[Step[Any]]:
        """Return the calls that are closed although nobody has chosen that."""
        return [
            call.step
            for call in self._open.values()
            if call.on_close == "cancel" and not call.step.done()
        ]

    # -- At the frontier

    def carry_out(self, *, is_over: bool) -> None:
        """Send what the server does not have; ``is_over``: the body has ended.

        Then what would be closed at once is not begun.
        """
        if self._unsent:
            self._spawn(is_over=is_over)
        if self._to_cancel:
            self._cancel()

    def answered(self, number: int, error: ErrorDetail | None) -> ErrorDetail | None:
        """Hear what became of a report; return the refusal if somebody waits for its calls."""
        calls = self._unanswered.pop(number, None)
        if calls is None:
            return None
        if error is not None:
            is_of_interest = (not self._is_settled(call) for call in calls)
            return error if any(is_of_interest) else None
        for call in calls:
            call.is_stored = call.sent >= call.total
        return None

    def _is_settled(self, call: ChildCall) -> bool:
        return call.step.done() or self._journal.has_ended(call.key)

    # -- Inside

    def _spawn(self, *, is_over: bool) -> None:
        made, self._unsent = self._unsent, deque()
        singles: list[SingleCall] = []
        for call in made:
            if call.step.done() or (is_over and call.on_close != "abandon"):
                continue
            if isinstance(call, GroupCall):
                self._spawn_items(call)
            else:
                assert isinstance(call, SingleCall)
                singles.append(call)
        for calls, children in _reports(singles):
            for call in calls:
                call.sent = 1
            self._send(journal_pb2.SpawnReport(children=children), list(calls))

    def _spawn_items(self, call: GroupCall) -> None:
        """Send the next items of a group; the rest follows when these are answered."""
        unanswered = sum(calls == [call] for calls in self._unanswered.values())
        while call.sent < call.total and unanswered < _UNANSWERED_MAX:
            report = journal_pb2.SpawnReport(
                children=_items(call),
                group_key=call.key,
                group_index=call.step.call_key.index,
                group_total=call.total,
                fails_fast=call.fails_fast,
            )
            call.sent += len(report.children)
            self._send(report, [call])
            unanswered += 1
        if call.sent < call.total:
            self._unsent.append(call)

    def _send(self, report: journal_pb2.SpawnReport, calls: _Calls) -> None:
        self._number += 1
        report.number = self._number
        self._unanswered[self._number] = calls
        self._port.spawn(report)

    def _cancel(self) -> None:
        """Ask calls to end that the server has; a group whose end is awaited, when it is whole."""
        later: dict[str, ChildCall] = {}
        child_ids: list[str] = []
        for key, call in self._to_cancel.items():
            if self._journal.has_ended(key) or not call.sent:
                continue
            if not call.step.done() and call.sent < call.total:
                later[key] = call
            elif isinstance(call, GroupCall):
                self._ask(journal_pb2.ChildCancel(group_key=key))
            else:
                child_ids.append(call.id_of(0))
        self._to_cancel = later
        for first in range(0, len(child_ids), SPAWN_CHILDREN_MAX):
            some = child_ids[first : first + SPAWN_CHILDREN_MAX]
            self._ask(journal_pb2.ChildCancel(child_ids=some))

    def _ask(self, request: journal_pb2.ChildCancel) -> None:
        self._number += 1
        request.number = self._number
        request.reason = "the workflow has cancelled its call"
        self._unanswered[self._number] = []
        self._port.cancel_children(request)


def _reports(
    calls: list[SingleCall],
) -> Iterator[tuple[list[SingleCall], list[journal_pb2.NewChild]]]:
    """Yield calls that go into one report, and what is sent of them."""
    taken: list[SingleCall] = []
    children: list[journal_pb2.NewChild] = []
    size = 0
    for call in calls:
        child = call.new_child(0)
        child_size = call.size_of(child)
        size += child_size
        if children and (size > _REPORT_BYTES or len(children) == SPAWN_CHILDREN_MAX):
            yield taken, children
            taken, children, size = [], [], child_size
        taken.append(call)
        children.append(child)
    if children:
        yield taken, children


def _items(call: GroupCall) -> list[journal_pb2.NewChild]:
    """Return the next items of a group, as many as go into one report."""
    children: list[journal_pb2.NewChild] = []
    size = 0
    for item in range(call.sent, min(call.total, call.sent + SPAWN_CHILDREN_MAX)):
        child = call.new_child(item)
        size += call.size_of(child)
        if children and size > _REPORT_BYTES:
            break
        children.append(child)
    return children
