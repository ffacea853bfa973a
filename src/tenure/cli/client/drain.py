"""Waiting for workers that drain."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from tenure.cli.exit_code import ExitCode
from tenure.cli.failure import CliError
from tenure.cli.show.output import console
from tenure.cli.show.text import duration_text

if TYPE_CHECKING:
    from rich.live import Live

    from tenure.cli.client.invocation import Invocation
    from tenure.cli.show.view import ShownWorker

LOOK_SECONDS: Final = 0.5
_AWAY_MS_MAX: Final = 60_000


def show_drained(call: Invocation, ids: Sequence[str]) -> None:
    """Say which workers get nothing new from now on."""
    if not call.output.is_table:
        call.output.write({"workerIds": ids})
        return
    for worker_id in ids:
        call.output.say(worker_id)
    if ids:
        call.output.note(f"{_count(ids)} draining. Follow them: tenure workers ls --watch")
    else:
        call.output.note("No active worker matches. Nothing was drained.")


def _count(ids: Sequence[str]) -> str:
    return "1 worker is" if len(ids) == 1 else f"{len(ids)} workers are"


class DrainWait:
    """The workers of a drain that have not left yet."""

    def __init__(self, call: Invocation, ids: Sequence[str]) -> None:
        """Follow workers by their ids."""
        self._client = call.client
        self._seen_at_ms = self._client.monotonic_ms()
        self.left: dict[str, ShownWorker | None] = dict.fromkeys(ids)

    def look(self) -> None:
        """Forget the workers that have left; a server that is away for a moment is waited for."""
        try:
            for worker_id in list(self.left):
                self._look_at(worker_id)
        except CliError as error:
            away_ms = self._client.monotonic_ms() - self._seen_at_ms
            if not error.is_transient or away_ms > _AWAY_MS_MAX:
                raise
        else:
            self._seen_at_ms = self._client.monotonic_ms()

    def _look_at(self, worker_id: str) -> None:
        try:
            worker = self._client.workers.get_worker(worker_id)
        except CliError as error:
            # It has been gone for so long that even its record is gone.
            if error.end is not ExitCode.NOT_FOUND:
                raise
            del self.left[worker_id]
            return
        if worker.status == "OFFLINE":
            del self.left[worker_id]
        else:
            self.left[worker_id] = worker

    def text(self) -> str:
        """Return what is left."""
        held = sum(worker.held_count for worker in self.left.values() if worker is not None)
        return f"{_count(list(self.left))} still running {held} tasks"


def wait_until_offline(call: Invocation, ids: Sequence[str], timeout_ms: int | None) -> None:
    """Stay until every worker has left, and show what is left meanwhile."""
    started_ms = call.client.monotonic_ms()
    drain = DrainWait(call, ids)
    shown = _Shown(is_for_people=call.output.is_table)
    try:
        drain.look()
        while drain.left:
            shown.show(drain.text(), call.client.monotonic_ms() - started_ms)
            if timeout_ms is not None and call.client.monotonic_ms() - started_ms >= timeout_ms:
                raise _timed_out(drain, timeout_ms)
            time.sleep(LOOK_SECONDS)
            drain.look()
    except KeyboardInterrupt:
        raise CliError(
            "Interrupted. The drain continues.",
            hint="Follow it: tenure workers ls --status DRAINING",
            exit_code=ExitCode.INTERRUPTED,
        ) from None
    finally:
        shown.end()
    if call.output.is_table:
        call.output.say(f"Drained: {', '.join(ids)}." if ids else "No active worker matches.")
    else:
        call.output.write({"workerIds": ids})


def _timed_out(drain: DrainWait, timeout_ms: int) -> CliError:
    return CliError(
        f"The drain has not ended within {duration_text(timeout_ms)}: {drain.text()}.",
        why="Workers finish their tasks first. At the drain deadline unfinished tasks go back.",
        hint="It continues. Follow it: tenure workers ls --status DRAINING",
        exit_code=ExitCode.TIMED_OUT,
    )


class _Shown:
    """One line that is redrawn on a terminal, or a new line for each change."""

    def __init__(self, *, is_for_people: bool) -> None:
        self._is_for_people = is_for_people
        self._last = ""
        self._live: Live | None = None

    def show(self, text: str, waited_ms: int) -> None:
        """Show what is left."""
        line = f"{duration_text(waited_ms)} {text}"
        if sys.stderr.isatty():
            self._started().update(line, refresh=True)
        elif self._is_for_people and text != self._last:
            click.echo(line, err=True)
        self._last = text

    def _started(self) -> Live:
        from rich.live import Live

        if self._live is None:
            self._live = Live(console=console(sys.stderr), auto_refresh=False, transient=True)
            self._live.start()
        return self._live

    def end(self) -> None:
        """Give the line back."""
        if self._live is not None:
            self._live.stop()
