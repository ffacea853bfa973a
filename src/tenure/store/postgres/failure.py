"""The meaning of an error of PostgreSQL or its connection for the caller."""

from __future__ import annotations

import os
from collections.abc import Callable
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
    StoreError,
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


def _unreachable(error: BaseException) -> Lost:
    number = error.errno if isinstance(error, OSError) else None
    why = os.strerror(number).lower() if number else type(error).__name__
    return Lost(f"PostgreSQL cannot be reached: {why}")


_Meaning = Callable[[BaseException], StoreError]
# The first kind that fits counts.
_MEANINGS: Final[tuple[tuple[tuple[type[BaseException], ...], _Meaning], ...]] = (
    ((asyncpg.LockNotAvailableError,), lambda error: Blocked(str(error))),
    (_CONFLICTS, lambda error: Conflict(str(error))),
    (_FULL, lambda _: Lost("The database has no space left.", reason="storage_full")),
    ((asyncpg.UniqueViolationError,), lambda error: KeyTaken(str(error))),
    ((asyncpg.IntegrityConstraintViolationError,), lambda error: RuleBroken(str(error))),
    (_REFUSALS, lambda error: Refused(type(error).__name__)),
    (_POOLER, lambda error: Lost(f"{error}. {_POOLED}", reason=MISCONFIGURED)),
    ((TimeoutError,), lambda _: Lost("PostgreSQL did not answer in time.", reason="store_slow")),
    (_LOSSES, _unreachable),
)


def translated(error: BaseException) -> BaseException:
    """Return the store's own failure for an error, or the error itself."""
    if _is_closed_early(error):
        return _unreachable(error)
    for kinds, meaning in _MEANINGS:
        if isinstance(error, kinds):
            return meaning(error)
    return error


def _is_closed_early(error: BaseException) -> bool:
    return isinstance(error, _InternalClientError) and str(error).startswith(_CLOSED_EARLY)
