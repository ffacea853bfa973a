"""The worker of the demo: one activity, and the settings of its worker."""

from __future__ import annotations

import asyncio
import random
import sys

import msgspec

from tenure import Worker, activity

QUEUE = "demo"
SLOTS = 4


class Size(msgspec.Struct, frozen=True):
    """The size of a resized image."""

    width: int
    height: int


@activity(start_to_close="1m", queue=QUEUE)
async def resize_image(image: int) -> Size:
    """Work for some time."""
    await asyncio.sleep(random.uniform(0.3, 0.9))  # noqa: S311 (it only looks busy)
    return Size(width=640, height=480 + image)


def main() -> None:
    """Work for the server in the arguments: ``target name``."""
    target, name = sys.argv[1:]
    worker = Worker(
        target,
        namespace="default",
        queue=QUEUE,
        activities=[resize_image],
        max_concurrent=SLOTS,
        name=name,
        lease="10s",
        version="demo",
    )
    asyncio.run(worker.run())


if __name__ == "__main__":
    main()
