"""A batch that met a row which somebody keeps: it is run in parts, so that only those wait for it.

Whoever keeps a row for longer than a batch takes stands still: a paused backend of the database, or
a session of an operator. What wants that row is told to come again; everything else is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from tenure.core.assignment import Hand
from tenure.core.limits import LANE_SECONDS_MAX, PART_LOCK_WAIT_MS
from tenure.engine.claim.plan import ClaimPlan
from tenure.store.table.server import limit_lock_wait
from tenure.store.transaction import Tx

T = TypeVar("T")


class PartDeadline(msgspec.Struct, frozen=True):
    """Until when the parts of a batch may be run, by the monotonic clock of this server."""

    ends_at_mono_ms: int

    @classmethod
    def from_now(cls, mono_ms: int) -> PartDeadline:
        """Give the parts of a batch as long as a batch may take."""
        return cls(mono_ms + round(LANE_SECONDS_MAX * 1000))

    async def apply(self, tx: Tx) -> None:
        """Let a transaction wait for rows only for a moment."""
        await limit_lock_wait(tx, PART_LOCK_WAIT_MS)


def halves(items: Sequence[T]) -> list[Sequence[T]]:
    """Return the two halves of what can be divided."""
    middle = len(items) // 2
    return [items[:middle], items[middle:]]


def parts(entries: Sequence[T], plan: ClaimPlan) -> list[tuple[Sequence[T], ClaimPlan]]:
    """Return the parts of a batch, claims apart from commands; nothing if it is one thing."""
    if entries and plan.hands:
        return [(entries, ClaimPlan()), ((), plan)]
    if len(entries) > 1:
        return [(some, ClaimPlan()) for some in halves(entries)]
    if len(plan.hands) > 1:
        return [((), _only(plan, hands)) for hands in halves(plan.hands)]
    return []


def _only(plan: ClaimPlan, hands: Sequence[Hand]) -> ClaimPlan:
    """Return a plan for some of the offers, with the probes of their queues."""
    groups = {(hand.namespace, hand.queue) for hand in hands}
    demands = tuple(each for each in plan.demands if (each.namespace, each.queue) in groups)
    return ClaimPlan(tuple(hands), demands, plan.is_direct)
