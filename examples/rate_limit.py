"""Call an API that says when to come back: the error carries its own delay.

The service says in ``Retry-After`` when to try again: ``next_retry_delay`` replaces the back-off of
the retry policy, and the slot is free for other tasks until then. Start a worker with
``tenure dev rate_limit``, then ``python rate_limit.py``.
"""

import asyncio
from dataclasses import dataclass

from tenure import ApplicationError, Client, activity


@dataclass
class Answer:
    status: int
    text: str = ""
    retry_after_s: float = 0.0


class Api:
    """Stands for an HTTP service that allows four calls per second."""

    def __init__(self) -> None:
        self._free_at = 0.0

    def get(self, path: str, now: float) -> Answer:
        if now < self._free_at:
            return Answer(429, retry_after_s=self._free_at - now)
        self._free_at = now + 0.25
        return Answer(200, text=f"contents of {path}")


api = Api()


@activity(start_to_close="10s", schedule_to_close="10m")
async def fetch(path: str) -> str:
    answer = api.get(path, asyncio.get_running_loop().time())
    if answer.status == 429:
        raise ApplicationError(
            "the service is busy",
            type="RateLimited",
            category="INFRASTRUCTURE",
            next_retry_delay=answer.retry_after_s,
        )
    return answer.text


async def main() -> None:
    async with Client() as client:
        handles = await client.enqueue_many([fetch.call(f"/page/{n}") for n in range(5)])
        for handle in handles:
            print(await handle.result())


if __name__ == "__main__":
    asyncio.run(main())
