"""What happened over time, over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.api.metrics.metric import Metrics
from tenure.api.metrics.sampler import Sampler
from tenure.engine.read import statistics as read
from tenure.engine.services.retention import Retention
from tenure.engine.services.statistics_rows import StatisticsRows
from tests.api.http.site import Site
from tests.engine.world import DAY_MS


async def stats(site: Site, query: str = "") -> Any:
    return await site.call("GET", f"/v1/stats{query}")


async def test_the_last_hour_is_shown_in_steps_with_the_sum_first(site: Site) -> None:
    world, engine = site.world, site.engine
    await world.advance(3_600_000)
    worker = await world.worker(engine)
    await site.enqueue(queue="other", type="call")
    task = await world.held(engine, worker)
    await world.advance(20_000)
    await world.finish(engine, worker, task)
    assert await Sampler(engine, Metrics()).run_once()
    shown = await stats(site)
    assert (shown["stepMs"], shown["stepCount"]) == (20_000, 181)
    assert shown["start"] == "2026-01-01T00:00:20.000Z"
    assert (shown["isWhole"], shown["hasMore"]) == (not engine.store.is_shared, False)
    whole, *queues = shown["series"]
    assert [each["queue"] for each in queues] == ["default", "other"]
    assert "queue" not in whole
    assert (sum(whole["enqueued"]), sum(whole["started"]), sum(whole["succeeded"])) == (2, 1, 1)
    assert (whole["enqueued"][-2:], whole["succeeded"][-2:]) == ([2, 0], [0, 1])
    assert whole["runP50Ms"][-2] is None
    assert 10_000 <= whole["runP50Ms"][-1] <= 30_000
    assert (await stats(site, "?queue=default"))["series"][1]["type"] == "mail"
    (only,) = (await stats(site, "?queue=other&type=call"))["series"]
    assert sum(only["enqueued"]) == 1
    assert sum((await stats(site, "?queue=none"))["series"][0]["enqueued"]) == 0


async def test_older_numbers_are_rows_of_a_minute_which_all_servers_write(site: Site) -> None:
    world, engine = site.world, site.engine
    second = await world.start()
    for each in (engine, second, engine):
        await world.add(each, 2)
        await world.advance(30_000)
    assert await Sampler(engine, Metrics()).run_once()
    await world.advance(70_000)
    for each in (engine, second):
        report = await world.round(StatisticsRows(), each)
        assert report.count
        assert (await world.round(StatisticsRows(), each)).count == 0
    await world.advance(2 * 3_600_000)
    query = "?from=2026-01-01T00:00:00Z"
    shown = await stats(site, query)
    assert (shown["stepMs"], shown["isWhole"]) == (60_000, True)
    whole, mail = shown["series"]
    assert whole["enqueued"][:3] == [4, 2, 0]
    assert (mail["type"], mail["enqueued"][:2]) == ("mail", [4, 2])
    queue = (await stats(site, f"{query}&queue=default"))["series"][0]
    assert queue["enqueued"][:2] == [4, 2]
    assert max(queue["pending"]) == 6
    assert max(queue["oldestWaitingMs"]) == 90_000
    await world.advance(8 * DAY_MS)
    await world.round(Retention(), engine)
    assert (await world.dump("statistics"))["statistics"] == []


async def test_too_many_rows_are_cut_and_it_is_said(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, engine = site.world, site.engine
    for _ in range(3):
        await world.add(engine)
        await world.advance(60_000)
    await world.round(StatisticsRows(), engine)
    await world.advance(2 * 3_600_000)
    monkeypatch.setattr(read, "STATISTICS_ROWS_MAX", 2)
    shown = await stats(site, "?from=2026-01-01T00:00:00Z")
    assert (shown["hasMore"], sum(shown["series"][0]["enqueued"])) == (True, 2)


async def test_a_week_has_no_more_steps_than_a_chart_can_show(site: Site) -> None:
    await site.world.advance(7 * DAY_MS)
    shown = await stats(site, "?from=2026-01-01T00:00:00Z")
    assert shown["stepCount"] <= 300
    assert len(shown["series"][0]["failed"]) == shown["stepCount"]
    for query, field in (
        ("from=2025-12-31T00:00:00Z", "from"),
        ("from=2026-01-07T00:00:00Z&to=2026-01-06T00:00:00Z", "from"),
        ("queue=a%20b", "queue"),
        ("type=a%20b", "type"),
    ):
        refused = await site.refused("GET", f"/v1/stats?{query}")
        assert refused == (400, "invalid_argument", {"field": field}), query
