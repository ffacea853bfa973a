"""One run in this process: its body, its journal, and what it does at the frontier.

Recorded entries are delivered to the body one at a time, in their order, each when the body is
quiescent. When none is left the body is at the frontier: calls that were never recorded are carried
out there, and their ends are delivered when they are recorded, never before. Everything happens in
the thread of the user's loop; ``advance`` is a plain callback of that loop.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Coroutine, Iterable
from contextvars import Context
from typing import Any, Final

from tenure.sdk import failure
from tenure.sdk.payload import Converter, Payload, PayloadError, UserValue
from tenure.sdk.workflow import journal as recorded
from tenure.sdk.workflow.definition import Changes
from tenure.sdk.workflow.ending import Ending, Parked, Raised, Released, Returned, Wait, Yielded
from tenure.sdk.workflow.guard import Guard
from tenure.sdk.workflow.journal import Entry, Journal, Kind, Made, Mismatch, OpenCall, Recorded
from tenure.sdk.workflow.loop import DurableTimer, RunLoop, RunTask
from tenure.sdk.workflow.port import RunIdentity, RunPort
from tenure.sdk.workflow.scope import CallKey, Scope, current_scope
from tenure.sdk.workflow.signal import SignalInbox
from tenure.sdk.workflow.source_line import calling_line
from tenure.sdk.workflow.step import Step, StepFunction
from tenure.v1.error_pb2 import ErrorDetail

_log = logging.getLogger("tenure.workflow")
# So long the body has the user's loop for itself; then others have their turn.
_TURN_S: Final = 0.005
_ROUNDS_TO_PUT_ASIDE: Final = 100
_WAITS_MAX: Final = 20
_PATIENT_FROM: Final = 50


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
        self.loop = RunLoop(self, number=_first_number(identity.seed), guard_mode=guard)
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
        self._uncarried: list[Step[Any]] = []
        self._running: dict[str, Step[Any]] = {}
        self._timers: dict[str, DurableTimer] = {}
        # Timers that were reported, and steps that wait for a later attempt of theirs.
        self._fired: set[str] = set()
        self._put_off: dict[str, tuple[int, Step[Any]]] = {}
        self._unacknowledged: dict[int, Entry] = {}
        self._next_no = 1
        self._has_warned = False

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
        self.attempt = attempt
        self._next_no = 1
        self._is_ended = False
        self.take_open(open_calls, open_next)
        self.take_page(entries, end)

    def take_open(self, open_calls: Iterable[OpenCall], open_next: str | None) -> None:
        """Take what has not ended; a warm run knows it."""
        if self.main is None:
            self._open_next = open_next
            for call in open_calls:
                self.journal.add_open(call)
            self.wake()

    def take_group_page(
        self, group_key: str, after: int, entries: Iterable[Entry], end: int
    ) -> None:
        """Take results of a group: entries behind a position, and the number of its items."""
        raise NotImplementedError((group_key, after, entries, end))

    def children_answered(self, number: int, error: ErrorDetail | None) -> None:
        """Hear that children were stored or asked to end, or why nothing of that was done."""
        raise NotImplementedError((number, error))

    def fetch_again(self) -> None:
        """Ask again for what was not answered, because the session was lost."""
        if self.main is None and self._open_next:
            self._port.fetch_open(self._open_next)

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
        if self._running.pop(step.key, None) is None or self._is_ended:
            return
        if step.cancelled():
            self.wake()
        else:
            # The acknowledgement wakes the run.
            self._record(entry)

    def step_begun(self, step: Step[Any], entry: Entry) -> None:
        """Hear that a local step takes long; it is recorded that it has begun."""
        if step.key in self._running and not self._is_ended and not step.cancelled():
            self._record(entry)

    def step_put_off(self, step: Step[Any], entry: Entry) -> None:
        """Hear that the next attempt of a step is so late that a timer waits for it."""
        if self._running.pop(step.key, None) is None or self._is_ended:
            return
        if step.cancelled():
            self.wake()
        else:
            self._put_off[step.key] = (entry.next_at_ms, step)
            self._record(entry)

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
        if self.main is None and not self._is_complete():
            return
        if self.main is None:
            self.main = self.loop.start_task(self._body(), self._context)
        until_s = time.monotonic() + _TURN_S
        # What a body leaves behind when it returns does not go on: it would be a matter of luck.
        while self.main.done() or self.loop.run_quiet(until_s):
            if self._mismatch is not None:
                self._end(Parked(self._mismatch))
                return
            entry = self.journal.take_next()
            if entry is None:
                self._at_frontier()
                return
            self._deliver(entry)
            if time.monotonic() >= until_s:
                break
        self.wake()

    def _is_complete(self) -> bool:
        """Tell whether everything that was recorded is here; ask for the rest."""
        if self._open_next is None:
            self._port.fetch(0)
        elif not self.journal.is_complete:
            self._port.fetch(self.journal.received_to)
        elif self._open_next:
            self._port.fetch_open(self._open_next)
        else:
            return True
        return False

    def put_aside(self) -> bool:
        """End the body without a report; True if all of it has ended."""
        self._is_ended = True
        self.is_put_aside = True
        self.loop.is_silent = True
        for step in list(self._running.values()):
            self._port.stop_step(step)
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
            self._mismatch = self._mismatch or known
            self.is_put_aside = True
            raise Evicted
        self._called.add(call.key)
        return known

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
        self._uncarried.append(step)

    def give_up(self, step: Step[Any]) -> None:
        """Stop what runs for a call that the body has cancelled."""
        self._steps.pop(step.key, None)
        self._put_off.pop(step.key, None)
        if step.key in self._running:
            self._port.stop_step(step)

    def arm(self, timer: DurableTimer) -> None:
        """Keep a timer of the loop: a sleep, which is a call, or a timeout."""
        if self.is_put_aside:
            raise Evicted
        scope = current_scope.get()
        if timer.is_sleep:
            call = scope.next_call("sleep")
            self.call(call, Kind.TIMER, Made(calling_line()))
            timer.key, timer.index = call.key, call.index
        else:
            timer.key, timer.index = scope.next_timeout(), scope.call_count
        self._timers[timer.key] = timer

    def disarm(self, timer: DurableTimer) -> None:
        """Forget a timer that was cancelled."""
        self._timers.pop(timer.key, None)

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
            self._mismatch = self._mismatch or recorded.unreadable(entry, error)
            self.is_put_aside = True
            raise Evicted from error

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
        elif entry.key not in self._called and entry.is_call:
            self._mismatch = recorded.removed(entry)
        elif entry.kind is Kind.TIMER:
            self._fire(entry.key)
        else:
            self._settle(entry)

    def _fire(self, key: str) -> None:
        self._fired.discard(key)
        timer = self._timers.pop(key, None)
        if timer is not None:
            self.loop.fire(timer)

    def _settle(self, entry: Entry) -> None:
        step = self._steps.pop(entry.key, None)
        self._put_off.pop(entry.key, None)
        if step is None or step.done():
            return
        assert step.function is not None
        if entry.error is not None:
            step.set_exception(failure.of_step(entry.error, step.key, self.converter))
            return
        try:
            value = self.converter.decode(entry.payload, step.function.result_type)
        except PayloadError as error:
            self._mismatch = recorded.unreadable(entry, error)
            return
        step.set_result(value)

    # -- The frontier

    def _at_frontier(self) -> None:
        """Carry out what was never recorded; end the attempt when there is nothing to do here."""
        assert self.main is not None
        if not self.journal.is_complete:
            self._port.fetch(self.journal.received_to)
            return
        if not self._port.is_certain:
            return
        is_draining = self._port.is_draining
        if not is_draining:
            self._carry_out()
            self._start_put_off()
        if not _is_done(self.main):
            self._report_due()
        if self._running or self._unacknowledged:
            self._warn_of_open_steps()
            self._port.wake_at(self._next_at_ms())
        elif is_draining and any(not step.done() for step in self._uncarried):
            self._end(Released())
        elif self._put_off or not self.main.done():
            self._end(self._yielded())
        elif self.main.cancelled():
            self._end(Raised(asyncio.CancelledError(), self.is_cancel_requested))
        elif error := self.main.exception():
            self._end(Raised(error, self.is_cancel_requested))
        else:
            self._end(Returned(self.main.result()))

    def _warn_of_open_steps(self) -> None:
        """Say which steps a body has left behind that has returned: they are waited for."""
        if not _is_done(self.main) or self._has_warned:
            return
        self._has_warned = True
        for step in self._running.values():
            if not step.done():
                _log.warning(
                    "The body returned while step %s, called at %s, was open. It is waited for.",
                    *(step.key, step.line),
                )

    def _carry_out(self) -> None:
        steps, self._uncarried = self._uncarried, []
        for step in steps:
            if step.done():
                continue
            retries = self.journal.last_retry(step.key)
            if retries is not None and retries.next_at_ms > self._clock_ms:
                self._put_off[step.key] = (retries.next_at_ms, step)
            else:
                self._running[step.key] = step
                self._port.start_step(step, retries)

    def _start_put_off(self) -> None:
        """Start the next attempts of steps whose time has come."""
        if not self._put_off:
            return
        now_ms = self._clock_ms
        for key, (at_ms, step) in list(self._put_off.items()):
            if at_ms <= now_ms:
                del self._put_off[key]
                self._running[key] = step
                self._port.start_step(step, self.journal.last_retry(key))

    def _report_due(self) -> None:
        """Report timers whose time has come."""
        if not self._timers:
            return
        now_ms = self._clock_ms
        for key, timer in self._timers.items():
            if timer.fire_at_ms <= now_ms and key not in self._fired:
                self._fired.add(key)
                self._record(Entry(Kind.TIMER, key, timer.index, fire_at_ms=timer.fire_at_ms))

    def _next_at_ms(self) -> int | None:
        """Return when the next timer is due, or the next attempt of a step."""
        if not self._put_off and not self._timers:
            return None
        instants = [at_ms for at_ms, _ in self._put_off.values()]
        if not _is_done(self.main):
            instants += [
                timer.fire_at_ms for key, timer in self._timers.items() if key not in self._fired
            ]
        return min(instants, default=None)

    @property
    def _clock_ms(self) -> int:
        """What the server's time is at least."""
        return max(self._port.server_now_ms, self.now_ms)

    def _yielded(self) -> Yielded:
        waits = [
            *(Wait("timer", key, str(timer.fire_at_ms)) for key, timer in self._timers.items()),
            *(Wait("retry", key, str(at_ms)) for key, (at_ms, _) in self._put_off.items()),
            *(Wait("signal", name) for name in self.signals.awaited),
        ]
        wakes = [(timer.fire_at_ms, key, timer.index) for key, timer in self._timers.items()]
        wakes += [(at_ms, f"retry@{key}", 0) for key, (at_ms, _) in self._put_off.items()]
        wake_at_ms, wake_key, wake_index = min(wakes, default=(0, "", 0))
        end = self.journal.seen
        return Yielded(
            seen=end,
            wake_at_ms=wake_at_ms,
            wake_key=wake_key,
            wake_index=wake_index,
            patience_n=1,
            patience_ms=end if end >= _PATIENT_FROM else 0,
            waits=tuple(waits[:_WAITS_MAX]),
            wait_count=len(waits),
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


def _first_number(seed: str) -> int:
    """Return where the numbers of a run begin: the same on each re-run, far from other runs."""
    return int.from_bytes(seed.encode()[-6:], "big") << 12
