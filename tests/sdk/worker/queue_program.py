"""A worker of two queues: ``python -m tests.sdk.worker.queue_program TARGET MODE SLOTS FILE``.

It writes into the file how many tasks run whenever one has started.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from typing import Any, Final

from tenure.sdk.activity.decorator import activity
from tenure.sdk.worker.worker import Worker

QUEUES: Final = ("queue-a", "queue-b")


class Counter:
    """Activities that know how many of them run."""

    def __init__(self, path: Path) -> None:
        self._running = 0
        self._path = path

    @activity(start_to_close="60s", name="mail")
    async def work(self, seconds: float = 0.0, gate: str = "") -> str:
        """Take time, or wait for a file."""
        self._running += 1
        with self._path.open("a") as file:
            file.write(f"{self._running}\n")
        try:
            await asyncio.sleep(seconds)
            while gate and not Path(gate).exists():  # noqa: ASYNC110, ASYNC240 (a file tells nobody)
                await asyncio.sleep(0.01)
        finally:
            self._running -= 1
        return "done"


async def main() -> None:
    target, mode, slots, path = sys.argv[1:]
    fields: dict[str, Any] = {"mode": mode, "max_concurrent": int(slots)}
    counter = Counter(Path(path))
    worker = Worker(target, queues=QUEUES, activities=[counter], name="shop", **fields)
    await worker.run()


if __name__ == "__main__":
    logging.basicConfig(level="INFO", format="%(name)s %(message)s")
    asyncio.run(main())
