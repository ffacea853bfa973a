"""Progress of what is waited for: a live line on a terminal, plain lines elsewhere.

It is written to stderr, and only for people: with JSON and no terminal nothing is shown.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol, Self

import click

from tenure.cli.show.output import Output, console
from tenure.cli.show.table import STYLES
from tenure.cli.show.task_table import note, progress_text
from tenure.cli.show.text import duration_text, escaped, one_line, parse_instant_ms

if TYPE_CHECKING:
    from rich.text import Text

    from tenure.cli.failure import CliError
    from tenure.cli.show.view import ShownTask

_SPINNER: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_ROWS_MAX: Final = 10


class ProgressDisplay(Protocol):
    """Shows how far tasks are."""

    def __enter__(self) -> Self:
        """Begin to show."""
        ...

    def __exit__(self, *_: object) -> None:
        """Show no more."""
        ...

    def show(self, tasks: Sequence[ShownTask], waited_ms: int, doing: str = "") -> None:
        """Show the tasks as they stand, and what a run that is waited for is at."""
        ...

    def trouble(self, error: CliError) -> None:
        """Show that the server does not answer at the moment."""
        ...

    def tell(self, text: str) -> None:
        """Show a sentence that stays."""
        ...


def make_progress(output: Output, now_ms: int) -> ProgressDisplay:
    """Return the progress that fits the place where it is shown."""
    if sys.stderr.isatty():
        return LiveProgress(now_ms)
    return LineProgress(now_ms) if output.is_table else NoProgress()


def _line(task: ShownTask, last: str) -> str:
    """Return where a task stands, in one line."""
    parts = [f"attempt {task.attempt}" if task.attempt else "waiting for a worker"]
    # The worker comes last: on a narrow terminal the end of the line is cut.
    parts += [last, f"worker {task.worker_id}" if task.worker_id else ""]
    return one_line(", ".join(part for part in parts if part))


class NoProgress:
    """Shows nothing."""

    def __enter__(self) -> Self:
        """Show nothing."""
        return self

    def __exit__(self, *_: object) -> None:
        """Show nothing."""

    def show(self, tasks: Sequence[ShownTask], waited_ms: int, doing: str = "") -> None:
        """Show nothing."""

    def trouble(self, error: CliError) -> None:
        """Show nothing."""

    def tell(self, text: str) -> None:
        """Show nothing."""


class LineProgress(NoProgress):
    """Writes a line whenever something about a task has changed: for logs."""

    def __init__(self, now_ms: int) -> None:
        """Measure from ``now_ms``, the server's time."""
        self._now_ms = now_ms
        self._written: dict[str, str] = {}
        self._is_troubled = False

    def show(self, tasks: Sequence[ShownTask], waited_ms: int, doing: str = "") -> None:
        """Write what is new."""
        # A run tells that by lines of its own.
        del doing
        self._is_troubled = False
        for task in tasks:
            # A countdown would be new each time; the instant is not.
            is_later = task.state == "PENDING" and parse_instant_ms(task.run_at) > self._now_ms
            last = f"not before {task.run_at}" if is_later else progress_text(task)
            line = f"{task.state.lower()}, {_line(task, last)}"
            if self._written.get(task.task_id) != line and not task.is_ended:
                self._written[task.task_id] = line
                click.echo(f"{duration_text(waited_ms)} {task.task_id}: {line}", err=True)

    def trouble(self, error: CliError) -> None:
        """Say once that the server is away."""
        if not self._is_troubled:
            self._is_troubled = True
            click.echo(escaped(f"{error.message} Trying again."), err=True)

    def tell(self, text: str) -> None:
        """Write a line."""
        click.echo(escaped(text), err=True)


class LiveProgress:
    """Redraws a few lines: for terminals."""

    def __init__(self, now_ms: int) -> None:
        """Measure from ``now_ms``, the server's time."""
        from rich.live import Live

        self._now_ms = now_ms
        self._frame = 0
        self._live = Live(console=console(sys.stderr), auto_refresh=False, transient=True)
        self._trouble = ""

    def __enter__(self) -> Self:
        """Take the last lines of the terminal."""
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Give them back."""
        self._live.stop()

    def show(self, tasks: Sequence[ShownTask], waited_ms: int, doing: str = "") -> None:
        """Draw the tasks that have not ended."""
        self._frame += 1
        self._live.update(self._drawn(tasks, waited_ms, doing), refresh=True)
        self._trouble = ""

    def _drawn(self, tasks: Sequence[ShownTask], waited_ms: int, doing: str) -> Text:
        from rich.text import Text

        drawn = Text(no_wrap=True, overflow="ellipsis")
        live = [task for task in tasks if not task.is_ended]
        drawn.append(f"{_SPINNER[self._frame % len(_SPINNER)]} {duration_text(waited_ms)} ")
        if len(tasks) > 1:
            drawn.append(f"{len(tasks) - len(live)} of {len(tasks)} tasks have ended ")
        if self._trouble:
            drawn.append(self._trouble, style="red")
        for task in live[:_ROWS_MAX]:
            if len(tasks) > 1:
                drawn.append(f"\n  {task.task_id} ")
            drawn.append(task.state.lower(), style=STYLES.get(task.state, ""))
            last = doing or note(task, self._now_ms + waited_ms)
            drawn.append(f", {_line(task, last)}")
        return drawn

    def trouble(self, error: CliError) -> None:
        """Say with the next frame that the server is away."""
        self._trouble = escaped(f"{error.message} Trying again. ")

    def tell(self, text: str) -> None:
        """Write a line above those that are redrawn."""
        from rich.text import Text

        self._live.console.print(Text(escaped(text)))
