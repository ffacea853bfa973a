"""What an error of PostgreSQL or its connection means for the caller."""

from __future__ import annotations

import asyncpg

from tenure.store.failure import Blocked, Conflict, Lost, Refused

_CONFLICTS = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
_FULL = (asyncpg.DiskFullError, asyncpg.OutOfMemoryError)
_REFUSALS = (
    asyncpg.IntegrityConstraintViolationError,
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


def translated(error: BaseException) -> BaseException:
    """Return the store's own failure for an error, or the error itself."""
    if isinstance(error, asyncpg.LockNotAvailableError):
        return Blocked(str(error))
    if isinstance(error, _CONFLICTS):
        return Conflict(str(error))
    if isinstance(error, _FULL):
        return Lost("The database has no space left.", reason="storage_full")
    if isinstance(error, _REFUSALS):
        return Refused(type(error).__name__)
    if isinstance(error, TimeoutError):
        return Lost("PostgreSQL does not answer in time.", reason="store_slow")
    if isinstance(error, _LOSSES):
        return Lost(f"PostgreSQL: {type(error).__name__}")
    return error
