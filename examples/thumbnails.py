"""A fan-out: thousands of images are resized by all workers, while the progress can be seen.

Start a worker with ``tenure dev thumbnails``, more with ``tenure worker thumbnails``, then
``python thumbnails.py 10000``.
"""

import asyncio
import sys

import msgspec

from tenure import (
    ApplicationError,
    Client,
    Results,
    TaskFailed,
    WorkflowContext,
    activity,
    workflow,
)


class Summary(msgspec.Struct):
    images: int
    kilobytes: int
    broken: list[str]


def list_images(album: str, count: int) -> list[str]:
    return [f"{album}/{number}.jpg" for number in range(count)]


@activity(start_to_close="1m")
async def resize(image: str) -> int:
    if image.endswith("/13.jpg"):
        raise ApplicationError(f"{image} is no image", type="NoImage", non_retryable=True)
    return 12


def summarise(sizes: Results[int | TaskFailed]) -> Summary:
    summary = Summary(images=sizes.total, kilobytes=0, broken=[])
    for image, size in sizes:
        if isinstance(size, TaskFailed):
            summary.broken.append(image)
        else:
            summary.kilobytes += size
    return summary


@workflow
async def thumbnails(ctx: WorkflowContext, album: str, count: int) -> Summary:
    images = await ctx.step(list_images, album, count)
    # One step, whatever the number of images: the run is woken once, at the end.
    sizes = await ctx.map(resize, images, on_error="collect")
    # Reads the results in pages; only the summary is recorded.
    return await ctx.step(summarise, sizes)


async def main(count: int) -> None:
    async with Client() as client:
        run = await client.start(thumbnails, "holiday", count)
        finished = asyncio.create_task(run.result())
        while not finished.done():
            await asyncio.wait([finished], timeout=1)
            for group in (await run.describe()).groups:
                print(f"{group.key}: {group.total - group.open_count:,} of {group.total:,}")
        print(finished.result())


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
