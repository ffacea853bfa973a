"""What a worker holds: every attempt, from its delivery to the acknowledgement of its end.

Pure: nothing here waits, reads a clock or sends. Confirmations, heartbeats and ends are taken out
in batches, and put back if the server does not answer.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from tenure.core.limits import FRAME_BYTES, PAYLOAD_BYTES_MAX
from tenure.core.task.retry import ErrorCategory
from tenure.core.worker.decide import OTHER_KEY
from tenure.errors import ERRORS
from tenure.sdk.activity.context import StopReason
from tenure.sdk.failure import make_error
from tenure.sdk.worker.connection.exclusive import Exclusives
from tenure.sdk.worker.connection.run_reports import RunMessages, RunReports
from tenure.sdk.worker.connection.seen_attempts import SeenAttempts
from tenure.sdk.worker.executor_protocol import ChildReport, NumberedEntry, WantedPage
from tenure.v1 import journal_pb2, task_pb2
from tenure.v1.error_pb2 import ErrorDetail

Ref = tuple[str, int]
"""(task id, attempt)"""

# Most tasks end within this time. The server never has to store them as running.
CONFIRM_AFTER_S: Final = 0.5
# A report that the server could not take is repeated after this time, unless it names another.
AGAIN_S: Final = 0.2
# Our clock starts later than the server's: an attempt this close to its timeout has timed out.
NEARLY: Final = 0.9
# An output may have its full size, with a trace and what is around them; together with a frame
# that is nearly full it still passes the server's limit for a message.
_REPORT_BYTES_MAX: Final = PAYLOAD_BYTES_MAX + FRAME_BYTES // 2
_GONE: Final = frozenset({"attempt_mismatch", "task_already_terminal", "task_expired", "not_found"})
_REASONS: Final = frozenset(each.value for each in StopReason) - {StopReason.LOST_LEASE.value}
_SUCCEEDED: Final = task_pb2.FINISH_KIND_SUCCEEDED
_FAILED: Final = task_pb2.FINISH_KIND_FAILED
_RELEASED: Final = task_pb2.FINISH_KIND_RELEASED
_CANCELLED: Final = task_pb2.FINISH_KIND_CANCELLED


class HeldAttempt(msgspec.Struct, eq=False):
    """One attempt that this worker holds."""

    ref: Ref
    # Until the attempt ends. Its timeouts explain why it is stopped.
    task: task_pb2.AssignedTask | None
    delivered_at_s: float
    confirm_at_s: float = math.inf
    beat_at_s: float = 0.0
    finish: task_pb2.TaskFinish | None = None
    size: int = 0
    # A heartbeat that the server could not take.
    beat_again: task_pb2.TaskBeat | None = None
    is_confirmed: bool = False
    is_replaced: bool = False
    is_over: bool = False
    # Of an attempt that has failed.
    task_type: str = ""


class Reports(NamedTuple):
    """The reports of one frame, in this order."""

    started: list[task_pb2.TaskRef]
    beats: list[task_pb2.TaskBeat]
    finished: list[task_pb2.TaskFinish]
    # Of runs; before the ends.
    runs: RunMessages = RunMessages()


class HeldAttempts:
    """All attempts of one incarnation."""

    def __init__(self) -> None:
        self._held: dict[Ref, HeldAttempt] = {}
        self._seen = SeenAttempts()
        self._waiting: dict[Ref, HeldAttempt] = {}
        # Started attempts, oldest first. Each is confirmed after a while.
        self._young: deque[HeldAttempt] = deque()
        self._confirm: dict[Ref, None] = {}
        self._beats: dict[Ref, task_pb2.TaskBeat] = {}
        # Sent. The answer to a later heartbeat of the worker shows that they have arrived.
        self._sent_beats: dict[Ref, task_pb2.TaskBeat] = {}
        self._passed_beats: dict[Ref, task_pb2.TaskBeat] = {}
        self._unsent: deque[HeldAttempt] = deque()
        self._again: deque[tuple[float, HeldAttempt]] = deque()
        self._unbound: dict[Ref, None] = {}
        self.exclusives = Exclusives()
        self.runs = RunReports()
        self.completed_total = 0
        self.failed_total = 0
        # How many of the held attempts have not ended.
        self.open_count = 0

    def __len__(self) -> int:
        """Return how many attempts are held, including those whose end is not acknowledged."""
        return len(self._held)

    def __contains__(self, ref: Ref) -> bool:
        return ref in self._held

    @property
    def finished_count(self) -> int:
        """How many ends are not acknowledged."""
        return sum(each.finish is not None for each in self._held.values())

    # -- Delivery

    def begin(self, task: task_pb2.AssignedTask, now_s: float) -> bool:
        """Hold an attempt that starts now; False if it, or a higher one, was here before."""
        ref = (task.task_id, task.attempt)
        if not self._seen.take(*ref) or ref in self._held:
            return False
        held = self._held[ref] = HeldAttempt(ref, task, now_s, now_s + CONFIRM_AFTER_S)
        self._young.append(held)
        self.open_count += 1
        return True

    def deliver(self, task: task_pb2.AssignedTask, now_s: float) -> HeldAttempt | None:
        """Hold an attempt that does not start yet; None if it, or a higher one, was here before."""
        ref = (task.task_id, task.attempt)
        if not self._seen.take(*ref) or ref in self._held:
            return None
        held = self._held[ref] = HeldAttempt(ref, task, now_s)
        self.open_count += 1
        return held

    def lower(self, task: task_pb2.AssignedTask) -> list[Ref]:
        """Return the attempts of a task that are lower than a new one."""
        return [ref for ref in self._held if ref[0] == task.task_id and ref[1] < task.attempt]

    def wait(self, held: HeldAttempt) -> None:
        """Let an attempt wait until the lease is renewed, or a lower attempt has ended."""
        self._waiting[held.ref] = held

    @property
    def has_waiting(self) -> bool:
        """Return whether an attempt waits to be started."""
        return bool(self._waiting)

    def take_waiting(self) -> list[HeldAttempt]:
        """Remove and return the attempts that wait to be started."""
        waiting, self._waiting = list(self._waiting.values()), {}
        return waiting

    def start(self, held: HeldAttempt, now_s: float) -> task_pb2.AssignedTask:
        """Record that an attempt starts now."""
        assert held.task is not None
        held.confirm_at_s = now_s + CONFIRM_AFTER_S
        self._young.append(held)
        return held.task

    def ask(self, held: HeldAttempt) -> None:
        """Ask the server whether an exclusive attempt may start."""
        assert held.task is not None
        held.is_confirmed = True
        self.exclusives.ask(held.ref, held.task)
        self._confirm[held.ref] = None

    def accept(self, ref: Ref, now_s: float) -> HeldAttempt | None:
        """Take the permission to start an exclusive attempt; None if it came too late."""
        held = self._held.get(ref)
        if held is None or not self.exclusives.is_asked(ref):
            return None
        if not self.exclusives.accept(ref, now_s):
            self._confirm[ref] = None
            return None
        return held

    def take_asked(self) -> list[HeldAttempt]:
        """Remove and return the attempts that wait for a permission that will not come."""
        asked = self.exclusives.asked()
        for ref in asked:
            self.exclusives.drop(ref)
            self._confirm.pop(ref, None)
            self._held[ref].is_confirmed = False
        return [self._held[ref] for ref in asked]

    # -- What execution says

    def finish(self, finish: task_pb2.TaskFinish) -> None:
        """Keep the end of a held attempt until it is acknowledged."""
        held = self._held.get((finish.task_id, finish.attempt))
        if held is None or held.finish is not None:
            return
        kind = finish.kind
        if kind == _SUCCEEDED:
            self.completed_total += 1
        elif kind == _FAILED:
            self.failed_total += 1
            held.task_type = "" if held.task is None else held.task.type
        held.finish, held.task = finish, None
        self.open_count -= 1
        self.exclusives.drop(held.ref)
        held.size = finish.ByteSize()
        self._unsent.append(held)
        if held.size > _REPORT_BYTES_MAX:
            self._replace(held, "payload_too_large", "The result is larger than a payload may be.")

    def release(self, ref: Ref) -> None:
        """Hand back an attempt that did not start."""
        self.finish(_end(ref, _RELEASED))

    def beat(self, beat: task_pb2.TaskBeat, now_s: float) -> bool:
        """Keep the last heartbeat of an attempt for the next frame; False if it is too large."""
        ref = (beat.task_id, beat.attempt)
        held = self._held.get(ref)
        if held is None or held.finish is not None:
            return True
        if beat.ByteSize() > _REPORT_BYTES_MAX:
            return False
        held.beat_at_s = now_s
        # A heartbeat also confirms the attempt.
        held.is_confirmed = True
        self._beats[ref] = beat
        return True

    # -- Runs

    def record(self, entries: Sequence[NumberedEntry]) -> None:
        """Keep entries of runs that are held."""
        held = self._held
        self.runs.entries.put([each for each in entries if each[:2] in held])

    def report_children(self, reports: Sequence[ChildReport]) -> None:
        """Keep what runs that are held report of their children."""
        held = self._held
        self.runs.children.put([each for each in reports if (each.task_id, each.attempt) in held])

    def fetch(self, wanted: WantedPage) -> None:
        """Ask for a part of what the server has of a run that is held."""
        if wanted[:2] in self._held:
            self.runs.pages.ask(wanted)

    def steps_refused(self, ref: Ref, error: ErrorDetail, now_s: float) -> StopReason | None:
        """Handle the refusal of a report of steps; return why to stop.

        It is tried again if that may help; what ``is_refused_for_good`` is the run's own matter.
        """
        if error.code == "out_of_order":
            self.runs.entries.ask_again(ref)
        elif is_passing_refusal(error):
            self.runs.entries.ask_again(ref, now_s + _pause_s(error))
        return self._run_refused(ref, error, now_s)

    def page_refused(self, page: task_pb2.JournalPage, now_s: float) -> StopReason | None:
        """Handle the refusal of a request for a page, in the same way."""
        if is_passing_refusal(page.error):
            self.runs.pages.refused(page, now_s + _pause_s(page.error))
        return self._run_refused((page.task_id, page.attempt), page.error, now_s)

    def children_refused(self, ack: journal_pb2.ChildAck, now_s: float) -> StopReason | None:
        """Handle the refusal of a report of children, in the same way."""
        ref = (ack.task_id, ack.attempt)
        if is_passing_refusal(ack.error):
            self.runs.children.refused(ref, ack.number, now_s, _pause_s(ack.error))
        return self._run_refused(ref, ack.error, now_s)

    def _run_refused(self, ref: Ref, error: ErrorDetail, now_s: float) -> StopReason | None:
        """Forget a run that the server has given up; return why its code must stop."""
        held = self._held.get(ref)
        if held is None or held.finish is not None or not _is_gone(error):
            return None
        self._drop(held)
        return _why(held, now_s, error.reason)

    # -- What the server says

    def cancel(self, ref: Ref) -> bool:
        """Cancel an attempt; True if it runs and has to be stopped."""
        held = self._held.get(ref)
        if held is None or held.finish is not None:
            return False
        if is_run(held.task):
            # It hears of it by its journal, and its code may clean up.
            return ref not in self._waiting
        if self._waiting.pop(ref, None) is not None or self.exclusives.is_asked(ref):
            self._confirm.pop(ref, None)
            self.finish(_end(ref, _CANCELLED))
            return False
        return True

    def stop(self, ref: Ref, now_s: float, reason: str = "") -> StopReason | None:
        """Forget an attempt that this worker has lost; if it runs, return why it must stop.

        ``reason`` is what the server said. An attempt that has ended is still reported: the server
        may have accepted that report already.
        """
        held = self._held.get(ref)
        if held is None or held.finish is not None:
            return None
        is_running = ref not in self._waiting and not self.exclusives.is_asked(ref)
        self._drop(held)
        return _why(held, now_s, reason) if is_running else None

    def failure_of(self, ref: Ref) -> tuple[str, task_pb2.TaskFinish] | None:
        """Return the type of a task and how its attempt ended, if that was a failure."""
        held = self._held.get(ref)
        if held is None or held.finish is None or held.finish.kind != _FAILED:
            return None
        return held.task_type, held.finish

    def acknowledge(self, ref: Ref) -> None:
        """Forget an attempt whose end was accepted."""
        held = self._held.get(ref)
        if held is not None and held.finish is not None:
            self._drop(held)

    def answered(self, ref: Ref, error: ErrorDetail, now_s: float) -> None:
        """Handle the refusal of the end of an attempt."""
        held = self._held.get(ref)
        if held is None or held.finish is None:
            return
        if _is_gone(error):
            self._drop(held)
        elif _is_retryable(error):
            self._again.append((now_s + _pause_s(error), held))
        elif held.is_replaced:
            # The server takes no report of it, so it must learn that nobody works on it.
            self._drop(held)
            self._unbound[ref] = None
        else:
            self._replace(held, error.code, error.message)
            self._unsent.append(held)

    def refused(self, ref: Ref, error: ErrorDetail, now_s: float) -> StopReason | None:
        """Handle a refused confirmation or heartbeat; return why to stop, if that follows."""
        held = self._held.get(ref)
        if held is None or held.finish is not None:
            return None
        if _is_gone(error):
            self._drop(held)
            # A server of an earlier version gives no reason.
            is_cancel = error.state == "CANCELLED"
            return StopReason.CANCELLED if is_cancel else _why(held, now_s, error.reason)
        self.exclusives.beat_refused(ref)
        if _is_retryable(error):
            held.beat_again = self._sent_beats.pop(ref, None) or self._passed_beats.pop(ref, None)
            self._again.append((now_s + _pause_s(error), held))
        elif self.exclusives.is_asked(ref):
            # It never starts here without the server's permission.
            self.release(ref)
        return None

    # -- Reports

    def take(self, now_s: float, bytes_max: int = FRAME_BYTES) -> Reports | None:
        """Return the reports to send, as many as fit in a frame. Each is returned once."""
        self._ripen(now_s)
        if not (self._unsent or self._beats or self._confirm or self.runs.has_news):
            return None
        started = self._take_started(now_s) if self._confirm else []
        beats, size = self._take_beats(bytes_max, now_s) if self._beats else ([], 0)
        runs, runs_size = self.runs.take(bytes_max - size)
        size += runs_size
        # Heartbeats go before the ends, even when they fill the frame.
        finished = [] if self._beats else self._take_finished(bytes_max - size)
        return Reports(started, beats, finished, runs)

    def next_at_s(self) -> float:
        """Return when there is something to say that is not there yet."""
        young = self._young
        while young and (young[0].finish is not None or young[0].is_over):
            young.popleft()
        due_at_s = young[0].confirm_at_s if young else math.inf
        due_at_s = min(due_at_s, self.runs.next_at_s())
        return min(due_at_s, self._again[0][0]) if self._again else due_at_s

    def held_refs(self) -> list[task_pb2.TaskRef]:
        """Return every attempt that is held."""
        return [task_pb2.TaskRef(task_id=ref[0], attempt=ref[1]) for ref in self._held]

    def take_unbound(self) -> list[task_pb2.TaskRef]:
        """Return the attempts that were given up although the server did not accept their end."""
        refs, self._unbound = self._unbound, {}
        return [task_pb2.TaskRef(task_id=ref[0], attempt=ref[1]) for ref in refs]

    def put_unbound(self, refs: Iterable[task_pb2.TaskRef]) -> None:
        """Report again which attempts were given up."""
        self._unbound.update(dict.fromkeys((each.task_id, each.attempt) for each in refs))

    def send_again(self) -> None:
        """Send again, on a new connection, what was not answered on the old one."""
        self.exclusives.disconnected()
        self._confirm.update(dict.fromkeys(self.exclusives.asked()))
        for _, held in self._again:
            if not held.is_over:
                self._repeat(held)
        self._again.clear()
        self._unsent = deque(each for each in self._held.values() if each.finish is not None)
        for ref, beat in (self._passed_beats | self._sent_beats).items():
            self._beats.setdefault(ref, beat)
        self._passed_beats, self._sent_beats = {}, {}
        self.runs.session_opened()

    def restart(self, reports: Reports) -> None:
        """Send these again, because no answer came."""
        for ref in reports.started:
            key = (ref.task_id, ref.attempt)
            if key in self._held:
                self._confirm[key] = None
        for beat in reports.beats:
            key = (beat.task_id, beat.attempt)
            if key in self._held:
                self._beats.setdefault(key, beat)
                self.exclusives.beat_unanswered(key)
        for finish in reports.finished:
            held = self._held.get((finish.task_id, finish.attempt))
            if held is not None:
                self._unsent.append(held)
        self.runs.restart(reports.runs)

    def pass_beats(self) -> None:
        """Record that a heartbeat of the worker is sent after these heartbeats of attempts."""
        self._passed_beats |= self._sent_beats
        self._sent_beats = {}

    def settle_beats(self) -> None:
        """Forget heartbeats of attempts that have arrived."""
        self._passed_beats = {}

    # -- The end of an incarnation

    def hand_back_waiting(self) -> None:
        """Hand back everything that was not started."""
        for held in self.take_waiting():
            self.release(held.ref)
        for held in self.take_asked():
            self.release(held.ref)

    def abandon(self) -> list[Ref]:
        """Forget the attempts that have not ended; return those that run."""
        for held in (*self.take_waiting(), *self.take_asked()):
            self._drop(held)
        running = [held for held in self._held.values() if held.finish is None]
        for held in running:
            self._drop(held)
        return [held.ref for held in running]

    # -- Inside

    def _ripen(self, now_s: float) -> None:
        """Queue the reports that are due now."""
        self.runs.ripen(now_s)
        young = self._young
        while young and young[0].confirm_at_s <= now_s:
            held = young.popleft()
            if held.finish is None and not held.is_over and not held.is_confirmed:
                held.is_confirmed = True
                self._confirm[held.ref] = None
        again = self._again
        while again and again[0][0] <= now_s:
            held = again.popleft()[1]
            if not held.is_over:
                self._repeat(held)

    def _repeat(self, held: HeldAttempt) -> None:
        """Report again what the server could not take."""
        beat, held.beat_again = held.beat_again, None
        if beat is not None:
            self._beats.setdefault(held.ref, beat)
        if held.finish is not None:
            self._unsent.append(held)
        elif beat is None:
            self._confirm[held.ref] = None

    def _take_started(self, now_s: float) -> list[task_pb2.TaskRef]:
        taken = []
        for ref in self._confirm:
            is_exclusive = ref in self.exclusives
            if is_exclusive:
                self.exclusives.sent(ref, now_s)
            taken.append(task_pb2.TaskRef(task_id=ref[0], attempt=ref[1], exclusive=is_exclusive))
        self._confirm.clear()
        return taken

    def _take_beats(self, bytes_max: int, now_s: float) -> tuple[list[task_pb2.TaskBeat], int]:
        taken: list[task_pb2.TaskBeat] = []
        size = 0
        while self._beats and size < bytes_max:
            ref = next(iter(self._beats))
            beat = self._beats.pop(ref)
            size += beat.ByteSize()
            self._sent_beats[ref] = beat
            self.exclusives.beat_sent(ref, now_s)
            taken.append(beat)
        return taken, size

    def _take_finished(self, bytes_max: int) -> list[task_pb2.TaskFinish]:
        taken: list[task_pb2.TaskFinish] = []
        unsent = self._unsent
        size = 0
        while unsent and size < bytes_max:
            held = unsent.popleft()
            finish = held.finish
            if held.is_over or finish is None:
                continue
            size += held.size
            taken.append(finish)
        return taken

    def _replace(self, held: HeldAttempt, code: str, message: str) -> None:
        """Replace an end that the server does not accept by a failure."""
        assert held.finish is not None
        if held.finish.kind == _SUCCEEDED:
            self.completed_total -= 1
            self.failed_total += 1
        held.is_replaced = True
        held.finish = _end(held.ref, _FAILED)
        text = f"The server refused the end of this attempt ({code}): {message}"
        held.finish.error.CopyFrom(make_error(text, code, ErrorCategory.DATA_QUALITY))
        held.size = held.finish.ByteSize()

    def _drop(self, held: HeldAttempt) -> None:
        held.is_over = True
        if held.finish is None:
            self.open_count -= 1
        ref = held.ref
        del self._held[ref]
        self.exclusives.drop(ref)
        self.runs.drop(ref)
        # Most attempts are in none of these.
        for others in (self._waiting, self._confirm, self._beats):
            if others:
                others.pop(ref, None)
        if self._sent_beats or self._passed_beats:
            self._sent_beats.pop(ref, None)
            self._passed_beats.pop(ref, None)


def _end(ref: Ref, kind: task_pb2.FinishKind.ValueType) -> task_pb2.TaskFinish:
    return task_pb2.TaskFinish(task_id=ref[0], attempt=ref[1], kind=kind)


def is_run(task: task_pb2.AssignedTask | None) -> bool:
    """Return whether a task is a run of a workflow."""
    return task is not None and task.kind == task_pb2.TASK_KIND_WORKFLOW


def is_passing_refusal(error: ErrorDetail) -> bool:
    """Return whether the same report of a run may be accepted later."""
    return error.code == "too_early" or (_is_retryable(error) and not _is_gone(error))


def is_refused_for_good(error: ErrorDetail) -> bool:
    """Return whether the same report of a run is never accepted."""
    return not (is_passing_refusal(error) or _is_gone(error))


def _is_gone(error: ErrorDetail) -> bool:
    """Return whether the server has given the attempt up, or the worker that holds it."""
    is_over = error.code == "worker_inactive" and error.reason != OTHER_KEY
    return is_over or error.code in _GONE


def _is_retryable(error: ErrorDetail) -> bool:
    """Return whether the same report may be accepted later, such as with a new API key."""
    spec = ERRORS.get(error.code)
    return spec is None or spec.is_retryable or error.reason == OTHER_KEY


def _pause_s(error: ErrorDetail) -> float:
    return max(AGAIN_S, error.retry_after_ms / 1_000)


def _why(held: HeldAttempt, now_s: float, reason: str) -> StopReason:
    """Return why the server ended an attempt: its own reason, or what the worker can tell.

    A task that another worker got may have timed out here first.
    """
    if reason in _REASONS:
        return StopReason(reason)
    assert held.task is not None
    took_ms = 1_000 * (now_s - held.delivered_at_s)
    silent_ms = 1_000 * (now_s - max(held.beat_at_s, held.delivered_at_s))
    is_too_long = 0 < held.task.start_to_close_ms * NEARLY <= took_ms
    is_silent = 0 < held.task.heartbeat_timeout_ms * NEARLY <= silent_ms
    return StopReason.TIMED_OUT if is_too_long or is_silent else StopReason.LOST_LEASE
