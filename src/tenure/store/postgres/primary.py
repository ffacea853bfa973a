"""Which host is the primary: the one with the highest timeline, and never an older one.

A promoted standby begins a new timeline; a replaced primary stays on its own. So a server keeps the
highest timeline that it has seen, and the identifier of the database system, and refuses a host
with a lower timeline or another identifier.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import asyncpg
import msgspec
import structlog

from tenure.core.limits import OTHER_HOSTS_SECONDS_MAX
from tenure.store.failure import Lost
from tenure.store.transaction import Position

log = structlog.get_logger("tenure.store")
Connection = asyncpg.Connection
Open = Callable[[str], Awaitable[Connection]]
REASON = "old_primary"
# The role may not call them, or the service has no such functions.
_UNKNOWN = (
    asyncpg.InsufficientPrivilegeError,
    asyncpg.UndefinedFunctionError,
    asyncpg.FeatureNotSupportedError,
)


class FoundHost(msgspec.Struct, frozen=True):
    """A connection to a host that accepts writes, and the position of that host."""

    connection: Connection
    position: Position | None


class Primary:
    """Connects to the right host, and keeps the highest timeline."""

    def __init__(
        self, dsn: str, *, position_sql: str, on_newer: Callable[[], Awaitable[None]]
    ) -> None:
        """Start without a timeline; ``on_newer`` is called when a higher one is seen."""
        self._dsns = host_dsns(dsn)
        self._position_sql = position_sql
        self._on_newer = on_newer
        self._is_told = False
        self.known: Position | None = None

    async def connect(self, open_one: Open) -> FoundHost:
        """Connect to the host with the highest timeline among the reachable ones."""
        found = await self._reach(open_one)
        best: FoundHost | None = None
        try:
            best = self._choose(found)
        finally:
            for each in found:
                if each is not best:
                    each.connection.terminate()
        await self._learn(best.position)
        return best

    def is_right(self, position: Position | None) -> bool:
        """Return whether a connected host has not been replaced since."""
        return _problem(position, self.known) is None

    def check(self, position: Position | None) -> None:
        """Refuse a host that has been replaced."""
        problem = _problem(position, self.known)
        if problem is not None:
            raise Lost(problem, reason=REASON)

    def learn_stored(self, timeline: int) -> None:
        """Take in the timelines that other servers have seen of the connected system."""
        if self.known is not None and timeline > self.known.timeline:
            self.known = Position(self.known.system_id, timeline)

    def _choose(self, found: Sequence[FoundHost]) -> FoundHost:
        systems = {each.position.system_id for each in found if each.position is not None}
        if self.known is None and len(systems) > 1:
            message = "The hosts of the store belong to different database systems."
            raise Lost(message, reason=REASON)
        usable = [each for each in found if self.is_right(each.position)]
        if not usable:
            self.check(found[0].position)
        return max(usable, key=lambda each: each.position.timeline if each.position else 0)

    async def _learn(self, position: Position | None) -> None:
        if position is None or position == self.known:
            return
        is_newer = self.known is not None
        self.known = position
        if is_newer:
            log.warning("store.promoted", timeline=position.timeline)
            await self._on_newer()

    async def _reach(self, open_one: Open) -> list[FoundHost]:
        """Connect to every host that accepts writes; wait for the others only for a moment."""
        tasks = [asyncio.ensure_future(self._open(open_one, dsn)) for dsn in self._dsns]
        try:
            await _settle(tasks)
        except BaseException:
            await _cancel(tasks)
            for each in _sorted_out(tasks)[0]:
                each.connection.terminate()
            raise
        await _cancel(tasks)
        found, errors = _sorted_out(tasks)
        if not found:
            raise errors[0]
        return found

    async def _open(self, open_one: Open, dsn: str) -> FoundHost:
        connection = await open_one(dsn)
        try:
            return FoundHost(connection, await self._position(connection))
        except BaseException:
            connection.terminate()
            raise

    async def _position(self, connection: Connection) -> Position | None:
        try:
            row = await connection.fetchrow(self._position_sql)
        except _UNKNOWN as error:
            if not self._is_told:
                self._is_told = True
                log.warning("store.timeline_unknown", error=type(error).__name__)
            return None
        assert row is not None
        return Position(row["system_id"], row["timeline"])


async def _settle(tasks: Sequence[asyncio.Future[FoundHost]]) -> None:
    """Wait for all; after the first success only for a moment longer."""
    waiting: set[asyncio.Future[FoundHost]] = set(tasks)
    while waiting:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if waiting and any(task.exception() is None for task in done):
            await asyncio.wait(waiting, timeout=OTHER_HOSTS_SECONDS_MAX)
            return


async def _cancel(tasks: Sequence[asyncio.Future[FoundHost]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _sorted_out(
    tasks: Iterable[asyncio.Future[FoundHost]],
) -> tuple[list[FoundHost], list[BaseException]]:
    found: list[FoundHost] = []
    errors: list[BaseException] = []
    for task in tasks:
        if task.cancelled():
            continue
        error = task.exception()
        if error is None:
            found.append(task.result())
        else:
            errors.append(error)
    return found, errors


def _problem(position: Position | None, known: Position | None) -> str | None:
    """Return why a host must not be used; without information nothing is refused."""
    if position is None or known is None:
        return None
    if position.system_id != known.system_id:
        return (
            f"The host belongs to database system {position.system_id}; this server uses "
            f"{known.system_id}. Restart the server if the database was moved."
        )
    if position.timeline < known.timeline:
        return (
            f"The host is an old primary, on timeline {position.timeline}; this server has seen "
            f"timeline {known.timeline}. Make it a standby of the present primary."
        )
    return None


def host_dsns(dsn: str) -> list[str]:
    """Return a URL for each host that a URL names.

    >>> host_dsns("postgresql://tenure@a:5432,b/tenure?sslmode=require")
    ['postgresql://tenure@a:5432/tenure?sslmode=require', 'postgresql://tenure@b/tenure?sslmode=require']
    """
    parts = urlsplit(dsn)
    user, at, hosts = parts.netloc.rpartition("@")
    if hosts:
        return [urlunsplit(parts._replace(netloc=f"{user}{at}{host}")) for host in hosts.split(",")]
    query = dict(parse_qsl(parts.query))
    named = query.get("host", "").split(",")
    ports = query.get("port", "").split(",")
    if len(named) == 1:
        return [dsn]
    found = []
    for number, host in enumerate(named):
        port = ports[number] if len(ports) > 1 else ports[0]
        changed = {**query, "host": host, **({"port": port} if port else {})}
        text = urlencode(changed, safe="/", quote_via=quote)
        found.append(urlunsplit(parts._replace(query=text)))
    return found
