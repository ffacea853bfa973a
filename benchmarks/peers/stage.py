"""One candidate on a store of its own, with its agent: where one measurement takes place."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.context import Context
from benchmarks.peers import record
from benchmarks.peers.candidate import Candidate
from benchmarks.peers.process import cpu_seconds, session_processes

ROOT = Path(__file__).parents[2]
ANSWER_BYTES_MAX = 1 << 24
# Beyond what a call was given to do its work.
ANSWER_SECONDS = 60
STOP_SECONDS_MAX = 20
LOG_LINES = 12


class CandidateError(Exception):
    """A candidate did not do what it was asked for."""


@dataclass
class Stage:
    """The agent of a candidate, and all processes that work for it."""

    context: Context
    candidate: Candidate
    folder: Path
    agent: asyncio.subprocess.Process
    servers: set[int] = field(default_factory=set)
    workers: list[int] = field(default_factory=list)

    async def call(self, name: str, *, seconds: float = 0, **arguments: object) -> Any:  # noqa: ANN401
        """Ask the agent, and wait for its answer at most a minute longer than it may work."""
        if seconds:
            arguments["seconds"] = seconds
        assert self.agent.stdin is not None
        assert self.agent.stdout is not None
        self.agent.stdin.write(json.dumps({"call": name, **arguments}).encode() + b"\n")
        try:
            async with asyncio.timeout(seconds + ANSWER_SECONDS):
                line = await self.agent.stdout.readline()
        except TimeoutError:
            raise CandidateError(f"{name}: no answer in time\n{self.logs()}") from None
        answer = json.loads(line) if line else {"error": f"the agent ended\n{self.logs()}"}
        if "error" in answer:
            raise CandidateError(f"{name}: {answer['error']}")
        return answer["value"]

    async def start_worker(self) -> int:
        """Start a worker and return its session."""
        session: int = await self.call("start_worker")
        self.workers.append(session)
        return session

    def kill_worker(self, session: int) -> None:
        """Kill every process of a worker, as the death of its machine would."""
        for pid in session_processes({session}):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.workers.remove(session)

    async def wait_for_runs(self, count: int, *, seconds: float) -> None:
        """Wait until tasks have run as often."""
        deadline = time.monotonic() + seconds
        while record.count(self.folder) < count:
            if not session_processes(set(self.workers)):
                raise CandidateError(f"the worker ended\n{self.logs()}")
            if time.monotonic() > deadline:
                raise CandidateError(f"no task ran within {seconds} s\n{self.logs()}")
            await asyncio.sleep(0.01)

    def cpu_seconds(self, *, with_producer: bool = True) -> float:
        """Return the CPU time so far: producer, workers, server and database."""
        sessions = self.servers | set(self.workers)
        if with_producer:
            sessions = sessions | {self.agent.pid}
        database = self.context.server_cpu_seconds() if self.candidate.store == "postgres" else 0
        return cpu_seconds(sessions) + database

    def logs(self) -> str:
        """Return the ends of what the processes of the candidate have printed."""
        parts = []
        for path in sorted(self.folder.glob("*.log")):
            lines = path.read_text(errors="replace").splitlines()[-LOG_LINES:]
            if lines:
                parts.append("\n".join([f"{path.name}:", *lines]))
        return "\n".join(parts)


@contextlib.asynccontextmanager
async def open_stage(
    context: Context, candidate: Candidate, **environment: str
) -> AsyncIterator[Stage]:
    """Make a store, start the agent, and remove everything afterwards."""
    port = _free_port()
    with contextlib.ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="tenure-peer-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        # Dropped at once: autovacuum on it would disturb whatever is measured next.
        stack.callback(context.remove_databases)
        environment |= {
            "PEER_URL": _url(context, candidate, folder, port),
            "PEER_FOLDER": str(folder),
            "PEER_PORT": str(port),
        }
        agent = await _start_agent(candidate, folder, environment)
        try:
            stage = Stage(context, candidate, folder, agent)
            stage.servers |= set(await stage.call("prepare"))
            yield stage
        finally:
            await _stop_agent(agent)


def _url(context: Context, candidate: Candidate, folder: Path, port: int) -> str:
    match candidate.store:
        case "postgres":
            return context.postgres_dsn()
        case "sqlite":
            return f"sqlite:///{folder / 'store.db'}"
        case "redis":
            return f"redis://127.0.0.1:{port}"


async def _start_agent(
    candidate: Candidate, folder: Path, environment: dict[str, str]
) -> asyncio.subprocess.Process:
    with (folder / "agent.log").open("wb") as log:
        return await asyncio.create_subprocess_exec(
            str(candidate.python),
            *("-m", "benchmarks.peers.agent", f"benchmarks.peers.adapters.{candidate.module}"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=os.environ | environment | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"},
            cwd=ROOT,
            limit=ANSWER_BYTES_MAX,
            start_new_session=True,
        )


async def _stop_agent(agent: asyncio.subprocess.Process) -> None:
    """Close its input, upon which it ends everything it has started."""
    assert agent.stdin is not None
    agent.stdin.close()
    try:
        async with asyncio.timeout(STOP_SECONDS_MAX):
            await agent.wait()
    except TimeoutError:
        agent.kill()
        await agent.wait()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port
