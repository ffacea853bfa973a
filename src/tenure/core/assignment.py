"""Who gets which task: best priority, then run_at, then id, to the largest free share of a window.

A receiver is whoever can be given an attempt: a worker, whether it has a lease or not.
"""

from __future__ import annotations

import heapq
import operator
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from tenure.core.limits import BATCH_BYTES_MAX, PAYLOAD_BYTES_MAX, STREAM_BYTES_MAX
from tenure.core.task.callback import CallbackTimes
from tenure.core.task.crash_guard import Suspects
from tenure.core.task.record import Task, TaskKind


class Hand(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one offer may get in a round: ``credit`` tasks, of a window that is partly in use.

    One that is only to be checked has no credit.
    """

    offer_id: int
    receiver_id: str
    namespace: str
    queue: str
    types: frozenset[str]
    credit: int
    window: int
    session_no: int = 0
    # Whether what the receiver holds is counted under its lock: nobody knows it without.
    is_counted: bool = False
    # Of the worker of a session; whoever else has handed it work since has raised it.
    worker_version: int = 0
    is_new: bool = False
    # The API key of a new poll, which has to be its worker's.
    speaker: str | None = None
    # Of an endpoint, for whose attempts they are kept.
    times: CallbackTimes | None = None
    # How much of payloads it can take.
    room_bytes: int = STREAM_BYTES_MAX
    # A worker that a server drives gets activities only.
    takes_runs: bool = True


class Count(msgspec.Struct, gc=False):
    """How much a receiver has free of its slots, when what it holds was counted."""

    free: int
    slots: int


order = operator.attrgetter("priority", "run_at_ms", "id")
"""The place of a task in its line."""


_NO_SUSPECTS: Final = Suspects()

_Place = tuple[float, int, int]
"""Which share of a window is free, below zero; the turn since which it waits; who it is."""


def assign(
    tasks: Iterable[Task],
    hands: Sequence[Hand],
    suspects: Mapping[str, Suspects] = MappingProxyType({}),
    *,
    counts: Mapping[str, Count] = MappingProxyType({}),
    most: int | None = None,
    room_bytes: int = BATCH_BYTES_MAX,
) -> list[tuple[Task, Hand]]:
    """Give each task, best first, to the offer with the largest free share of its window.

    Of equal shares the longest-waiting one: ``hands`` come in the order of their waiting, and one
    that was served goes to the end. The window of a receiver whose attempts were counted is its
    slots, which all its offers share. All together have ``room_bytes`` for payloads; what does not
    fit waits for the next round.

    A run goes to the receiver that had it last, if that may have it: it may still know it. A task
    that a receiver did not get three times prefers another one. A suspect of the crash guard
    goes only to a receiver whose ``suspects`` leave room for it; one that finds none keeps the
    receiver with the fewest free of further suspects. At ``most`` so many are given: what cannot be
    given does not use up a queue's limit.
    """
    return _Assignment(hands, suspects, counts, room_bytes).run(tasks, most)


def counted_bytes(task: Task) -> int:
    """Return what a task takes of a hand's room: never so much that an empty one has not enough."""
    size = task.payload_bytes()
    # min() would cost as much as all the rest.
    if size > PAYLOAD_BYTES_MAX:
        return PAYLOAD_BYTES_MAX
    return size


class _Bidder:
    """Who competes for a task: a receiver whose slots all its offers share, or one offer.

    Of a receiver ``lines`` has, by type, the indexes of its hands, the longest waiting first.
    """

    __slots__ = ("free", "index", "left", "lines", "place", "receiver_id", "window")

    def __init__(self, index: int, hand: Hand, count: Count | None) -> None:
        self.index = index
        self.receiver_id = hand.receiver_id
        self.place: _Place | None = None
        self.lines: defaultdict[str, deque[int]] | None = None
        if count is None:
            self.left = self.free = hand.credit
            self.window = hand.window
        else:
            self.left = 0
            self.free = count.free
            self.window = count.slots
            self.lines = defaultdict(deque)

    def serve(self, turn: int) -> None:
        """Count what it was given; it goes to the end of those with the same share."""
        left = self.left = self.left - 1
        free = self.free = self.free - 1
        has_credit = free > 0 and left > 0
        self.place = (-free / self.window, turn, self.index) if has_credit else None

    def stand(self, turn: int) -> None:
        """Find its place: the larger its free share, the further ahead."""
        free = self.free
        has_credit = free > 0 and self.left > 0
        self.place = (-free / self.window, turn, self.index) if has_credit else None


class _Assignment:
    """What is left of the hands while a round goes on."""

    def __init__(
        self,
        hands: Sequence[Hand],
        suspects: Mapping[str, Suspects],
        counts: Mapping[str, Count],
        room_bytes: int,
    ) -> None:
        self._hands = hands
        self._suspects = dict(suspects)
        self._reserved: set[str] = set()
        self._credits = [hand.credit for hand in hands]
        self._rooms = [hand.room_bytes for hand in hands]
        self._room_bytes = room_bytes
        self._spares_some = not all(hand.takes_runs for hand in hands)
        # The bidder of each hand.
        self._bidders: list[_Bidder] = []
        # Only runs ask who they are.
        self._by_receiver: dict[str, list[_Bidder]] | None = None
        # Per type the places of those that bid, as a heap. Who is served moves back in every line:
        # a place that is not the present one is put right when it has come to the front.
        self._lines: dict[str, list[_Place]] = {}
        self._line_up(counts)

    def _line_up(self, counts: Mapping[str, Count]) -> None:
        shared: dict[str, _Bidder] = {}
        for index, hand in enumerate(self._hands):
            bidder = shared.get(hand.receiver_id)
            if bidder is None:
                count = counts.get(hand.receiver_id)
                bidder = _Bidder(index, hand, count)
                if count is not None:
                    shared[hand.receiver_id] = bidder
            if bidder.lines is not None and hand.credit > 0:
                bidder.left += hand.credit
                for task_type in hand.types:
                    bidder.lines[task_type].append(index)
            self._bidders.append(bidder)
        self._fill_lines()

    def _fill_lines(self) -> None:
        for index, bidder in enumerate(self._bidders):
            if bidder.index != index:
                continue
            bidder.stand(index)
            if bidder.place is not None:
                for task_type in bidder.lines or self._hands[index].types:
                    self._lines.setdefault(task_type, []).append(bidder.place)
        for line in self._lines.values():
            heapq.heapify(line)

    def run(self, tasks: Iterable[Task], most: int | None) -> list[tuple[Task, Hand]]:
        given: list[tuple[Task, Hand]] = []
        room_bytes, rooms, credit_of = self._room_bytes, self._rooms, self._credits
        turn = len(self._hands)
        for task in sorted(tasks, key=order):
            size = counted_bytes(task)
            if size > room_bytes or (most is not None and len(given) >= most):
                # In the next round it is the first.
                break
            index = self._choose(task, size)
            if index is None:
                continue
            room_bytes -= size
            rooms[index] -= size
            credit_of[index] -= 1
            self._bidders[index].serve(turn)
            turn += 1
            hand = self._hands[index]
            if task.is_guarded:
                held = self._suspects.get(hand.receiver_id, _NO_SUSPECTS)
                self._suspects[hand.receiver_id] = held.with_one_more(task.progress)
            given.append((task, hand))
        return given

    def _choose(self, task: Task, size: int) -> int | None:
        """Return the first fitting hand; an avoided one only if there is no other."""
        line = self._lines.get(task.type)
        if line is None:
            return None
        progress = task.progress
        if progress.run is not None:
            index = self._at_home(task, progress.run.home_worker_id, size)
            if index is not None:
                return index
        first = self._first(line)
        if first is None:
            return None
        if first.receiver_id != progress.avoid_worker_id:
            index = self._fitting(first, task, size)
            if index is not None:
                return index
        return self._look_further(line, task, size)

    def _at_home(self, task: Task, home: str | None, size: int) -> int | None:
        """Return a hand of the receiver that had a run last, if it may have it now."""
        if home is None or home == task.progress.avoid_worker_id:
            return None
        for bidder in self._bidders_of(home):
            is_able = task.type in (bidder.lines or self._hands[bidder.index].types)
            index = self._fitting(bidder, task, size) if is_able else None
            if index is not None:
                return index
        return None

    def _bidders_of(self, receiver_id: str) -> list[_Bidder]:
        """Return those of one receiver that may get something."""
        if self._by_receiver is None:
            self._by_receiver = {}
            for bidder in self._bidders:
                self._by_receiver.setdefault(bidder.receiver_id, []).append(bidder)
        return [each for each in self._by_receiver.get(receiver_id, ()) if each.place is not None]

    def _look_further(self, line: list[_Place], task: Task, size: int) -> int | None:
        """Pass those that do not fit; they keep their places."""
        passed: list[_Place] = []
        index = None
        while index is None and (bidder := self._first(line)) is not None:
            if bidder.receiver_id != task.progress.avoid_worker_id:
                index = self._fitting(bidder, task, size)
            if index is None:
                passed.append(heapq.heappop(line))
        for place in passed:
            heapq.heappush(line, place)
        if index is None:
            index = self._avoided([self._bidders[number] for *_, number in passed], task, size)
        return index

    def _avoided(self, passed: Sequence[_Bidder], task: Task, size: int) -> int | None:
        """Return a hand of the receiver that a task avoids: there is no other."""
        for bidder in passed:
            index = self._fitting(bidder, task, size)
            if index is not None:
                return index
        if task.is_guarded:
            self._reserve(bidder.receiver_id for bidder in passed)
        return None

    def _has_room(self, receiver_id: str, task: Task) -> bool:
        if receiver_id in self._reserved:
            return False
        return self._suspects.get(receiver_id, _NO_SUSPECTS).may_take(task.progress)

    def _reserve(self, receiver_ids: Iterable[str]) -> None:
        """Let the one with the fewest suspects run out of them: small groups must not starve."""
        free = [each for each in receiver_ids if each not in self._reserved]
        if free:
            fewest = min(free, key=lambda each: self._suspects.get(each, _NO_SUSPECTS).count)
            self._reserved.add(fewest)

    def _fitting(self, bidder: _Bidder, task: Task, size: int) -> int | None:
        """Return a hand that has room for so many bytes, if there is for one more suspect."""
        if (self._spares_some or task.is_guarded) and not self._may_take(bidder, task):
            return None
        if bidder.lines is None:
            return bidder.index if size <= self._rooms[bidder.index] else None
        return self._next_fitting(bidder.lines[task.type], size)

    def _next_fitting(self, waiting: deque[int], size: int) -> int | None:
        """Return the first hand in a line that has credit and room, and take it from the line."""
        for _ in range(len(waiting)):
            index = waiting.popleft()
            credit = self._credits[index]
            if credit > 0:
                is_fitting = size <= self._rooms[index]
                if credit > 1 or not is_fitting:
                    waiting.append(index)
                if is_fitting:
                    return index
        return None

    def _may_take(self, bidder: _Bidder, task: Task) -> bool:
        """Tell whether a receiver takes runs, if the task is one, and one more suspect."""
        if task.spec.kind is TaskKind.WORKFLOW and not self._hands[bidder.index].takes_runs:
            return False
        return not task.is_guarded or self._has_room(bidder.receiver_id, task)

    def _first(self, line: list[_Place]) -> _Bidder | None:
        """Return who has the largest free share of those that wait for a type."""
        bidders = self._bidders
        while line:
            first = line[0]
            bidder = bidders[first[2]]
            place = bidder.place
            if place is first:
                return bidder
            if place is None:
                heapq.heappop(line)
            else:
                heapq.heapreplace(line, place)
        return None
