"""The worker of the demo: an activity, a workflow, and the settings of their worker."""

from __future__ import annotations

import asyncio
import random
import sys

import msgspec

from tenure import Worker, WorkflowContext, activity, workflow

QUEUE = "demo"
SLOTS = 4
PAGE_COUNT = 24


class Size(msgspec.Struct, frozen=True):
    """The size of a resized image."""

    width: int
    height: int


@activity(start_to_close="1m", queue=QUEUE)
async def resize_image(image: int) -> Size:
    """Work for some time."""
    await asyncio.sleep(random.uniform(0.3, 0.9))  # noqa: S311 (it only looks busy)
    return Size(width=640, height=480 + image)


async def lay_out(page: int) -> str:
    """Work for some time; a step of the workflow."""
    await asyncio.sleep(random.uniform(0.3, 0.6))  # noqa: S311 (it only looks busy)
    return f"page {page}"


@workflow(queue=QUEUE)
async def make_album(ctx: WorkflowContext, title: str) -> str:
    """Make the pages of an album, one after the other."""
    pages: list[str] = []
    while len(pages) < PAGE_COUNT:
        pages.append(await ctx.step(lay_out, len(pages) + 1))
        ctx.progress(100 * len(pages) / PAGE_COUNT, f"{len(pages)} of {PAGE_COUNT} pages")
    return f"{title} has {len(pages)} pages"


def main() -> None:
    """Work for the server in the arguments: ``target name``."""
    target, name = sys.argv[1:]
    worker = Worker(
        target,
        namespace="default",
        queue=QUEUE,
        activities=[resize_image],
        workflows=[make_album],
        max_concurrent=SLOTS,
        name=name,
        lease="10s",
        version="demo",
    )
    asyncio.run(worker.run())


if __name__ == "__main__":
    main()
