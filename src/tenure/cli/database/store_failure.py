"""Failures of a store as errors for people; no password is ever part of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import apsw

from tenure.cli.exit_code import EXIT_CODES, ExitCode
from tenure.cli.failure import CliError
from tenure.errors import TenureError
from tenure.store.failure import (
    MISCONFIGURED,
    Lost,
    SchemaError,
    StoreDamagedError,
    StoreError,
    StoreInUseError,
)
from tenure.store.location import shown

_LOOK: Final = "Check --store, and that the database is there and may be used by you."
_POOLED: Final = "Start the server with --pooled, or name PostgreSQL itself with --store."


def failure_of(error: Exception, url: str) -> CliError | None:
    """Return what a failure means for whoever named the store, or None for a mistake of ours."""
    if isinstance(error, CliError):
        return error
    where = shown(url)
    for kind, explain in _EXPLAINED:
        if isinstance(error, kind):
            return explain(error, where)
    return _of_postgres(error, where)


def _refused(error: TenureError, _where: str) -> CliError:
    field = error.fields.get("field", "")
    failure = CliError(
        error.message,
        hint=f"Change --{field}." if field else "",
        exit_code=EXIT_CODES[error.code],
        code=error.code,
    )
    failure.fields = dict(error.fields)
    return failure


def _named(error: StoreError, where: str) -> CliError:
    """The failure says itself what is wrong."""
    is_damaged = isinstance(error, StoreDamagedError)
    exit_code = ExitCode.UNREACHABLE if is_damaged else ExitCode.CONFLICT
    return CliError(str(error), why=f"The store is {where}.", exit_code=exit_code)


def _lost(error: Lost, where: str) -> CliError:
    return _unreachable(where, str(error), _POOLED if error.reason == MISCONFIGURED else _LOOK)


# The first that fits; each takes the error beside it, which a table cannot say to mypy.
_EXPLAINED: Final[tuple[tuple[type[Exception], Callable[[Any, str], CliError]], ...]] = (
    (TenureError, _refused),
    (StoreInUseError, _named),
    (SchemaError, _named),
    (StoreDamagedError, _named),
    (Lost, _lost),
    (StoreError, lambda error, where: _unreachable(where, str(error))),
    (apsw.Error, lambda error, where: _unreachable(where, f"SQLite: {error}")),
    (OSError, lambda error, where: _unreachable(where, error.strerror or type(error).__name__)),
)


def _of_postgres(error: Exception, where: str) -> CliError | None:
    try:
        import asyncpg
    except ImportError:
        return None
    if isinstance(error, asyncpg.InvalidAuthorizationSpecificationError):
        return CliError(
            f"PostgreSQL at {where} refused the login.",
            why=f"{error}.",
            hint="Check user and password in --store.",
            exit_code=ExitCode.NOT_ALLOWED,
        )
    if isinstance(error, asyncpg.InsufficientPrivilegeError):
        return CliError(
            f"The role may not do this in {where}.",
            why=f"{error}.",
            hint="Use a role that owns the schema, or let the owner of the database create it: "
            "CREATE SCHEMA tenure AUTHORIZATION the_role;",
            exit_code=ExitCode.NOT_ALLOWED,
        )
    if isinstance(error, asyncpg.PostgresError):
        return _unreachable(where, f"PostgreSQL: {error}")
    # The URL cannot be read, and its parts may be in the text of the error.
    if isinstance(error, asyncpg.InterfaceError | ValueError):
        return CliError(
            "The URL of the store cannot be used.",
            why=f"{type(error).__name__}.",
            hint="The form is postgresql://user@host:5432/database.",
            exit_code=ExitCode.USAGE,
        )
    return None


def _unreachable(where: str, why: str, hint: str = _LOOK) -> CliError:
    return CliError(
        f"The store {where} cannot be used.",
        why=why.rstrip(".") + ".",
        hint=hint,
        exit_code=ExitCode.UNREACHABLE,
    )
