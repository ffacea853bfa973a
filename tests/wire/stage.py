"""Everything that one scene needs: a store, servers on it, workers, clients; cleared away after."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Final, Self

from tests import postgres
from tests.bounds import START_S
from tests.polling import eventually
from tests.secret_scan import check_logs
from tests.wire.client import Client
from tests.wire.journal import Tail
from tests.wire.process import Process
from tests.wire.proxy import Proxy
from tests.wire.server import ServerProcess

STORES: Final = ("sqlite", "postgres")
LOG_CHARS_MAX: Final = 4_000


class WorkerProcess:
    """One worker program and the journal that it writes."""

    def __init__(self, process: Process, journal: Path, mode: str) -> None:
        self.process = process
        self.tail = Tail(journal)
        self._gate = journal.with_suffix(".gate")
        self._ready_event = "welcomed" if mode == "session" else "registered"

    @property
    def worker_id(self) -> str:
        """The id of its last incarnation."""
        return self.tail.of("registered")[-1].worker_id

    async def wait_until(self, event: str) -> None:
        await eventually(lambda: bool(self.tail.of(event)), f"a worker {event}", within_s=START_S)

    async def enter(self) -> None:
        """Let a gated worker register, and wait until it can be given work."""
        self._gate.touch()
        await self.wait_until(self._ready_event)


class Stage:
    """The processes of one scene on one store."""

    def __init__(self, store: str, folder: Path, settings: Mapping[str, int]) -> None:
        self.store = store
        self.folder = folder
        self.settings = settings
        self.workers: list[WorkerProcess] = []
        self._servers: list[ServerProcess] = []
        self._adopted: list[Process] = []
        self._numbers = itertools.count(1)
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        if error[0] is not None:
            self._show_crashes()
        for process in [*(each.process for each in self.workers), *self._processes()]:
            await process.kill()
        await self._stack.aclose()
        check_logs(self.folder.glob("*.log"))

    def _show_crashes(self) -> None:
        """Print what broke a program; its folder goes with the scene."""
        for log in sorted(self.folder.glob("*.log")):
            text = log.read_text()
            if "Traceback" in text:
                print(f"--- {log.name}\n{text[-LOG_CHARS_MAX:]}", file=sys.stderr)  # noqa: T201

    def _processes(self) -> list[Process]:
        return [*self._adopted, *(each.process for each in self._servers)]

    def adopt(self, process: Process) -> None:
        """End a process with the scene, too."""
        self._adopted.append(process)

    async def server(self, *options: str) -> ServerProcess:
        """Start a server, the first or one more."""
        log = self.folder / f"server-{next(self._numbers)}.log"
        made = await ServerProcess.start(self.store, log, self.settings, options)
        self._servers.append(made)
        return made

    async def proxy(self, target: str, *, seed: int = 1) -> Proxy:
        return await self._stack.enter_async_context(Proxy(target, seed=seed))

    async def client(self, *targets: str) -> Client:
        return await self._stack.enter_async_context(Client(*targets))

    async def worker(
        self,
        *targets: str,
        mode: str = "session",
        slots: int = 10,
        queue: str = "default",
        is_gated: bool = False,
    ) -> WorkerProcess:
        """Start a worker and wait until it can be given work, or until it stands at its gate."""
        number = next(self._numbers)
        journal = self.folder / f"worker-{number}.jsonl"
        said = [each for target in targets for each in ("--target", target)]
        process = await Process.spawn(
            (
                *("-m", "tests.wire.worker", *said, "--mode", mode),
                *("--slots", str(slots), "--queue", queue, "--journal", str(journal)),
                *("--gate", str(journal.with_suffix(".gate"))),
            ),
            self.folder / f"worker-{number}.log",
        )
        made = WorkerProcess(process, journal, mode)
        self.workers.append(made)
        await made.wait_until("waiting")
        if not is_gated:
            await made.enter()
        return made

    @property
    def tails(self) -> list[Tail]:
        return [each.tail for each in self.workers]


@contextlib.asynccontextmanager
async def open_stage(
    dialect: str, settings: Mapping[str, int] | None = None
) -> AsyncIterator[Stage]:
    """Make an empty store of one kind and a stage on it."""
    with tempfile.TemporaryDirectory(prefix="tenure-wire-") as name:
        folder = Path(name)
        if dialect == "sqlite":
            async with Stage(f"sqlite:///{folder / 'tenure.db'}", folder, settings or {}) as stage:
                yield stage
            return
        server = await asyncio.to_thread(postgres.shared)
        database = await asyncio.to_thread(server.create_database)
        try:
            async with Stage(server.dsn(database), folder, settings or {}) as stage:
                yield stage
        finally:
            await asyncio.to_thread(server.drop_database, database)
