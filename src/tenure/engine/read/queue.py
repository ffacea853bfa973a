"""Queues with what this server knows of them: its last sample and the counts of the last minute.

A small queue is counted when it is asked for. Of a larger one the sample has the numbers, so that a
page costs the same with a million waiting tasks as with a thousand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tenure.core.limits import COUNTED_MAX, DEPTH_COUNTED_MAX, QUEUE_LOOK_MAX
from tenure.core.task.record import TaskState
from tenure.engine.read import query
from tenure.engine.read.query import Page, PageRequest, QueueView
from tenure.engine.read.sample import Sample
from tenure.engine.statistics.figures import Figures
from tenure.engine.statistics.memory import Statistics
from tenure.store.table.listing import Crew

if TYPE_CHECKING:
    from tenure.engine.engine import Engine


class SampledQueue(msgspec.Struct, frozen=True):
    """What a sample has seen of a queue. ``oldest_waiting_ms`` is 0 if no task waits."""

    at_ms: int
    oldest_waiting_ms: int
    crew: Crew
    held_count: int


class QueueReport(msgspec.Struct, frozen=True):
    """A queue, its live tasks by state, and what happened in the last minute at this server.

    If counting stopped, ``depths`` are those of the sample, and of the types there are at least so
    many. Without a sample of this queue there are at least so many of all.
    """

    view: QueueView
    depths: dict[TaskState, int]
    is_exact: bool
    last_minute: Figures
    sampled: SampledQueue | None = None


async def get_queue(engine: Engine, *, namespace: str, name: str) -> QueueReport:
    """Return a queue; a queue without tasks and settings is empty, without pause and limit."""
    counted_max = _counted_max(engine.statistics)
    view = await query.get_queue(
        engine.store, namespace=namespace, name=name, counted_max=counted_max
    )
    return _reports(engine.statistics, [view])[0]


async def list_queues(engine: Engine, *, namespace: str, page: PageRequest) -> Page[QueueReport]:
    """Return the queues that have settings or live tasks, by name in the order of the store."""
    counted_max = _counted_max(engine.statistics)
    found = await query.list_queues(
        engine.store, namespace=namespace, page=page, counted_max=counted_max
    )
    return Page(tuple(_reports(engine.statistics, found.items)), found.next_page_token)


def _counted_max(statistics: Statistics) -> int:
    return COUNTED_MAX if statistics.sample is None else QUEUE_LOOK_MAX


def _reports(
    statistics: Statistics, views: list[QueueView] | tuple[QueueView, ...]
) -> list[QueueReport]:
    if not views:
        return []
    figures = statistics.last_minute(views[0].queue.namespace)
    return [
        _report(view, statistics.sample, figures.get(view.queue.name, Figures())) for view in views
    ]


def _report(view: QueueView, sample: Sample | None, figures: Figures) -> QueueReport:
    group = (view.queue.namespace, view.queue.name)
    counted = {state: count for state in TaskState if (count := view.count(state))}
    if sample is None:
        return QueueReport(view, counted, view.is_exact, figures)
    sampled = SampledQueue(
        sample.at_ms,
        sample.oldest_waiting_ms.get(group, 0),
        sample.crew(group),
        sample.held_count(group),
    )
    # A queue that was filled since the sample has at least what was counted.
    known = {} if view.is_exact else sample.depths.get(group, {})
    depths = {
        state: max(counted.get(state, 0), known.get(state, 0))
        for state in TaskState
        if state in counted or known.get(state)
    }
    is_exact = view.is_exact or 0 < max(known.values(), default=0) < DEPTH_COUNTED_MAX
    return QueueReport(view, depths, is_exact, figures, sampled)
