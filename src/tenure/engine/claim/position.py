"""Where claims start to read: what this server knows about the lines of each queue and type.

For each (queue, type, priority) a low-water mark lies at or before every claimable fresh task that
this server knows of, so that a claim does not read the entries of finished tasks that a long-open
snapshot keeps in the index. Tasks that other servers put below a mark are found by a read from
the head of the line. It comes each second, but not more often than every hundred times its own
duration; without hints each half second, but not more often than every ten times.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from tenure.core.limits import (
    FALLBACK_POLL_MS,
    FULL_CLAIM_BUDGET,
    FULL_CLAIM_PACE,
    NEWS_POLL_MS,
    PRIORITY_MAX,
    PRIORITY_MIN,
    SOLE_BYTES_MAX,
    SUSPECTS_CLAIMED_MAX,
    UNTOLD_CLAIM_BUDGET,
)
from tenure.core.task.record import Line, Task
from tenure.store.table.task import Demand

LineKey = tuple[str, str, str]
"""(namespace, queue, type)"""

Mark = tuple[int, str]
_NIL_ID: Final = "00000000-0000-0000-0000-000000000000"
_HEAD: Final[Mark] = (0, _NIL_ID)
_PRIORITIES: Final = range(PRIORITY_MIN, PRIORITY_MAX + 1)


class LineState(msgspec.Struct):
    """What is known about one (namespace, queue, type)."""

    marks: dict[int, Mark] = msgspec.field(default_factory=dict)
    maybe_fresh: set[int] = msgspec.field(default_factory=set)
    maybe_returned: bool = True
    maybe_suspect: bool = True
    has_suspects: bool = False
    full_look_at_mono_ms: int = 0
    # The last probes were for offers that take no runs: there may be some.
    has_passed_runs: bool = False
    # The only claimable task that this server knows of, as it has stored it.
    sole: Task | None = None

    @property
    def has_any(self) -> bool:
        """Return whether there may be a claimable task."""
        return bool(self.maybe_fresh) or self.maybe_returned or self.maybe_suspect


class ClaimPositions:
    """The low-water marks of one server."""

    def __init__(self, *, is_on: bool) -> None:
        """Start without knowledge, so that the first read is from the head."""
        self._is_on = is_on
        self._lines: dict[LineKey, LineState] = {}

    def has_backlog(self, key: LineKey, mono_ms: int) -> bool:
        """Return whether the store may hold claimable tasks in addition to those of this batch."""
        line = self._lines.get(key)
        if line is None or mono_ms >= line.full_look_at_mono_ms:
            return True
        return line.has_any

    def may_have_runs(self, key: LineKey) -> bool:
        """Return whether probes may have passed runs, because nobody who waited takes runs."""
        line = self._lines.get(key)
        return line is not None and line.has_passed_runs

    def sole(self, demands: Sequence[Demand]) -> Task | None:
        """Return the task that these probes would find, if known; its row may have changed."""
        if len(demands) != 1:
            return None
        (demand,) = demands
        return self._lines[demand.namespace, demand.queue, demand.type].sole

    def demands(
        self, key: LineKey, amount: int, mono_ms: int, *, takes_runs: bool = True
    ) -> list[Demand]:
        """Return the probes for up to ``amount`` tasks of one type, or of its activities only."""
        line = self._lines.setdefault(key, LineState())
        if takes_runs and line.has_passed_runs:
            line.has_passed_runs = False
            line.full_look_at_mono_ms = mono_ms
        found = self._probes(key, line, amount, mono_ms)
        return found if takes_runs else [replace(each, takes_runs=False) for each in found]

    def _probes(self, key: LineKey, line: LineState, amount: int, mono_ms: int) -> list[Demand]:
        is_full = mono_ms >= line.full_look_at_mono_ms
        found = []
        if is_full or line.maybe_returned:
            found.append(_whole(key, Line.RETURNED, amount))
        if is_full or line.maybe_suspect:
            found.append(_whole(key, Line.SUSPECT, min(amount, SUSPECTS_CLAIMED_MAX)))
        priorities = _PRIORITIES if is_full else sorted(line.maybe_fresh)
        for priority in priorities:
            mark = _HEAD
            if self._is_on and not is_full:
                mark = line.marks.get(priority, _HEAD)
            found.append(_demand(key, Line.FRESH, priority, priority, mark, amount))
        return found

    def learn(
        self,
        demands: Sequence[Demand],
        tasks: Iterable[Task],
        *,
        mono_ms: int,
        took_ms: int,
        is_told: bool = True,
    ) -> None:
        """Take in what a committed claim has read; ``is_told``: other servers send hints."""
        seen: dict[tuple[LineKey, Line, int], tuple[int, Mark]] = {}
        for task in tasks:
            priority = task.priority if task.line is Line.FRESH else PRIORITY_MIN
            place = ((task.namespace, task.queue, task.type), task.line, priority)
            count, _ = seen.get(place, (0, _HEAD))
            seen[place] = (count + 1, (task.run_at_ms, task.id))
        for demand in demands:
            key = (demand.namespace, demand.queue, demand.type)
            line = self._lines.setdefault(key, LineState())
            line.sole = None
            line.has_passed_runs |= not demand.takes_runs
            count, last = seen.get((key, Line(demand.line), demand.priority_min), (0, _HEAD))
            has_more = count >= demand.amount
            if demand.line == Line.RETURNED:
                line.maybe_returned = has_more
                continue
            if demand.line == Line.SUSPECT:
                # A suspect that is left fits no offer until a suspect moves or a worker comes.
                line.maybe_suspect = False
                line.has_suspects = count > 0
                continue
            if count:
                line.marks[demand.priority_min] = last
            if has_more:
                line.maybe_fresh.add(demand.priority_min)
            else:
                line.maybe_fresh.discard(demand.priority_min)
            if mono_ms >= line.full_look_at_mono_ms:
                line.full_look_at_mono_ms = mono_ms + _pause_ms(took_ms, is_told=is_told)

    def left(self, task: Task, *, is_new: bool = False) -> None:
        """Note a claimable task that a committed batch left in the store."""
        line = self._lines.get((task.namespace, task.queue, task.type))
        if line is None:
            return
        is_sole = is_new and not line.has_any and len(task.input or b"") <= SOLE_BYTES_MAX
        line.sole = task if is_sole else None
        if task.line is Line.RETURNED:
            line.maybe_returned = True
        elif task.line is Line.SUSPECT:
            line.maybe_suspect = True
        elif task.line is Line.FRESH:
            line.maybe_fresh.add(task.priority)
            place = (task.run_at_ms, task.id)
            if place < line.marks.get(task.priority, _HEAD):
                line.marks[task.priority] = place

    def suspect_moved(self, key: LineKey) -> None:
        """Note that a suspect was given to a worker or has left one: another may fit now."""
        line = self._lines.get(key)
        if line is not None:
            line.maybe_suspect = True

    def worker_came(self, group: tuple[str, str], types: Iterable[str]) -> None:
        """Note a new offer: a suspect that fitted no other offer may fit this one."""
        for task_type in types:
            line = self._lines.get((*group, task_type))
            if line is not None and line.has_suspects:
                line.maybe_suspect = True

    def look_again(self, namespace: str, queue: str) -> None:
        """Read from the head next time: another server has sent a hint about work."""
        for (line_namespace, line_queue, _), line in self._lines.items():
            if line_namespace == namespace and line_queue == queue:
                line.full_look_at_mono_ms = 0


def _whole(key: LineKey, line: Line, amount: int) -> Demand:
    """Return the probe of a line that is read from its head, over all priorities."""
    return _demand(key, line, PRIORITY_MIN, PRIORITY_MAX, _HEAD, amount)


def _pause_ms(took_ms: int, *, is_told: bool) -> int:
    """Return how long after a read from the head the next one may come."""
    poll_ms = FALLBACK_POLL_MS if is_told else NEWS_POLL_MS
    budget = FULL_CLAIM_BUDGET if is_told else UNTOLD_CLAIM_BUDGET
    return max(round(FULL_CLAIM_PACE * poll_ms), budget * took_ms)


def _demand(
    key: LineKey, line: Line, priority_min: int, priority_max: int, mark: Mark, amount: int
) -> Demand:
    return Demand(*key, int(line), priority_min, priority_max, *mark, amount)
