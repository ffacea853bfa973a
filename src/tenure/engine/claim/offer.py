"""Offers: how consumers of work stand in the engine.

A waiting poll is an offer with credit that ends at its deadline; a session is one that is topped
up. Free credit is the worker's window minus its live attempts, never a number counted up and down.
Those that may get something stand in a line, the longest waiting first; whoever was served goes to
the end, and who has no credit stands in no line.
"""

from __future__ import annotations

import heapq
import itertools
import operator
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from tenure.core.assignment import Count
from tenure.core.task.callback import CallbackTimes
from tenure.core.task.record import Task
from tenure.engine.claim.sink import Sink

Group = tuple[str, str]
"""(namespace, queue)"""
Types = frozenset[str]
Wish = tuple[Types, bool]
"""What an offer can run: the types, and whether runs too."""


class Offer(msgspec.Struct, kw_only=True):
    """One consumer: a poll (``window`` tasks, once) or a session (``window`` at a time).

    ``held`` has the attempt of each task that a session holds, ``told_cancels`` of those whose
    cancel request it was sent. Until it is checked, a batch looks whether the worker is registered
    for the queue and the types. A draining session gets nothing and still hears of what it holds.
    What a poll's worker holds is counted by each batch that may serve it, and the same goes for a
    session whose worker polls besides. ``turn`` is its place among those that wait. ``is_driven``:
    this server calls the worker. A cancel is told when a call with it is answered, and runs are
    never handed out. ``times`` are those of an endpoint.
    """

    id: int
    receiver_id: str
    group: Group
    types: Types
    window: int
    sink: Sink
    is_session: bool = False
    is_driven: bool = False
    times: CallbackTimes | None = None
    is_checked: bool = False
    is_draining: bool = False
    is_counted: bool = True
    is_late: bool = False
    session_no: int = 0
    worker_version: int = 0
    slots: int = 0
    turn: int = 0
    speaker: str | None = None
    held: dict[str, int] = msgspec.field(default_factory=dict)
    told_cancels: dict[str, int] = msgspec.field(default_factory=dict)

    @property
    def wish(self) -> Wish:
        """Return what it can run: a worker that a server drives gets no runs."""
        return self.types, not self.is_driven

    def credit(self, ending: int = 0) -> int:
        """Return how many tasks it may get; ``ending`` of those it holds end in this batch.

        A poll may ask for more than its worker has free.
        """
        return self.window - len(self.held) + ending


class OfferBook:
    """All offers of this server."""

    def __init__(self) -> None:
        """Start empty."""
        self._ids = itertools.count(1)
        self._turns = itertools.count(1)
        self._offers: dict[int, Offer] = {}
        self._groups: dict[Group, dict[int, Offer]] = {}
        # Of each queue those that may get something, apart by what they can run.
        self._lines: dict[Group, dict[Wish, OrderedDict[int, Offer]]] = {}
        self._by_receiver: dict[str, dict[int, Offer]] = {}
        self._sessions: dict[str, Offer] = {}
        # Of workers that are counted and have an offer here: the last count, and what ended since.
        self._counts: dict[str, Count] = {}
        # Who could be given nothing when a batch looked: late, or all slots in use.
        self._resting: dict[int, Offer] = {}

    def __len__(self) -> int:
        """Return how many offers stand."""
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

    # -- Who stands here

    def add(self, offer: Offer) -> None:
        """Let an offer wait behind those that are there."""
        self._offers[offer.id] = offer
        self._groups.setdefault(offer.group, {})[offer.id] = offer
        self._by_receiver.setdefault(offer.receiver_id, {})[offer.id] = offer
        if offer.is_session:
            self._sessions[offer.receiver_id] = offer
        self._line_up(offer)

    def remove(self, offer_id: int) -> Offer | None:
        """End an offer."""
        offer = self._offers.pop(offer_id, None)
        if offer is None:
            return None
        self._step_out(offer)
        self._resting.pop(offer_id, None)
        group = self._groups[offer.group]
        del group[offer_id]
        if not group:
            del self._groups[offer.group]
        mine = self._by_receiver[offer.receiver_id]
        del mine[offer_id]
        if not mine:
            del self._by_receiver[offer.receiver_id]
            self._counts.pop(offer.receiver_id, None)
        if self._sessions.get(offer.receiver_id) is offer:
            del self._sessions[offer.receiver_id]
        return offer

    def session_of(self, receiver_id: str) -> Offer | None:
        """Return the session of a worker, which has one at the most."""
        return self._sessions.get(receiver_id)

    def holders_of(self, task_ids: AbstractSet[str]) -> Iterator[tuple[Offer, str]]:
        """Return the sessions that hold some of these tasks, with each of them."""
        for session in self._sessions.values():
            for task_id in session.held.keys() & task_ids:
                yield session, task_id

    def get(self, offer_id: int) -> Offer | None:
        """Return an offer that still stands."""
        return self._offers.get(offer_id)

    def of_worker(self, receiver_id: str) -> list[Offer]:
        """Return the offers of one worker."""
        return list(self._by_receiver.get(receiver_id, {}).values())

    def in_group(self, group: Group) -> list[Offer]:
        """Return the offers of a queue."""
        return list(self._groups.get(group, {}).values())

    def groups(self) -> Iterable[Group]:
        """Return the queues for which somebody waits."""
        return self._groups.keys()

    # -- Who waits in a line

    def wishes(self, group: Group) -> Collection[Wish]:
        """Return what those can run who wait in a queue, each set once."""
        return self._lines.get(group, {}).keys()

    def waiting(self, group: Group, types: AbstractSet[str]) -> Iterator[Offer]:
        """Return those that wait for one of some types, the longest waiting first.

        ``types`` may shrink meanwhile.
        """
        by_types = self._lines.get(group)
        if by_types is None:
            return iter(())
        lines = [
            _while_wanted(line.values(), mine, types)
            for (mine, _), line in by_types.items()
            if not types.isdisjoint(mine)
        ]
        return lines[0] if len(lines) == 1 else heapq.merge(*lines, key=_TURN)

    def gave(self, session: Offer, tasks: Sequence[Task]) -> None:
        """Note what a session was given; it goes to the end of the line."""
        for task in tasks:
            session.held[task.id] = task.attempt
        self._step_out(session)
        self._line_up(session)

    def drop(self, session: Offer, task_ids: Iterable[str]) -> None:
        """Note that tasks are not held any more."""
        held, told = session.held, session.told_cancels
        held_count = len(held)
        for task_id in task_ids:
            held.pop(task_id, None)
            if told:
                told.pop(task_id, None)
        if len(held) < held_count:
            self._line_up(session)

    def set_window(self, session: Offer, window: int) -> None:
        """Change how many attempts a session is willing to hold, within its worker's slots."""
        session.window = min(window, session.slots)
        if session.credit() > 0:
            self._line_up(session)
        else:
            self._step_out(session)

    # -- What batches have found out about workers

    def count_of(self, offer: Offer) -> Count | None:
        """Return what is known of the worker of an offer that is counted."""
        return self._counts.get(offer.receiver_id) if offer.is_counted else None

    def counted(self, worker_id: str, count: Count) -> Iterable[Group]:
        """Note what a worker has free; return where offers of it have to wait for a slot."""
        mine = self._by_receiver.get(worker_id)
        if mine is None:
            return ()
        self._counts[worker_id] = count
        if count.free > 0:
            return ()
        full = [offer for offer in mine.values() if offer.is_counted]
        for offer in full:
            self._rest(offer)
        return {offer.group for offer in full}

    def ended(self, worker_id: str, task_ids: Sequence[str]) -> set[Group]:
        """Note that attempts of a worker have ended; return where it may get something now."""
        groups: set[Group] = set()
        session = self._sessions.get(worker_id)
        if session is not None:
            self.drop(session, task_ids)
            groups.add(session.group)
        count = self._counts.get(worker_id)
        if count is not None:
            was_full = count.free <= 0
            count.free += len(task_ids)
            if was_full and count.free > 0:
                groups |= self._wake(worker_id)
        return groups

    def _wake(self, worker_id: str) -> set[Group]:
        """Let the offers of a worker wait again that waited for a slot; return where."""
        woken = [offer for offer in self.of_worker(worker_id) if offer.id in self._resting]
        for offer in woken:
            self._line_up(offer)
        return {offer.group for offer in woken}

    def full_of(self, worker_id: str) -> list[Offer]:
        """Return the offers of a worker that wait until one of its slots is free."""
        count = self._counts.get(worker_id)
        if count is None or count.free > 0:
            return []
        return [offer for offer in self.of_worker(worker_id) if offer.is_counted]

    def found_late(self, offer: Offer) -> None:
        """Let an offer rest whose worker missed a heartbeat."""
        offer.is_late = True
        self._rest(offer)

    def look_again(self) -> None:
        """Let all wait again that rest: what was found out about them may be over."""
        resting, self._resting = self._resting, {}
        for offer in resting.values():
            self._counts.pop(offer.receiver_id, None)
            offer.is_late = False
        for offer in resting.values():
            self._line_up(offer)

    def _rest(self, offer: Offer) -> None:
        self._step_out(offer)
        self._resting[offer.id] = offer

    def _line_up(self, offer: Offer) -> None:
        """Let an offer wait at the end of its line, unless it waits already or may get nothing."""
        if offer.id not in self._offers:
            return
        count = self.count_of(offer)
        if offer.is_late or (count is not None and count.free <= 0):
            self._resting[offer.id] = offer
            return
        self._resting.pop(offer.id, None)
        if offer.credit() <= 0:
            return
        lines = self._lines.setdefault(offer.group, {})
        wish = offer.wish
        line = lines.get(wish)
        if line is None:
            line = lines[wish] = OrderedDict()
        if offer.id not in line:
            offer.turn = next(self._turns)
            line[offer.id] = offer

    def _step_out(self, offer: Offer) -> None:
        lines = self._lines.get(offer.group, {})
        wish = offer.wish
        line = lines.get(wish)
        if line is None or line.pop(offer.id, None) is None:
            return
        if not line:
            del lines[wish]
        if not lines:
            del self._lines[offer.group]


_TURN = operator.attrgetter("turn")


def _while_wanted(offers: Iterable[Offer], mine: Types, types: AbstractSet[str]) -> Iterator[Offer]:
    for offer in offers:
        if types.isdisjoint(mine):
            return
        yield offer
