"""What every part of the benchmarks is given: databases, scale, and a place for its numbers."""

import asyncio
import contextlib
import itertools
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg

from benchmarks.database import PostgresDatabase, SqliteDatabase
from tests.postgres import PostgresServer

# By convention this is on the disk; /tmp may be in memory, where fsync costs nothing.
DISK_FOLDER = "/var/tmp"  # noqa: S108

# As on a production server of this size. No checkpoint falls inside a measurement.
SETTINGS = {"shared_buffers": "512MB", "max_wal_size": "24GB", "checkpoint_timeout": "1h"}


@dataclass(frozen=True)
class Scale:
    """How long to measure. Machines are noisy: every figure is the best of ``round_count``."""

    round_count: int
    seconds: float
    commit_count: int
    wal_task_count: int
    row_count: int
    run_task_count: int
    worker_count: int
    holder_count: int


QUICK = Scale(
    round_count=2,
    seconds=0.5,
    commit_count=150,
    wal_task_count=5_000,
    row_count=50_000,
    run_task_count=5_000,
    worker_count=2_000,
    holder_count=40,
)
FULL = Scale(
    round_count=4,
    seconds=1.25,
    commit_count=200,
    wal_task_count=40_000,
    row_count=1_000_000,
    run_task_count=150_000,
    worker_count=10_000,
    holder_count=200,
)


@dataclass(frozen=True)
class Context:
    """One run of the benchmarks."""

    server: PostgresServer
    folder: Path
    scale: Scale
    report: Callable[[str, float], None]
    # Which of the peers to measure; none named means all.
    candidates: tuple[str, ...] = ()
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _databases: list[str] = field(default_factory=list)

    def postgres_dsn(self) -> str:
        """Make an empty database and return its URL."""
        name = self.server.create_database()
        self._databases.append(name)
        return self.server.dsn(name)

    def sqlite_path(self) -> Path:
        """Return the path of a SQLite database that does not exist yet."""
        return self.folder / f"{next(self._numbers)}.db"

    def postgres(self) -> PostgresDatabase:
        """Make an empty PostgreSQL database."""
        return PostgresDatabase(self.postgres_dsn())

    def sqlite(self) -> SqliteDatabase:
        """Make an empty SQLite database."""
        return SqliteDatabase(self.sqlite_path())

    def remove_databases(self) -> None:
        """Remove what was made: autovacuum on it would disturb whatever is measured next."""
        while self._databases:
            self.server.drop_database(self._databases.pop())
        for path in self.folder.iterdir():
            path.unlink()

    def server_cpu_seconds(self) -> float:
        """Return the CPU time that PostgreSQL has used so far; 0 where there is no ``/proc``."""
        processes = Path("/proc")
        if not (processes / "self" / "stat").exists():
            return 0.0
        postmaster = self.server.pid
        seconds = 0.0
        for path in processes.glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                seconds += _cpu_seconds(path, postmaster)
        return seconds


def _cpu_seconds(path: Path, postmaster: int) -> float:
    """Return the CPU time of a process if it belongs to the server, with that of ended children."""
    # The name of the program is in parentheses and may have spaces.
    fields = path.read_text().rpartition(")")[2].split()
    is_postmaster = int(path.parent.name) == postmaster
    if not is_postmaster and int(fields[1]) != postmaster:
        return 0.0
    # In nanoseconds, where `stat` has hundredths of a second.
    used = int((path.parent / "schedstat").read_text().split()[0]) / 1e9
    return used + (sum(map(int, fields[13:15])) / 100 if is_postmaster else 0.0)


@contextlib.contextmanager
def open_context(
    scale: Scale, report: Callable[[str, float], None], candidates: tuple[str, ...] = ()
) -> Iterator[Context]:
    """Start PostgreSQL once for all parts, with fsync on; remove everything at the end."""
    # The data of PostgreSQL too: the server makes its folder where this module says.
    tempfile.tempdir = DISK_FOLDER
    with (
        tempfile.TemporaryDirectory(prefix="tenure-bench-") as folder,
        PostgresServer.start(durable=True) as server,
    ):
        asyncio.run(_configure(server.dsn()))
        server.restart()
        yield Context(server, Path(folder), scale, report, candidates)


async def _configure(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    for name, value in SETTINGS.items():
        await connection.execute(f"ALTER SYSTEM SET {name} = '{value}'")
    await connection.close()
