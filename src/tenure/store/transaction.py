"""The interfaces between engine and database: a store, and a transaction in it."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

import msgspec

T = TypeVar("T")
Row = Sequence[object]
Body = Callable[["Tx"], Awaitable[T]]
Probe = Callable[[str], None]
"""Called before each statement, and before and after COMMIT; tests raise from it."""


class LaneName(enum.StrEnum):
    """Which connection a transaction uses; SQLite has one writer for all."""

    WORK = "work"
    HEARTBEAT = "heartbeat"
    SERVICE = "service"


class Position(msgspec.Struct, frozen=True):
    """The position of a database: its system identifier and timeline. Empty for a file."""

    system_id: str = ""
    timeline: int = 0


class Tx(Protocol):
    """What a body may await."""

    async def one(self, name: str, *parameters: object) -> Sequence[Row]:
        """Run a statement once."""
        ...

    async def each(
        self, name: str, rows: Sequence[tuple[object, ...]], *shared: object
    ) -> Sequence[Row]:
        """Run a statement for each row of parameters: one round trip, all results.

        ``shared`` are the last parameters, the same for all rows.
        """
        ...

    async def fenced(self, name: str, rows: Sequence[tuple[object, ...]]) -> int:
        """Run a write for each row of parameters; return how many rows it wrote."""
        ...

    async def now_ms(self) -> int:
        """Return the store's time; read it after the rows are locked."""
        ...


class Store(Protocol):
    """A database behind transactions."""

    @property
    def dialect(self) -> str:
        """Return ``sqlite`` or ``postgres``."""
        ...

    @property
    def is_shared(self) -> bool:
        """Return whether other servers may work on the same database."""
        ...

    @property
    def is_listening(self) -> bool:
        """Return whether messages of other replicas arrive, as far as this server knows."""
        ...

    @property
    def is_far(self) -> bool:
        """Return whether each statement is a round trip to another process."""
        ...

    @property
    def position(self) -> Position:
        """Return the highest timeline that this server has seen, and of which system."""
        ...

    async def open(self) -> None:
        """Connect and bring the schema up to date."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...

    async def transaction(self, body: Body[T], lane: LaneName = LaneName.WORK) -> T:
        """Run ``body`` in one transaction and return its result after the commit."""
        ...

    async def write(self, name: str, row: tuple[object, ...], *shared: object) -> bool:
        """Run a write of one row as its own transaction; return whether it wrote the row."""
        ...

    async def look(self, name: str, rows: Sequence[tuple[object, ...]]) -> Sequence[Row]:
        """Run a statement that reads, without a transaction: it keeps no lock."""
        ...

    async def read(self, body: Body[T]) -> T:
        """Run a body that only looks up a few rows, outside the lanes and with a time limit."""
        ...

    async def scan(self, body: Body[T]) -> T:
        """Run a body that reads many rows; few run at a time, and ``read`` never waits for them.

        All its statements see the same state of the database.
        """
        ...

    async def maintain(self, name: str) -> None:
        """Run a statement that cannot be in a transaction."""
        ...

    async def notify(self, *payloads: str) -> None:
        """Notify the other replicas, separate from the lanes."""
        ...

    def listen(self, callback: Callable[[str], None]) -> None:
        """Call back with the messages of other replicas."""
        ...

    async def listen_again(self) -> None:
        """Listen again if the connection for notifications was lost."""
        ...
