"""Enqueues until it is told to stop: ``python -m tests.soak.campaign.producer --target …``.

What was acknowledged is written to a file in the moment in which the client says so.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import signal
from pathlib import Path
from typing import Any, Final

from tenure import Client
from tenure.errors import TenureError
from tenure.sdk.activity.definition import Activity
from tests.soak.campaign import activity
from tests.wire.journal import RunJournal

# How often each kind comes.
WEIGHTS: Final[dict[Activity[..., Any], int]] = {
    activity.in_loop: 30,
    activity.in_thread: 20,
    activity.in_process: 8,
    activity.with_heartbeats: 10,
    activity.sole_in_loop: 8,
    activity.sole_in_thread: 6,
    activity.sole_in_process: 3,
    activity.failing_at_first: 8,
    activity.refusing: 4,
}
# Shares of tasks that last up to so many milliseconds.
DURATIONS_MS: Final = ((0.4, 100), (0.8, 600), (1.0, 4_000))
# So many requests are sent again, with the key of the first.
RESENT_SHARE: Final = 0.1
RESENT_S_MAX: Final = 2.0
# Of one request. An outage is shorter.
PATIENCE: Final = "60s"


class Producer:
    """Asks at a steady pace, whatever the servers do."""

    def __init__(self, client: Client, journal: RunJournal, seed: int) -> None:
        self._client = client
        self._journal = journal
        self._chance = random.Random(seed)
        self._kinds = list(WEIGHTS)
        self._weights = list(WEIGHTS.values())
        self.stopped = asyncio.Event()

    async def run(self, per_second: float) -> None:
        """Ask until it is stopped, then wait for the last answers."""
        number = 0
        async with asyncio.TaskGroup() as group:
            while not self.stopped.is_set():
                number += 1
                group.create_task(self._ask(number))
                try:
                    async with asyncio.timeout(self._chance.expovariate(per_second)):
                        await self.stopped.wait()
                except TimeoutError:
                    continue

    async def _ask(self, number: int) -> None:
        kind = self._chance.choices(self._kinds, self._weights)[0]
        share = self._chance.random()
        longest_ms = next(most for limit, most in DURATIONS_MS if share <= limit)
        duration_ms = self._chance.randrange(longest_ms)
        is_resent = self._chance.random() < RESENT_SHARE
        call = kind.with_options(idempotency_key=f"request-{number}") if is_resent else kind
        await self._enqueue(call, number, duration_ms)
        if is_resent:
            await asyncio.sleep(self._chance.uniform(0, RESENT_S_MAX))
            await self._enqueue(call, number, duration_ms)

    async def _enqueue(self, call: Activity[..., Any], number: int, duration_ms: int) -> None:
        try:
            handle = await self._client.enqueue(call, number, duration_ms)
        except TenureError as error:
            self._journal.write("given_up", "", text=f"{number} {error.code}")
        else:
            self._journal.write("acknowledged", "", (handle.task_id, 0), f"{call.name} {number}")


async def _main(said: argparse.Namespace) -> None:
    async with Client(said.target, timeout=PATIENCE) as client:
        producer = Producer(client, RunJournal(said.journal), said.seed)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, producer.stopped.set)
        await producer.run(said.per_second)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.soak.campaign.producer")
    parser.add_argument("--target", required=True)
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--per-second", type=float, required=True)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    asyncio.run(_main(parser.parse_args()))
