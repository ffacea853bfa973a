"""Offers: workers that wait for work in the engine.

A waiting poll is an offer with credit that ends at its deadline; a session is an offer
that stays. Free credit of a session is its window minus its live attempts, never a counter. The
longest waiting offer comes first; a served one goes to the end.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterable, Iterator

import msgspec

from tenure.engine.claim.sink import Sink

Group = tuple[str, str]
"""(namespace, queue)"""


class Offer(msgspec.Struct, kw_only=True):
    """One consumer: a poll (``window`` tasks, once) or a session (``window`` at a time).

    ``held`` has the attempt of each task that a session holds, ``told_cancels`` of those whose
    cancel request it was sent. Until it is checked, a batch checks whether the worker is registered
    for the queue and the types. A draining session gets no tasks, but messages about its attempts.
    """

    id: int
    receiver_id: str
    group: Group
    types: frozenset[str]
    window: int
    sink: Sink
    is_session: bool = False
    is_checked: bool = False
    is_draining: bool = False
    session_no: int = 0
    speaker: str | None = None
    held: dict[str, int] = msgspec.field(default_factory=dict)
    told_cancels: dict[str, int] = msgspec.field(default_factory=dict)

    def credit(self, ending: int = 0) -> int:
        """Return how many tasks it may get; ``ending`` of those it holds end in this batch."""
        return self.window - len(self.held) + ending

    def drop(self, task_id: str) -> None:
        """Note that a task is not held any more."""
        self.held.pop(task_id, None)
        self.told_cancels.pop(task_id, None)


class OfferBook:
    """All offers of this server."""

    def __init__(self) -> None:
        """Start empty."""
        self._ids = itertools.count(1)
        self._offers: dict[int, Offer] = {}
        self._groups: dict[Group, OrderedDict[int, Offer]] = {}
        self._by_receiver: dict[str, dict[int, Offer]] = {}
        self._sessions: dict[str, Offer] = {}

    def __len__(self) -> int:
        """Return the number of offers."""
        return len(self._offers)

    def workers(self) -> Iterable[str]:
        """Return the workers that have an offer here."""
        return self._by_receiver.keys()

    @property
    def session_count(self) -> int:
        """Return how many of them are sessions."""
        return len(self._sessions)

    def next_id(self) -> int:
        """Return the id for a new offer."""
        return next(self._ids)

    def add(self, offer: Offer) -> None:
        """Add an offer behind the others."""
        self._offers[offer.id] = offer
        self._groups.setdefault(offer.group, OrderedDict())[offer.id] = offer
        self._by_receiver.setdefault(offer.receiver_id, {})[offer.id] = offer
        if offer.is_session:
            self._sessions[offer.receiver_id] = offer

    def remove(self, offer_id: int) -> Offer | None:
        """End an offer."""
        offer = self._offers.pop(offer_id, None)
        if offer is None:
            return None
        group = self._groups[offer.group]
        del group[offer_id]
        if not group:
            del self._groups[offer.group]
        mine = self._by_receiver[offer.receiver_id]
        del mine[offer_id]
        if not mine:
            del self._by_receiver[offer.receiver_id]
        if self._sessions.get(offer.receiver_id) is offer:
            del self._sessions[offer.receiver_id]
        return offer

    def session_of(self, receiver_id: str) -> Offer | None:
        """Return the session of a worker, which has at most one."""
        return self._sessions.get(receiver_id)

    def get(self, offer_id: int) -> Offer | None:
        """Return an offer if it still exists."""
        return self._offers.get(offer_id)

    def of_worker(self, receiver_id: str) -> list[Offer]:
        """Return the offers of one worker."""
        return list(self._by_receiver.get(receiver_id, {}).values())

    def in_group(self, group: Group) -> Iterator[Offer]:
        """Return the offers of a queue, longest waiting first."""
        return iter(self._groups.get(group, {}).values())

    def groups(self) -> Iterable[Group]:
        """Return the queues for which an offer waits."""
        return self._groups.keys()

    def served(self, offer: Offer) -> None:
        """Put an offer at the end of the line."""
        group = self._groups.get(offer.group)
        if group is not None and offer.id in group:
            group.move_to_end(offer.id)
