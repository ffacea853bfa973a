"""How ``tenure top`` shows a look: drawn again and again on a terminal, or printed."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, Self, TypeVar

import click

from tenure.cli.show.output import console, rendered
from tenure.cli.show.table import NOTHING, UNLIMITED, Column, Layout
from tenure.cli.show.text import duration_text, escaped, short_id
from tenure.cli.show.top_look import TopFrame, TopQueue, TopSchedules, TopWorker
from tenure.cli.show.worker_table import name_text

if TYPE_CHECKING:
    from rich.text import Text

    from tenure.cli.show.keyboard import Keyboard
    from tenure.cli.show.output import Output

_ROWS_MIN: Final = 3
_NO_LIMIT: Final = "none"
T = TypeVar("T")
_KEYS: Final = "q quit"
_SCROLL_KEYS: Final = "↑ ↓ PgUp PgDn Home End scroll"


class Screen(Protocol):
    """Shows frames."""

    is_live: bool

    @property
    def is_over(self) -> bool:
        """Tell whether the user wants to see no more."""
        ...

    @property
    def has_keys(self) -> bool:
        """Tell whether keys wait for the next frame."""
        ...

    def __enter__(self) -> Self:
        """Begin to show."""
        ...

    def __exit__(self, *_: object) -> None:
        """Show no more."""
        ...

    def show(self, frame: TopFrame, *, passed_ms: int, trouble: str) -> None:
        """Show a frame that is so old, and what is wrong with the server."""
        ...


def make_screen(output: Output, wake: Callable[[], None]) -> Screen:
    """Return the screen that fits the place where it is shown; ``wake`` is called for each key."""
    if output.is_table and sys.stdout.isatty():
        return LiveScreen(wake)
    return Printer(output)


class Printer:
    """Prints each frame once: for files and pipes."""

    is_live = False
    is_over = False
    has_keys = False

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
            click.echo(rendered(printed(frame)) + "\n", nl=False)
        else:
            self._output.write(frame)
        sys.stdout.flush()


class LiveScreen:
    """Draws on the whole terminal, obeys the keyboard, and leaves the terminal as it was."""

    is_live = True

    def __init__(self, wake: Callable[[], None]) -> None:
        """Prepare the screen."""
        from rich.live import Live

        from tenure.cli.show.keyboard import Keyboard

        self._console = console(sys.stdout)
        self._live = Live(console=self._console, auto_refresh=False, screen=True)
        self._wake = wake
        self._keys: deque[str] = deque()
        self._keyboard: Keyboard = Keyboard(self._press)
        self._offset = 0
        self.is_over = False

    def _press(self, key: str) -> None:
        """Note a key; in the thread of the keyboard."""
        self.is_over |= key == "quit"
        self._keys.append(key)
        self._wake()

    @property
    def has_keys(self) -> bool:
        """Tell whether keys wait for the next frame."""
        return bool(self._keys)

    def __enter__(self) -> Self:
        """Take the terminal."""
        self._keyboard.__enter__()
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Give it back."""
        self._live.stop()
        self._keyboard.__exit__()

    def show(self, frame: TopFrame, *, passed_ms: int, trouble: str) -> None:
        """Draw a frame; leases run on while it grows old."""
        from rich.console import Group
        from rich.text import Text

        size = self._console.size
        head = [*_head(frame, trouble), Text("")]
        body = Body(frame, passed_ms=passed_ms, width=size.width)
        rows = max(size.height - len(head) - 1, _ROWS_MIN)
        while self._keys:
            self._offset = moved(self._keys.popleft(), self._offset, rows, len(body))
        self._offset = moved("", self._offset, rows, len(body))
        shown = body.window(self._offset, rows)
        # The keys stand in the last line, also when the tables are short.
        shown += [Text("")] * (rows - len(shown))
        foot = Text(_footer(self._offset, rows, len(body)), style="dim", no_wrap=True)
        self._live.update(Group(*head, *shown, foot), refresh=True)


def moved(key: str, offset: int, rows: int, total: int) -> int:
    """Return the first line that is shown after a key, of so many lines in so many rows."""
    last = max(total - rows, 0)
    # A page keeps one line of the page before, beside the header.
    steps = {"up": -1, "down": 1, "page up": 2 - rows, "page down": rows - 2}
    if key in ("home", "end"):
        return 0 if key == "home" else last
    return min(max(offset + steps.get(key, 0), 0), last)


def _footer(offset: int, rows: int, total: int) -> str:
    if total <= rows:
        return _KEYS
    return f"{_KEYS}  {_SCROLL_KEYS}  lines {offset + 1} to {offset + rows} of {total}"


def printed(frame: TopFrame) -> list[Text]:
    """Return all of a frame as lines."""
    from rich.text import Text

    body = Body(frame, passed_ms=0, width=UNLIMITED)
    return [*_head(frame, ""), Text(""), *body.window(0, len(body))]


class Section(NamedTuple):
    """A table: its header, and its lines made when they are seen."""

    header: Text
    size: int
    line: Callable[[int], Text]


class Body:
    """The tables of a frame, one below the other."""

    def __init__(self, frame: TopFrame, *, passed_ms: int, width: int) -> None:
        """Lay the tables out for a width."""
        from rich.text import Text

        more = (frame.has_more_queues, frame.has_more_workers)
        queues = Layout(_queue_columns(), frame.queues, width)
        workers = Layout(_worker_columns(passed_ms), frame.workers, width)
        self._blank = Text("")
        self._sections = (
            _section(queues, frame.queues, "queues" if more[0] else ""),
            _section(workers, frame.workers, "workers" if more[1] else ""),
        )

    def __len__(self) -> int:
        """Return the number of lines, with an empty one between the tables."""
        return sum(section.size + 2 for section in self._sections) - 1

    def window(self, offset: int, rows: int) -> list[Text]:
        """Return some of the lines; the first is the header of the table that it is in."""
        found: list[Text] = []
        begin = 0
        for section in self._sections:
            for index in range(max(offset - begin, 0), section.size + 2):
                place = begin + index
                if place >= min(offset + rows, len(self)):
                    return found
                is_header = index == 0 or (place == offset and index <= section.size)
                found.append(section.header if is_header else self._line(section, index))
            begin += section.size + 2
        return found

    def _line(self, section: Section, index: int) -> Text:
        return section.line(index - 1) if index <= section.size else self._blank


def _section(layout: Layout[T], items: Sequence[T], more: str) -> Section:
    from rich.text import Text

    def line(index: int) -> Text:
        if index < len(items):
            return layout.row(items[index])
        return Text(f"… and more: tenure {more} ls --all", style="dim")

    return Section(layout.header, len(items) + bool(more), line)


def _head(frame: TopFrame, trouble: str) -> list[Text]:
    from rich.text import Text

    head = Text("tenure top", style="bold", no_wrap=True, overflow="ellipsis")
    version = f" ({frame.version})" if frame.version else ""
    head.append(f"  {frame.target}{version}  namespace {frame.namespace}  {frame.at}", "not bold")
    rates = (
        ("enqueued", frame.enqueued_per_s),
        ("started", frame.started_per_s),
        ("finished", frame.finished_per_s),
    )
    shown = ", ".join(f"{name} {_rate(value)}" for name, value in rates)
    more = "" if frame.is_live_count_exact else "+"
    rate = f"live tasks {frame.live_count:,}{more}  per second: {shown}"
    lines = [head, Text(rate, no_wrap=True, overflow="ellipsis")]
    if frame.schedules is not None:
        lines.append(_schedules(frame.schedules))
    if trouble:
        lines.append(Text(escaped(trouble), style="red", no_wrap=True, overflow="ellipsis"))
    return lines


def _schedules(counts: TopSchedules) -> Text:
    from rich.text import Text

    line = Text(f"schedules due {counts.due:,}, ", no_wrap=True, overflow="ellipsis")
    line.append(f"late {counts.late:,}", "red" if counts.late else "").append(", ")
    return line.append(f"broken {counts.broken:,}", "red" if counts.broken else "")


def _rate(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.1f}"


def _queue_columns() -> Sequence[Column[TopQueue]]:
    return (
        Column("QUEUE", lambda queue: queue.name, is_text=True),
        Column("PENDING", lambda queue: _count(queue, queue.pending)),
        Column("RUNNING", lambda queue: _count(queue, queue.running)),
        Column("OTHER", lambda queue: _count(queue, queue.others), rank=4),
        Column("STATE", lambda queue: queue.state, rank=1),
        Column("LIMIT", lambda queue: queue.concurrency_max or _NO_LIMIT, rank=3),
        Column("OLDEST", lambda queue: _duration(queue.oldest_waiting_ms), rank=2),
    )


def _count(queue: TopQueue, count: int) -> str:
    return f"{count:,}+" if count and not queue.is_count_exact else f"{count:,}"


def _worker_columns(passed_ms: int) -> Sequence[Column[TopWorker]]:
    return (
        Column("ID", lambda worker: short_id(worker.worker_id)),
        Column("WORKER", name_text, rank=1, is_text=True),
        Column("QUEUE", lambda worker: worker.queue, rank=4, is_text=True),
        Column("STATUS", lambda worker: worker.status),
        Column("HEALTH", lambda worker: worker.health, rank=3),
        Column("RUNNING", lambda worker: f"{worker.held_count}/{worker.max_concurrent}", rank=2),
        Column("LEASE", lambda worker: _lease(worker.lease_left_ms, passed_ms), rank=5),
        Column("HEARTBEAT", lambda worker: _duration(worker.heartbeat_age_ms, passed_ms), rank=6),
    )


def _lease(left_ms: int | None, passed_ms: int) -> str:
    if left_ms is None:
        return ""
    left_ms -= passed_ms
    return duration_text(left_ms) if left_ms > 0 else "over"


def _duration(milliseconds: int | None, passed_ms: int = 0) -> str:
    return "" if milliseconds is None else duration_text(milliseconds + passed_ms)
