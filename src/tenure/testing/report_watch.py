"""Shows a test what is reported of a run, and cuts its worker off at one of the reports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Final

import msgspec

from tenure.engine.command import Answer, Command
from tenure.engine.engine import Engine
from tenure.engine.run.child_command import CancelChildren, ChildCancel, SpawnReport, SpawnTasks
from tenure.engine.run.command import RecordSteps, StartRun, StepReport
from tenure.engine.task.command import Finish, FinishKind, FinishTasks
from tenure.errors import Unavailable

Submit = Callable[[Command[Any]], "asyncio.Future[Any]"]
_END: Final = "its end"


class CrashPoint(msgspec.Struct, frozen=True):
    """A report of a worker; the worker dies before the server has it, or right after."""

    report: str
    is_after: bool

    def __str__(self) -> str:
        """Return it as messages name it."""
        return f"right {'after' if self.is_after else 'before'} {self.report} is recorded"


_Reports = Iterator[tuple[str, str]]
"""The name of each report, and the key of its step if it is one."""


class ReportWatch:
    """What one worker reports of one run, and the ends of its children, whoever reports them.

    Without a point it only takes them down.
    """

    def __init__(
        self,
        worker_ids: Collection[str],
        queue: str,
        crash: Callable[[], None],
        point: CrashPoint | None,
    ) -> None:
        """Call ``crash`` at a point, on the server's loop; the run is the first of its queue."""
        self._worker_ids = worker_ids
        self._queue = queue
        self._crash = crash
        self._point = point
        self._wait_count = 0
        # What its children are called, by their ids.
        self._children: dict[str, str] = {}
        # In their order, each once.
        self.reports: dict[str, None] = {}
        # Steps that were recorded before the crash.
        self.recorded: set[str] = set()
        self.is_hit = False
        self._run_id = ""
        self._generation = 0

    def submit(self, command: Command[Answer], submit: Submit) -> asyncio.Future[Answer]:
        """Pass a command on, unless the worker dies before it."""
        if isinstance(command, StartRun) and not self._run_id and command.new.queue == self._queue:
            self._run_id = command.new.id
        reports = {} if self.is_hit else dict(self._reports(command))
        if not reports:
            return submit(command)
        self.reports.update(dict.fromkeys(reports))
        is_here = self._point is not None and self._point.report in reports
        if is_here and self._point is not None and not self._point.is_after:
            self._hit()
            lost: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
            lost.set_exception(Unavailable("The worker has died.", reason="broken"))
            return lost
        answer = submit(command)
        answer.add_done_callback(lambda _: self._is_done(reports, is_here=is_here))
        return answer

    def _reports(self, command: Command[Any]) -> _Reports:
        if isinstance(command, FinishTasks):
            is_mine = command.worker_id in self._worker_ids
            yield from self._ends(command.items, is_mine=is_mine)
            return
        if not isinstance(command, RecordSteps | SpawnTasks | CancelChildren):
            return
        for item in command.items:
            if item.task_id == self._run_id and command.worker_id in self._worker_ids:
                yield from self._reports_of(item)

    def _ends(self, finishes: Iterable[Finish], *, is_mine: bool) -> _Reports:
        for finish in finishes:
            child = self._children.get(finish.task_id)
            if child is not None:
                if finish.kind is not FinishKind.YIELDED:
                    yield f"the end of {child}", ""
            elif is_mine and finish.task_id == self._run_id:
                if finish.kind is FinishKind.YIELDED:
                    self._wait_count += 1
                    yield f"its wait {self._wait_count}", ""
                elif finish.kind is FinishKind.CONTINUED:
                    yield f"its new beginning{in_generation(self._generation)}", ""
                    self._generation += 1
                else:
                    yield _END, ""

    def _reports_of(self, item: StepReport | SpawnReport | ChildCancel) -> _Reports:
        if isinstance(item, SpawnReport):
            yield from self._starts(item)
        elif isinstance(item, ChildCancel):
            names = [self._children.get(each, each) for each in item.child_ids] or [item.group_key]
            yield f"the cancel of {', '.join(names)}", ""
        else:
            for entry in item.entries:
                kind = entry.kind.name.lower()
                key = f"{entry.key}{in_generation(self._generation)}"
                yield f"{kind} {key}", key if kind == "step" else ""

    def _starts(self, item: SpawnReport) -> _Reports:
        behind = in_generation(self._generation)
        for each in item.children:
            name = f"an item of {item.group_key}" if item.group_key else each.key
            self._children[each.new.id] = name + behind
            if not item.group_key:
                yield f"the start of {name}{behind}", ""
        if item.group_key:
            first = item.children[0].item
            yield f"the start of {item.group_key}{behind} from item {first} on", ""

    def _is_done(self, reports: dict[str, str], *, is_here: bool) -> None:
        if not self.is_hit:
            self.recorded.update(filter(None, reports.values()))
        if is_here:
            self._hit()

    def _hit(self) -> None:
        self.is_hit = True
        self._crash()


def in_generation(generation: int) -> str:
    """Return what is behind the keys of a run that has begun anew: they come again."""
    return f" of generation {generation}" if generation else ""


class WatchedEngine(Engine):
    """An engine whose commands can be watched."""

    watch: ReportWatch | None = None

    def submit(self, command: Command[Answer]) -> asyncio.Future[Answer]:
        """Check a command and queue it; return the future of its answer."""
        if self.watch is None:
            return super().submit(command)
        return self.watch.submit(command, super().submit)
