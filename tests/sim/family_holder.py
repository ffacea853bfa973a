"""A run with children in the memory of a worker process; what it has asked for, it asks again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from tenure.core.journal.entry import Entry, JournalPage
from tenure.core.run.record import Yield
from tenure.core.task.record import NewTask, Task
from tenure.core.task.retry import ErrorCategory, ErrorInfo, RetryPolicy
from tenure.engine.read.held_journal import PageRef
from tenure.engine.run.child_command import (
    CancelChildren,
    ChildAnswer,
    ChildCancel,
    NewChild,
    SpawnReport,
    SpawnTasks,
)
from tenure.engine.task.command import Anew, Finish, FinishKind
from tenure.errors import TenureError, Unavailable
from tests.sim import family, flow
from tests.sim.client import SPECS
from tests.sim.family import Call, Story
from tests.sim.network import NoAnswer
from tests.sim.run_holder import PageRequest
from tests.sim.trace import short

if TYPE_CHECKING:
    from tests.sim.worker import Held, WorkerProcess
    from tests.sim.world import World

# Children of one report; the others come in the next one.
REPORT_CHILDREN: Final = 2
# Longer than a child may outlive its run, with all allowances.
SLOW_MS: Final = 12_000
# Half of them fail at the first failure: their runs shall hear of some.
_SPECS: Final = tuple(
    [
        replace(spec, retry=RetryPolicy(maximum_attempts=1)) if number % 2 else spec
        for number, spec in enumerate(SPECS)
    ]
)
Wish = SpawnTasks | CancelChildren


class FamilyHolder:
    """Holds one run for an attempt: tells its story, and asks for what the story calls."""

    def __init__(self, world: World, process: WorkerProcess, task: Task) -> None:
        self._world = world
        self._process = process
        self._random = world.random(f"family {task.id}#{task.attempt}")
        self._task = task
        self._held: Held | None = None
        self._entries: list[Entry] = []
        self._end = 0
        self._asked: set[str] = set()
        self._is_busy = self._has_news = False

    def is_of(self, task: Task) -> bool:
        """Begin each attempt from the start of the journal."""
        del task
        return False

    def begin(self, held: Held) -> None:
        """Begin an attempt with the page that came with it."""
        link = held.task.link
        assert link is not None
        assert link.page is not None
        self._held = held
        # A page for a run that is still known here leaves out what was seen: it is fetched.
        self._add(link.page)
        self._go_on()

    def put_aside(self) -> None:
        """Forget the run."""
        self._held = None

    def go_on(self) -> None:
        """Do what was left while the lease seemed to lapse."""
        self._go_on()

    def hear(self) -> None:
        """Look what is new in the journal."""
        self._has_news = True
        self._go_on()

    def take(self, page: JournalPage) -> None:
        """Take entries that others have appended."""
        self._world.check(
            lambda task: self._world.checker.journals.check_entries(task, page), self._task
        )
        self._add(page)
        self._go_on()

    def _add(self, page: JournalPage) -> None:
        fresh = page.entries[max(0, len(self._entries) - page.after) :]
        if page.after <= len(self._entries):
            self._entries += fresh
        self._end = max(self._end, page.end)

    def _go_on(self) -> None:
        if not self._is_busy and self._held is not None:
            self._is_busy = True
            self._world.spawn(self._live(self._held))

    def _is_current(self, held: Held) -> bool:
        return self._held is held

    async def _live(self, held: Held) -> None:
        """Tell the story as far as it goes; then end, yield or wait for what was asked."""
        try:
            while self._is_current(held) and not self._process.is_fenced:
                if self._has_news or len(self._entries) < self._end:
                    self._has_news = False
                    await self._fetch(held)
                    continue
                story = Story(self._task.input or b"")
                story.tell(self._entries)
                self._world.runs.at_frontier(self._task, story.seen, _named(story))
                wish = None if story.verdict is not None else self._wish(held, story)
                if wish is not None:
                    await self._ask(held, wish)
                else:
                    self._finish(held, story)
        finally:
            self._is_busy = False

    async def _fetch(self, held: Held) -> None:
        ref = PageRef(task_id=held.task.id, attempt=held.task.attempt, after=len(self._entries))
        request = PageRequest(namespace=held.task.namespace, worker_id=held.worker_id, ref=ref)
        try:
            page = await self._process.call(
                request, ask=lambda engine: self._world.spawn(request.send(engine))
            )
        except (NoAnswer, Unavailable):
            self._has_news = True
            await self._process.sleep(20 + 40 * self._random.random())
        except TenureError as error:
            self._lose(held, error.code)
        else:
            if self._is_current(held):
                self._add(page)

    def _lose(self, held: Held, code: str) -> None:
        if self._is_current(held):
            self._world.note(f"run {short(held.task.id)}#{held.task.attempt} is lost: {code}")
            self._process.lose_run(held)

    # -- Children ------------------------------------------------------------------------------

    def _wish(self, held: Held, story: Story) -> tuple[str, Wish] | None:
        """Return what the story has called and this attempt has not asked for."""
        for call in story.calls:
            children = self._children(call)
            parts = range(0, max(1, len(children)), REPORT_CHILDREN)
            for part in parts:
                name = f"make {call.key} {part}"
                if name not in self._asked:
                    return name, self._spawn(held, call, children[part : part + REPORT_CHILDREN])
        for call in story.given_up:
            name = f"end {call.key}"
            if name not in self._asked:
                return name, self._cancel(held, call)
        return None

    def _spawn(self, held: Held, call: Call, children: tuple[NewChild, ...]) -> SpawnTasks:
        item = SpawnReport(
            task_id=held.task.id,
            attempt=held.task.attempt,
            number=len(self._asked) + 1,
            children=children,
        )
        if call.kind == "group":
            item = replace(
                item,
                group_key=call.key,
                group_index=call.index,
                group_total=call.size,
                fails_fast=call.fails_fast,
            )
        return SpawnTasks(namespace=held.task.namespace, worker_id=held.worker_id, items=(item,))

    def _cancel(self, held: Held, call: Call) -> CancelChildren:
        is_group = call.kind == "group"
        item = ChildCancel(
            task_id=held.task.id,
            attempt=held.task.attempt,
            number=len(self._asked) + 1,
            child_ids=() if is_group else (self._id(call, 0),),
            group_key=call.key if is_group else "",
            reason="given up",
        )
        return CancelChildren(
            namespace=held.task.namespace, worker_id=held.worker_id, items=(item,)
        )

    def _children(self, call: Call) -> tuple[NewChild, ...]:
        if call.kind == "group":
            # Items are cancelled, whatever other children have.
            news = [self._activity(call, item) for item in range(call.size)]
            return tuple([NewChild(new=new, item=item) for item, new in enumerate(news)])
        new = self._run(call) if call.kind == "run" else self._activity(call, 0)
        return (NewChild(new=new, key=call.key, index=call.index, close_policy=call.policy),)

    def _id(self, call: Call, item: int) -> str:
        run = self._task.progress.run
        assert run is not None
        return family.child_id(self._task.id, run.generation, run.begun_at_ms, call.key, item)

    def _activity(self, call: Call, item: int) -> NewTask:
        number = call.index + item
        run = self._task.progress.run
        assert run is not None
        return NewTask(
            id=self._id(call, item),
            type=self._world.activities[number % 2],
            queue=self._task.queue,
            spec=_SPECS[number % len(_SPECS)],
            input=b"input",
            run_at_ms=run.begun_at_ms + SLOW_MS if call.is_slow else 0,
        )

    def _run(self, call: Call) -> NewTask:
        plan = Story(self._task.input or b"").plan
        given = family.Plan(7 * plan.seed + call.index, plan.depth - 1, call.index % 2)
        return NewTask(
            id=self._id(call, 0),
            type=family.TYPE,
            queue=self._task.queue,
            spec=flow.SPECS[call.index % len(flow.SPECS)],
            input=family.encoded(given),
        )

    async def _ask(self, held: Held, wish: tuple[str, Wish]) -> None:
        """Ask once; without an answer the same is asked again."""
        name, command = wish
        try:
            answers: tuple[ChildAnswer, ...] = await self._process.call(command)
        except (NoAnswer, Unavailable):
            await self._process.sleep(30 + 60 * self._random.random())
            return
        except TenureError as error:
            self._lose(held, error.code)
            return
        if answers[0] is None:
            self._asked.add(name)
        else:
            self._lose(held, answers[0].code)

    # -- The end -------------------------------------------------------------------------------

    def _finish(self, held: Held, story: Story) -> None:
        task = held.task
        finish = Finish(task_id=task.id, attempt=task.attempt, kind=FinishKind.SUCCEEDED)
        match story.verdict:
            case "returns":
                finish = replace(finish, output=story.output)
            case "fails":
                error = ErrorInfo(ErrorCategory.USER_CODE, story.output.decode())
                finish = replace(finish, kind=FinishKind.FAILED, error=error)
            case "is cancelled":
                finish = replace(finish, kind=FinishKind.CANCELLED)
            case "continues":
                anew = Anew(seen=story.seen, keep=story.untaken, input=story.next_input)
                finish = replace(finish, kind=FinishKind.CONTINUED, anew=anew)
            case None:
                patience_n, patience_ms = story.patience()
                wish = Yield(seen=story.seen, patience_n=patience_n, patience_ms=patience_ms)
                finish = replace(finish, kind=FinishKind.YIELDED, wish=wish)
        self._held = None
        self._process.end_run(held, finish, None)


def _named(story: Story) -> dict[str, str]:
    """Return what a story has called and waits for."""
    return {call.key: f"{call.kind} {call.index}" for call in story.calls}
