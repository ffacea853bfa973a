"""One run in this process: its body, its journal, and what it does at the frontier.

Recorded entries are delivered to the body one at a time, in their order, each when the body is
quiescent. When none is left the body is at the frontier: calls that were never recorded are carried
out there, and their ends are delivered when they are recorded, never before. Everything happens in
the thread of the user's loop; ``advance`` is a plain callback of that loop.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from contextvars import Context
from itertools import islice
from typing import Any, Final

from tenure.sdk.payload import Converter, Payload, PayloadError, UserValue
from tenure.sdk.workflow import journal as recorded
from tenure.sdk.workflow.child import ChildCall
from tenure.sdk.workflow.children import Children
from tenure.sdk.workflow.definition import Changes
from tenure.sdk.workflow.ending import Ending, Parked, Refused, Released, Yielded, ending_of, shown
from tenure.sdk.workflow.guard import Guard
from tenure.sdk.workflow.journal import Entry, Journal, Kind, Made, Mismatch, OpenCall, Recorded
from tenure.sdk.workflow.left_open import has_returned, warn_of_open
from tenure.sdk.workflow.local_calls import LocalCalls
from tenure.sdk.workflow.loop import DurableTimer, RunLoop, RunTask
from tenure.sdk.workflow.outside_signal import payload_of, signal_function, signal_name
from tenure.sdk.workflow.port import RunIdentity, RunPort
from tenure.sdk.workflow.results import GroupPages
from tenure.sdk.workflow.scope import CallKey, Scope, current_scope
from tenure.sdk.workflow.signal import Signal, SignalInbox
from tenure.sdk.workflow.source_line import calling_line
from tenure.sdk.workflow.step import Step, StepFunction, end_step
from tenure.sdk.workflow.timers import Timers
from tenure.v1.error_pb2 import ErrorDetail

# So long the body has the user's loop for itself; then others have their turn.
_TURN_S: Final = 0.005
_ROUNDS_TO_PUT_ASIDE: Final = 100
_WAITS_MAX: Final = 20
_PATIENT_FROM: Final = 50
# So long a run stays that waits for a child.
_LINGER_MS: Final = 200


class Evicted(BaseException):
    """Raised by each call of a body that was put aside: nothing it does counts any more."""


class Run:
    """One run: from its hand-out until it ends, or is put aside."""

    def __init__(
        self,
        port: RunPort,
        converter: Converter,
        identity: RunIdentity,
        *,
        changes: Changes = "park",
        guard: Guard = "refuse",
    ) -> None:
        """Prepare; ``start`` makes the body."""
        self._port = port
        self.converter = converter
        self.identity = identity
        self.journal = Journal(is_strict=changes == "park")
        self.now_ms = identity.begun_at_ms
        self.attempt = 0
        self.loop = RunLoop(self, number=identity.first_number, guard_mode=guard)
        self.scope = Scope("", identity.seed)
        self.signals = SignalInbox()
        self.is_cancel_requested = False
        self.is_put_aside = False
        self.randoms: dict[str, random.Random] = {}
        self.main: RunTask | None = None
        self._mismatch: Mismatch | None = None
        self._is_woken = False
        self._is_ended = True
        # Where the list of what is open goes on; None: nothing of it is here.
        self._open_next: str | None = None
        # Keys of calls that were made, and the steps among them that are not over.
        self._called: set[str] = set()
        self._steps: dict[str, Step[Any]] = {}
        self.local = LocalCalls(port, self.journal)
        self.timers = Timers()
        self._unacknowledged: dict[int, Entry] = {}
        self._next_no = 1
        self._has_warned = False
        self.children = Children(port, self.journal)
        self.pages = GroupPages(port, self)
        # Maps of nothing: their end is recorded as that of a step.
        self._empty: list[ChildCall] = []
        # Entries that were passed over, and whose calls the body has made since.
        self._late: deque[Entry] = deque()
        # Whether whatever the body does now it does for the first time.
        self._is_live = False
        self._patches: dict[str, bool] = {}
        # The position at which the run lingers, and until when.
        self._lingering = (-1, 0)

    # -- The worker's side

    def start(self, body: Callable[[], Coroutine[Any, Any, Any]], context: Context) -> None:
        """Make the body; it runs when the journal is complete."""
        context.run(current_scope.set, self.scope)
        self._body = body
        self._context = context

    def hand_out(
        self,
        attempt: int,
        entries: Iterable[Entry],
        end: int,
        open_calls: Iterable[OpenCall] = (),
        open_next: str | None = "",
    ) -> None:
        """Begin an attempt with a page of the journal; a warm run goes on where it was.

        ``open_calls`` are the children and groups that have not ended, and ``open_next`` is where
        their list goes on. None stands for a page that does not begin at the start, which says
        nothing of them: then the run asks for one that does, and ``take_open`` gets its list.
        """
        assert not self._unacknowledged
        self.children.begin()
        self.attempt = attempt
        self._next_no = 1
        self._is_ended = False
        self._lingering = (-1, 0)
        self.take_open(open_calls, open_next)
        self.take_page(entries, end)

    def take_open(self, open_calls: Iterable[OpenCall], open_next: str | None) -> None:
        """Take what has not ended; a warm run knows it."""
        if self.main is None:
            self._open_next = open_next
            for call in open_calls:
                self.journal.add_open(call)
            self.wake()

    def take_group_page(self, group_key: str, after: int, entries: Iterable[Entry]) -> None:
        """Take results of a group: entries behind the position that was asked for."""
        self.pages.take(group_key, after, list(entries))

    def children_answered(self, number: int, error: ErrorDetail | None) -> None:
        """Hear that children were stored or asked to end, or why nothing of that was done."""
        refusal = None if self._is_ended else self.children.answered(number, error)
        if refusal is not None:
            self._end(Refused(refusal.code, refusal.message))
        self.wake()

    def fetch_again(self) -> None:
        """Ask again for what was not answered, because the session was lost."""
        self.pages.fetch_again()
        if self.main is None:
            self.wake()

    def take_page(self, entries: Iterable[Entry], end: int) -> None:
        """Take entries that the server has; those of this attempt acknowledge what was sent."""
        self.journal.end = max(self.journal.end, end)
        for entry in entries:
            if entry.attempt == self.attempt and entry.no:
                self._unacknowledged.pop(entry.no, None)
            self.journal.add(entry, is_expected=entry.key in self._called)
        self.wake()

    def acknowledge(self, no: int, pos: int, at_ms: int) -> None:
        """Hear where an entry stands."""
        entry = self._unacknowledged.pop(no, None)
        if entry is None:
            return
        entry.pos, entry.at_ms, entry.attempt = pos, at_ms, self.attempt
        self.journal.add(entry, is_expected=True)
        self.wake()

    def unacknowledged(self) -> list[Entry]:
        """Return what was sent and not answered, in its order."""
        return list(self._unacknowledged.values())

    def step_ended(self, step: Step[Any], entry: Entry) -> None:
        """Hear how a local step ended; its future is told when that is recorded."""
        if self._is_over(step):
            # The acknowledgement wakes the run.
            self._record(entry)

    def step_begun(self, step: Step[Any], entry: Entry) -> None:
        """Hear that a local step takes long; it is recorded that it has begun."""
        if self.local.is_running(step) and not self._is_ended and not step.cancelled():
            self._record(entry)

    def step_put_off(self, step: Step[Any], entry: Entry) -> None:
        """Hear that the next attempt of a step is so late that a timer waits for it."""
        if self._is_over(step):
            self.local.put_off(step, entry.next_at_ms)
            self._record(entry)

    def _is_over(self, step: Step[Any]) -> bool:
        """Take a step from those that run; True if the body wants to hear of it."""
        if not self.local.over(step) or self._is_ended:
            return False
        if step.cancelled():
            self.wake()
        return not step.cancelled()

    @property
    def line(self) -> str:
        """The line of the body at which it waits, if it has begun."""
        return "its beginning" if self.main is None else self.main.line

    def wake(self) -> None:
        """Have the run go on soon."""
        if not self._is_woken and not self._is_ended:
            self._is_woken = True
            self._port.call_soon(self.advance)

    def advance(self) -> None:
        """Deliver what is there, and do what follows from it; a plain callback of the loop."""
        self._is_woken = False
        if self._is_ended:
            return
        main = self.main or self._begin()
        if main is None:
            return
        until_s = time.monotonic() + _TURN_S
        # What a body leaves behind when it returns does not go on: it would be a matter of luck.
        while main.done() or self.loop.run_quiet(until_s):
            if self._mismatch is not None:
                self._end(Parked(self._mismatch))
                return
            if not self._deliver_next():
                return
            if time.monotonic() >= until_s:
                break
        if not self.loop.is_away:
            self.wake()

    def _deliver_next(self) -> bool:
        """Deliver what comes next to a quiescent body; False if nothing is here."""
        assert self.main is not None
        has_page = None if self.main.done() else self.pages.deliver()
        if has_page is not None:
            return has_page
        if self._late:
            self._settle(self._late.popleft())
            return True
        entry = self.journal.take_next()
        if entry is None:
            self._at_frontier()
            return False
        self._deliver(entry)
        return True

    def _begin(self) -> RunTask | None:
        """Start the body if everything that was recorded is here, and else ask for the rest."""
        if self._open_next is None:
            self._port.fetch(0)
        elif not self.journal.is_complete:
            self._port.fetch(self.journal.received_to)
        elif self._open_next:
            self._port.fetch_open(self._open_next)
        else:
            self._is_live = self.journal.is_untouched
            self.main = self.loop.start_task(self._body(), self._context)
        return self.main

    def put_aside(self) -> bool:
        """End the body without a report; True if all of it has ended."""
        self._is_ended = True
        self.is_put_aside = True
        self.loop.is_silent = True
        self.pages.close()
        self.local.stop()
        self._port.wake_at(None)
        for _ in range(_ROUNDS_TO_PUT_ASIDE):
            tasks = [each for each in self.loop.tasks.values() if not each.done()]
            if not tasks:
                return True
            for task in tasks:
                task.cancel()
            self.loop.run_quiet(time.monotonic() + _TURN_S)
        return False

    # -- The body's side

    def call(self, call: CallKey, kind: Kind, made: Made) -> Recorded | None:
        """Return what the server has of a call that the body makes now.

        A call that does not fit the journal ends the body.
        """
        self.check_place()
        known = self.journal.meet(call, kind, made)
        if isinstance(known, Mismatch):
            raise self.end_body(known)
        self._called.add(call.key)
        if known is not None and 0 < known.pos <= self.journal.seen:
            assert isinstance(known, Entry)
            self._late.append(known)
        return known

    def end_body(self, mismatch: Mismatch) -> Evicted:
        """End the body, because what was recorded does not fit; return what to raise."""
        self._mismatch = self._mismatch or mismatch
        self.is_put_aside = True
        return Evicted()

    def check_place(self) -> None:
        """Raise if nothing may be called now."""
        if not self.loop.is_running():
            message = "ctx works only in the body of its workflow, not in steps or other threads"
            raise RuntimeError(f"{calling_line()}: {message}")
        if self.is_put_aside:
            raise Evicted

    def start_call(self, step: Step[Any], function: StepFunction) -> None:
        """Take a call of a local step; it is carried out at the frontier."""
        step.function = function
        self._steps[step.key] = step
        self.local.add(step)

    def start_child(self, call: ChildCall, known: Recorded | None) -> None:
        """Take a call that ends elsewhere; what the server lacks of it is sent at the frontier."""
        self._steps[call.key] = call.step
        if isinstance(known, OpenCall):
            call.adopt(known)
        elif isinstance(known, Entry) and known.child is not None:
            call.known_id = known.child.task_id
        if call.total and not isinstance(known, Entry):
            self.children.add(call)
        elif known is None:
            self._empty.append(call)

    def give_up(self, step: Step[Any]) -> None:
        """Stop what runs for a call that the body has cancelled."""
        self._steps.pop(step.key, None)
        if step.child is not None:
            self.children.give_up(step.child)
        else:
            self.local.give_up(step)

    def send_signal(
        self, step: Step[None], run_id: str, sig: Signal[Any] | str, value: object
    ) -> None:
        """Take a step that sends a signal."""
        payload = payload_of(sig, value, self.converter)
        signal_id = self.identity.call_id(step.key)
        name = signal_name(sig)
        self.start_call(step, signal_function(self._port, run_id, name, payload, signal_id))

    def patched(self, patch: str, line: str) -> bool:
        """Tell whether the body takes its new way: the same on each re-run.

        A run that took the old way has something behind this call that is not met yet, on each
        re-run. So there is no need to record that it takes the old one.
        """
        known = self._patches.get(patch)
        if known is None:
            known = self.journal.has_note(Kind.PATCH, patch)
            if not known and (self._is_live or self.journal.is_met):
                known = True
                self._record(Entry(Kind.PATCH, patch, line=line))
            self._patches[patch] = known
        return known

    def arm(self, timer: DurableTimer) -> None:
        """Keep a timer of the loop: a sleep, which is a call, or a timeout."""
        if self.is_put_aside:
            raise Evicted
        scope = current_scope.get()
        timer.line, timer.armed_at_ms = calling_line(), self.now_ms
        if timer.is_sleep:
            call = scope.next_call("sleep")
            self.call(call, Kind.TIMER, Made(timer.line))
            timer.key, timer.index = call.key, call.index
        else:
            timer.key, timer.index = scope.next_timeout(), scope.call_count
        self.timers.add(timer)

    def disarm(self, timer: DurableTimer) -> None:
        """Forget a timer that was cancelled."""
        self.timers.remove(timer)

    def note(self, key: str, text: str, level: str) -> bool:
        """Record a line of the log; False if it was recorded before."""
        if self.journal.has_note(Kind.NOTE, key):
            return False
        self._record(Entry(Kind.NOTE, key, output=text.encode(), encoding=level))
        return True

    def publish(
        self,
        *,
        state: Payload | None = None,
        percent: float | None = None,
        message: str | None = None,
    ) -> None:
        """Show something of the run to those who look at it; on a re-run it was shown before."""
        if self.journal.is_delivered:
            self._port.publish(state, percent, message)

    def decode(self, entry: Entry, wanted: UserValue) -> UserValue:
        """Return the value of an entry; one that does not fit the type parks the run."""
        try:
            return self.converter.decode(entry.payload, wanted)
        except PayloadError as error:
            raise self.end_body(recorded.unreadable(entry, error)) from error

    # -- Delivery

    def _deliver(self, entry: Entry) -> None:
        self.now_ms = max(self.now_ms, entry.at_ms)
        if entry.is_silent:
            return
        if entry.kind is Kind.SIGNAL:
            self.signals.put(entry.key, entry)
        elif entry.kind is Kind.CANCEL:
            self.is_cancel_requested = True
            assert self.main is not None
            self.main.cancel()
        elif entry.is_call and entry.key not in self._called:
            # Code that tolerates changes may call for it later.
            if self.journal.is_strict:
                self._mismatch = recorded.removed(entry)
        else:
            self._settle(entry)

    def _settle(self, entry: Entry) -> None:
        """Tell whoever waits for it."""
        if entry.kind is Kind.TIMER:
            timer = self.timers.fired(entry.key)
            if timer is not None:
                self.loop.fire(timer)
            return
        step = self._steps.pop(entry.key, None)
        self.local.ended(entry.key)
        self.children.ended(entry.key)
        if step is None or step.done():
            return
        try:
            end_step(step, entry, self.converter)
        except PayloadError as error:
            self._mismatch = recorded.unreadable(entry, error)

    # -- The frontier

    def _at_frontier(self) -> None:
        """Carry out what was never recorded; end the attempt when there is nothing to do here."""
        assert self.main is not None
        if not self._has_met_all() or not self._port.is_certain:
            return
        self._act()
        if self.local.running or self._unacknowledged or self.children.is_busy:
            self._warn_of_open_calls()
            self._port.wake_at(self._next_at_ms())
        elif self._port.is_draining and self._has_uncarried:
            self._end(Released())
        elif self.local.is_waiting or not self.main.done():
            if not self._lingers():
                self._end(self._yielded())
        else:
            self._warn_of_open_calls()
            self._end(self._over(self.main))

    def _has_met_all(self) -> bool:
        """Tell whether nothing is left that was recorded; if so, the body is live from now on."""
        uncalled = self.journal.uncalled()
        if not self.journal.is_complete:
            self._port.fetch(self.journal.received_to)
            return False
        if uncalled is not None:
            self._end(Parked(recorded.removed(uncalled, self.line)))
            return False
        self._is_live = True
        return True

    def _act(self) -> None:
        """Begin what can be begun here."""
        is_over = _is_done(self.main)
        if not self._port.is_draining and not self._awaits_patch:
            self._end_empty()
            self.local.carry_out(self._clock_ms)
            self.children.carry_out(is_over=is_over)
        if not is_over:
            for entry in self.timers.due(self._clock_ms):
                self._record(entry)

    @property
    def _awaits_patch(self) -> bool:
        """Whether the body has taken a new way that the next attempt might not take.

        Nothing of it begins before it is recorded.
        """
        return any(each.kind is Kind.PATCH for each in self._unacknowledged.values())

    @property
    def _has_uncarried(self) -> bool:
        has_empty = any(not call.step.done() for call in self._empty)
        return has_empty or self.local.has_uncarried or self.children.has_unsent

    def _lingers(self) -> bool:
        """Stay for a moment: a child that ends soon costs its run nothing then."""
        if not self.children.awaited or self.local.is_waiting or not self._port.may_linger:
            return False
        seen, until_ms = self._lingering
        now_ms = self._clock_ms
        if seen != self.journal.seen:
            until_ms = now_ms + _LINGER_MS
            self._lingering = self.journal.seen, until_ms
        if now_ms >= until_ms:
            return False
        next_at_ms = self._next_at_ms()
        self._port.wake_at(until_ms if next_at_ms is None else min(until_ms, next_at_ms))
        return True

    def _over(self, main: RunTask) -> Ending:
        is_cancel, seen = self.is_cancel_requested, self.journal.seen
        return ending_of(main, is_cancel=is_cancel, untaken=self.signals.untaken, seen=seen)

    def _warn_of_open_calls(self) -> None:
        """Say which calls a body has left behind that has ended."""
        if self.main is not None and self.main.done() and not self._has_warned:
            self._has_warned = True
            if has_returned(self.main):
                warn_of_open(self.identity, self.local.left_open(), self.children.left_open())

    def _end_empty(self) -> None:
        """Record the ends of maps of nothing."""
        for call in self._empty:
            step = call.step
            if not step.done():
                index = step.call_key.index
                self._record(Entry(Kind.STEP, step.key, index, output=b"null", line=step.line))
        self._empty.clear()

    def _next_at_ms(self) -> int | None:
        """Return when the next timer is due, or the next attempt of a step."""
        instants = list(self.local.instants())
        if not _is_done(self.main):
            instants += self.timers.instants()
        return min(instants, default=None)

    @property
    def _clock_ms(self) -> int:
        """What the server's time is at least."""
        return max(self._port.server_now_ms, self.now_ms)

    def _yielded(self) -> Yielded:
        awaited = self.children.awaited
        waits = [
            *(each.wait for each in islice(awaited, _WAITS_MAX)),
            *self.timers.waits(),
            *self.local.waits(),
            *self.signals.waits(),
        ]
        wakes = self.timers.wakes() + self.local.wakes()
        wake_at_ms, wake_key, wake_index = min(wakes, default=(0, "", 0))
        end = self.journal.seen
        is_long = end >= _PATIENT_FROM
        return Yielded(
            seen=end,
            wake_at_ms=wake_at_ms,
            wake_key=wake_key,
            wake_index=wake_index,
            patience_n=max(1, len(awaited) // 4) if is_long else 1,
            patience_ms=end if is_long else 0,
            waits=shown(waits[:_WAITS_MAX], self.line),
            wait_count=len(waits) + max(0, len(awaited) - _WAITS_MAX),
        )

    def _record(self, entry: Entry) -> None:
        entry.no = self._next_no
        self._next_no += 1
        self._unacknowledged[entry.no] = entry
        self._port.send(entry)

    def _end(self, ending: Ending) -> None:
        self._is_ended = True
        self._port.wake_at(None)
        self._port.end(ending)


def _is_done(main: RunTask | None) -> bool:
    return main is not None and main.done()
