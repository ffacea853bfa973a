"""Hints added up: what a screen needs that shows numbers and a few rows, at any throughput."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from tenure.core.change_hint import EventFilter, EventKind, Hint
from tenure.core.limits import DIGEST_WORKERS_MAX
from tenure.engine.replica.event_feed import HintPage


class Digest(msgspec.Struct, frozen=True, rename="camel"):
    """How many hints there were per queue and kind, whose workers changed, and the named hints.

    The queue of what belongs to none is empty. Without ``has_all_workers`` more workers changed.
    """

    counts: dict[str, dict[str, int]]
    workers: list[str]
    has_all_workers: bool
    hints: list[Hint]


def digest(pages: Iterable[HintPage], chosen: EventFilter, named: Collection[str]) -> Digest:
    """Add up the wanted hints; of each thing that is named the last one is kept."""
    counts: dict[str, dict[str, int]] = {}
    workers: dict[str, None] = {}
    last: dict[tuple[EventKind, str], Hint] = {}
    for page in pages:
        for hint in page.hints:
            if not chosen.takes(hint):
                continue
            of_queue = counts.get(hint.queue)
            if of_queue is None:
                of_queue = counts[hint.queue] = {}
            of_queue[hint.kind] = of_queue.get(hint.kind, 0) + 1
            if hint.kind is EventKind.WORKER:
                workers[hint.id] = None
            if hint.id in named:
                last[hint.kind, hint.id] = hint
    shown = list(workers)[:DIGEST_WORKERS_MAX]
    return Digest(counts, shown, len(shown) == len(workers), list(last.values()))
