"""The meaning of an error of PostgreSQL or its connection for the caller."""

from __future__ import annotations

import os
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
_REFUSALS = (
    asyncpg.DataError,
    asyncpg.exceptions._base.InternalClientError,  # noqa: SLF001 (asyncpg exports it nowhere else)
    UnicodeEncodeError,
    OverflowError,
)
_LOSSES = (
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.InterfaceError,
    asyncpg.PostgresIOError,
    OSError,
)

# What a pooler in transaction mode refuses or loses: session settings, named statements.
_POOLER = (
    asyncpg.ProtocolViolationError,
    asyncpg.InvalidSQLStatementNameError,
    asyncpg.DuplicatePreparedStatementError,
)
_POOLED: Final = (
    "There seems to be a pooler in transaction mode, such as pgbouncer, before PostgreSQL: "
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
    if isinstance(error, _REFUSALS):
        return Refused(type(error).__name__)
    if isinstance(error, _POOLER):
        return Lost(f"{error}. {_POOLED}", reason=MISCONFIGURED)
    if isinstance(error, TimeoutError):
        return Lost("PostgreSQL did not answer in time.", reason="store_slow")
    if isinstance(error, _LOSSES):
        number = error.errno if isinstance(error, OSError) else None
        why = os.strerror(number).lower() if number else type(error).__name__
        return Lost(f"PostgreSQL cannot be reached: {why}")
    return error
