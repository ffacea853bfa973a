"""SQLite through apsw: WAL, every commit on disk; one thread each for writes, lookups and scans.

``transaction`` sends the whole body to the writer, where ``tx`` never suspends and one
``send(None)`` runs it to its end. ``inline`` does the same on the caller's thread: the simulation.
"""

from __future__ import annotations

import fcntl
import functools
import os
import re
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast

import apsw

from tenure.core.limits import READ_SECONDS_MAX, SQLITE_BUSY_MS, SQLITE_STATEMENTS_MAX
from tenure.errors import NotFound
from tenure.store import migration, statement
from tenure.store.failure import (
    Conflict,
    KeyTaken,
    Lost,
    Refused,
    RuleBroken,
    StoreError,
    StoreInUseError,
)
from tenure.store.migration import Applied
from tenure.store.sqlite.damaged_text import FORGIVING, read_rows
from tenure.store.sqlite.start_check import check_file
from tenure.store.sqlite.thread import CallThread
from tenure.store.statement import StatementPart
from tenure.store.transaction import Body, LaneName, Position, Probe, Row, Tx

T = TypeVar("T")
_STATEMENTS = statement.load("tenure.store.sqlite.sql", mark="?")
_MIGRATIONS = migration.load("tenure.store.sqlite.migrations")

# About a millisecond of work in SQLite's virtual machine.
_STEPS_BETWEEN_LOOKS = 20_000

# Rows go to SQLite together: each call releases the interpreter's lock and takes it again, and an
# INSERT from a SELECT costs more per statement than per row.
_ROWS_AT_ONCE = (64, 8)
_VALUES = re.compile(r"VALUES \(\s*\?\d+(,\s+\?\d+)*\s*\)")
_LIST = re.compile(r"IN \(\?\d+\)\Z")
_MARK = re.compile(r"\?\d+")

_CONFLICTS = (apsw.BusyError, apsw.LockedError)
_REFUSALS = (
    apsw.MismatchError,
    apsw.TooBigError,
    apsw.RangeError,
    OverflowError,
    UnicodeEncodeError,
)
_TAKEN = {apsw.SQLITE_CONSTRAINT_UNIQUE, apsw.SQLITE_CONSTRAINT_PRIMARYKEY}
_DAMAGES = (apsw.CorruptError, apsw.NotADBError, UnicodeDecodeError)
_LOSSES = (apsw.IOError, apsw.ReadOnlyError, apsw.CantOpenError, apsw.ConnectionClosedError)


class SqliteTx:
    """A transaction on one connection. Its methods never suspend."""

    def __init__(
        self, connection: apsw.Connection, clock: Callable[[], int], probe: Probe | None
    ) -> None:
        """Use a connection that has begun a transaction."""
        self._connection = connection
        self._clock = clock
        self._probe = probe

    async def one(self, name: str, *parameters: object) -> Sequence[Row]:
        """Run a statement once."""
        if self._probe is not None:
            self._probe(name)
        rows: Sequence[Row] = ()
        for part in _STATEMENTS[name].parts:
            given = _bind(parameters[: part.parameter_count])
            try:
                rows = self._connection.execute(part.text, given).fetchall()
            except UnicodeDecodeError:
                if name not in FORGIVING:
                    raise
                rows = read_rows(self._connection, part.text, [given])
        return rows

    async def each(
        self, name: str, rows: Sequence[tuple[object, ...]], *shared: object
    ) -> Sequence[Row]:
        """Run a statement for each row of parameters."""
        if not rows:
            return ()
        if shared:
            rows = [(*row, *shared) for row in rows]
        if self._probe is not None:
            self._probe(name)
        results: Sequence[Row] = ()
        for part in _STATEMENTS[name].parts:
            try:
                results = self._run(part, rows)
            except UnicodeDecodeError:
                if name not in FORGIVING:
                    raise
                results = read_rows(self._connection, part.text, rows)
        return results

    async def fenced(self, name: str, rows: Sequence[tuple[object, ...]]) -> int:
        """Run a write for each row of parameters; counted, because RETURNING is 1.5 times as slow.

        A row is written if every part has written it.
        """
        if not rows:
            return 0
        if self._probe is not None:
            self._probe(name)
        connection = self._connection
        written = len(rows)
        for part in _STATEMENTS[name].parts:
            before = connection.total_changes()
            self._run(part, rows)
            written = min(written, connection.total_changes() - before)
        return written

    def _run(self, part: StatementPart, rows: Sequence[tuple[object, ...]]) -> Sequence[Row]:
        """Run a part for each row of parameters, many rows at once if its text allows that."""
        count = part.parameter_count
        given = rows if count == len(rows[0]) else [row[:count] for row in rows]
        results: list[Row] = []
        at = 0
        for size in _ROWS_AT_ONCE:
            while len(given) - at >= size and (text := _repeated(part, size)):
                values = _joined(part, given[at : at + size])
                if values is None:
                    break
                results += self._connection.execute(text, _bind(values))
                at += size
        if at < len(given):
            results += self._connection.executemany(part.text, cast("Any", given[at:]))
        return results

    async def now_ms(self) -> int:
        """Return the injected clock's time."""
        return self._clock()


@functools.cache
def _is_list(part: StatementPart) -> bool:
    """Return whether a text ends with a list for its last parameter; rows share the others."""
    return _LIST.search(part.text) is not None


def _joined(part: StatementPart, rows: Sequence[tuple[object, ...]]) -> list[object] | None:
    """Return the parameters of the text for many rows, if these rows can be one statement."""
    if not _is_list(part):
        values: list[object] = []
        for row in rows:
            values += row
        return values
    *shared, listed = zip(*rows, strict=True)
    if any(column.count(column[0]) < len(column) for column in shared):
        return None
    return [*(column[0] for column in shared), *listed]


@functools.cache
def _repeated(part: StatementPart, count: int) -> str | None:
    """Return the text for this many rows, if it has its parameters in one list of values."""
    marks = [f"?{number}" for number in range(1, part.parameter_count + 1)]
    if _is_list(part):
        return _LIST.sub(f"IN ({', '.join([marks[-1], *'?' * (count - 1)])})", part.text)
    match = _VALUES.search(part.text)
    if match is None or not marks == _MARK.findall(match[0]) == _MARK.findall(part.text):
        return None
    row = f"({', '.join('?' * len(marks))})"
    return part.text.replace(match[0], f"VALUES {', '.join([row] * count)}")


def _bind(parameters: Sequence[object]) -> Any:  # noqa: ANN401 (apsw's own type for values)
    return parameters


class _NotWritten(Exception):
    """A fence failed."""


class SqliteStore:
    """The embedded store."""

    dialect = "sqlite"

    def __init__(
        self,
        path: str,
        *,
        clock: Callable[[], int],
        inline: bool = False,
        probe: Probe | None = None,
        synchronous: str = "FULL",
    ) -> None:
        """Store where the file is; ``open`` does the work.

        ``file:…?vfs=memdb`` names a database in memory; everything else is a file.
        """
        self._path = path
        self._clock = clock
        self._probe = probe
        self._synchronous = synchronous
        self._lock_file: int | None = None
        self._connection: apsw.Connection | None = None
        self._reader: apsw.Connection | None = None
        self._scanner: apsw.Connection | None = None
        self._write_thread = None if inline else CallThread("tenure-sqlite-writer")
        self._read_thread = None if inline else CallThread("tenure-sqlite-reader")
        # One: a second scan at the same time would take the last core from the writer.
        self._scan_thread = None if inline else CallThread("tenure-sqlite-scanner")

    @property
    def _is_file(self) -> bool:
        return not self._path.startswith("file:")

    @property
    def is_shared(self) -> bool:
        """A file belongs to one server; servers that know its name share one in memory."""
        return not self._is_file

    @property
    def is_listening(self) -> bool:
        """There are no hints here."""
        return False

    @property
    def is_far(self) -> bool:
        """A transaction is one hand-over to the writer's thread, whatever it does."""
        return False

    @property
    def position(self) -> Position:
        """A file has no replica."""
        return Position()

    async def open(self) -> None:
        """Open the file for this server only and bring its schema up to date."""
        if self._is_file:
            self._lock_file = _lock(Path(self._path))
        await self._run(self._write_thread, self._open)

    def _open(self) -> None:
        self._connection = self._connect()
        self._reader = self._connect()
        self._scanner = self._connect()
        if self._is_file:
            check_file(self._reader)
        self._migrate(self._connection)
        for reader in (self._reader, self._scanner):
            reader.pragma("query_only", 1)

    def _connect(self) -> apsw.Connection:
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
        connection = apsw.Connection(
            self._path, flags=flags, statementcachesize=SQLITE_STATEMENTS_MAX
        )
        # Without this SQLite plans a statement again whenever a bound value changes: 50 µs each.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        connection.set_busy_timeout(SQLITE_BUSY_MS if self._is_file else 0)
        connection.create_scalar_function("now_ms", self._now_ms_function(), 0)
        if self._is_file:
            connection.pragma("journal_mode", "wal")
            connection.pragma("synchronous", self._synchronous)
            connection.pragma("mmap_size", 0)
            # Otherwise SQLite keeps the rollback data of a statement with many rows in a file,
            # created for each batch, maybe on another disk, which may be full.
            connection.pragma("temp_store", "memory")
            connection.pragma("cache_size", -65_536)
        return connection

    def _now_ms_function(self) -> Callable[..., int]:
        """Return a function for SQL without a reference to the store: apsw would never free it."""
        weak = weakref.ref(self)

        def now_ms() -> int:
            store = weak()
            assert store is not None
            return store._clock()  # noqa: SLF001 (its own)

        return now_ms

    def _migrate(self, connection: apsw.Connection) -> None:
        tx = SqliteTx(connection, self._clock, None)
        connection.execute("BEGIN IMMEDIATE")
        try:
            _finish(tx.one("prepare_migrations"))
            applied = [Applied(*row) for row in _finish(tx.one("list_migrations"))]  # type: ignore[arg-type]  # columns of our own table
            for step in migration.missing(_MIGRATIONS, applied):
                connection.execute(step.sql)
                row = (step.number, step.name, step.checksum, int(step.is_breaking), self._clock())
                _finish(tx.one("insert_migration", *row))
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")

    async def close(self) -> None:
        """Close the connections and release the file."""
        for thread in (self._write_thread, self._read_thread, self._scan_thread):
            if thread is not None:
                thread.stop()
        for connection in (self._scanner, self._reader, self._connection):
            if connection is not None:
                connection.close()
        self._connection = self._reader = self._scanner = None
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None

    async def transaction(self, body: Body[T], lane: LaneName = LaneName.WORK) -> T:
        """Run ``body`` on the one writer."""
        del lane
        return await self._run(self._write_thread, lambda: self._transact(body))

    async def write(self, name: str, row: tuple[object, ...], *shared: object) -> bool:
        """Run a write of one row in a transaction of its own: it may have several parts."""

        async def body(tx: Tx) -> None:
            if await tx.fenced(name, [(*row, *shared)]) != 1:
                raise _NotWritten

        try:
            await self.transaction(body)
        except _NotWritten:
            return False
        return True

    async def look(self, name: str, rows: Sequence[tuple[object, ...]]) -> Sequence[Row]:
        """Run a statement that reads."""
        return await self.transaction(lambda tx: tx.each(name, rows))

    def _transact(self, body: Body[T]) -> T:
        connection = self._connection
        if connection is None:
            message = "The store is closed."
            raise Lost(message, reason="shutting_down")
        try:
            connection.execute("BEGIN IMMEDIATE")
            result = _finish(body(SqliteTx(connection, self._clock, self._probe)))
            self._mark("before COMMIT")
            connection.execute("COMMIT")
        except BaseException as error:  # noqa: BLE001 (raised again, by its meaning)
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            _raise_translated(error)
        self._mark("after COMMIT")
        return result

    def _mark(self, point: str) -> None:
        if self._probe is not None:
            self._probe(point)

    async def read(self, body: Body[T]) -> T:
        """Run a body that looks up a few rows on the reader, with a time limit."""
        return await self._read_on(self._read_thread, self._reader, body)

    async def scan(self, body: Body[T]) -> T:
        """Run a body that reads many rows, one after the other, with a time limit."""
        return await self._read_on(self._scan_thread, self._scanner, body)

    async def _read_on(
        self, thread: CallThread | None, reader: apsw.Connection | None, body: Body[T]
    ) -> T:
        if reader is None:
            message = "The store is closed."
            raise Lost(message, reason="shutting_down")
        if thread is None:
            return self._read(reader, body)
        deadline = time.monotonic() + READ_SECONDS_MAX
        return await thread.call(lambda: self._read_until(deadline, reader, body))

    def _read_until(self, deadline: float, reader: apsw.Connection, body: Body[T]) -> T:
        # The statement checks the time itself: an alarm from outside might fire between two
        # statements, or during the next read.
        reader.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS_BETWEEN_LOOKS)
        return self._read(reader, body)

    def _read(self, reader: apsw.Connection, body: Body[T]) -> T:
        try:
            reader.execute("BEGIN")
            return _finish(body(SqliteTx(reader, self._clock, self._probe)))
        except BaseException as error:  # noqa: BLE001 (raised again, by its meaning)
            _raise_translated(error)
        finally:
            if reader.in_transaction:
                reader.execute("ROLLBACK")

    async def maintain(self, name: str) -> None:
        """SQLite does not need this."""

    async def notify(self, *payloads: str) -> None:
        """There is no other replica."""

    def listen(self, callback: Callable[[str], None]) -> None:
        """There is no other replica."""

    async def listen_again(self) -> None:
        """There is no other replica."""

    async def _run(self, thread: CallThread | None, function: Callable[[], T]) -> T:
        return function() if thread is None else await thread.call(function)


def _finish(awaitable: Awaitable[T]) -> T:
    """Run a coroutine that never suspends to its end."""
    coroutine = cast("Coroutine[object, None, T]", awaitable)
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return cast("T", stop.value)
    coroutine.close()
    message = "A transaction body awaited something other than its transaction."
    raise AssertionError(message)


def _raise_translated(error: BaseException) -> NoReturn:
    """Raise the store's own failure for an error, or the error itself."""
    failure = _translated(error)
    if failure is error:
        raise error
    raise failure from error


def _translated(error: BaseException) -> BaseException:
    """Return what a failure of SQLite means for the caller."""
    if isinstance(error, apsw.FullError):
        return Lost("The disk is full.", reason="storage_full")
    if isinstance(error, _CONFLICTS):
        return Conflict("The database is busy.")
    if isinstance(error, apsw.ConstraintError):
        # The stubs of apsw do not name this attribute.
        is_taken = getattr(error, "extendedresult", None) in _TAKEN
        return KeyTaken(str(error)) if is_taken else RuleBroken(str(error))
    if isinstance(error, _REFUSALS):
        return Refused(type(error).__name__)
    if isinstance(error, _LOSSES):
        return Lost(f"SQLite: {type(error).__name__}", reason="storage_error")
    if isinstance(error, _DAMAGES):
        return Lost(f"SQLite: {error}. Run tenure db check.", reason="storage_damaged")
    if isinstance(error, apsw.InterruptError):
        return Lost("The read took too long.", reason="read_timeout")
    return error


def _lock(path: Path) -> int:
    """Take the file for this process, readable only by its owner."""
    if not path.parent.exists():
        message = f"The folder {path.parent} does not exist. Create it, or name another store."
        raise NotFound(message, field="store")
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    os.close(os.open(path, flags, 0o600))
    path.chmod(0o600)
    handle = os.open(path.with_name(path.name + ".lock"), flags, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        message = (
            f"Another Tenure server uses {path.name}. Stop it first, or use PostgreSQL, "
            "which any number of servers can share."
        )
        raise StoreInUseError(message) from None
    return handle


__all__ = ["SqliteStore", "StoreError"]
