"""The interface that every candidate implements, in its own environment.

An adapter is the producer: it enqueues, waits for results and counts completions in the store. It
also names the commands of the server (if the candidate has one) and of a worker process. The
module of an adapter is what the workers load, so the tasks are defined in it.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

URL = os.environ.get("PEER_URL", "")
FOLDER = Path(os.environ.get("PEER_FOLDER", "."))
# For candidates that bring a server of their own.
PORT = int(os.environ.get("PEER_PORT", "0"))
# The second measurement of the recovery, with settings for it.
IS_SHORT_RECOVERY = "PEER_SHORT_RECOVERY" in os.environ
# How many steps a workflow has.
STEPS = int(os.environ.get("PEER_STEPS", "10"))
# How many items a workflow maps over.
ITEMS = int(os.environ.get("PEER_ITEMS", "1000"))
PYTHON = sys.executable
PROGRAMS = Path(sys.executable).parent
QUEUE = "bench"


class Adapter:
    """One candidate."""

    # How many tasks are enqueued before the time is looked at.
    chunk = 1_000
    # Waits for results, for candidates without an asynchronous client.
    waiting_threads = 64
    # The server may have to run as somebody else than root.
    server_is_unprivileged = False

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(self.waiting_threads)

    def server_command(self) -> list[str] | None:
        """Return how to start the server of the candidate; None where the store is all it needs."""
        return None

    def worker_command(self) -> list[str]:
        """Return how to start a worker process as the documentation does."""
        raise NotImplementedError

    async def prepare(self) -> None:
        """Make the schema, before anything runs."""

    async def open(self) -> None:
        """Connect as producer; the server is up."""

    async def enqueue(self, numbers: range) -> None:
        """Enqueue no-op tasks in bulk, as the documentation does."""
        raise NotImplementedError

    async def completed(self) -> int:
        """Return how many tasks the store says are done, since it was made."""
        raise NotImplementedError

    async def run(self, number: int) -> None:
        """Enqueue one no-op task and wait for its result."""
        raise NotImplementedError

    async def hold(self, number: int) -> None:
        """Enqueue one task that runs until its worker is killed."""
        raise NotImplementedError

    async def run_workflow(self, number: int) -> None:
        """Start a workflow whose steps are no-ops, one after the other; wait for its result."""
        raise NotImplementedError

    async def run_queued(self, number: int) -> None:
        """Do the same with steps that any worker may run, each enqueued by the workflow."""
        raise NotImplementedError

    async def run_map(self, number: int) -> None:
        """Start a workflow that maps a no-op over many items at once; wait for its result."""
        raise NotImplementedError

    def close(self) -> None:
        """Remove what the candidate left outside its folder; its processes have ended."""

    async def in_thread(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function that blocks."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._threads, function, *arguments)


def wait_for_port(port: int, *, seconds: float) -> None:
    """Wait until somebody listens on the loopback."""
    for _ in range(int(seconds * 20)):
        with socket.socket() as client:
            client.settimeout(1)
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise TimeoutError(f"nobody listens on port {port} after {seconds} s")
