"""Starts, keeps and ends the runs of a worker.

Calls of the connection are posted to the user's loop, where everything else happens.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextvars import Context
from typing import Final

from tenure.sdk.activity.context import StopReason
from tenure.sdk.payload import Converter, Payload, PayloadError
from tenure.sdk.worker.execution import attempt
from tenure.sdk.worker.execution.runners import Runners
from tenure.sdk.worker.execution.settings import ExecutionSettings
from tenure.sdk.worker.execution.thread_runner import ThreadCall
from tenure.sdk.worker.executor_protocol import (
    AnsweredReport,
    ChildReport,
    NumberedEntry,
    RecordedEntries,
    Reporter,
)
from tenure.sdk.worker.run import wire
from tenure.sdk.worker.run.held_run import HeldRun
from tenure.sdk.worker.run.local_step import LocalStep
from tenure.sdk.worker.run.server_clock import ServerClock
from tenure.sdk.worker.run.unwinding import Unwinding
from tenure.sdk.worker.run.warm_runs import WarmRuns
from tenure.sdk.workflow.ending import Ending, Parked, Yielded
from tenure.sdk.workflow.journal import Entry
from tenure.sdk.workflow.registry import WorkflowRegistry
from tenure.v1 import task_pb2
from tenure.v1.error_pb2 import ErrorDetail

_log = logging.getLogger("tenure.worker")
# Timeouts of steps are in seconds.
_SWEEP_S: Final = 0.1
# A run that sleeps for longer is not kept in memory.
_WARM_MS: Final = 60_000
# Runs linger only while one of so many slots is free.
_LINGER_SHARE: Final = 4


class RunHost:
    """The runs of one queue of a worker."""

    def __init__(
        self,
        workflows: WorkflowRegistry,
        converter: Converter,
        reporter: Reporter,
        runners: Runners,
        settings: ExecutionSettings,
    ) -> None:
        """Hold nothing yet."""
        self._workflows = workflows
        self.converter = converter
        self.reporter = reporter
        self.settings = settings
        self.worker_id = ""
        self.is_fenced: Callable[[], bool] = bool
        self.clock = ServerClock(settings.clock, settings.server_clock)
        self.is_draining = False
        # The run whose body has the user's loop now.
        self.in_turn: HeldRun | None = None
        # Steps beyond the first of their run, and those that did not stop.
        self._extra_count = 0
        self._abandoned_count = 0
        self._runners = runners
        self._loop = runners.user_loop
        # For callbacks; bodies and steps get copies.
        self.context: Context = runners.context.copy()
        # From the delivery to the report of the end, for the connection.
        self._active: dict[str, int] = {}
        self._runs: dict[str, HeldRun] = {}
        self._warm: WarmRuns[HeldRun] = WarmRuns(settings.warm_runs)
        # Bodies that did not end when they were put aside.
        self._stuck: list[HeldRun] = []
        self._unwinding = Unwinding()
        self._is_handing_back = False
        self._steps: dict[int, LocalStep] = {}
        self._waiting: OrderedDict[str, HeldRun] = OrderedDict()
        self._doubtful: list[tuple[HeldRun, LocalStep]] = []
        self._is_in_doubt = False
        self._unsent: list[NumberedEntry] = []
        self._unsent_children: list[ChildReport] = []
        # Runs that wait and have not yielded, because slots were free.
        self._lingering: dict[str, HeldRun] = {}
        self._sweep_timer: asyncio.TimerHandle | None = None

    # -- For the connection's thread

    @property
    def active_count(self) -> int:
        """How many slots runs and their steps take."""
        return len(self._active) + self.extra_count

    @property
    def extra_count(self) -> int:
        """How many slots steps take beside those of their runs."""
        return self._extra_count + self._abandoned_count

    def names(self) -> list[str]:
        """Return which async steps run, and the run whose body has the loop now."""
        names = [each.step.key for each in list(self._steps.values()) if each.function.is_async]
        held = self.in_turn
        return names if held is None else [f"{held.task.type} (run {held.task.task_id})"]

    def holds(self, task_id: str) -> bool:
        """Tell whether an attempt of a run is here."""
        return task_id in self._active

    def start(self, task: task_pb2.AssignedTask) -> None:
        """Begin an attempt of a run."""
        self._active[task.task_id] = task.attempt
        self.post(lambda: self._begin(task))

    def stop(self, task_id: str, number: int, reason: StopReason) -> None:
        """Let a run hear of its cancel, or put an attempt aside that is lost."""
        self.post(lambda: self._stop(task_id, number, reason))

    def take_entries(
        self, recorded: Sequence[RecordedEntries], pages: Sequence[task_pb2.JournalPage]
    ) -> None:
        """Tell runs what stands in their journals."""
        self.post(lambda: self._take_entries(recorded, pages))

    def take_answers(self, answered: Sequence[AnsweredReport]) -> None:
        """Tell runs what was done of what they reported of their children."""
        self.post(lambda: self._take_answers(answered))

    def refuse_entries(self, task_id: str, number: int, error: ErrorDetail) -> None:
        """Park a run whose reports the server does not take."""
        self.post(lambda: self._refuse(task_id, number, error))

    def session_opened(self) -> None:
        """Let runs ask for what they may have missed."""
        self.post(self._ask_for_tails)

    def renewed(self) -> None:
        """Let runs go on that waited for a certain lease."""
        if self._is_in_doubt:
            self.post(self._go_on)

    def slot_taken(self) -> None:
        """Hear that fewer slots are free: runs that linger make room."""
        if self._lingering and not self._has_room:
            self.post(self._end_lingering)

    def begin_drain(self) -> None:
        """Begin nothing more, and give runs back as soon as nothing of them runs."""
        self.post(self._drain)

    def hand_back(self) -> None:
        """Give back all runs now."""
        self._is_handing_back = True
        self.post(self._hand_back)

    def close(self) -> None:
        """Forget all runs, without a report."""
        self._is_handing_back = True
        self.post(self._close)

    # -- What the connection asked, on the user's loop

    def _begin(self, task: task_pb2.AssignedTask) -> None:
        if self.is_draining or self._is_handing_back:
            self._report(attempt.ended_as(task, attempt.RELEASED))
            return
        self.clock.heard(task.handed_at_ms)
        try:
            held = self._warm_run(task) or self._new_run(task)
            if held is not None:
                self._runs[task.task_id] = held
                self.sweep_soon()
                held.begin(task)
        except Exception:
            # A bug of the SDK.
            _log.exception("Run %s could not be begun. It is handed back.", task.task_id)
            self._runs.pop(task.task_id, None)
            self._report(attempt.ended_as(task, attempt.RELEASED))

    def _warm_run(self, task: task_pb2.AssignedTask) -> HeldRun | None:
        """Return the run as it was left, if it is still here and its journal goes on from there.

        If somebody else has had it meanwhile, it knows too little: of children that are open, and
        of calls that other code has made.
        """
        warm = self._warm.take(task.task_id)
        if warm is None:
            return None
        is_next = task.attempt == warm.task.attempt + 1
        is_same = is_next and warm.task.generation == task.generation
        if is_same and task.journal.after <= warm.run.journal.seen <= task.journal.end:
            return warm
        warm.put_aside()
        return None

    def _new_run(self, task: task_pb2.AssignedTask) -> HeldRun | None:
        workflow = self._workflows.find(task.type)
        if workflow is None:
            self._park(task, "not_a_workflow", f"This worker has no workflow {task.type}.")
            return None
        given = Payload(task.encoding, task.input)
        try:
            arguments = workflow.signature.decode(self.converter, given)
        except PayloadError as error:
            text = f"The input does not fit workflow {workflow.name}: {error}"
            self._park(task, "journal_mismatch", text)
            return None
        return HeldRun(self, task, workflow, arguments)

    def _park(self, task: task_pb2.AssignedTask, code: str, message: str) -> None:
        _log_parked(task, message)
        self._report(wire.parked(task, code, message))

    def _stop(self, task_id: str, number: int, reason: StopReason) -> None:
        held = self._find(task_id, number)
        if held is None:
            return
        if reason is StopReason.CANCELLED:
            # It is an entry of the journal, and delivered at its place.
            held.ask_for_tail()
            return
        self._remove(held)
        held.put_aside()

    def _take_entries(
        self, recorded: Sequence[RecordedEntries], pages: Sequence[task_pb2.JournalPage]
    ) -> None:
        for each in recorded:
            self.clock.heard(each.at_ms)
            held = self._find(each.task_id, each.attempt)
            if held is None:
                continue
            pos = each.pos - each.last_no
            for no in range(each.first_no, each.last_no + 1):
                held.run.acknowledge(no, pos + no, each.at_ms)
        for page in pages:
            held = self._find(page.task_id, page.attempt)
            if held is not None:
                held.take_page(page)

    def _take_answers(self, answered: Sequence[AnsweredReport]) -> None:
        for each in answered:
            held = self._find(each.task_id, each.attempt)
            if held is not None:
                held.run.children_answered(each.number, each.error)

    def _end_lingering(self) -> None:
        lingering, self._lingering = self._lingering, {}
        for held in lingering.values():
            held.run.wake()

    def _refuse(self, task_id: str, number: int, error: ErrorDetail) -> None:
        held = self._find(task_id, number)
        if held is not None:
            self._forget(task_id)
            held.put_aside()
            self._park(held.task, error.code, error.message)

    def _ask_for_tails(self) -> None:
        for held in list(self._runs.values()):
            held.run.fetch_again()
            # The connection asks for those that have reported something.
            if not held.run.unacknowledged():
                held.ask_for_tail()

    def _go_on(self) -> None:
        self._is_in_doubt = False
        doubtful, self._doubtful = self._doubtful, []
        for held, local in doubtful:
            self.begin_when_certain(held, local)
        for held in self._runs.values():
            held.use_slot()
            held.run.wake()

    def _drain(self) -> None:
        self.is_draining = True
        self._warm.put_all_aside()
        for held in list(self._runs.values()):
            held.drain()

    def _hand_back(self) -> None:
        self._warm.put_all_aside()
        self._flush()
        for held in list(self._runs.values()):
            self.give_back(held)

    def _close(self) -> None:
        self._warm.put_all_aside()
        for held in list(self._runs.values()):
            self._remove(held)
            held.put_aside()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None

    def _find(self, task_id: str, number: int) -> HeldRun | None:
        held = self._runs.get(task_id)
        return held if held is not None and held.task.attempt == number else None

    # -- What runs ask

    def send(self, task: task_pb2.AssignedTask, entry: Entry, seen: int) -> None:
        """Have an entry recorded, together with all that are made in this turn of the loop."""
        self._flush_soon()
        made = wire.to_wire(entry)
        self._unsent.append(NumberedEntry(task.task_id, task.attempt, entry.no, made, seen))

    def report_children(self, task: task_pb2.AssignedTask, report: ChildReport) -> None:
        """Have children stored, or asked to end; together in the same way, behind entries."""
        self._flush_soon()
        report.task_id, report.attempt = task.task_id, task.attempt
        self._unsent_children.append(report)

    def _flush_soon(self) -> None:
        if not self._unsent and not self._unsent_children:
            self._loop.call_soon(self._flush, context=self.context)

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if unsent:
            self.reporter.record(unsent)
        children, self._unsent_children = self._unsent_children, []
        if children:
            self.reporter.report_children(children)

    def ended(self, held: HeldRun, ending: Ending) -> None:
        """Report how an attempt ended, and keep the run if it comes back soon."""
        task = held.task
        self._forget(task.task_id)
        held.flush()
        now_ms = self.clock.now_ms
        finish = wire.finish_of(task, ending, self.converter, now_ms)
        if isinstance(ending, Parked):
            _log_parked(task, finish.error.message)
        if isinstance(ending, Yielded) and ending.wake_at_ms <= now_ms + _WARM_MS:
            self._warm.keep(task.task_id, held)
        else:
            held.put_aside()
        self._report(finish)

    def give_back(self, held: HeldRun) -> None:
        """Hand a run back, whatever it does."""
        if self._forget(held.task.task_id) is held:
            held.put_aside()
            self._report(attempt.ended_as(held.task, attempt.RELEASED))

    def keep_stuck(self, held: HeldRun) -> None:
        """Keep a body that does not end: what it still refers to must not end at a random time."""
        self._stuck.append(held)
        _log.warning(
            "The body of run %s (%s) does not end when it is put aside: it catches the exceptions "
            "that end it. It stays in memory.",
            held.task.task_id,
            held.task.type,
        )

    def watch_unwinding(self, held: HeldRun) -> None:
        """Name a plain body if its thread does not end soon."""
        self._unwinding.watch(held)
        self.sweep_soon()

    def _report(self, finish: task_pb2.TaskFinish) -> None:
        if self._active.get(finish.task_id) == finish.attempt:
            del self._active[finish.task_id]
        self.reporter.finish(finish)

    def _forget(self, task_id: str) -> HeldRun | None:
        self._lingering.pop(task_id, None)
        return self._runs.pop(task_id, None)

    def _remove(self, held: HeldRun) -> None:
        """Forget a run without a report."""
        self._forget(held.task.task_id)
        if self._active.get(held.task.task_id) == held.task.attempt:
            del self._active[held.task.task_id]

    @property
    def is_certain(self) -> bool:
        """Whether the lease is certain; if not, runs are told when it is."""
        if not self.is_fenced():
            return True
        self._is_in_doubt = True
        return False

    def may_linger(self, held: HeldRun) -> bool:
        """Whether a run that waits may keep its slot for a moment; if so, it is told when not."""
        if self.is_draining or not self.settings.can_linger or not self._has_room:
            return False
        self._lingering[held.task.task_id] = held
        return True

    @property
    def _has_room(self) -> bool:
        """Whether a quarter of the slots is free."""
        free = self.settings.max_concurrent - self._runners.used_count()
        return free > 0 and _LINGER_SHARE * free >= self.settings.max_concurrent

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call back from the user's loop, outside of any task."""
        self._loop.call_soon(callback, context=self.context)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Call back after a while."""
        return self._loop.call_later(seconds, callback, context=self.context)

    def loop_time(self) -> float:
        """Return the time of the user's loop."""
        return self._loop.time()

    def post(self, callback: Callable[[], None]) -> None:
        """Call on the user's loop; from any thread."""
        self._runners.post(callback)

    # -- Steps and slots

    def submit(self, call: ThreadCall) -> None:
        """Run a step in a thread."""
        self._runners.submit(call)

    def begin_step(self, local: LocalStep) -> None:
        """Begin an attempt of a step; there is a slot for it."""
        self._steps[id(local)] = local
        self.sweep_soon()
        local.begin(self.clock.now_ms)

    def begin_when_certain(self, held: HeldRun, local: LocalStep) -> None:
        """Begin the next attempt of a step, but not while the lease may be over."""
        if self.is_certain:
            held.begin_again(local)
        else:
            self._doubtful.append((held, local))

    def step_over(self, local: LocalStep) -> None:
        """Hear that nobody waits for an attempt of a step any more."""
        self._steps.pop(id(local), None)
        if local.is_abandoned:
            self._abandoned_count += 1
            _log.warning(
                "Step %s of run %s does not stop (%s). It is abandoned and still uses a slot.",
                local.step.key,
                local.owner.task.task_id,
                local.stop_reason,
            )

    def take_slot(self) -> bool:
        """Take a slot for a step beside another one of its run; False if none is free."""
        if self._runners.used_count() >= self.settings.max_concurrent:
            return False
        self._extra_count += 1
        self.slot_taken()
        return True

    def free_slot(self) -> None:
        """Give back the slot of such a step, and let others begin."""
        self._extra_count -= 1
        self._use_slots()

    def abandoned_freed(self) -> None:
        """Hear that the code of an abandoned step has ended after all."""
        self._abandoned_count -= 1
        self._use_slots()

    def wait_for_slot(self, held: HeldRun) -> None:
        """Begin a step of a run when a slot is free."""
        self._waiting[held.task.task_id] = held
        self.sweep_soon()

    def _use_slots(self) -> None:
        while self._waiting and self._runners.used_count() < self.settings.max_concurrent:
            _, held = self._waiting.popitem(last=False)
            held.use_slot()
            if held.wants_slot:
                self._waiting[held.task.task_id] = held

    def sweep_soon(self) -> None:
        """Look after what is due, now and then."""
        if self._sweep_timer is None:
            self._sweep_timer = self.call_later(_SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        self._sweep_timer = None
        now_s = time.monotonic()
        for local in list(self._steps.values()):
            local.tick(now_s)
        for held in list(self._runs.values()):
            held.tick(now_s)
        self._use_slots()
        self._unwinding.look()
        if self._is_in_doubt and not self.is_fenced():
            self._go_on()
        if self._steps or self._runs or self._unwinding:
            self.sweep_soon()


def _log_parked(task: task_pb2.AssignedTask, message: str) -> None:
    _log.warning(
        "Run %s (%s) is parked: %s. It is tried again later, and at once when it is resumed.",
        task.task_id,
        task.type,
        message.rstrip("."),
        extra={"task_id": task.task_id, "task_type": task.type},
    )
