"""Process a large file line by line, show progress, and resume where a lost worker stopped.

Start a worker with ``tenure dev resumable_file``, then ``python resumable_file.py FILE``. Kill the
worker in the middle (``kill -9``): the next one goes on from the last heartbeat.
"""

import asyncio
import os
import sys

from tenure import Client, activity


@activity(start_to_close="1h", heartbeat_timeout="30s")
def count_words(path: str) -> int:
    """Count the words of a file; the checkpoint is the byte offset and the count so far."""
    offset, words = (0, 0)
    if activity.has_heartbeat_details():
        offset, words = activity.heartbeat_details(tuple[int, int])
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        file.seek(offset)
        while line := file.readline():
            words += len(line.split())
            offset += len(line)
            # Often is fine: heartbeats are throttled, and the last one always arrives.
            activity.heartbeat((offset, words))
            activity.progress(100 * offset / size, f"{words} words")
    return words


async def main(path: str) -> None:
    async with Client() as client:
        handle = await client.enqueue(count_words, path)
        words = await handle.result(
            on_progress=lambda progress: print(f"{progress.percent:5.1f} %  {progress.message}")
        )
        print(f"{words} words")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
