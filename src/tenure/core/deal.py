"""Deal claimed rows to offers: best priority, then run_at, then id; longest-waiting offer first."""

from __future__ import annotations

import heapq
import operator
from collections.abc import Iterable, Sequence

import msgspec

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


order = operator.attrgetter("priority", "run_at_ms", "id")
"""The place of a task in its line."""


def deal(
    tasks: Iterable[Task],
    hands: Sequence[Hand],
    guarded: Iterable[str] = (),
) -> list[tuple[Task, Hand]]:
    """Give each task, best first, to the longest-waiting offer that may take it.

    ``hands`` come in the order of their waiting; one that was served goes to the end. A task that
    a worker did not get three times prefers another worker; a task suspected of crashing workers
    goes only to a worker that holds no other such task (``guarded`` are those that hold one).
    """
    return _Deal(hands, set(guarded)).run(tasks)


class _Deal:
    """What is left of the hands while a deal goes on."""

    def __init__(self, hands: Sequence[Hand], guarded: set[str]) -> None:
        self._hands = hands
        self._guarded = guarded
        self._credits = [hand.credit for hand in hands]
        self._turns = list(range(len(hands)))
        # Per type the waiting hands as a heap of (turn, index); stale turns are put right late.
        self._lines: dict[str, list[tuple[int, int]]] = {}
        for index, hand in enumerate(hands):
            for task_type in hand.types:
                self._lines.setdefault(task_type, []).append((index, index))

    def run(self, tasks: Iterable[Task]) -> list[tuple[Task, Hand]]:
        dealt = []
        turn = len(self._hands)
        for task in sorted(tasks, key=order):
            index = self._choose(task)
            if index is None:
                continue
            self._turns[index] = turn
            self._credits[index] -= 1
            turn += 1
            hand = self._hands[index]
            if task.is_guarded:
                self._guarded.add(hand.worker_id)
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
            if task.is_guarded and worker_id in self._guarded:
                passed.append(heapq.heappop(line))
            elif worker_id == avoid:
                passed.append(heapq.heappop(line))
                avoided = index if avoided is None else avoided
            else:
                chosen = index
        for entry in passed:
            heapq.heappush(line, entry)
        return avoided if chosen is None else chosen

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
