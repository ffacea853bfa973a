"""What a run that is waited for has done, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tenure.cli.client.run_follower import RunFollower, RunNews
from tenure.cli.failure import CliError
from tenure.cli.show import run_line

if TYPE_CHECKING:
    from tenure.cli.client.run_client import RunClient
    from tenure.cli.show.run_view import ShownRun

# Nobody reads more of one look; the journal has all.
_TOLD_MAX: Final = 20


class RunProgress:
    """Tells each step once, and what the run is at now."""

    def __init__(self, runs: RunClient, run: ShownRun, *, after: int) -> None:
        """Tell what comes behind a position."""
        self._follower = RunFollower(runs, run, after=after)
        self.doing = ""

    def news(self) -> Iterator[str]:
        """Yield what is new; nothing while the server does not answer, which others tell."""
        try:
            found = self._follower.look()
        except CliError as error:
            if not error.is_transient:
                raise
            return
        self.doing = run_line.doing(found.run)
        yield from _texts(found)

    def rest(self) -> Iterator[str]:
        """Yield what is left of a run that has ended."""
        is_over = False
        while not is_over:
            try:
                found = self._follower.look()
            except CliError:
                # How it ended is known, and that is what was waited for.
                return
            yield from _texts(found)
            is_over = found.is_over


def _texts(found: RunNews) -> list[str]:
    texts = [text for text in map(run_line.step_text, found.entries) if text]
    left_out = len(texts) - _TOLD_MAX
    if left_out > 0:
        texts = [
            f"{left_out} more entries: tenure runs show {found.run.run_id}",
            *texts[-_TOLD_MAX:],
        ]
    return ["The run has begun anew.", *texts] if found.is_anew else texts
