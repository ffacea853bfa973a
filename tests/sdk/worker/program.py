"""A worker as a program: ``python -m tests.sdk.worker.program TARGET LEASE [NAME]``."""

from __future__ import annotations

import asyncio
import logging
import sys
import time

from tenure.sdk.activity.decorator import activity
from tenure.sdk.worker.worker import Worker


@activity(start_to_close="60s", name="mail")
async def wait_for(seconds: float = 0.0, blocks: float = 0.0) -> str:
    """Take time, politely or not."""
    if blocks:
        time.sleep(blocks)  # noqa: ASYNC251 (what it is for)
    await asyncio.sleep(seconds)
    return "done"


async def main() -> None:
    target, lease, *names = sys.argv[1:]
    worker = Worker(target, activities=[wait_for], name="".join(names), lease=lease or None)
    await worker.run()


if __name__ == "__main__":
    logging.basicConfig(level="INFO", format="%(name)s %(message)s")
    asyncio.run(main())
