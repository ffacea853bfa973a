"""Who gets which task: best priority, then run_at, then id, to the longest-waiting offer.

A receiver is whoever can be given an attempt: a worker, whether it has a lease or not.
"""

from __future__ import annotations

import heapq
import operator
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from tenure.core.limits import BATCH_BYTES_MAX, PAYLOAD_BYTES_MAX, STREAM_BYTES_MAX
from tenure.core.task.crash_guard import Suspects
from tenure.core.task.record import Task


class Hand(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one offer may get in a round."""

    offer_id: int
    receiver_id: str
    namespace: str
    queue: str
    types: frozenset[str]
    credit: int
    session_no: int = 0
    is_new: bool = False
    # The API key of a new poll, which has to be its worker's.
    speaker: str | None = None
    # How much of payloads it can take.
    room_bytes: int = STREAM_BYTES_MAX


order = operator.attrgetter("priority", "run_at_ms", "id")
"""The place of a task in its line."""


_NO_SUSPECTS: Final = Suspects()


def assign(
    tasks: Iterable[Task],
    hands: Sequence[Hand],
    suspects: Mapping[str, Suspects] = MappingProxyType({}),
    *,
    most: int | None = None,
    room_bytes: int = BATCH_BYTES_MAX,
) -> list[tuple[Task, Hand]]:
    """Give each task, best first, to the longest-waiting offer whose receiver may take it.

    All together have ``room_bytes`` for payloads; what does not fit waits for the next round.

    ``hands`` come in the order of their waiting; one that was served goes to the end. A task that
    a receiver did not get three times prefers another one. A suspect of the crash guard goes only
    to a receiver whose ``suspects`` leave room for it; one that finds none keeps the receiver
    with the fewest free of further suspects. At ``most`` so many are given: what cannot be given
    does not use up a queue's limit.
    """
    return _Assignment(hands, suspects, room_bytes).run(tasks, most)


def counted_bytes(task: Task) -> int:
    """Return what a task takes of a hand's room: never so much that an empty one has not enough."""
    return min(task.payload_bytes, PAYLOAD_BYTES_MAX)


class _Assignment:
    """What is left of the hands while a round goes on."""

    def __init__(
        self, hands: Sequence[Hand], suspects: Mapping[str, Suspects], room_bytes: int
    ) -> None:
        self._hands = hands
        self._suspects = dict(suspects)
        self._reserved: set[str] = set()
        self._credits = [hand.credit for hand in hands]
        self._rooms = [hand.room_bytes for hand in hands]
        self._room_bytes = room_bytes
        self._turns = list(range(len(hands)))
        # Per type the waiting hands as a heap of (turn, index); stale turns are put right late.
        self._lines: dict[str, list[tuple[int, int]]] = {}
        for index, hand in enumerate(hands):
            for task_type in hand.types:
                self._lines.setdefault(task_type, []).append((index, index))

    def run(self, tasks: Iterable[Task], most: int | None) -> list[tuple[Task, Hand]]:
        given: list[tuple[Task, Hand]] = []
        turn = len(self._hands)
        for task in sorted(tasks, key=order):
            size = counted_bytes(task)
            if size > self._room_bytes or (most is not None and len(given) >= most):
                # In the next round it is the first.
                break
            index = self._choose(task, size)
            if index is None:
                continue
            self._room_bytes -= size
            self._rooms[index] -= size
            self._turns[index] = turn
            self._credits[index] -= 1
            turn += 1
            hand = self._hands[index]
            if task.is_guarded:
                held = self._suspects.get(hand.receiver_id, _NO_SUSPECTS)
                self._suspects[hand.receiver_id] = held.with_one_more(task.progress)
            given.append((task, hand))
        return given

    def _choose(self, task: Task, size: int) -> int | None:
        """Return the longest-waiting fitting hand; an avoided one only if there is no other."""
        line = self._lines.get(task.type)
        if line is None:
            return None
        first = self._first(line)
        if first is None or self._fits(first, task, size):
            return first
        return self._look_further(line, task, size)

    def _fits(self, index: int, task: Task, size: int) -> bool:
        is_avoided = self._hands[index].receiver_id == task.progress.avoid_worker_id
        return not is_avoided and not self._is_closed(index, task, size)

    def _look_further(self, line: list[tuple[int, int]], task: Task, size: int) -> int | None:
        """Pass hands that do not fit; they keep their places."""
        passed: list[tuple[int, int]] = []
        while (index := self._first(line)) is not None and not self._fits(index, task, size):
            passed.append(heapq.heappop(line))
        for entry in passed:
            heapq.heappush(line, entry)
        if index is not None:
            return index
        for _, avoided in passed:
            if not self._is_closed(avoided, task, size):
                return avoided
        if task.is_guarded:
            self._reserve(self._hands[each].receiver_id for _, each in passed)
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

    def _is_closed(self, index: int, task: Task, size: int) -> bool:
        """Return whether a hand has no room, for so many bytes or for one more suspect."""
        if size > self._rooms[index]:
            return True
        return task.is_guarded and not self._has_room(self._hands[index].receiver_id, task)

    def _first(self, line: list[tuple[int, int]]) -> int | None:
        """Return the longest-waiting hand of a line that has credit left."""
        while line:
            turn, index = line[0]
            if self._credits[index] <= 0:
                heapq.heappop(line)
            elif turn != self._turns[index]:
                heapq.heapreplace(line, (self._turns[index], index))
            else:
                return index
        return None
