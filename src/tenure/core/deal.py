"""Deal claimed rows to offers: best priority, then run_at, then id; longest-waiting offer first."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

import msgspec

from tenure.core.task_record import Task


class Hand(msgspec.Struct, kw_only=True):
    """What one offer may still get in this deal. ``turn`` is its place among those who wait."""

    offer_id: int
    worker_id: str
    types: frozenset[str]
    credit: int
    turn: int
    holds_guarded: bool = False


class Dealt(msgspec.Struct, frozen=True):
    """One task for one offer."""

    task: Task
    offer_id: int
    worker_id: str


def order(task: Task) -> tuple[int, int, str]:
    """Return the place of a task in its line."""
    return (task.priority, task.run_at_ms, task.id)


def deal(tasks: Iterable[Task], hands: Sequence[Hand]) -> list[Dealt]:
    """Give each task, best first, to the longest-waiting offer that may take it.

    An offer that was served goes to the end of the line. A task that a worker did not get three
    times prefers another worker; a task suspected of crashing workers goes only to a worker that
    holds no other such task.
    """
    turn = max((hand.turn for hand in hands), default=0)
    lines: dict[str, list[tuple[int, int]]] = {}
    for index, hand in enumerate(hands):
        for task_type in hand.types:
            lines.setdefault(task_type, []).append((hand.turn, index))
    for line in lines.values():
        heapq.heapify(line)
    dealt = []
    for task in sorted(tasks, key=order):
        chosen = _choose(task, hands, lines.get(task.type, []))
        if chosen is None:
            continue
        turn += 1
        chosen.turn = turn
        chosen.credit -= 1
        if task.is_guarded:
            _mark_guarded(hands, chosen.worker_id)
        dealt.append(Dealt(task, chosen.offer_id, chosen.worker_id))
    return dealt


def _mark_guarded(hands: Sequence[Hand], worker_id: str) -> None:
    """Note that a worker has its one suspect, in each of its offers."""
    for hand in hands:
        hand.holds_guarded = hand.holds_guarded or hand.worker_id == worker_id


def _choose(task: Task, hands: Sequence[Hand], line: list[tuple[int, int]]) -> Hand | None:
    """Take the longest-waiting fitting offer; entries whose turn has moved on are put right."""
    passed: list[tuple[int, int]] = []
    avoided: Hand | None = None
    chosen: Hand | None = None
    while line and chosen is None:
        turn, index = line[0]
        hand = hands[index]
        if hand.credit <= 0:
            heapq.heappop(line)
        elif turn != hand.turn:
            heapq.heapreplace(line, (hand.turn, index))
        elif task.is_guarded and hand.holds_guarded:
            passed.append(heapq.heappop(line))
        elif task.progress.avoid_worker_id == hand.worker_id:
            passed.append(heapq.heappop(line))
            avoided = avoided or hand
        else:
            chosen = hand
    for entry in passed:
        heapq.heappush(line, entry)
    return chosen or avoided
