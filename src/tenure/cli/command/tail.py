"""``tenure tasks tail``: the changes of tasks, one line each, as they happen."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NoReturn

import click

from tenure.cli.client.event_stream import EventStream, HttpEdge, ReceivedHint
from tenure.cli.client.request import TaskSelection
from tenure.cli.exit_code import ExitCode
from tenure.cli.failure import CliError
from tenure.cli.show.table import STYLES
from tenure.cli.show.task_table import note
from tenure.cli.show.text import cut, instant_text, one_line, short_id
from tenure.cli.show.view import Shown, ShownTask
from tenure.engine.clock import SystemClock

if TYPE_CHECKING:
    from tenure.cli.client.invocation import Invocation

_LOOK_SECONDS: Final = 1.0
# The newest tasks that are looked at when hints were missed.
_LISTED_MAX: Final = 500
# Changes that are read in one round; nobody follows more on a screen.
_READ_MAX: Final = 500
_KNOWN_MAX: Final = 20_000
_HEADER: Final = ("TIME", "TASK", "TYPE", "QUEUE", "STATE", "WORKER", "ATTEMPT", "NOTE")
_WIDTHS: Final = (8, 36, 16, 12, 10, 36, 7, 12)
_GAP: Final = "  "
_WORKER: Final = _HEADER.index("WORKER")
# What a narrow terminal leaves out, the first one first.
_LEFT_OUT: Final = ("ATTEMPT", "QUEUE", "WORKER", "TYPE", "NOTE")


class ChangeView(Shown, frozen=True, kw_only=True):
    """One change of a task as JSON."""

    at: str
    task_id: str
    type: str
    queue: str
    state: str
    attempt: int
    version: int
    worker_id: str | None = None
    progress_percent: float | None = None
    progress_message: str | None = None


class Tail:
    """Knows what was shown: each version of a task once."""

    def __init__(self, call: Invocation, chosen: TaskSelection) -> None:
        """Show what is chosen."""
        self._call = call
        self._chosen = chosen
        self._known: dict[str, int] = {}
        self._clock = SystemClock()

    def remember(self) -> None:
        """Take the tasks that are there as shown: what changes from now on is wanted."""
        for task in self._listed():
            self._note(task)

    def catch_up(self) -> None:
        """Show what changed while hints were missed, as far as the list tells."""
        for task in reversed(self._listed()):
            self._show(task)

    def follow(self, hints: Sequence[ReceivedHint]) -> None:
        """Show tasks that changed; of too many the newest."""
        left_out = len(hints) - _READ_MAX
        if left_out > 0:
            self._call.output.note(f"{left_out} more changes were left out.")
        for hint in hints[-_READ_MAX:]:
            # The state of a run is told by another name.
            is_chosen = hint.kind == "run" or self._chosen.state in ("", hint.state)
            if is_chosen and self._is_new(hint.id, hint.version):
                self._read(hint.id)

    def _read(self, task_id: str) -> None:
        try:
            self._show(self._call.client.tasks.get_task(task_id))
        except CliError as error:
            # It may have been removed meanwhile.
            if error.end is not ExitCode.NOT_FOUND:
                raise

    def _listed(self) -> list[ShownTask]:
        """Return the newest tasks, the newest first; a page behind the other."""
        found: list[ShownTask] = []
        token = ""
        while len(found) < _LISTED_MAX:
            query = TaskSelection(
                queue=self._chosen.queue,
                type=self._chosen.type,
                state=self._chosen.state,
                limit=_LISTED_MAX - len(found),
                page_token=token,
            )
            tasks, token = self._call.client.tasks.list_tasks(query)
            found += tasks
            if not token:
                break
        return found

    def _is_new(self, task_id: str, version: int) -> bool:
        return self._known.get(task_id, -1) < version

    def _note(self, task: ShownTask) -> None:
        self._known.pop(task.task_id, None)
        self._known[task.task_id] = task.version
        if len(self._known) > _KNOWN_MAX:
            del self._known[next(iter(self._known))]

    def _show(self, task: ShownTask) -> None:
        if not self._is_new(task.task_id, task.version):
            return
        self._note(task)
        chosen = self._chosen
        if chosen.type in ("", task.type) and chosen.state in ("", task.state):
            self._write(task)

    def _write(self, task: ShownTask) -> None:
        now_ms = self._clock.now_ms()
        if not self._call.output.is_table:
            self._call.output.write(
                ChangeView(
                    at=instant_text(now_ms),
                    task_id=task.task_id,
                    type=task.type,
                    queue=task.queue,
                    state=task.state,
                    attempt=task.attempt,
                    version=task.version,
                    worker_id=task.worker_id,
                    progress_percent=task.progress_percent,
                    progress_message=task.progress_message,
                )
            )
            return
        at = datetime.fromtimestamp(now_ms / 1000, UTC).astimezone().strftime("%H:%M:%S")
        cells = (at, task.task_id, task.type, task.queue, task.state, task.worker_id or "-")
        width = terminal_width()
        click.echo(line((*cells, str(task.attempt or "-"), note(task, now_ms)), width))


def terminal_width() -> int | None:
    """Return the width of the terminal, or None when the lines go elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def line(cells: Sequence[str], terminal: int | None = None) -> str:
    """Return one line, with as many columns as the terminal has room for.

    Without a terminal nothing is left out; what is longer than its column pushes the rest.
    """
    widths = list(_WIDTHS)
    left_out: set[str] = set()
    if terminal is not None:
        widths[_WORKER] = len(short_id(" " * widths[_WORKER]))
        left_out = _left_out(widths, terminal)
    padded: list[str] = []
    used = 0
    for name, cell, width in zip(_HEADER, cells, widths, strict=True):
        if name in left_out:
            continue
        text = one_line(short_id(cell) if name == "WORKER" and terminal is not None else cell)
        if terminal is not None:
            text = cut(text, terminal - used if name == _HEADER[-1] else width)
        style = STYLES.get(cell)
        padded.append(click.style(text.ljust(width), fg=style) if style else text.ljust(width))
        used += width + len(_GAP)
    return _GAP.join(padded).rstrip()


def _left_out(widths: Sequence[int], terminal: int) -> set[str]:
    needed = sum(widths) + len(_GAP) * (len(widths) - 1)
    found: set[str] = set()
    for name in _LEFT_OUT:
        if needed <= terminal:
            break
        found.add(name)
        needed -= widths[_HEADER.index(name)] + len(_GAP)
    return found


def follow(call: Invocation, edge: HttpEdge, chosen: TaskSelection) -> NoReturn:
    """Show changes until the user interrupts."""
    tail = Tail(call, chosen)
    # Progress is no change of the state.
    kinds = "task,run" if chosen.state else "task,run,progress"
    query = {"kind": kinds, **({"queue": chosen.queue} if chosen.queue else {})}
    with EventStream(edge, **query) as stream:
        stream.wait_connected()
        tail.remember()
        if call.output.is_table:
            click.echo(click.style(line(_HEADER, terminal_width()), bold=True))
            call.output.note("Waiting for changes. Press Ctrl-C to stop.")
        was_away = False
        while True:
            trouble = _look(tail, stream)
            if trouble is not None and not was_away:
                call.output.note(f"{trouble.message} Trying again.")
            was_away = trouble is not None
            sys.stdout.flush()


def _look(tail: Tail, stream: EventStream) -> CliError | None:
    """Show what is new; return why the server does not answer, and raise what will not pass."""
    news = stream.take(_LOOK_SECONDS)
    try:
        if news.is_reset:
            tail.catch_up()
        tail.follow(news.hints)
    except CliError as error:
        if not error.is_transient:
            raise
        stream.lose()
        return error
    if stream.trouble is not None and stream.is_over:
        raise stream.trouble
    return stream.trouble
