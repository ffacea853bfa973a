"""A look at a database from outside: its schema, its size, and whether it is sound.

Nothing is changed and nothing is locked, so it works beside a running server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import apsw
import msgspec

from tenure.cli.exit_code import ExitCode
from tenure.cli.failure import CliError
from tenure.core.limits import CONNECT_SECONDS_MAX, SQLITE_BUSY_MS
from tenure.engine.clock import SystemClock
from tenure.store import location, migration, statement
from tenure.store.migration import Applied
from tenure.store.sqlite.damaged_text import read_rows
from tenure.store.statement import Statement
from tenure.store.table.payload_scan import Scan, scan

T = TypeVar("T")
_SQLITE: Final = "sqlite"
_POSTGRES: Final = "postgres"
# The migration that brought the columns for them.
_CHECKSUMS: Final = "checksum"
# Looking at every page of a large file takes its time.
_CHECK_SECONDS_MAX: Final = 600.0


class Step(msgspec.Struct, frozen=True, rename="camel"):
    """One migration."""

    number: int
    name: str


class DatabaseStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """How far a database is."""

    store: str
    dialect: str
    schema_version: int
    applied: list[Step]
    pending: list[Step]
    size_bytes: int
    wal_bytes: int | None = None
    schema: str = ""


class Check(msgspec.Struct, frozen=True, rename="camel"):
    """What is wrong with a database.

    ``unverified_count`` rows were written before there were checksums, and ``is_verified`` tells
    whether the schema has any.
    """

    store: str
    ok: bool
    problems: list[str]
    row_count: int
    unverified_count: int
    is_verified: bool


class DatabaseReader(Protocol):
    """Runs named statements that only read; ``schema`` is empty for a file."""

    schema: str

    async def rows(self, name: str, *parameters: object) -> Sequence[Sequence[object]]:
        """Return the rows of a statement."""
        ...

    async def applied(self) -> list[Applied]:
        """Return the migrations that the database has; none if it was never prepared."""
        ...


class SqliteReader:
    """Reads a file without the right to write it."""

    schema = ""

    def __init__(self, path: str) -> None:
        """Open a file that is there."""
        if not Path(path).exists():
            raise CliError(
                f"There is no database {path}.",
                why="A server, or tenure db migrate, creates it.",
                hint=f"Create it: tenure db migrate --store sqlite:///{path}",
                exit_code=ExitCode.NOT_FOUND,
            )
        self._statements = statement.load("tenure.store.sqlite.sql", mark="?")
        self._connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
        self._connection.set_busy_timeout(SQLITE_BUSY_MS)

    async def rows(self, name: str, *parameters: apsw.SQLiteValue) -> Sequence[Sequence[Any]]:
        """Return the rows of a statement."""
        (part,) = self._statements[name].parts
        try:
            return self._connection.execute(part.text, parameters).fetchall()
        except UnicodeDecodeError:
            return read_rows(self._connection, part.text, [parameters])

    async def applied(self) -> list[Applied]:
        """Return the migrations that the database has."""
        if not self._connection.table_exists(None, "schema_migrations"):
            return []
        return _applied(await self.rows("list_migrations"))

    async def close(self) -> None:
        """Close the file."""
        self._connection.close()


def _applied(rows: Sequence[Sequence[Any]]) -> list[Applied]:
    return [Applied(*row) for row in rows]


class PostgresReader:
    """Reads over one connection, for the time of the look."""

    def __init__(self, url: str) -> None:
        """Prepare; ``open`` connects."""
        self._url = url
        self._statements: Mapping[str, Statement] = {}
        self.schema = ""

    async def open(self) -> None:
        """Connect."""
        import asyncpg

        self._connection = await asyncpg.connect(
            self._url,
            timeout=CONNECT_SECONDS_MAX,
            command_timeout=_CHECK_SECONDS_MAX,
            # No statement is prepared by name, so that it works behind a pooler too.
            statement_cache_size=0,
        )

    async def enter(self, schema: str) -> None:
        """Read in a schema, or in the one that is found if none is named."""
        from tenure.store.postgres import schema as names

        self._statements = names.STATEMENTS
        self.schema, _ = await names.find(self.rows, schema)
        self._statements = names.statements_in(self.schema)

    async def rows(self, name: str, *parameters: object) -> Sequence[Sequence[object]]:
        """Return the rows of a statement."""
        (part,) = self._statements[name].parts
        return [tuple(row) for row in await self._connection.fetch(part.text, *parameters)]

    async def applied(self) -> list[Applied]:
        """Return the migrations that the database has."""
        import asyncpg

        try:
            return _applied(await self.rows("list_migrations"))
        except asyncpg.UndefinedTableError:
            return []

    async def close(self) -> None:
        """Leave."""
        await self._connection.close(timeout=CONNECT_SECONDS_MAX)


def migrate(url: str, schema: str) -> tuple[DatabaseStatus | None, DatabaseStatus]:
    """Bring a database up to date; return how far it was, if it was there, and how far it is."""
    before = None if _is_new(url) else read_status(url, schema)
    asyncio.run(_open_once(url, schema))
    return before, read_status(url, schema)


def _is_new(url: str) -> bool:
    return url.startswith(f"{_SQLITE}://") and not Path(location.sqlite_path(url)).exists()


async def _open_once(url: str, schema: str) -> None:
    store = location.make_store(url, clock=SystemClock().now_ms, schema=schema)
    try:
        await store.open()
    finally:
        await store.close()


def read_status(url: str, schema: str) -> DatabaseStatus:
    """Return how far a database is."""
    return asyncio.run(_with_reader(url, schema, lambda reader: _status(url, reader)))


def check(url: str, schema: str = "", tell: Callable[[int], None] = lambda _: None) -> Check:
    """Return what is wrong with a database; ``tell`` hears how many rows were looked at."""
    return asyncio.run(_with_reader(url, schema, lambda reader: _check(url, reader, tell)))


async def _with_reader(url: str, schema: str, look: Callable[[DatabaseReader], Awaitable[T]]) -> T:
    # It also says, in its own words, what is wrong with the URL or that the extra is missing.
    location.make_store(url, clock=SystemClock().now_ms, schema=schema)
    if url.startswith(f"{_SQLITE}://"):
        file = SqliteReader(location.sqlite_path(url))
        try:
            return await look(file)
        finally:
            await file.close()
    server = PostgresReader(url)
    await server.open()
    try:
        await server.enter(schema)
        return await look(server)
    finally:
        await server.close()


async def _status(url: str, reader: DatabaseReader) -> DatabaseStatus:
    is_file = isinstance(reader, SqliteReader)
    dialect = _SQLITE if is_file else _POSTGRES
    applied = await reader.applied()
    pending = migration.missing(migration.load(f"tenure.store.{dialect}.migrations"), applied)
    ((size,),) = await reader.rows("read_size")
    assert isinstance(size, int)
    return DatabaseStatus(
        store=location.shown(url),
        dialect=dialect,
        schema_version=max((step.number for step in applied), default=0),
        applied=[Step(step.number, step.name) for step in applied],
        pending=[Step(step.number, step.name) for step in pending],
        size_bytes=size,
        wal_bytes=_wal_bytes(location.sqlite_path(url)) if is_file else None,
        schema=reader.schema,
    )


def _wal_bytes(path: str) -> int:
    wal = Path(f"{path}-wal")
    return wal.stat().st_size if wal.exists() else 0


async def _check(url: str, reader: DatabaseReader, tell: Callable[[int], None]) -> Check:
    rows = await reader.rows("check_integrity")
    problems = [str(row[0]) for row in rows if row[0] != "ok"]
    found = Scan()
    is_verified = any(step.name == _CHECKSUMS for step in await reader.applied())
    if is_verified:
        try:
            found = await scan(reader.rows, tell)
        except apsw.CorruptError as error:
            problems.append(f"some payloads cannot be read: {error}")
    problems += found.problems
    if found.damaged_count > len(found.problems):
        problems.append(f"and {found.damaged_count - len(found.problems)} more damaged rows")
    return Check(
        store=location.shown(url),
        ok=not problems,
        problems=problems,
        row_count=found.row_count,
        unverified_count=found.unverified_count,
        is_verified=is_verified,
    )
