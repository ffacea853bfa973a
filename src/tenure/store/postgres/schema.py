"""The PostgreSQL schema that has the tables.

The names in a statement get their schema once, when a store is opened. A search path would not
work: a pooler in transaction mode keeps none. Only migrations, and the functions that they create,
use a search path, which ends with their transaction.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from tenure.core.limits import SCHEMA_NAME_BYTES_MAX
from tenure.errors import InvalidArgument
from tenure.store import migration, statement
from tenure.store.failure import SchemaError
from tenure.store.statement import Statement

DEFAULT: Final = "tenure"
STATEMENTS: Final = statement.load("tenure.store.postgres.sql", mark="$")
MIGRATIONS: Final = migration.load("tenure.store.postgres.migrations")

Fetch = Callable[..., Awaitable[Sequence[Any]]]
"""Runs a statement by its name."""

_NAME: Final = re.compile(rf"[A-Za-z_][A-Za-z0-9_-]{{0,{SCHEMA_NAME_BYTES_MAX - 1}}}")
_CREATED: Final = re.compile(r"\bCREATE (TABLE|TYPE|FUNCTION)(?: IF NOT EXISTS)? (\w+)")


def check_name(name: str) -> None:
    """Refuse an invalid name of a schema."""
    if not _NAME.fullmatch(name):
        raise InvalidArgument(
            f"The schema must be a name of at most {SCHEMA_NAME_BYTES_MAX} letters, digits, "
            "underscores and hyphens that does not start with a digit or a hyphen.",
            field="schema",
        )
    if name.startswith("pg_") or name == "information_schema":
        message = f"{name} is a schema of PostgreSQL itself. Name another one."
        raise InvalidArgument(message, field="schema")


async def find(fetch: Fetch, asked: str) -> tuple[str, bool]:
    """Return the schema to use, and whether it exists.

    Without a requested schema it is the default one, unless an earlier version, which used the
    search path, has created its tables elsewhere.
    """
    rows = await fetch("list_schemas", asked or DEFAULT)
    schema = asked or _installed(rows) or DEFAULT
    return schema, any(name == schema for name, _, _ in rows)


def _installed(rows: Sequence[Any]) -> str:
    """Return the one schema that has tables of Tenure, or nothing."""
    on_path = [name for name, has_tables, is_on_path in rows if has_tables and is_on_path]
    by_default = [name for name, has_tables, _ in rows if has_tables and name == DEFAULT]
    found = sorted({*on_path[:1], *by_default})
    if len(found) > 1:
        raise SchemaError(
            f"The schemas {' and '.join(found)} of the database both have tables of Tenure. "
            "Name one of them with --schema (TENURE_SCHEMA)."
        )
    return found[0] if found else ""


def channel_in(schema: str) -> str:
    """Return the channel on which servers of a schema notify each other.

    In ``public`` it is that of earlier versions, which run at the same time during an upgrade.
    """
    return "tenure" if schema == "public" else f"tenure_{schema}"


def statements_in(schema: str) -> Mapping[str, Statement]:
    """Return all statements, with the schema before every table, type and function of Tenure.

    >>> statements_in("tenure")["next_due"].parts[0].text
    'SELECT min(due_at_ms) FROM "tenure".tasks WHERE due_at_ms IS NOT NULL'
    """
    check_name(schema)
    return {name: _qualified(each, f'"{schema}"') for name, each in STATEMENTS.items()}


def _qualified(each: Statement, schema: str) -> Statement:
    parts = []
    for part in each.parts:
        text = _TABLES.sub(rf"\1{schema}.\2", part.text)
        text = _TYPES_AND_FUNCTIONS.sub(rf"{schema}.\1", text)
        parts.append(replace(part, text=text.replace("{schema}", schema)))
    return replace(each, parts=tuple(parts))


def _names(*kinds: str) -> str:
    """Return a pattern for the names that the migrations and the statements create."""
    texts = [each.sql for each in MIGRATIONS]
    texts += [part.text for each in STATEMENTS.values() for part in each.parts]
    found = {name for text in texts for kind, name in _CREATED.findall(text) if kind in kinds}
    return "|".join(sorted(found))


# A table name follows one of these words; elsewhere the same word is a column or an alias.
_TABLES: Final = re.compile(
    r"\b((?:FROM|JOIN|INTO|UPDATE|USING|EXISTS|TRUNCATE|VACUUM \([^)]*\))\s+)"
    rf"({_names('TABLE')})\b"
)
_TYPES_AND_FUNCTIONS: Final = re.compile(rf"\b({_names('TYPE', 'FUNCTION')})\b")
