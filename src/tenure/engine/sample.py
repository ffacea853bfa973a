"""What is in the store, in numbers: read now and then for metrics, never for a decision."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec

from tenure.core.limits import LINES_SEEN_MAX
from tenure.core.task_record import TaskState
from tenure.engine.offer import Group
from tenure.engine.query import scan
from tenure.store import listing
from tenure.store.listing import Onlooker
from tenure.store.transaction import Store, Tx

GROUPS_MAX: Final = 10_000
"""Groups of one count that are read; a deployment with more queues sees the first of them."""


class Sample(msgspec.Struct, frozen=True):
    """Live tasks by queue and state, how long the first has waited, workers by status and health.

    The health of an offline worker is an empty text.
    """

    depths: dict[Group, dict[TaskState, int]]
    oldest_waiting_ms: dict[Group, int]
    workers: dict[tuple[str, str], int]

    @property
    def lease_count(self) -> int:
        """Return how many workers have a lease."""
        return sum(count for (_, health), count in self.workers.items() if health)


async def take_sample(store: Store, *, deaf: Collection[str]) -> Sample:
    """Read a sample of all namespaces, within the time limit of reads."""

    async def body(tx: Tx) -> Sample:
        now_ms = await tx.now_ms()
        return Sample(
            await listing.count_depths(tx, amount=GROUPS_MAX),
            await _oldest_waiting(tx, now_ms),
            await listing.count_healths(tx, Onlooker(now_ms, deaf)),
        )

    return await scan(store, body)


async def _oldest_waiting(tx: Tx, now_ms: int) -> dict[Group, int]:
    oldest: dict[Group, int] = {}
    for head in await listing.list_waiting(tx, amount=LINES_SEEN_MAX):
        group = (head.namespace, head.queue)
        oldest[group] = max(oldest.get(group, 0), now_ms - head.run_at_ms)
    return oldest
