"""The steps of the last hour at this server, and its last sample of the store."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

import msgspec

from tenure.core.limits import (
    STATISTICS_MEMORY_MS,
    STATISTICS_QUEUES_MAX,
    STATISTICS_ROW_MS,
    STATISTICS_STEP_MS,
)
from tenure.core.task.record import TaskState
from tenure.engine.batch.run import Committed
from tenure.engine.claim.offer import Group
from tenure.engine.clock import Clock
from tenure.engine.read.sample import Sample
from tenure.engine.statistics.counter import Counter, Lines
from tenure.engine.statistics.figures import Figures, QueueStep, total

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(QueueStep).decode


class Step(msgspec.Struct, frozen=True):
    """Ten seconds: each queue with something to tell, packed, because an hour of them is kept."""

    at_ms: int
    queues: dict[Group, bytes]


class Statistics:
    """What this server has counted, step by step, and what it has sampled."""

    def __init__(self, clock: Clock) -> None:
        """Start without a step and without a sample."""
        self._clock = clock
        self._counter = Counter(clock)
        self._steps: deque[Step] = deque()
        self._at_ms = _step_of(clock.now_ms())
        self.sample: Sample | None = None
        # Minutes before it are written, or were over before this server began.
        self._unwritten_ms = _minute_of(clock.now_ms())

    def committed(self, committed: Committed) -> None:
        """Count a batch."""
        self.roll()
        self._counter.add(committed)

    def sampled(self, sample: Sample) -> None:
        """Keep a sample until the next one."""
        self.sample = sample

    def roll(self) -> None:
        """End the present step if its time is over, and forget those that are too old."""
        now_ms = self._clock.now_ms()
        at_ms = _step_of(now_ms)
        if at_ms == self._at_ms:
            return
        queues = self._packed(self._counter.take())
        if queues:
            self._steps.append(Step(self._at_ms, queues))
        self._at_ms = at_ms
        while self._steps and self._steps[0].at_ms < now_ms - STATISTICS_MEMORY_MS:
            self._steps.popleft()

    def last_minute(self, namespace: str) -> dict[str, Figures]:
        """Return what happened in the last minute, by queue; exact to a step."""
        found: dict[str, Figures] = {}
        for _, queue, step in self.steps(namespace, self._clock.now_ms() - STATISTICS_ROW_MS):
            found.setdefault(queue, Figures()).add(total(step.types.values()))
        return found

    def steps(
        self, namespace: str, from_ms: int, queue: str = ""
    ) -> Iterator[tuple[int, str, QueueStep]]:
        """Yield the queues of the steps that begin after an instant, the present one last."""
        self.roll()
        for step in self._steps:
            if step.at_ms > from_ms:
                for group, packed in step.queues.items():
                    if group[0] == namespace and queue in {"", group[1]}:
                        yield step.at_ms, group[1], _decode(packed)
        for group, types in self._counter.lines.items():
            if group[0] == namespace and queue in {"", group[1]}:
                yield self._at_ms, group[1], self._step(group, types)

    def unwritten(self) -> tuple[int, dict[tuple[int, str, str], bytes]]:
        """Return the minutes that are over and not written, packed by (time, namespace, queue).

        With them comes the end of the last one, for ``written``.
        """
        self.roll()
        end_ms = _minute_of(self._at_ms)
        minutes: dict[tuple[int, str, str], QueueStep] = {}
        queues: dict[tuple[int, str], dict[str, QueueStep]] = {}
        for step in self._steps:
            if self._unwritten_ms <= step.at_ms < end_ms:
                at_ms = _minute_of(step.at_ms)
                for (namespace, queue), packed in step.queues.items():
                    known = queues.setdefault((at_ms, namespace), {})
                    known.setdefault(queue, QueueStep({})).add(_decode(packed))
        for (at_ms, namespace), by_queue in queues.items():
            whole = minutes[at_ms, namespace, ""] = QueueStep({})
            for queue, found in by_queue.items():
                minutes[at_ms, namespace, queue] = found
                whole.add_queue(found)
        return end_ms, {key: _encode(found) for key, found in minutes.items()}

    def written(self, end_ms: int) -> None:
        """Note that the minutes until then are written."""
        self._unwritten_ms = end_ms

    def _packed(self, lines: Lines) -> dict[Group, bytes]:
        """Pack a step, with queues where nothing happened while tasks wait."""
        groups = dict.fromkeys(lines)
        if self.sample is not None:
            for group in self.sample.oldest_waiting_ms:
                if len(groups) < STATISTICS_QUEUES_MAX:
                    groups[group] = None
        return {group: _encode(self._step(group, lines.get(group, {}))) for group in groups}

    def _step(self, group: Group, types: dict[str, Figures]) -> QueueStep:
        sample = self.sample
        if sample is None:
            return QueueStep(types)
        pending = sample.depths.get(group, {}).get(TaskState.PENDING, 0)
        return QueueStep(types, pending, sample.oldest_waiting_ms.get(group, 0))


def _minute_of(at_ms: int) -> int:
    return at_ms - at_ms % STATISTICS_ROW_MS


def unpacked(body: bytes) -> QueueStep:
    """Return a packed queue of one minute."""
    return _decode(body)


def _step_of(now_ms: int) -> int:
    return now_ms - now_ms % STATISTICS_STEP_MS
