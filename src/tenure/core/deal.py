"""Deal claimed rows to offers: best priority, then run_at, then id; longest-waiting offer first."""

from __future__ import annotations

import heapq
import operator
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from tenure.core.crash_guard import Suspects
from tenure.core.task_record import Task


class Hand(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one offer may get in a deal."""

    offer_id: int
    worker_id: str
    namespace: str
    queue: str
    types: frozenset[str]
    credit: int
    session_no: int = 0
    is_new: bool = False
    # The API key of a new poll, which has to be its worker's.
    speaker: str | None = None


order = operator.attrgetter("priority", "run_at_ms", "id")
"""The place of a task in its line."""


_NO_SUSPECTS: Final = Suspects()


def deal(
    tasks: Iterable[Task],
    hands: Sequence[Hand],
    suspects: Mapping[str, Suspects] = MappingProxyType({}),
    *,
    most: int | None = None,
) -> list[tuple[Task, Hand]]:
    """Give each task, best first, to the longest-waiting offer that may take it.

    ``hands`` come in the order of their waiting; one that was served goes to the end. A task that
    a worker did not get three times prefers another worker. A suspect of the crash guard goes only
    to a worker whose ``suspects`` leave room for it; one that finds none keeps the worker with the
    fewest free of further suspects. At ``most`` so many are given: what cannot be given does not
    use up a queue's limit.
    """
    return _Deal(hands, suspects).run(tasks, most)


class _Deal:
    """What is left of the hands while a deal goes on."""

    def __init__(self, hands: Sequence[Hand], suspects: Mapping[str, Suspects]) -> None:
        self._hands = hands
        self._suspects = dict(suspects)
        self._reserved: set[str] = set()
        self._credits = [hand.credit for hand in hands]
        self._turns = list(range(len(hands)))
        # Per type the waiting hands as a heap of (turn, index); stale turns are put right late.
        self._lines: dict[str, list[tuple[int, int]]] = {}
        for index, hand in enumerate(hands):
            for task_type in hand.types:
                self._lines.setdefault(task_type, []).append((index, index))

    def run(self, tasks: Iterable[Task], most: int | None) -> list[tuple[Task, Hand]]:
        dealt: list[tuple[Task, Hand]] = []
        turn = len(self._hands)
        for task in sorted(tasks, key=order):
            if most is not None and len(dealt) >= most:
                break
            index = self._choose(task)
            if index is None:
                continue
            self._turns[index] = turn
            self._credits[index] -= 1
            turn += 1
            hand = self._hands[index]
            if task.is_guarded:
                held = self._suspects.get(hand.worker_id, _NO_SUSPECTS)
                self._suspects[hand.worker_id] = held.with_one_more(task.progress)
            dealt.append((task, hand))
        return dealt

    def _choose(self, task: Task) -> int | None:
        """Return the longest-waiting fitting hand; an avoided worker only if there is no other."""
        line = self._lines.get(task.type)
        if line is None:
            return None
        avoid = task.progress.avoid_worker_id
        if avoid is None and not task.is_guarded:
            return self._first(line)
        passed: list[tuple[int, int]] = []
        avoided: int | None = None
        chosen: int | None = None
        while chosen is None and (index := self._first(line)) is not None:
            worker_id = self._hands[index].worker_id
            if task.is_guarded and not self._has_room(worker_id, task):
                passed.append(heapq.heappop(line))
            elif worker_id == avoid:
                passed.append(heapq.heappop(line))
                avoided = index if avoided is None else avoided
            else:
                chosen = index
        for entry in passed:
            heapq.heappush(line, entry)
        chosen = avoided if chosen is None else chosen
        if chosen is None and task.is_guarded:
            self._reserve(self._hands[index].worker_id for _, index in passed)
        return chosen

    def _has_room(self, worker_id: str, task: Task) -> bool:
        if worker_id in self._reserved:
            return False
        return self._suspects.get(worker_id, _NO_SUSPECTS).may_take(task.progress)

    def _reserve(self, worker_ids: Iterable[str]) -> None:
        """Let the worker with the fewest suspects run out of them: small groups must not starve."""
        free = [each for each in worker_ids if each not in self._reserved]
        if free:
            fewest = min(free, key=lambda each: self._suspects.get(each, _NO_SUSPECTS).count)
            self._reserved.add(fewest)

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
