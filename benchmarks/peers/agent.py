"""Drives one candidate inside its own environment; speaks JSON lines with the runner.

``python -m benchmarks.peers.agent MODULE``. Each request is one line with the name of a method of
:class:`Agent` and its arguments; each answer is one line with ``value`` or ``error``. The agent is
the producer, and the parent of the candidate's server and workers: each of those is the leader of
its own session, so that its processes can be found, and they end with the agent, however it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from benchmarks.peers.adapter import FOLDER, PORT, URL, Adapter, wait_for_port
from benchmarks.peers.process import session_processes
from benchmarks.peers.redis_server import redis_command

UNPRIVILEGED_ID = 65534
SERVER_SECONDS_MAX = 30
RESULT_SECONDS_MAX = 30


class Agent:
    """The methods that the runner may call."""

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self._sessions: list[subprocess.Popen[bytes]] = []
        self._next = 0

    async def prepare(self) -> list[int]:
        """Make the schema, start the server if there is one, connect; return its session."""
        sessions = []
        if URL.startswith("redis:"):
            sessions.append(await self._start_server(redis_command(FOLDER, PORT)))
        await self._adapter.prepare()
        command = self._adapter.server_command()
        if command is not None:
            identity = self._adapter.server_is_unprivileged and os.geteuid() == 0
            sessions.append(await self._start_server(command, is_unprivileged=identity))
        await self._adapter.open()
        return sessions

    async def start_worker(self) -> int:
        """Start a worker process and return its session."""
        return self._start(f"worker-{len(self._sessions)}", self._adapter.worker_command())

    async def enqueue(self, count: int, seconds: float) -> list[float]:
        """Enqueue until there are as many or the time is over; return how many, and the time."""
        began = time.perf_counter()
        first = self._next
        while self._next < first + count and time.perf_counter() - began < seconds:
            last = min(self._next + self._adapter.chunk, first + count)
            await self._adapter.enqueue(range(self._next, last))
            self._next = last
        return [self._next - first, time.perf_counter() - began]

    async def completed(self) -> int:
        """Return how many tasks the store says are done."""
        return await self._adapter.completed()

    async def one_by_one(self, count: int, seconds: float) -> list[list[float]]:
        """Run tasks one after the other; return when each was submitted and how long it took."""
        began = time.perf_counter()
        took: list[list[float]] = []
        while len(took) < count and time.perf_counter() - began < seconds:
            took.append(await self._timed(self._take()))
        return took

    async def at_rate(self, rate: float, seconds: float) -> list[list[float]]:
        """Submit tasks at an even pace; a slow answer never delays the next task."""
        tasks = []
        began = time.perf_counter()
        for index in range(int(rate * seconds)):
            await asyncio.sleep(began + index / rate - time.perf_counter())
            tasks.append(asyncio.create_task(self._timed(self._take())))
        return list(await asyncio.gather(*tasks))

    async def hold(self) -> int:
        """Enqueue one task that runs until its worker is killed; return its number."""
        number = self._take()
        await self._adapter.hold(number)
        return number

    async def run_workflows(
        self, count: int, width: int, seconds: float, kind: str = "workflow"
    ) -> list[float]:
        """Keep so many workflows going; return how many ended, and the time to the last result."""
        began = time.perf_counter()
        first = self._next

        run_one = getattr(self._adapter, f"run_{kind}")

        async def run() -> None:
            while self._next < first + count and time.perf_counter() - began < seconds:
                await run_one(self._take())

        await asyncio.gather(*(run() for _ in range(width)))
        return [self._next - first, time.perf_counter() - began]

    def stop(self) -> None:
        """End everything that was started, workers before their server."""
        for process in reversed(self._sessions):
            for pid in session_processes({process.pid}):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()
        self._adapter.close()

    def _take(self) -> int:
        self._next += 1
        return self._next - 1

    async def _timed(self, number: int) -> list[float]:
        submitted_ns = time.monotonic_ns()
        try:
            await asyncio.wait_for(self._adapter.run(number), RESULT_SECONDS_MAX)
        except TimeoutError:
            return [number, submitted_ns, -1]
        return [number, submitted_ns, (time.monotonic_ns() - submitted_ns) / 1e6]

    async def _start_server(self, command: list[str], *, is_unprivileged: bool = False) -> int:
        session = self._start("server", command, is_unprivileged=is_unprivileged)
        await asyncio.to_thread(wait_for_port, PORT, seconds=SERVER_SECONDS_MAX)
        return session

    def _start(self, name: str, command: list[str], *, is_unprivileged: bool = False) -> int:
        identity = UNPRIVILEGED_ID if is_unprivileged else None
        with Path(FOLDER, f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                user=identity,
                group=identity,
                extra_groups=None if identity is None else [],
            )
        self._sessions.append(process)
        return process.pid


async def _serve(agent: Agent, answers: int) -> None:
    loop = asyncio.get_running_loop()
    requests = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(requests), sys.stdin)
    while line := await requests.readline():
        request: dict[str, Any] = json.loads(line)
        try:
            method = getattr(agent, request.pop("call"))
            answer = {"value": await method(**request)}
        except Exception:  # noqa: BLE001 (the runner decides; it is told all)
            answer = {"error": traceback.format_exc(limit=-6)}
        os.write(answers, json.dumps(answer).encode() + b"\n")


async def _main(module: str) -> None:
    # Whatever a candidate prints must not come between the answers.
    answers = os.dup(1)
    os.dup2(2, 1)
    adapter: Adapter = importlib.import_module(module).Adapter()
    agent = Agent(adapter)
    try:
        await _serve(agent, answers)
    finally:
        agent.stop()
        # Threads of a candidate that still wait for a result must not keep the agent.
        os._exit(0)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1]))
