"""``tenure top``: queues and workers, live."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import click

from tenure.cli import parameter
from tenure.cli.client.invocation import Invocation, with_server
from tenure.cli.failure import CliError
from tenure.cli.help import HelpCommand
from tenure.cli.parameter import examples, option

if TYPE_CHECKING:
    from tenure.cli.client.event_stream import EventStream
    from tenure.cli.show.top_look import Looker, TopFrame
    from tenure.cli.show.top_screen import Screen

_INTERVAL_MS: Final = 2_000
_INTERVAL_MS_MIN: Final = 100
# Two looks of a single frame are this far apart: rates need two.
_ONCE_SECONDS: Final = 0.5
# Hints make it look sooner, but never more often than this, nor for more than a tenth of the time.
_LOOK_SECONDS_MIN: Final = 0.25
_REST: Final = 9
_DRAW_SECONDS: Final = 0.25


@click.command(
    cls=HelpCommand,
    short_help="Watch queues and workers live.",
    epilog=examples(
        "tenure top",
        "tenure top --interval 500ms --namespace acme",
        "tenure top --once -o json | jq .liveCount",
    ),
)
@option(
    "--interval",
    "interval_ms",
    metavar="DURATION",
    type=parameter.duration_ms,
    default=f"{_INTERVAL_MS // 1000}s",
    help="Refresh at least this often. Changes are shown sooner.",
)
@click.option("--once", "is_once", is_flag=True, help="Print once and exit.")
@parameter.http_option
@with_server
def top(call: Invocation, *, interval_ms: int, is_once: bool, http: str) -> None:
    """Watch the queues and workers of a namespace, and the task rates of the server.

    Keys: arrows, PgUp, PgDn, Home and End scroll, q quits. The column ID is the end of a worker's
    id, which the workers commands accept. Rates are those of one server; they are read over HTTP.
    Without a terminal each refresh is printed.
    """
    from tenure.cli.client.event_stream import EventStream, HttpEdge
    from tenure.cli.show.top_look import Looker
    from tenure.cli.show.top_screen import Printer, make_screen

    if interval_ms < _INTERVAL_MS_MIN:
        raise click.UsageError(f"--interval must be at least {_INTERVAL_MS_MIN}ms.")
    if call.form == "json" and not is_once:
        raise click.UsageError("-o json needs --once; -o jsonl prints one line per refresh.")
    edge = HttpEdge(call, http)
    looker = Looker(call, edge)
    frame = looker.look()
    if is_once:
        time.sleep(_ONCE_SECONDS)
        Printer(call.output).show(looker.look(), passed_ms=0, trouble="")
        return
    with (
        EventStream(edge, kind="task,run,worker,queue") as stream,
        make_screen(call.output, stream.wake) as screen,
    ):
        Top(looker, stream, screen, interval_ms / 1000).run(frame)


class Top:
    """Looks and shows until the user ends it."""

    def __init__(
        self, looker: Looker, stream: EventStream, screen: Screen, interval_s: float
    ) -> None:
        """Look at least each ``interval_s``; sooner on a terminal, when the stream has hints."""
        self._looker = looker
        self._stream = stream
        self._screen = screen
        self._interval_s = interval_s
        self._looked_s = time.monotonic()
        self._took_s = 0.0
        self._trouble = ""

    def run(self, frame: TopFrame) -> None:
        """Show a first frame and all that come, until the user quits."""
        self._show(frame, is_new=True)
        while not self._wait(frame):
            began_s = time.monotonic()
            try:
                frame, self._trouble = self._looker.look(), ""
                self._looked_s = time.monotonic()
                self._took_s = self._looked_s - began_s
            except CliError as error:
                if not error.is_transient:
                    raise
                self._trouble = f"{error.message} Trying again."
            self._show(frame, is_new=not self._trouble)

    def _wait(self, frame: TopFrame) -> bool:
        """Wait for the time of the next look, and draw meanwhile; tell whether the user quits."""
        began_s = drawn_s = time.monotonic()
        soonest_s = began_s + max(_LOOK_SECONDS_MIN, _REST * self._took_s)
        latest_s = max(began_s + self._interval_s, soonest_s)
        is_changed = False
        while (now_s := time.monotonic()) < latest_s and not self._screen.is_over:
            if is_changed and now_s >= soonest_s:
                break
            news = self._stream.take(min(_DRAW_SECONDS, latest_s - now_s))
            is_changed |= self._screen.is_live and bool(news.hints or news.is_reset)
            if self._screen.has_keys or now_s - drawn_s >= _DRAW_SECONDS:
                drawn_s = now_s
                self._show(frame, is_new=False)
        return self._screen.is_over

    def _show(self, frame: TopFrame, *, is_new: bool) -> None:
        passed_ms = 0 if is_new else int((time.monotonic() - self._looked_s) * 1000)
        trouble = self._trouble
        if not trouble and self._screen.is_live and self._stream.trouble is not None:
            trouble = f"{self._stream.trouble.message} Refreshing every {self._interval_s:g} s."
        self._screen.show(frame, passed_ms=passed_ms, trouble=trouble)
