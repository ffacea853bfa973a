"""What an error of PostgreSQL or its connection means for the caller."""

from __future__ import annotations

from typing import Final

import asyncpg

from tenure.store.failure import (
    MISCONFIGURED,
    Blocked,
    Conflict,
    KeyTaken,
    Lost,
    Refused,
    RuleBroken,
)

_CONFLICTS = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
_FULL = (asyncpg.DiskFullError, asyncpg.OutOfMemoryError)
_InternalClientError = asyncpg.exceptions._base.InternalClientError  # noqa: SLF001 (asyncpg exports it nowhere else)
# What asyncpg says of a connection that PostgreSQL closed while it was being opened.
_CLOSED_EARLY: Final = "cannot switch to state"
_REFUSALS = (asyncpg.DataError, _InternalClientError, UnicodeEncodeError, OverflowError)
_LOSSES = (
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.InterfaceError,
    asyncpg.PostgresIOError,
    OSError,
)

# What a pooler in transaction mode refuses or forgets: settings of a session, named statements.
_POOLER = (
    asyncpg.ProtocolViolationError,
    asyncpg.InvalidSQLStatementNameError,
    asyncpg.DuplicatePreparedStatementError,
)
_POOLED: Final = (
    "It seems that a pooler in transaction mode, such as pgbouncer, stands before PostgreSQL: "
    "start the server with --pooled (TENURE_POOLED=1), or connect to PostgreSQL itself."
)


def translated(error: BaseException) -> BaseException:
    """Return the store's own failure for an error, or the error itself."""
    if isinstance(error, asyncpg.LockNotAvailableError):
        return Blocked(str(error))
    if isinstance(error, _CONFLICTS):
        return Conflict(str(error))
    if isinstance(error, _FULL):
        return Lost("The database has no space left.", reason="storage_full")
    if isinstance(error, asyncpg.UniqueViolationError):
        return KeyTaken(str(error))
    if isinstance(error, asyncpg.IntegrityConstraintViolationError):
        return RuleBroken(str(error))
    if isinstance(error, _REFUSALS) and not _is_closed_early(error):
        return Refused(type(error).__name__)
    if isinstance(error, _POOLER):
        return Lost(f"{error}. {_POOLED}", reason=MISCONFIGURED)
    if isinstance(error, TimeoutError):
        return Lost("PostgreSQL does not answer in time.", reason="store_slow")
    if isinstance(error, _LOSSES) or _is_closed_early(error):
        return Lost(f"PostgreSQL: {type(error).__name__}")
    return error


def _is_closed_early(error: BaseException) -> bool:
    return isinstance(error, _InternalClientError) and str(error).startswith(_CLOSED_EARLY)
