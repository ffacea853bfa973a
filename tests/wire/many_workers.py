"""Many workers in sessions, each with a connection of its own, in one process.

``python -m tests.wire.fleet --target … --workers 500 --slots 20 --journal …``; the journal is that
of all of them together.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
from pathlib import Path
from typing import Final

from tests.wire.incarnation import Options
from tests.wire.journal import RunJournal
from tests.wire.worker import Worker

# Below what a server lets register per second.
PER_SECOND: Final = 100


async def run(options: Options, journal: RunJournal, count: int) -> None:
    """Start the workers one after the other and run them until this process is killed."""
    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(Worker(options, journal).run())
            await asyncio.sleep(1 / PER_SECOND)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.wire.fleet")
    parser.add_argument("--target", required=True)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--queue", default="default")
    parser.add_argument("--journal", type=Path, required=True)
    said = parser.parse_args()
    # One socket for each worker.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    options = Options(targets=(said.target,), mode="session", queue=said.queue, slots=said.slots)
    asyncio.run(run(options, RunJournal(said.journal), said.workers))


if __name__ == "__main__":
    main()
