"""Divides a batch that waits for a locked row into parts, so that only commands for it wait.

A row that is locked for longer than a batch takes belongs to a stopped transaction: a paused
backend of the database, or a session of an operator. Commands that need that row are refused and
may be repeated; everything else is done.
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
    """Until when the parts of a batch may run, by the monotonic clock of this server."""

    ends_at_mono_ms: int

    @classmethod
    def from_now(cls, mono_ms: int) -> PartDeadline:
        """Give the parts of a batch as much time as a batch may take."""
        return cls(mono_ms + round(LANE_SECONDS_MAX * 1000))

    async def apply(self, tx: Tx) -> None:
        """Let a transaction wait for locked rows only for a moment."""
        await limit_lock_wait(tx, PART_LOCK_WAIT_MS)


def halves(items: Sequence[T]) -> list[Sequence[T]]:
    """Return the two halves of a sequence that can be divided."""
    middle = len(items) // 2
    return [items[:middle], items[middle:]]


def parts(entries: Sequence[T], plan: ClaimPlan) -> list[tuple[Sequence[T], ClaimPlan]]:
    """Return the parts of a batch, claims separate from commands; nothing if it has one item."""
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
