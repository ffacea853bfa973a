"""How a command ends: the exit codes, and the one table from an error's code to them."""

from __future__ import annotations

import enum
from typing import Final


class ExitCode(enum.IntEnum):
    """What a script can tell from the end of a command."""

    OK = 0
    # The operation, or the task that was waited for.
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    # Also: not possible in the present state.
    CONFLICT = 4
    # Server or store; the same command may succeed later.
    UNREACHABLE = 5
    NOT_ALLOWED = 6
    # The doctor has found some.
    PROBLEMS = 7
    # As `timeout` and most other programs do.
    TIMED_OUT = 124
    # 128 and the number of SIGINT, as shells do.
    INTERRUPTED = 130


EXIT_CODES: Final[dict[str, ExitCode]] = {
    "worker_inactive": ExitCode.CONFLICT,
    "token_mismatch": ExitCode.CONFLICT,
    "worker_draining": ExitCode.CONFLICT,
    "attempt_mismatch": ExitCode.CONFLICT,
    "task_already_terminal": ExitCode.CONFLICT,
    "task_expired": ExitCode.CONFLICT,
    "invalid_token": ExitCode.NOT_ALLOWED,
    "unauthenticated": ExitCode.NOT_ALLOWED,
    "permission_denied": ExitCode.NOT_ALLOWED,
    "wrong_state": ExitCode.CONFLICT,
    "not_found": ExitCode.NOT_FOUND,
    "idempotency_conflict": ExitCode.CONFLICT,
    "already_exists": ExitCode.CONFLICT,
    "unimplemented": ExitCode.FAILED,
    "invalid_argument": ExitCode.USAGE,
    "payload_too_large": ExitCode.USAGE,
    "rate_limited": ExitCode.UNREACHABLE,
    "unsupported_media_type": ExitCode.USAGE,
    "data_damaged": ExitCode.FAILED,
    "journal_mismatch": ExitCode.CONFLICT,
    "journal_full": ExitCode.CONFLICT,
    "out_of_order": ExitCode.CONFLICT,
    "too_early": ExitCode.CONFLICT,
    "deadline_exceeded": ExitCode.UNREACHABLE,
    "unavailable": ExitCode.UNREACHABLE,
}
