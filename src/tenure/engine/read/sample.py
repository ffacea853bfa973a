"""The content of the store in numbers: read at an interval for metrics, never for a decision."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from tenure.core.limits import (
    DEPTH_COUNTED_MAX,
    LINES_SEEN_MAX,
    PAGE_SIZE_MAX,
    RUNS_COUNTED_MAX,
    SAMPLE_QUEUES_AT_ONCE,
    SAMPLE_ROWS_MAX,
    SCHEDULE_LATE_MS,
    STALE_SERVER_MS,
)
from tenure.core.task.record import TaskState
from tenure.engine.claim.offer import Group
from tenure.engine.read.query import scan
from tenure.store.table import closing, diagnosis, listing, schedule_list
from tenure.store.table.listing import Crew, Head, Onlooker, Slice
from tenure.store.transaction import Store, Tx

GROUPS_MAX: Final = 10_000
"""Groups that one count reads; with more queues only the first of them are read."""


_SERVERS_MAX: Final = 100
HELD: Final = (TaskState.DISPATCHED, TaskState.RUNNING, TaskState.CANCELLING)
"""The states in which workers hold tasks; of those that are being cancelled, most."""

# The tasks of some queues by state, and the last of them if there are more.
_Depths = tuple[dict[str, dict[TaskState, int]], str | None]


class Sample(msgspec.Struct, frozen=True):
    """Live tasks by queue and state, how long the first has waited, workers by status and health.

    The health of an offline worker is an empty text. Runs are also counted apart, by state.
    ``closing_lag_ms`` is how long ago the first run ended whose children are not closed.
    """

    depths: dict[Group, dict[TaskState, int]]
    oldest_waiting_ms: dict[Group, int]
    crews: dict[Group, dict[tuple[str, str], Crew]]
    runs: dict[str, int] = {}
    closing_lag_ms: int = 0
    due_schedule_count: int = 0
    late_schedule_count: int = 0
    broken_schedule_count: int = 0
    at_ms: int = 0
    paused: frozenset[Group] = frozenset()
    server_count: int = 1

    @property
    def workers(self) -> dict[tuple[str, str], int]:
        """Return how many workers there are by status and health."""
        return counted(self.crews.values())

    @property
    def lease_count(self) -> int:
        """Return how many workers have a lease."""
        return sum(count for (_, health), count in self.workers.items() if health)

    def held_count(self, group: Group) -> int:
        """Return how many tasks the workers of a queue hold."""
        depths = self.depths.get(group, {})
        return sum(depths.get(state, 0) for state in HELD)

    def crew(self, group: Group) -> Crew:
        """Return how many active workers a queue has, and how many slots."""
        found = [crew for (_, health), crew in self.crews.get(group, {}).items() if health]
        return Crew(sum(each.count for each in found), sum(each.slots for each in found))


def counted(crews: Iterable[dict[tuple[str, str], Crew]]) -> dict[tuple[str, str], int]:
    """Return the number of the workers of some queues by status and health."""
    found: dict[tuple[str, str], int] = {}
    for crew in crews:
        for key, each in crew.items():
            found[key] = found.get(key, 0) + each.count
    return found


async def take_sample(store: Store, *, deaf: Collection[str]) -> Sample:
    """Read a sample of all namespaces, by short reads with pauses in between."""

    async def body(tx: Tx) -> Sample:
        now_ms = await tx.now_ms()
        heads = await listing.list_waiting(tx, amount=LINES_SEEN_MAX)
        paused = frozenset((head.namespace, head.queue) for head in heads if head.is_paused)
        servers = await diagnosis.list_servers(tx, amount=_SERVERS_MAX)
        alive = [each for each in servers if each.touched_at_ms > now_ms - STALE_SERVER_MS]
        crews = await listing.count_crews(tx, Onlooker(now_ms, deaf))
        runs = await listing.count_run_states(tx, amount=RUNS_COUNTED_MAX)
        ended_at_ms = await closing.oldest_closing_ms(tx)
        lag_ms = 0 if ended_at_ms is None else max(0, now_ms - ended_at_ms)
        due_count, broken_count = await schedule_list.count_states(tx, now_ms)
        late_count, _ = await schedule_list.count_states(tx, now_ms - SCHEDULE_LATE_MS)
        return Sample(
            depths,
            _oldest_waiting(heads, now_ms),
            crews,
            runs,
            lag_ms,
            due_count,
            late_count,
            broken_count,
            at_ms=now_ms,
            paused=paused,
            server_count=len(alive),
        )

    depths = await _depths(store)
    return await scan(store, body)


async def _depths(store: Store) -> dict[Group, dict[TaskState, int]]:
    depths: dict[Group, dict[TaskState, int]] = {}
    after = ""
    while namespaces := await _read_busy(store, after):
        for namespace in namespaces:
            await _add_depths(store, namespace, depths)
            if len(depths) >= GROUPS_MAX:
                return depths
        after = namespaces[-1]
    return depths


async def _read_busy(store: Store, after: str) -> list[str]:
    return await scan(
        store, lambda tx: listing.find_busy_namespaces(tx, after=after, amount=PAGE_SIZE_MAX)
    )


async def _add_depths(
    store: Store, namespace: str, depths: dict[Group, dict[TaskState, int]]
) -> None:
    """Count the live tasks of a namespace by queue and state, some queues with each read."""
    after: str | None = ""
    while after is not None and len(depths) < GROUPS_MAX:
        found, after = await _read_depths(store, namespace, after)
        depths.update({(namespace, queue): counts for queue, counts in found.items()})


async def _read_depths(store: Store, namespace: str, after: str) -> _Depths:
    return await scan(store, lambda tx: _some_depths(tx, namespace, after))


async def _some_depths(tx: Tx, namespace: str, after: str) -> _Depths:
    """Count until the read has used its share of the time."""
    names = await listing.find_queues(tx, namespace, Slice(after, PAGE_SIZE_MAX))
    found: dict[str, dict[TaskState, int]] = {}
    counted = at = 0
    while at < len(names) and counted < SAMPLE_ROWS_MAX:
        some = names[at : at + SAMPLE_QUEUES_AT_ONCE]
        counts = await listing.count_depths(tx, namespace, some, amount=DEPTH_COUNTED_MAX)
        counted += sum(count for states in counts.values() for count in states.values())
        found |= counts
        at += len(some)
    is_whole = at == len(names) and len(names) < PAGE_SIZE_MAX
    return found, None if is_whole else names[at - 1]


def _oldest_waiting(heads: Iterable[Head], now_ms: int) -> dict[Group, int]:
    oldest: dict[Group, int] = {}
    for head in heads:
        group = (head.namespace, head.queue)
        oldest[group] = max(oldest.get(group, 0), now_ms - head.run_at_ms)
    return oldest
