"""How ``tenure top`` shows a look: drawn again and again on a terminal, or printed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol, Self

import click

from tenure.cli.show.output import NOTHING, Column, console, rendered, table
from tenure.cli.show.text import duration_text, escaped
from tenure.cli.show.top_look import TopFrame, TopQueue, TopWorker

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tenure.cli.show.output import Output

# The header, two heads of tables, the spaces between, and the words about what is left out.
_FRAME_ROWS: Final = 9
_ROWS_MIN: Final = 3
_NO_LIMIT: Final = "none"


class Screen(Protocol):
    """Shows frames."""

    is_live: bool

    def __enter__(self) -> Self:
        """Begin to show."""
        ...

    def __exit__(self, *_: object) -> None:
        """Show no more."""
        ...

    def show(self, frame: TopFrame, *, passed_ms: int, trouble: str) -> None:
        """Show a frame that is so old, and what is wrong with the server."""
        ...


def make_screen(output: Output) -> Screen:
    """Return the screen that fits the place where it is shown."""
    if output.is_table and sys.stdout.isatty():
        return LiveScreen()
    return Printer(output)


class Printer:
    """Prints each frame once: for files and pipes."""

    is_live = False

    def __init__(self, output: Output) -> None:
        """Print in the form of ``output``."""
        self._output = output
        self._trouble = ""

    def __enter__(self) -> Self:
        """Print from now on."""
        return self

    def __exit__(self, *_: object) -> None:
        """Print no more."""

    def show(self, frame: TopFrame, *, passed_ms: int, trouble: str) -> None:
        """Print a frame that was just read, or say once that the server is away."""
        if trouble and trouble != self._trouble:
            click.echo(escaped(trouble), err=True)
        self._trouble = trouble
        if trouble or passed_ms:
            return
        if self._output.is_table:
            click.echo(rendered(drawn(frame)) + "\n", nl=False)
        else:
            self._output.write(frame)
        sys.stdout.flush()


class LiveScreen:
    """Draws on the whole terminal and leaves it as it was."""

    is_live = True

    def __init__(self) -> None:
        """Prepare the screen."""
        from rich.live import Live

        self._console = console(sys.stdout)
        self._live = Live(console=self._console, auto_refresh=False, screen=True)

    def __enter__(self) -> Self:
        """Take the terminal."""
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Give it back."""
        self._live.stop()

    def show(self, frame: TopFrame, *, passed_ms: int, trouble: str) -> None:
        """Draw a frame; leases run on while it grows old."""
        rows = max(self._console.height - _FRAME_ROWS, 2 * _ROWS_MIN)
        content = drawn(frame, passed_ms=passed_ms, trouble=trouble, rows=rows)
        self._live.update(content, refresh=True)


def drawn(
    frame: TopFrame, *, passed_ms: int = 0, trouble: str = "", rows: int | None = None
) -> RenderableType:
    """Return a frame for people, in so many rows of both tables together."""
    from rich.console import Group
    from rich.text import Text

    queue_rows = len(frame.queues) if rows is None else max(rows // 2, rows - len(frame.workers))
    queues = frame.queues[:queue_rows]
    worker_rows = len(frame.workers) if rows is None else max(rows - len(queues), _ROWS_MIN)
    workers = frame.workers[:worker_rows]
    parts: list[RenderableType] = [_head(frame)]
    if trouble:
        parts.append(Text(escaped(trouble), style="red"))
    parts += [Text(""), table(_queue_columns(), queues)]
    parts += _more(len(frame.queues) - len(queues), "queues", has_more=frame.has_more_queues)
    parts += [Text(""), table(_worker_columns(passed_ms), workers)]
    parts += _more(len(frame.workers) - len(workers), "workers", has_more=frame.has_more_workers)
    return Group(*parts)


def _head(frame: TopFrame) -> RenderableType:
    from rich.text import Text

    head = Text(no_wrap=True, overflow="ellipsis")
    head.append("tenure top", style="bold")
    version = f" ({frame.version})" if frame.version else ""
    head.append(f"  {frame.target}{version}  namespace {frame.namespace}  {frame.at}\n")
    rates = (
        ("enqueued", frame.enqueued_per_s),
        ("started", frame.started_per_s),
        ("finished", frame.finished_per_s),
    )
    shown = ", ".join(f"{name} {_rate(value)}" for name, value in rates)
    more = "" if frame.is_live_count_exact else "+"
    head.append(f"live tasks {frame.live_count:,}{more}  per second: {shown}")
    return head


def _rate(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.1f}"


def _more(count: int, what: str, *, has_more: bool) -> list[RenderableType]:
    from rich.text import Text

    if not count and not has_more:
        return []
    many = f"{count} more" if count and not has_more else "more"
    return [Text(f"… and {many}: tenure {what} ls --all", style="dim")]


def _queue_columns() -> Sequence[Column[TopQueue]]:
    return (
        Column("QUEUE", lambda queue: queue.name),
        Column("PENDING", lambda queue: _count(queue, queue.pending)),
        Column("RUNNING", lambda queue: _count(queue, queue.running)),
        Column("OTHERS", lambda queue: _count(queue, queue.others)),
        Column("HELD", lambda queue: "PAUSED" if queue.paused else "no"),
        Column("LIMIT", lambda queue: queue.concurrency_max or _NO_LIMIT),
        Column("OLDEST", lambda queue: _duration(queue.oldest_waiting_ms)),
    )


def _count(queue: TopQueue, count: int) -> str:
    return f"{count:,}+" if count and not queue.is_count_exact else f"{count:,}"


def _worker_columns(passed_ms: int) -> Sequence[Column[TopWorker]]:
    return (
        Column("WORKER", lambda worker: worker.name or worker.worker_id),
        Column("QUEUE", lambda worker: worker.queue),
        Column("STATUS", lambda worker: worker.status),
        Column("HEALTH", lambda worker: worker.health),
        Column("HOLDS", lambda worker: f"{worker.held_count}/{worker.max_concurrent}"),
        Column("LEASE", lambda worker: _lease(worker.lease_left_ms, passed_ms)),
        Column("HEARTBEAT", lambda worker: _duration(worker.heartbeat_age_ms, passed_ms)),
    )


def _lease(left_ms: int | None, passed_ms: int) -> str:
    if left_ms is None:
        return ""
    left_ms -= passed_ms
    return duration_text(left_ms) if left_ms > 0 else "over"


def _duration(milliseconds: int | None, passed_ms: int = 0) -> str:
    return "" if milliseconds is None else duration_text(milliseconds + passed_ms)
