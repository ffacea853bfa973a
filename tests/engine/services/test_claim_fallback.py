"""Servers that cannot tell each other of work find it soon by looking."""

from __future__ import annotations

from typing import Any

from tenure.core.limits import FALLBACK_POLL_MS, NEWS_POLL_MS
from tenure.core.worker.record import WorkerMode
from tenure.engine.claim.position import ClaimPositions
from tenure.engine.services.claim_fallback import ClaimFallback
from tests.engine.world import NAMESPACE, QUEUE, World
from tests.polling import eventually

KEY = (NAMESPACE, QUEUE, "mail")
# The pace is spread by a tenth.
SHORTEST = 0.9


async def test_behind_a_pooler_each_fallback_poll_finds_the_work_of_other_servers(
    world: World,
) -> None:
    paces: dict[str, Any] = {"fallback_poll_ms": FALLBACK_POLL_MS, "news_poll_ms": NEWS_POLL_MS}
    here, there = [await world.start(pooled=True, **paces) for _ in range(2)]
    worker = await world.worker(there, mode=WorkerMode.SESSION)
    sink, _ = await world.session(there, worker)
    fallback = ClaimFallback()
    assert fallback.interval_ms(there) == NEWS_POLL_MS
    await world.round(fallback, there)
    for count in range(1, 4):
        await world.add(here)
        await world.advance(round(SHORTEST * NEWS_POLL_MS))
        await world.round(fallback, there)
        await eventually(lambda count=count: len(sink.given) == count)  # type: ignore[misc]  # bound early


async def test_servers_that_hear_each_other_look_each_second() -> None:
    marks = ClaimPositions(is_on=True)
    demands = marks.demands(KEY, 10, 0)
    marks.learn(demands, [], mono_ms=0, took_ms=5)
    assert marks.demands(KEY, 10, NEWS_POLL_MS) == []
    assert marks.demands(KEY, 10, round(SHORTEST * FALLBACK_POLL_MS)) == demands
    marks.learn(demands, [], mono_ms=1_000, took_ms=50)
    assert marks.demands(KEY, 10, 5_999) == []
    assert marks.demands(KEY, 10, 6_000) == demands


async def test_a_slow_look_comes_less_often_also_where_nobody_tells_of_work() -> None:
    marks = ClaimPositions(is_on=True)
    demands = marks.demands(KEY, 10, 0)
    marks.learn(demands, [], mono_ms=0, took_ms=20, is_told=False)
    assert marks.demands(KEY, 10, round(SHORTEST * NEWS_POLL_MS)) == demands
    marks.learn(demands, [], mono_ms=1_000, took_ms=200, is_told=False)
    assert marks.demands(KEY, 10, 2_999) == []
    assert marks.demands(KEY, 10, 3_000) == demands
