"""Asking whether workers may be stopped, once or until they may."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from tenure.cli.exit_code import ExitCode
from tenure.cli.failure import CliError
from tenure.cli.show.text import duration_text

if TYPE_CHECKING:
    from tenure.cli.client.invocation import Invocation
    from tenure.cli.client.request import StopChoice
    from tenure.cli.show.view import ShownStopCheck

LOOK_SECONDS: Final = 0.5
_AWAY_MS_MAX: Final = 60_000
# After these nothing changes by itself.
_HOPELESS: Final = frozenset({"no_worker", "too_many_workers"})


def wait_until_safe(call: Invocation, choice: StopChoice, timeout_ms: int | None) -> ShownStopCheck:
    """Return the check that says that a stop is safe, or fail after the time."""
    client = call.client
    started_ms = seen_ms = client.monotonic_ms()
    while True:
        try:
            found = client.workers.check_stop(choice)
        except CliError as error:
            if not error.is_transient or client.monotonic_ms() - seen_ms > _AWAY_MS_MAX:
                raise
        else:
            seen_ms = client.monotonic_ms()
            if found.is_safe or found.reason in _HOPELESS:
                return found
            if timeout_ms is not None and seen_ms - started_ms >= timeout_ms:
                raise _timed_out(found, timeout_ms)
        time.sleep(LOOK_SECONDS)


def _timed_out(found: ShownStopCheck, timeout_ms: int) -> CliError:
    return CliError(
        f"A stop has not become safe within {duration_text(timeout_ms)}: {found.reason}.",
        why=f"{found.safe_count} of {found.worker_count} workers may be stopped, "
        f"{found.held_count} attempts are held.",
        hint="Drain the workers first: tenure workers drain. See: tenure workers ls",
        exit_code=ExitCode.TIMED_OUT,
    )
