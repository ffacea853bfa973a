"""A run in the memory of a worker process: what its body asks for, over a network that fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tenure.core.journal.entry import JournalPage
from tenure.core.run.record import Wait, Yield
from tenure.core.task.record import Task
from tenure.engine.engine import Engine
from tenure.engine.read.held_journal import PageRef, read_held_pages
from tenure.engine.run.command import RecordSteps, StepAnswer, StepReport, StepsPlaced
from tenure.engine.task.command import Finish, FinishKind
from tenure.errors import TenureError, Unavailable
from tenure.sdk.payload import Payload
from tenure.sdk.workflow.ending import Ending, Parked, Raised, Returned, Yielded
from tenure.sdk.workflow.journal import Entry, Kind
from tenure.sdk.workflow.step import Step
from tests.sim import flow
from tests.sim.body import (
    Body,
    Calls,
    Childless,
    error_of,
    executed,
    is_cancelled,
    received,
    reported,
)
from tests.sim.network import NoAnswer
from tests.sim.run_book import journal_of
from tests.sim.trace import Violation, short

if TYPE_CHECKING:
    from tests.sim.journal_rule import JournalRules
    from tests.sim.worker import Held, WorkerProcess
    from tests.sim.world import World

WARM_SHARE: Final = 0.5
STEP_MS: Final = (1, 5, 20, 60, 200, 600)
# Clocks of servers and workers differ a little.
SKEW_MS: Final = 4


class PageRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A worker asks for what follows a position of a journal."""

    namespace: str
    worker_id: str
    ref: PageRef

    async def send(self, engine: Engine) -> JournalPage:
        """Do what the edge of a server does with it."""
        (answer,) = await read_held_pages(
            engine.store, namespace=self.namespace, worker_id=self.worker_id, wanted=(self.ref,)
        )
        if isinstance(answer, TenureError):
            raise answer
        return answer


class RunHolder(Childless):
    """Holds one run for an attempt, and for the next ones if it stays warm."""

    def __init__(self, world: World, process: WorkerProcess, task: Task) -> None:
        self._world = world
        self._process = process
        self._random = world.random(f"run {task.id}#{task.attempt}")
        self._task = task
        self._held: Held | None = None
        self._is_dead = False
        self._is_fetching = self._is_flushing = False
        self._sent_no = 0
        self._alarm = 0
        self._skew_ms = self._random.randint(-SKEW_MS, SKEW_MS)
        self._body = Body(self, task)

    def is_of(self, task: Task) -> bool:
        """Tell whether the body has seen the journal that a run has now."""
        return journal_of(self._task) == journal_of(task)

    def begin(self, held: Held) -> None:
        """Begin an attempt with the page that came with it."""
        link = held.task.link
        assert link is not None
        assert link.page is not None
        self._held, self._task = held, held.task
        self._sent_no = 0
        page = link.page
        self._body.hand_out(held.task.attempt, map(received, page.entries), page.end)

    def put_aside(self) -> None:
        """Forget the run, as after a crash or when somebody else has it."""
        if self._is_dead:
            return
        self._held, self._is_dead = None, True
        if not self._body.put_aside():
            self._world.fail(Violation("a body does not end", self._task.id))

    def go_on(self) -> None:
        """Do what was left while the lease seemed to lapse."""
        if not self._is_dead and self._held is not None:
            self._body.wake()

    def hear(self) -> None:
        """Look what is new in the journal, because somebody said that something is."""
        if self._held is not None:
            self.fetch(self._body.journal.received_to)

    def _is_current(self, held: Held | None) -> bool:
        return held is not None and self._held is held and not self._is_dead

    # -- Entries -------------------------------------------------------------------------------

    def send(self, entry: Entry) -> None:
        """Report with all that comes in the same turn."""
        del entry
        if not self._is_flushing:
            self._is_flushing = True
            self.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        entries = [each for each in self._body.unacknowledged() if each.no > self._sent_no]
        if entries and self._held is not None:
            self._sent_no = entries[-1].no
            self._world.spawn(self._report(self._held, entries))

    async def _report(self, held: Held, entries: list[Entry]) -> None:
        """Send entries again and again until they are answered."""
        while self._is_current(held):
            waiting = self._body.unacknowledged()
            entries = [each for each in entries if each in waiting]
            if not entries:
                return
            item = StepReport(
                task_id=held.task.id,
                attempt=held.task.attempt,
                first_no=entries[0].no,
                entries=tuple([reported(each) for each in entries]),
            )
            command = RecordSteps(
                namespace=held.task.namespace, worker_id=held.worker_id, items=(item,)
            )
            try:
                answers: tuple[StepAnswer, ...] = await self._process.call(command)
            except (NoAnswer, TenureError):
                await self._process.sleep(30 + 60 * self._random.random())
                if self._random.random() < 0.4:
                    self.hear()
                continue
            if self._is_current(held):
                await self._answered(held, answers[0])

    async def _answered(self, held: Held, answer: StepAnswer) -> None:
        if isinstance(answer, StepsPlaced):
            for place in answer.places:
                self._body.acknowledge(place.no, place.pos, place.at_ms)
        elif answer.code == "too_early":
            await self._process.sleep(int(answer.fields["retry_after_ms"]))
        elif answer.code == "out_of_order":
            await self._process.sleep(10 + 30 * self._random.random())
        else:
            self._lose(held, answer.code)

    def _lose(self, held: Held, code: str) -> None:
        self._world.note(f"run {short(held.task.id)}#{held.task.attempt} is lost: {code}")
        self._process.lose_run(held)

    def fetch(self, after: int) -> None:
        """Ask for a page, one at a time."""
        if not self._is_fetching and self._held is not None:
            self._is_fetching = True
            self._world.spawn(self._fetch(self._held, after))

    async def _fetch(self, held: Held, after: int) -> None:
        request = PageRequest(
            namespace=held.task.namespace,
            worker_id=held.worker_id,
            ref=PageRef(task_id=held.task.id, attempt=held.task.attempt, after=after),
        )
        page: JournalPage | None = None
        while page is None and self._is_current(held):
            try:
                page = await self._process.call(
                    request, ask=lambda engine: self._world.spawn(request.send(engine))
                )
            except (NoAnswer, Unavailable):
                await self._process.sleep(20 + 40 * self._random.random())
            except TenureError as error:
                self._lose(held, error.code)
        self._is_fetching = False
        if page is not None and self._is_current(held):
            self.take(page)

    def take(self, page: JournalPage) -> None:
        """Take entries that were asked for, or that others have appended."""
        self._world.check(lambda task: self._journals.check_entries(task, page), self._task)
        self._body.take_page(map(received, page.entries), page.end)

    @property
    def _journals(self) -> JournalRules:
        return self._world.checker.journals

    # -- Steps and timers ----------------------------------------------------------------------

    def start_step(self, step: Step[Any], retries: Entry | None) -> None:
        """Run a step, which takes its time."""
        del retries
        held = self._held
        assert held is not None
        self._world.runs.step_started(held, step)
        entry = executed(step)
        took_ms = self._random.choice(STEP_MS) * (0.5 + self._random.random())
        self._process.soon(took_ms, self._step_ended, held, step, entry)

    def stop_step(self, step: Step[Any]) -> None:
        """Let a step end at once."""
        self._process.soon(0, self._step_ended, self._held, step, Entry(Kind.STEP, step.key))

    def _step_ended(self, held: Held | None, step: Step[Any], entry: Entry) -> None:
        if self._is_current(held):
            self._body.step_ended(step, entry)

    def wake_at(self, at_ms: int | None) -> None:
        """Ring at an instant, by a clock that may be set meanwhile."""
        self._alarm += 1
        if at_ms is not None and self._held is not None:
            wait_ms = max(1, at_ms - self.server_now_ms)
            self._process.soon(wait_ms, self._ring, self._held, self._alarm)

    def _ring(self, held: Held, alarm: int) -> None:
        if self._is_current(held) and alarm == self._alarm:
            self._body.wake()

    @property
    def server_now_ms(self) -> int:
        """The time of the server, nearly."""
        return self._world.clock.now_ms() + self._skew_ms

    @property
    def is_certain(self) -> bool:
        """Whether the lease is certain."""
        return not self._process.is_fenced

    @property
    def is_draining(self) -> bool:
        """Whether the worker ends; here it then gives all back at once."""
        return False

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call back, unless the process stands still or has forgotten the run."""
        self._world.loop.call_soon(self._process.do, lambda: self._call(callback))

    def _call(self, callback: Callable[[], None]) -> None:
        if not self._is_dead:
            callback()

    def publish(self, state: Payload | None, percent: float | None, message: str | None) -> None:
        """Show nothing: these bodies say nothing of themselves."""

    # -- The end -------------------------------------------------------------------------------

    def at_frontier(self, seen: int, calls: Calls) -> None:
        """Compare with what others have called."""
        self._world.runs.at_frontier(self._task, seen, calls)

    def end(self, ending: Ending) -> None:
        """Report how the attempt ended; a run that yields may stay warm."""
        held, self._held = self._held, None
        assert held is not None
        wrong = None
        if isinstance(ending, Parked):
            wrong = f"a body does not fit: {ending.mismatch}"
        elif isinstance(ending, Raised) and isinstance(ending.error, AssertionError):
            wrong = f"a body got a wrong value: {ending.error}"
        if wrong is not None:
            self._world.fail(Violation(wrong, held.task.id))
            return
        is_warm = isinstance(ending, Yielded) and self._random.random() < WARM_SHARE
        if not is_warm:
            self.put_aside()
        self._process.end_run(held, _finish(held.task, ending), self if is_warm else None)


def _finish(task: Task, ending: Ending) -> Finish:
    """Return an end as a worker reports it."""
    match ending:
        case Returned(value=value):
            output = flow.CONVERTER.encode(value).data
            return Finish(
                task_id=task.id, attempt=task.attempt, kind=FinishKind.SUCCEEDED, output=output
            )
        case Raised(error=error, is_cancel=True) if is_cancelled(error):
            return Finish(task_id=task.id, attempt=task.attempt, kind=FinishKind.CANCELLED)
        case Raised(error=error):
            return Finish(
                task_id=task.id, attempt=task.attempt, kind=FinishKind.FAILED, error=error_of(error)
            )
        case Yielded():
            wish = Yield(
                seen=ending.seen,
                wake_at_ms=ending.wake_at_ms,
                wake_key=ending.wake_key,
                wake_index=ending.wake_index,
                patience_n=ending.patience_n,
                patience_ms=ending.patience_ms,
                waits=tuple(
                    [
                        Wait(each.kind, each.key, each.since_ms, each.detail, each.line)
                        for each in ending.waits
                    ]
                ),
                wait_count=ending.wait_count,
            )
            return Finish(task_id=task.id, attempt=task.attempt, kind=FinishKind.YIELDED, wish=wish)
        case _:
            raise AssertionError(ending)
