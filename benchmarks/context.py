"""What every part of the benchmarks is given: databases, scale, and a place for its numbers."""

import asyncio
import contextlib
import itertools
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg

from tests.postgres import PostgresServer

# By convention this is on the disk; /tmp may be in memory, where fsync costs nothing.
DISK_FOLDER = "/var/tmp"  # noqa: S108

# As on a production server of this size. No checkpoint falls inside a measurement.
SETTINGS = {
    "shared_buffers": "512MB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "1h",
}


@dataclass(frozen=True)
class Scale:
    """How long to measure. Machines are noisy: every figure is the best of ``round_count``."""

    round_count: int
    seconds: float
    commit_count: int
    wal_task_count: int


QUICK = Scale(round_count=3, seconds=0.4, commit_count=300, wal_task_count=5_000)
FULL = Scale(round_count=3, seconds=3.0, commit_count=1_000, wal_task_count=20_000)


@dataclass(frozen=True)
class Context:
    """One run of the benchmarks."""

    server: PostgresServer
    folder: Path
    scale: Scale
    report: Callable[[str, float], None]
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def postgres_dsn(self) -> str:
        """Make an empty database and return its URL."""
        return self.server.dsn(self.server.create_database())

    def sqlite_path(self) -> Path:
        """Return the path of a SQLite database that does not exist yet."""
        return self.folder / f"{next(self._numbers)}.db"


@contextlib.contextmanager
def open_context(scale: Scale, report: Callable[[str, float], None]) -> Iterator[Context]:
    """Start PostgreSQL once for all parts, with fsync on; remove everything at the end."""
    # The data of PostgreSQL too: the server makes its folder where this module says.
    tempfile.tempdir = DISK_FOLDER
    with (
        tempfile.TemporaryDirectory(prefix="tenure-bench-") as folder,
        PostgresServer.start(durable=True) as server,
    ):
        asyncio.run(_configure(server.dsn()))
        server.restart()
        yield Context(server, Path(folder), scale, report)


async def _configure(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    for name, value in SETTINGS.items():
        await connection.execute(f"ALTER SYSTEM SET {name} = '{value}'")
    await connection.close()
