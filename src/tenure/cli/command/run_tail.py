"""``tenure runs tail``: the entries of the journal of a run, one line each, as they come."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from tenure.cli.client.run_follower import RunFollower, RunNews
from tenure.cli.client.wait import LOOK_SECONDS, Watcher
from tenure.cli.command.tail import terminal_width
from tenure.cli.failure import CliError
from tenure.cli.show import run_line

if TYPE_CHECKING:
    from tenure.cli.client.invocation import Invocation
    from tenure.cli.show.run_view import ShownRun


class RunTail:
    """Writes what is new of a run; nothing twice."""

    def __init__(self, call: Invocation) -> None:
        """Write to where the call says."""
        self._call = call
        self._width = terminal_width()
        self._standing = ""
        self._is_troubled = False

    def follow(self, run: ShownRun, *, after: int) -> ShownRun:
        """Write what comes behind a position until the run has ended, and return it."""
        if self._call.output.is_table:
            click.echo(click.style(run_line.line(run_line.HEADER, self._width), bold=True))
        follower = RunFollower(self._call.client.runs, run, after=after)
        watcher = Watcher(self._call.client, [run.run_id])
        try:
            while True:
                news = self._look(follower)
                if news is not None:
                    self._write(news)
                    if news.is_over:
                        return news.run
                if news is None or not news.entries:
                    watcher.next(LOOK_SECONDS)
        finally:
            watcher.stop()

    def _look(self, follower: RunFollower) -> RunNews | None:
        """Return what is new; nothing while the server does not answer, which is told once."""
        try:
            news = follower.look()
        except CliError as error:
            if not error.is_transient:
                raise
            if not self._is_troubled:
                self._call.output.note(f"{error.message} Trying again.")
            self._is_troubled = True
            return None
        self._is_troubled = False
        return news

    def _write(self, news: RunNews) -> None:
        output, run = self._call.output, news.run
        if news.is_anew:
            output.note("The run has begun anew, with an empty journal.")
        for entry in news.entries:
            if output.is_table:
                text = run_line.line(run_line.cells(entry), self._width)
                click.echo(run_line.styled(text, entry))
            else:
                output.write(run_line.FollowedEntry.of(entry, run.generation))
        sys.stdout.flush()
        standing = run_line.standing(run, self._call.client.now_ms())
        # Between two waits for the same it has only looked.
        if standing and standing != self._standing:
            output.note(standing)
            self._standing = standing
