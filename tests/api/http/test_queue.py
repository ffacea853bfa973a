"""Queues and namespaces over HTTP."""

from __future__ import annotations

import pytest

from tenure.api.metrics.metric import Metrics
from tenure.api.metrics.sampler import Sampler
from tenure.engine.read import queue as queue_read
from tests.api.http.site import TASK, Site


async def test_a_queue_is_shown_with_its_brakes_and_its_live_tasks(site: Site) -> None:
    await site.enqueue()
    await site.enqueue(type="call")
    worker_id = await site.world.worker(site.engine)
    await site.world.claim(site.engine, worker_id)
    shown = await site.call("PUT", "/v1/queues/default", json={"concurrencyMax": 5})
    assert shown == {
        "name": "default",
        "paused": False,
        "concurrencyMax": 5,
        "counts": {"PENDING": 1, "DISPATCHED": 1},
        "types": {"call": {"PENDING": 1}, "mail": {"DISPATCHED": 1}},
        "isCountExact": True,
        "isTypeCountExact": True,
        "perMinute": {
            "enqueued": 2,
            "started": 1,
            "succeeded": 0,
            "failed": 0,
            "cancelled": 0,
            "lost": 0,
        },
        "waitMs": {"p50": 0, "p95": 1, "p99": 1},
    }
    assert await site.call("GET", "/v1/queues/default") == shown
    assert await site.call("GET", "/v1/queues") == {"queues": [shown]}
    unused = await site.call("GET", "/v1/queues/unused")
    assert (unused["paused"], unused["counts"]) == (False, {})


async def test_a_queue_has_what_was_sampled_of_it(site: Site) -> None:
    world, engine = site.world, site.engine
    worker_id = await world.worker(engine, slots=7)
    await world.worker(engine, slots=3)
    await world.worker(engine, queue="elsewhere")
    await site.enqueue()
    await world.claim(engine, worker_id)
    await site.enqueue()
    await world.advance(1_500)
    assert await Sampler(engine, Metrics()).run_once()
    await site.enqueue()
    shown = await site.call("GET", "/v1/queues/default")
    assert shown["sampleAt"] == "2026-01-01T00:00:01.500Z"
    assert (shown["workerCount"], shown["slots"], shown["held"]) == (2, 10, 1)
    assert shown["oldestWaitingMs"] == 1_500
    # What is counted at once is newer than the sample.
    assert shown["counts"] == {"PENDING": 2, "DISPATCHED": 1}
    assert (await site.call("GET", "/v1/queues"))["queues"] == [shown]
    unused = await site.call("GET", "/v1/queues/unused")
    assert (unused["workerCount"], unused["oldestWaitingMs"]) == (0, 0)


async def test_a_large_queue_has_the_counts_of_the_sample(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_read, "QUEUE_LOOK_MAX", 2)
    monkeypatch.setattr(queue_read, "COUNTED_MAX", 3)
    for type_ in "ababa":
        await site.enqueue(type=type_)
    shown = await site.call("GET", "/v1/queues/default")
    assert (shown["counts"], shown["isCountExact"]) == ({"PENDING": 3}, False)
    assert await Sampler(site.engine, Metrics()).run_once()
    shown = await site.call("GET", "/v1/queues/default")
    assert (shown["counts"], shown["isCountExact"]) == ({"PENDING": 5}, True)
    assert (shown["types"], shown["isTypeCountExact"]) == ({"a": {"PENDING": 2}}, False)


async def test_queues_come_page_by_page(site: Site) -> None:
    for name in ("c", "a", "b"):
        await site.enqueue(queue=name)
    first = await site.call("GET", "/v1/queues?pageSize=2")
    rest = await site.call("GET", f"/v1/queues?pageToken={first['nextPageToken']}")
    names = [each["name"] for page in (first, rest) for each in page["queues"]]
    assert names == ["a", "b", "c"]
    assert "nextPageToken" not in rest
    refused = await site.refused("GET", "/v1/queues?pageToken=x")
    assert refused == (400, "invalid_argument", {"field": "pageToken"})


async def test_a_queue_is_paused_and_resumed(site: Site) -> None:
    assert (await site.call("POST", "/v1/queues/q/pause"))["paused"] is True
    shown = await site.call("PUT", "/v1/queues/q", json={"concurrencyMax": 2})
    assert (shown["paused"], shown["concurrencyMax"]) == (True, 2)
    shown = await site.call("POST", "/v1/queues/q/resume", json={})
    assert (shown["paused"], shown["concurrencyMax"]) == (False, 2)
    before = await site.world.dump()
    for body, field in (
        ({}, "body"),
        ({"concurrencyMax": -1}, "concurrencyMax"),
        ({"paused": "yes"}, "paused"),
        ({"isPaused": True}, "isPaused"),
    ):
        refused = await site.refused("PUT", "/v1/queues/q", json=body)
        assert refused == (400, "invalid_argument", {"field": field}), body
    refused = await site.refused("POST", "/v1/queues/a%20b/pause")
    assert refused == (400, "invalid_argument", {"field": "queue"})
    assert await site.world.dump() == before


async def test_a_namespace_is_created_once_and_listed(site: Site) -> None:
    made = await site.client.post("/v1/namespaces", json={"name": "fresh"})
    assert (made.status_code, made.json()) == (201, {"name": "fresh/default"})
    refused = await site.refused("POST", "/v1/namespaces", json={"name": "fresh/default"})
    assert refused == (409, "already_exists", {})
    await site.call("POST", "/v1/tasks?namespace=fresh", json=TASK, headers=_no_namespace(site))
    first = await site.call("GET", "/v1/namespaces?pageSize=2")
    rest = await site.call("GET", f"/v1/namespaces?pageToken={first['nextPageToken']}")
    names = [each["name"] for page in (first, rest) for each in page["namespaces"]]
    assert names == ["acme/default", "default/default", "fresh/default", "other/default"]
    for name in ("", "a/b/c", "../x", "a b"):
        refused = await site.refused("POST", "/v1/namespaces", json={"name": name})
        assert refused == (400, "invalid_argument", {"field": "name"}), name


def _no_namespace(site: Site) -> dict[str, str]:
    site.client.headers.pop("tenure-namespace")
    return {}
