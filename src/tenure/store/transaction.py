"""The seams between engine and database: a store, and a transaction in it."""

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
    """Where a database stands: which system it is, and on which timeline. Empty for a file."""

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
        """Run a write for each row of parameters; return how many rows it found to write."""
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
        """Tell whether other servers may work on the same database."""
        ...

    @property
    def is_listening(self) -> bool:
        """Tell whether what other replicas tell is heard, as far as this server knows."""
        ...

    @property
    def is_far(self) -> bool:
        """Tell whether each statement is a way to another process and back."""
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
        """Run a write of one row, a transaction by itself; tell whether it found what to write."""
        ...

    async def look(self, name: str, rows: Sequence[tuple[object, ...]]) -> Sequence[Row]:
        """Run a statement that reads, by itself: no lock of it lasts."""
        ...

    async def read(self, body: Body[T]) -> T:
        """Run a body that only looks up a few rows, apart from the lanes and with a time limit."""
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
        """Tell the other replicas, apart from the lanes."""
        ...

    def listen(self, callback: Callable[[str], None]) -> None:
        """Call back with what other replicas tell."""
        ...

    async def listen_again(self) -> None:
        """Listen anew if the way over which replicas tell was lost."""
        ...
