"""What happened over time: steps of the last hour at this server, or minutes of all servers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from tenure.core import check
from tenure.core.limits import (
    STATISTICS_KEPT_MS,
    STATISTICS_MEMORY_MS,
    STATISTICS_POINTS_MAX,
    STATISTICS_ROW_MS,
    STATISTICS_ROWS_MAX,
    STATISTICS_SERIES_MAX,
    STATISTICS_STEP_MS,
)
from tenure.engine.read.query import check_namespace, scan
from tenure.engine.statistics.figures import Figures, QueueStep, total
from tenure.engine.statistics.memory import unpacked
from tenure.errors import InvalidArgument
from tenure.store.table.statistics import list_minutes

if TYPE_CHECKING:
    from tenure.engine.engine import Engine


class Interval(msgspec.Struct, frozen=True):
    """From when to when; ``to_ms`` is not part of it."""

    from_ms: int
    to_ms: int


class Point(msgspec.Struct):
    """One step of a series."""

    figures: Figures
    pending: int = 0
    oldest_waiting_ms: int = 0


class Series(msgspec.Struct, frozen=True):
    """The steps of a queue, or of one type of it; without both, of the namespace."""

    queue: str
    type: str
    points: dict[int, Point]


class SeriesAnswer(msgspec.Struct, frozen=True):
    """Some series over the same steps, the sum first; if whole, of all servers."""

    from_ms: int
    step_ms: int
    step_count: int
    is_whole: bool
    has_more: bool
    series: tuple[Series, ...]


async def get_statistics(
    engine: Engine, *, namespace: str, queue: str, task_type: str, interval: Interval
) -> SeriesAnswer:
    """Return the series of a queue and its types, or of a namespace and its queues."""
    namespace = check.namespace(namespace)
    for field, name in (("queue", queue), ("type", task_type)):
        if name:
            check.name(name, field)
    now_ms = engine.clock.now_ms()
    _check_interval(interval, now_ms)
    await check_namespace(engine.store, namespace=namespace)
    is_recent = interval.from_ms >= now_ms - STATISTICS_MEMORY_MS
    base_ms = STATISTICS_STEP_MS if is_recent else STATISTICS_ROW_MS
    made = _Made(interval, base_ms)
    if is_recent:
        made.add_steps(engine.statistics.steps(namespace, made.from_ms - 1, queue), queue)
    else:
        rows = await scan(
            engine.store,
            lambda tx: list_minutes(
                tx,
                namespace,
                queue,
                from_ms=made.from_ms,
                to_ms=interval.to_ms,
                amount=STATISTICS_ROWS_MAX + 1,
            ),
        )
        made.has_more = len(rows) > STATISTICS_ROWS_MAX
        for at_ms, body in rows[:STATISTICS_ROWS_MAX]:
            made.add(at_ms, queue, unpacked(body))
    return SeriesAnswer(
        made.from_ms,
        made.step_ms,
        made.step_count,
        is_whole=not is_recent or not engine.store.is_shared,
        has_more=made.has_more,
        series=tuple(made.series(queue, task_type)),
    )


def _check_interval(interval: Interval, now_ms: int) -> None:
    if not interval.from_ms < interval.to_ms:
        message = "from must be before to"
        raise InvalidArgument(message, field="from")
    if interval.from_ms < now_ms - STATISTICS_KEPT_MS - STATISTICS_ROW_MS:
        message = "from must be in the last 7 days"
        raise InvalidArgument(message, field="from")


class _Made:
    """Series as they are added up; a step is as long as makes them short enough."""

    def __init__(self, interval: Interval, base_ms: int) -> None:
        length_ms = interval.to_ms - interval.from_ms
        factor = -(-length_ms // (base_ms * (STATISTICS_POINTS_MAX - 1)))
        self.step_ms = base_ms * max(1, factor)
        self.from_ms = interval.from_ms - interval.from_ms % self.step_ms
        self.step_count = -(-(interval.to_ms - self.from_ms) // self.step_ms)
        self.has_more = False
        self._to_ms = interval.to_ms
        self._points: dict[tuple[str, str], dict[int, Point]] = {}

    def add_steps(self, steps: Iterable[tuple[int, str, QueueStep]], queue: str) -> None:
        """Add steps of several queues, and their sum if no queue was asked for."""
        sums: dict[int, QueueStep] = {}
        for at_ms, name, step in steps:
            if at_ms >= self._to_ms:
                continue
            self.add(at_ms, name, step)
            if not queue:
                sums.setdefault(at_ms, QueueStep({})).add_queue(step)
        for at_ms, step in sums.items():
            self.add(at_ms, "", step)

    def add(self, at_ms: int, queue: str, step: QueueStep) -> None:
        """Add a queue with its types in one step."""
        at_ms -= at_ms % self.step_ms
        self._add((queue, ""), at_ms, step, total(step.types.values()))
        for name, figures in step.types.items():
            self._add((queue, name), at_ms, QueueStep({}), figures)

    def _add(self, key: tuple[str, str], at_ms: int, step: QueueStep, figures: Figures) -> None:
        points = self._points.setdefault(key, {})
        point = points.get(at_ms)
        if point is None:
            point = points[at_ms] = Point(Figures())
        point.figures.add(figures)
        point.pending = max(point.pending, step.pending)
        point.oldest_waiting_ms = max(point.oldest_waiting_ms, step.oldest_waiting_ms)

    def series(self, queue: str, task_type: str) -> Sequence[Series]:
        """Return the sum, then what did most: one type, the types of a queue, or queues."""
        if task_type:
            points = self._points.get((queue, task_type), {})
            return [Series(queue, task_type, points)]
        whole = Series(queue, "", self._points.get((queue, ""), {}))
        has_queues = not queue and any(name for name, _ in self._points)
        parts = [
            Series(*key, points)
            for key, points in self._points.items()
            if (key[0] and not key[1] if has_queues else key[0] == queue and key[1])
        ]
        parts.sort(key=lambda each: (-_activity(each), each.queue, each.type))
        return [whole, *parts[: STATISTICS_SERIES_MAX - 1]]


def _activity(series: Series) -> int:
    return sum(each.figures.enqueued + each.figures.started for each in series.points.values())
