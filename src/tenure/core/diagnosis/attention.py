"""What needs somebody's attention in a namespace, from what a server has sampled and counted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from tenure.core.diagnosis.finding import Level
from tenure.core.duration import duration_text
from tenure.core.limits import (
    ATTENTION_FAILED_MIN,
    ATTENTION_FAILED_SHARE,
    ATTENTION_MAX,
    ATTENTION_WAIT_MS,
    WAITING_PROBLEM_MS,
)
from tenure.core.worker.health import Health

_ORDER: Final = (Level.PROBLEM, Level.WARNING)
_UNWELL: Final = tuple(each for each in Health if each is not Health.HEALTHY)


class Attention(msgspec.Struct, frozen=True):
    """One thing to look at: what it is, what to do, and since when, if that is known."""

    code: str
    severity: Level
    message: str
    advice: str
    since_ms: int | None = None


class QueueFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A queue as it was sampled, and what happened to its tasks in the last minute."""

    name: str
    pending: int
    oldest_waiting_ms: int
    worker_count: int
    is_paused: bool
    ended: int
    failed: int
    lost: int


def attention(
    queues: Iterable[QueueFacts], healths: Mapping[str, int], *, now_ms: int
) -> tuple[Attention, ...]:
    """Return what to look at, the worst first and of these what waits for the longest time."""
    found = [each for queue in queues for each in _of_queue(queue, now_ms)]
    found += _of_workers(healths)
    found.sort(key=lambda each: (_ORDER.index(each.severity), each.since_ms or now_ms))
    return tuple(found[:ATTENTION_MAX])


def _of_queue(queue: QueueFacts, now_ms: int) -> Iterator[Attention]:
    waited_ms = queue.oldest_waiting_ms
    since_ms = now_ms - waited_ms
    if queue.is_paused:
        if waited_ms:
            yield Attention(
                "queue_paused",
                Level.WARNING,
                f"Queue {queue.name} is paused, and {queue.pending} tasks wait.",
                f"Resume it: tenure queues resume {queue.name}",
                since_ms,
            )
    elif waited_ms >= ATTENTION_WAIT_MS and not queue.worker_count:
        yield Attention(
            "no_worker",
            Level.PROBLEM,
            f"No worker serves queue {queue.name}, and {queue.pending} tasks wait.",
            f"Start one: tenure worker MODULE --queue {queue.name}",
            since_ms,
        )
    elif waited_ms >= WAITING_PROBLEM_MS:
        yield Attention(
            "tasks_wait",
            Level.WARNING,
            f"Tasks of queue {queue.name} wait for {duration_text(waited_ms)}.",
            "Add workers, or look why: tenure tasks explain ID",
            since_ms,
        )
    if queue.lost:
        yield Attention(
            "attempts_lost",
            Level.WARNING,
            f"Queue {queue.name} lost {queue.lost} attempts with workers in the last minute.",
            "See which workers ended and why: tenure workers ls --status OFFLINE",
        )
    if queue.failed >= ATTENTION_FAILED_MIN and (
        queue.failed >= queue.ended * ATTENTION_FAILED_SHARE
    ):
        yield Attention(
            "tasks_fail",
            Level.WARNING,
            f"{queue.failed} of {queue.ended} tasks of queue {queue.name} failed in a minute.",
            f"See why: tenure tasks ls --state FAILED --queue {queue.name}",
        )


def _of_workers(healths: Mapping[str, int]) -> Iterator[Attention]:
    unwell = {each: healths[each] for each in _UNWELL if healths.get(each)}
    if unwell:
        text = ", ".join(f"{count} {health}" for health, count in unwell.items())
        yield Attention(
            "workers_unwell",
            Level.WARNING,
            f"Workers are unwell: {text}.",
            "See them: tenure workers ls",
        )
