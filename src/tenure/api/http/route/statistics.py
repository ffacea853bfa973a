"""The operation that shows what happened over time."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final

from msgspec import UNSET, Meta, UnsetType, field

from tenure.api.http.operation import Answer, Operation, OperationCall
from tenure.api.http.parameter import Scoped
from tenure.api.http.route.task.body import instant_ms
from tenure.api.http.view import Instant, View, instant, or_unset
from tenure.core.access.permission import Action
from tenure.core.limits import STATISTICS_MEMORY_MS
from tenure.engine.read.statistics import Interval, Point, Series, get_statistics
from tenure.engine.statistics.figures import Figures, percentiles_ms

_COUNTS: Final = ("enqueued", "started", "succeeded", "failed", "cancelled", "lost")
_NOTHING: Final = Point(Figures())


class StatisticsQuery(Scoped, frozen=True):
    """What to show, and of when."""

    queue: Annotated[str, Meta(description="Only this queue, with its types")] = ""
    type: Annotated[str, Meta(description="Only this type")] = ""
    from_: (
        Annotated[datetime, Meta(tz=True, description="At most 7 days ago; default: an hour ago")]
        | UnsetType
    ) = field(default=UNSET, name="from")
    to: Annotated[datetime, Meta(tz=True, description="Default: now")] | UnsetType = UNSET


class SeriesView(View, frozen=True):
    """The steps of a queue or of a type, in columns; null where nothing was started or ended."""

    enqueued: list[int]
    started: list[int]
    succeeded: list[int]
    failed: list[int]
    cancelled: list[int]
    lost: list[int]
    wait_p50_ms: list[int | None]
    wait_p95_ms: list[int | None]
    wait_p99_ms: list[int | None]
    run_p50_ms: list[int | None]
    run_p95_ms: list[int | None]
    run_p99_ms: list[int | None]
    pending: Annotated[list[int], Meta(description="At most, as sampled; 0 of a type")]
    oldest_waiting_ms: list[int]
    queue: str | UnsetType = UNSET
    type: str | UnsetType = UNSET


class StatisticsView(View, frozen=True):
    """Up to 20 series of up to 300 steps, the sum first."""

    start: Instant
    step_ms: int
    step_count: int
    is_whole: Annotated[
        bool, Meta(description="False if only what this server has counted is in it")
    ]
    has_more: Annotated[bool, Meta(description="There were too many rows: ask for less time")]
    series: list[SeriesView]


async def show_statistics(call: OperationCall[StatisticsQuery, None]) -> Answer:
    """Show what happened over time."""
    asked = call.query
    now_ms = call.engine.clock.now_ms()
    # The present millisecond is part of it.
    to_ms = now_ms + 1 if asked.to is UNSET else instant_ms(asked.to, "to")
    from_ms = now_ms - STATISTICS_MEMORY_MS
    if asked.from_ is not UNSET:
        from_ms = instant_ms(asked.from_, "from")
    found = await get_statistics(
        call.engine,
        namespace=call.namespace,
        queue=asked.queue,
        task_type=asked.type,
        interval=Interval(from_ms, to_ms),
    )
    steps = [found.from_ms + number * found.step_ms for number in range(found.step_count)]
    return Answer(
        StatisticsView(
            start=instant(found.from_ms),
            step_ms=found.step_ms,
            step_count=found.step_count,
            is_whole=found.is_whole,
            has_more=found.has_more,
            series=[_series(each, steps) for each in found.series],
        )
    )


def _series(series: Series, steps: list[int]) -> SeriesView:
    points = [series.points.get(at_ms, _NOTHING) for at_ms in steps]
    counts = {name: [getattr(each.figures, name) for each in points] for name in _COUNTS}
    return SeriesView(
        **counts,
        **_columns("wait", [each.figures.wait for each in points]),
        **_columns("run", [each.figures.run for each in points]),
        pending=[each.pending for each in points],
        oldest_waiting_ms=[each.oldest_waiting_ms for each in points],
        queue=or_unset(series.queue),
        type=or_unset(series.type),
    )


def _columns(name: str, counts: list[list[int]]) -> dict[str, Any]:
    """Return the columns of the percentiles of a latency."""
    found = [_percentiles(each) for each in counts]
    return {
        f"{name}_{share}_ms": [each[at] for each in found]
        for at, share in enumerate(("p50", "p95", "p99"))
    }


def _percentiles(counts: list[int]) -> tuple[int | None, int | None, int | None]:
    return percentiles_ms(counts) if any(counts) else (None, None, None)


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/v1/stats",
        name="getStatistics",
        group="Server",
        summary="What happened over time: of a queue and its types, or of all queues.",
        handle=show_statistics,
        action=Action.READ,
        is_list=True,
        query=StatisticsQuery,
        answer=StatisticsView,
        errors=("not_found",),
        example="?queue=mail&from=2026-01-31T00:00:00Z",
    ),
)
