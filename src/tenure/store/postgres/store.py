"""PostgreSQL through asyncpg: one connection per lane, a small pool for reads.

Behind pgbouncer in transaction mode (``pooled``) no statement is prepared by name, no session
setting is used and nothing listens; then the engine only polls.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar, cast

import asyncpg
from asyncpg.connect_utils import SessionAttribute
from asyncpg.pool import PoolConnectionProxy
from asyncpg.prepared_stmt import PreparedStatement

from tenure.core.limits import (
    CONNECT_SECONDS_MAX,
    DAY_MS,
    DAYS_AHEAD,
    LANE_SECONDS_MAX,
    LOCK_WAIT_MS,
    READ_POOL_SIZE,
    READ_SECONDS_MAX,
    SCANS_MAX,
    SERVICE_SECONDS_MAX,
)
from tenure.store import migration
from tenure.store.failure import Lost
from tenure.store.migration import Applied
from tenure.store.postgres import schema as names
from tenure.store.postgres.channel import NotifyChannel, close_connection
from tenure.store.postgres.failure import translated
from tenure.store.postgres.primary import FoundHost, Primary
from tenure.store.statement import Statement
from tenure.store.transaction import Body, LaneName, Position, Probe, Row

T = TypeVar("T")
_Isolation = Literal["read_committed", "repeatable_read"]
Connection = asyncpg.Connection

# The lanes' statements look up rows by arrays of keys, and each has one right plan: nested loops
# over an index. So plans are made once (planning took as long as the work of a small batch), and
# plans that statistics of an empty table lead to are switched off. An empty table is the normal
# state of a queue; a plan that was cached then would scan the whole table once it is full.
LANE_SETTINGS = {
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}
# The same for lists and counts. Without statistics a list in the order of an index was sorted as a
# whole, whatever its limit (a million tasks: 0.45 s instead of 2 ms). With statistics a list of
# runs was, too: an index in another order, which is that of the table, seemed to be cheaper.
READ_SETTINGS = {
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_sort": "off",
}


def _lane_settings() -> dict[str, str]:
    return {**LANE_SETTINGS, "lock_timeout": str(LOCK_WAIT_MS)}


def _named(settings: dict[str, str], use: str) -> dict[str, str]:
    """Add the name that the lists of the database show for a connection, for its operators."""
    return {**settings, "application_name": f"tenure {use}"}


def _deadline_s(lane: LaneName) -> float:
    return SERVICE_SECONDS_MAX if lane is LaneName.SERVICE else LANE_SECONDS_MAX


class PostgresTx:
    """A transaction on one connection."""

    def __init__(self, link: LaneConnection, probe: Probe | None) -> None:
        """Use a connection that has begun a transaction."""
        self._link = link
        self._probe = probe

    async def one(self, name: str, *parameters: object) -> Sequence[Row]:
        """Run a statement once."""
        if self._probe is not None:
            self._probe(name)
        return await self._link.fetch(name, parameters)

    async def each(
        self, name: str, rows: Sequence[tuple[object, ...]], *shared: object
    ) -> Sequence[Row]:
        """Run a statement for each row of parameters, as one array or several in one round trip."""
        if not rows:
            return ()
        if self._probe is not None:
            self._probe(name)
        arrays = (rows,) if self._link.statements[name].takes_rows else zip(*rows, strict=True)
        return await self._link.fetch(name, (*arrays, *shared))

    async def fenced(self, name: str, rows: Sequence[tuple[object, ...]]) -> int:
        """Run a write for each row of parameters; it returns the ids that it wrote."""
        return len(await self.each(name, rows))

    async def now_ms(self) -> int:
        """Return the database's time, read after the rows were locked."""
        rows = await self.one("now_ms")
        now_ms = rows[0][0]
        assert isinstance(now_ms, int)
        return now_ms


class LaneConnection:
    """A connection and the statements prepared on it."""

    def __init__(
        self,
        connection: Connection | PoolConnectionProxy,
        statements: Mapping[str, Statement],
        *,
        pooled: bool,
        position: Position | None = None,
    ) -> None:
        """Wrap an open connection to a host at ``position``."""
        self.connection = connection
        self.statements = statements
        self.position = position
        self._pooled = pooled
        self._prepared: dict[str, PreparedStatement[Any]] = {}

    async def fetch(self, name: str, parameters: tuple[object, ...]) -> Sequence[Any]:
        """Run a named statement; prepared on first use unless a pooler is in between."""
        prepared = self._prepared.get(name)
        if prepared is None:
            (part,) = self.statements[name].parts
            if self._pooled:
                return await self.connection.fetch(part.text, *parameters)
            prepared = self._prepared[name] = await self.connection.prepare(part.text)
        return await prepared.fetch(*parameters)


def _read_failure(error: Exception) -> BaseException:
    """Translate a failed read: one that took too long is stopped, and the store is available."""
    if isinstance(error, TimeoutError | asyncpg.QueryCanceledError):
        return Lost("The read took too long.", reason="read_timeout")
    return translated(error)


class PostgresStore:
    """The production store."""

    dialect = "postgres"

    def __init__(
        self, dsn: str, *, schema: str = "", pooled: bool = False, probe: Probe | None = None
    ) -> None:
        """Store where the database is; ``open`` connects, and finds the schema."""
        if schema:
            names.check_name(schema)
        self._dsn = dsn
        self._asked_schema = schema
        # Until the schema is known only statements without our tables are used.
        self._statements = names.STATEMENTS
        self._pooled = pooled
        self._probe = probe
        self._primary = Primary(
            dsn,
            position_sql=self._statements["read_position"].parts[0].text,
            on_newer=self._leave_old,
        )
        self._links: dict[LaneName, LaneConnection] = {}
        self._locks = {lane: asyncio.Lock() for lane in LaneName}
        # Backends that did not answer in time, of closed connections.
        self._silent_pids: dict[LaneName, int] = {}
        self._pool: asyncpg.Pool | None = None
        self._scans = asyncio.Semaphore(SCANS_MAX)
        self._is_closed = False
        self._channel = None if pooled else NotifyChannel(self._open_channel)

    @property
    def is_shared(self) -> bool:
        """Any number of servers may work on one database."""
        return True

    @property
    def is_listening(self) -> bool:
        """Return whether the side connection exists; behind a pooler there is none."""
        return self._channel is not None and self._channel.is_open

    @property
    def is_far(self) -> bool:
        """The database is another process, maybe on another machine."""
        return True

    @property
    def position(self) -> Position:
        """Return the highest timeline that this server has seen, and of which system."""
        return self._primary.known or Position()

    async def open(self) -> None:
        """Connect and bring the schema up to date, one server after the other."""
        try:
            await self._migrate()
            self._pool = await asyncpg.create_pool(
                self._dsn, min_size=0, max_size=READ_POOL_SIZE, connect=self._connect_reader
            )
            if self._channel is not None:
                await self._channel.open()
        except Exception as error:
            self._drop(LaneName.WORK)
            failure = translated(error)
            if failure is error:
                raise
            raise failure from error

    async def _connect(self, use: str) -> FoundHost:
        settings = _named(_lane_settings(), use)
        return await self._primary.connect(lambda dsn: self._open_one(dsn, settings))

    async def _connect_reader(self, *_: object, **options: Any) -> Connection:  # noqa: ANN401 (the pool's own)
        found = await self._primary.connect(
            lambda dsn: self._open_one(
                dsn, _named(READ_SETTINGS, "read"), command_timeout=READ_SECONDS_MAX, **options
            )
        )
        return found.connection

    async def _open_channel(self) -> Connection:
        return (await self._connect("listen")).connection

    async def _open_one(self, dsn: str, settings: dict[str, str], **options: Any) -> Connection:  # noqa: ANN401 (asyncpg's own)
        return await asyncpg.connect(
            dsn,
            timeout=CONNECT_SECONDS_MAX,
            statement_cache_size=0 if self._pooled else 100,
            server_settings={} if self._pooled else settings,
            target_session_attrs=SessionAttribute.read_write,
            **options,
        )

    async def _leave_old(self) -> None:
        """Use no connection to a replaced primary; lanes check it themselves."""
        if self._pool is not None:
            await self._pool.expire_connections()
        if self._channel is not None:
            self._channel.drop()

    async def _migrate(self) -> None:
        """Bring the schema up to date on the connection of the work lane."""
        link = await self._link(LaneName.WORK)
        connection = link.connection
        try:
            async with connection.transaction():
                tx = PostgresTx(link, None)
                # Another server may be migrating, and that has no time limit.
                await tx.one("limit_lock_wait", 0)
                await tx.one("lock_migrations")
                await self._enter_schema(link)
                await tx.one("prepare_migrations")
                applied = [Applied(*row) for row in await tx.one("list_migrations")]  # type: ignore[arg-type]  # columns of our own table
                for step in migration.missing(names.MIGRATIONS, applied):
                    await connection.execute(step.sql)
                    row = (step.number, step.name, step.checksum, step.is_breaking)
                    await tx.one("insert_migration", *row, await tx.now_ms())
                await self._learn_stored(tx)
                self._primary.check(link.position)
                today = await tx.now_ms() // DAY_MS
                for day in range(today, today + DAYS_AHEAD + 1):
                    await tx.one("ensure_days", day)
        except BaseException:
            self._drop(LaneName.WORK)
            raise

    async def _enter_schema(self, link: LaneConnection) -> None:
        """Find or create the schema, and use it until the end of the transaction."""
        tx = PostgresTx(link, None)
        schema, is_there = await names.find(tx.one, self._asked_schema)
        self._statements = link.statements = names.statements_in(schema)
        if self._channel is not None:
            self._channel.name = names.channel_in(schema)
        if not is_there:
            await tx.one("create_schema")
        await tx.one("use_schema")

    async def _learn_stored(self, tx: PostgresTx) -> None:
        """Take in the highest timeline that any server has stored."""
        rows = await tx.one("read_timeline", self.position.system_id)
        self._primary.learn_stored(cast("int", rows[0][0]))

    async def close(self) -> None:
        """Close all connections."""
        self._is_closed = True
        if self._channel is not None:
            await self._channel.close()
        for link in self._links.values():
            await close_connection(link.connection)
        self._links.clear()
        if self._pool is not None:
            try:
                async with asyncio.timeout(CONNECT_SECONDS_MAX):
                    await self._pool.close()
            except TimeoutError:
                self._pool.terminate()

    async def transaction(self, body: Body[T], lane: LaneName = LaneName.WORK) -> T:
        """Run ``body`` on the connection of its lane."""
        return await self._use(lane, lambda link: self._transact(link, body))

    async def write(self, name: str, row: tuple[object, ...], *shared: object) -> bool:
        """Run a statement without BEGIN and COMMIT, which are each one more round trip."""
        return await self._use(LaneName.WORK, lambda link: self._write(link, name, row, shared))

    async def look(self, name: str, rows: Sequence[tuple[object, ...]]) -> Sequence[Row]:
        """Run a statement that reads, without BEGIN and COMMIT."""
        return await self._use(
            LaneName.WORK, lambda link: PostgresTx(link, self._probe).each(name, rows)
        )

    async def _use(self, lane: LaneName, run: Callable[[LaneConnection], Awaitable[T]]) -> T:
        # A caller that is cancelled while it waits for the lane leaves the connection to its user.
        async with self._locks[lane]:
            try:
                async with asyncio.timeout(_deadline_s(lane)):
                    link = await self._link(lane)
                    return await run(link)
            except BaseException as error:
                failure = translated(error)
                if isinstance(error, TimeoutError):
                    self._note_silent(lane)
                if isinstance(failure, Lost) or not isinstance(error, Exception):
                    # The state of the connection is unknown: it is never used again.
                    self._drop(lane)
                if failure is error:
                    raise
                raise failure from error

    async def _transact(self, link: LaneConnection, body: Body[T]) -> T:
        connection = link.connection
        transaction = connection.transaction()
        await transaction.start()
        try:
            if self._pooled:
                await link.fetch("limit_lock_wait", (LOCK_WAIT_MS,))
            result = await body(PostgresTx(link, self._probe))
            self._mark("before COMMIT")
            self._primary.check(link.position)
        except Exception:
            if not connection.is_closed():
                await transaction.rollback()
            raise
        # A cancelled call, also by the deadline, waits for no rollback: the connection is closed,
        # and the database rolls back.
        await transaction.commit()
        self._mark("after COMMIT")
        return result

    async def _write(
        self, link: LaneConnection, name: str, row: tuple[object, ...], shared: tuple[object, ...]
    ) -> bool:
        self._mark("before COMMIT")
        tx = PostgresTx(link, self._probe)
        if self._statements[name].takes_rows:
            written = await tx.each(name, [row], *shared)
        else:
            written = await tx.one(name, *row, *shared)
        self._mark("after COMMIT")
        return len(written) == 1

    def _mark(self, point: str) -> None:
        if self._probe is not None:
            self._probe(point)

    async def _link(self, lane: LaneName) -> LaneConnection:
        link = self._links.get(lane)
        if link is not None:
            if not link.connection.is_closed() and self._primary.is_right(link.position):
                return link
            self._drop(lane)
        if self._is_closed:
            message = "The store is closed."
            raise Lost(message, reason="shutting_down")
        found = await self._connect(lane)
        link = LaneConnection(
            found.connection, self._statements, pooled=self._pooled, position=found.position
        )
        self._links[lane] = link
        await self._end_silent(lane, link)
        return link

    def _note_silent(self, lane: LaneName) -> None:
        """Note which backend did not answer; behind a pooler it is not known."""
        link = self._links.get(lane)
        if link is not None and not self._pooled and not link.connection.is_closed():
            self._silent_pids[lane] = link.connection.get_server_pid()

    async def _end_silent(self, lane: LaneName, link: LaneConnection) -> None:
        """Ask the database to terminate the backend of the replaced connection.

        It may hold row locks. A backend that only lost its client ends now, a stopped one as soon
        as it runs again.
        """
        pid = self._silent_pids.pop(lane, None)
        if pid is not None:
            # Nothing depends on it: the lane continues in any case.
            with contextlib.suppress(asyncpg.PostgresError):
                await link.fetch("end_backend", (pid, round(LANE_SECONDS_MAX * 500)))

    def _drop(self, lane: LaneName) -> None:
        link = self._links.pop(lane, None)
        if link is not None:
            link.connection.terminate()

    async def read(self, body: Body[T]) -> T:
        """Run a body that looks up a few rows on the pool."""
        try:
            return await self._read(body)
        except Exception as error:
            failure = _read_failure(error)
            if failure is error:
                raise
            raise failure from error

    async def scan(self, body: Body[T]) -> T:
        """Run a body that reads many rows on the pool; some connections are kept for lookups."""
        try:
            async with asyncio.timeout(READ_SECONDS_MAX):
                await self._scans.acquire()
            try:
                return await self._read(body, isolation="repeatable_read")
            finally:
                self._scans.release()
        except Exception as error:
            failure = _read_failure(error)
            if failure is error:
                raise
            raise failure from error

    async def _read(self, body: Body[T], isolation: _Isolation = "read_committed") -> T:
        pool = self._pool
        if pool is None or self._is_closed:
            message = "The store is closed."
            raise Lost(message, reason="shutting_down")
        async with (
            pool.acquire(timeout=READ_SECONDS_MAX) as connection,
            connection.transaction(readonly=True, isolation=isolation),
        ):
            # A connection of the pool is used only for a moment: nothing is prepared by name.
            tx = PostgresTx(LaneConnection(connection, self._statements, pooled=True), self._probe)
            if self._pooled and isolation == "repeatable_read":
                # Behind a pooler the session settings are not ours.
                await tx.one("set_plans")
            return await body(tx)

    async def maintain(self, name: str) -> None:
        """Run a statement that cannot be in a transaction, on a connection of its own."""
        (part,) = self._statements[name].parts
        try:
            connection = (await self._connect("maintain")).connection
            try:
                await connection.execute(part.text)
            finally:
                await connection.close()
        except Exception as error:
            failure = translated(error)
            if failure is error:
                raise
            raise failure from error

    async def notify(self, *payloads: str) -> None:
        """Notify the other replicas from a side connection: inside a lane it would serialise."""
        if self._channel is None:
            return
        try:
            await self._channel.send(self._statements["send_notification"].parts[0].text, payloads)
        except Exception as error:
            failure = translated(error)
            if failure is error:
                raise
            raise failure from error

    def listen(self, callback: Callable[[str], None]) -> None:
        """Call back with the messages of other replicas."""
        if self._channel is not None:
            self._channel.callback = callback

    async def listen_again(self) -> None:
        """Connect the side connection again if it was lost."""
        if self._channel is None or self._is_closed:
            return
        try:
            await self._channel.open()
        except Exception as error:
            failure = translated(error)
            if failure is error:
                raise
            raise failure from error
