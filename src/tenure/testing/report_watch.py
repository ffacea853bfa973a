"""Shows a test what a worker reports of its runs, and cuts the worker off at one of the reports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from tenure.engine.command import Answer, Command
from tenure.engine.engine import Engine
from tenure.engine.run.command import RecordSteps
from tenure.engine.task.command import FinishKind, FinishTasks
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


class ReportWatch:
    """The reports of one worker about one run; without a point it only takes them down."""

    def __init__(self, worker_id: str, crash: Callable[[], None], point: CrashPoint | None) -> None:
        """Call ``crash`` at a point, on the server's loop."""
        self._worker_id = worker_id
        self._crash = crash
        self._point = point
        self._wait_count = 0
        # In their order, each once.
        self.reports: dict[str, None] = {}
        # Steps that were recorded before the crash.
        self.recorded: set[str] = set()
        self.is_hit = False

    def submit(self, command: Command[Answer], submit: Submit) -> asyncio.Future[Answer]:
        """Pass a command on, unless the worker dies before it."""
        if self.is_hit or not self._is_mine(command):
            return submit(command)
        reports = dict(self._reports(command))
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

    def _is_mine(self, command: Command[Any]) -> bool:
        if not isinstance(command, RecordSteps | FinishTasks):
            return False
        return command.worker_id == self._worker_id

    def _reports(self, command: Command[Any]) -> Iterator[tuple[str, str]]:
        """Yield the name of each report, and the key of its step if it is one."""
        if isinstance(command, RecordSteps):
            for item in command.items:
                for entry in item.entries:
                    kind = entry.kind.name.lower()
                    yield f"{kind} {entry.key}", entry.key if kind == "step" else ""
        elif isinstance(command, FinishTasks):
            for finish in command.items:
                if finish.kind is FinishKind.YIELDED:
                    self._wait_count += 1
                    yield f"its wait {self._wait_count}", ""
                else:
                    yield _END, ""

    def _is_done(self, reports: dict[str, str], *, is_here: bool) -> None:
        if not self.is_hit:
            self.recorded.update(filter(None, reports.values()))
        if is_here:
            self._hit()

    def _hit(self) -> None:
        self.is_hit = True
        self._crash()


class WatchedEngine(Engine):
    """An engine whose commands can be watched."""

    watch: ReportWatch | None = None

    def submit(self, command: Command[Answer]) -> asyncio.Future[Answer]:
        """Check a command and queue it; return the future of its answer."""
        if self.watch is None:
            return super().submit(command)
        return self.watch.submit(command, super().submit)
