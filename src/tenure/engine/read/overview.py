"""A namespace in numbers, from the memory of this server: nothing is read for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tenure.core.diagnosis.attention import Attention, QueueFacts, attention
from tenure.core.task.record import TaskState
from tenure.engine.claim.offer import Group
from tenure.engine.read.query import check_namespace
from tenure.engine.read.sample import HELD, Sample, counted
from tenure.engine.statistics.figures import Figures, total

if TYPE_CHECKING:
    from tenure.engine.engine import Engine


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks by state, workers by status and by health, and what needs attention.

    Before the first sample of this server only the last minute is known.
    """

    last_minute: Figures
    sample_at_ms: int | None = None
    tasks: dict[TaskState, int] = {}
    oldest_waiting_ms: int = 0
    statuses: dict[str, int] = {}
    healths: dict[str, int] = {}
    slots: int = 0
    held_count: int = 0
    attention: tuple[Attention, ...] = ()


async def get_overview(engine: Engine, *, namespace: str) -> Overview:
    """Return what this server knows of a namespace."""
    await check_namespace(engine.store, namespace=namespace)
    figures = engine.statistics.last_minute(namespace)
    last_minute = total(figures.values())
    sample = engine.statistics.sample
    if sample is None:
        return Overview(last_minute=last_minute)
    tasks = _tasks(sample, namespace)
    crews = {group: crew for group, crew in sample.crews.items() if group[0] == namespace}
    statuses, healths = _sums(counted(crews.values()))
    waiting = {g: ms for g, ms in sample.oldest_waiting_ms.items() if g[0] == namespace}
    groups = sorted({*waiting, *((namespace, queue) for queue in figures)})
    facts = [_facts(sample, group, figures.get(group[1], Figures())) for group in groups]
    return Overview(
        last_minute=last_minute,
        sample_at_ms=sample.at_ms,
        tasks=tasks,
        oldest_waiting_ms=max(waiting.values(), default=0),
        statuses=statuses,
        healths=healths,
        slots=sum(sample.crew(group).slots for group in crews),
        held_count=sum(tasks.get(state, 0) for state in HELD),
        attention=attention(facts, healths, now_ms=sample.at_ms),
    )


def _tasks(sample: Sample, namespace: str) -> dict[TaskState, int]:
    tasks: dict[TaskState, int] = {}
    for group, depths in sample.depths.items():
        if group[0] == namespace:
            for state, count in depths.items():
                tasks[state] = tasks.get(state, 0) + count
    return tasks


def _sums(workers: dict[tuple[str, str], int]) -> tuple[dict[str, int], dict[str, int]]:
    """Return the number of workers by status, and that of the active ones by health."""
    statuses: dict[str, int] = {}
    healths: dict[str, int] = {}
    for (status, health), count in workers.items():
        statuses[status] = statuses.get(status, 0) + count
        if health:
            healths[health] = healths.get(health, 0) + count
    return statuses, healths


def _facts(sample: Sample, group: Group, figures: Figures) -> QueueFacts:
    return QueueFacts(
        name=group[1],
        pending=sample.depths.get(group, {}).get(TaskState.PENDING, 0),
        oldest_waiting_ms=sample.oldest_waiting_ms.get(group, 0),
        worker_count=sample.crew(group).count,
        is_paused=group in sample.paused,
        ended=figures.succeeded + figures.failed + figures.cancelled,
        failed=figures.failed,
        lost=figures.lost,
    )
