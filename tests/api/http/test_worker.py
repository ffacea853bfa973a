"""Workers over HTTP."""

from __future__ import annotations

from tenure.core.worker.record import WorkerMode
from tests.api.http.site import UNKNOWN_ID, Site


async def test_a_worker_is_shown_with_lease_health_labels_totals_and_what_it_holds(
    site: Site,
) -> None:
    world, engine = site.world, site.engine
    made = await world.register(
        engine,
        mode=WorkerMode.POLL,
        lease_ms=30_000,
        name="w-1",
        hostname="host",
        pid=7,
        software_version="1.4",
        labels={"zone": "eu"},
    )
    await world.held(engine, made.worker.id)
    await world.beat(engine, made.worker.id, 1, total_completed=5, total_failed=1, active_count=1)
    shown = await site.call("GET", f"/v1/workers/{made.worker.id}")
    assert shown.pop("lease") == {
        "until": "2026-01-01T00:00:30.000Z",
        "durationMs": 30_000,
        "lastHeartbeatAt": "2026-01-01T00:00:00.000Z",
        "serverId": engine.server_id,
    }
    assert shown == {
        "workerId": made.worker.id,
        "namespace": "acme/default",
        "queue": "default",
        "status": "ONLINE",
        "mode": "POLL",
        "types": ["mail"],
        "maxConcurrent": shown["maxConcurrent"],
        "registeredAt": "2026-01-01T00:00:00.000Z",
        "health": "HEALTHY",
        "heldCount": 1,
        "isHeldCountExact": True,
        "oldestHeldAt": "2026-01-01T00:00:00.000Z",
        "mayStop": False,
        "leaseLeftMs": 30_000,
        "intervalMs": 10_000,
        "perMinute": 0,
        "activeCount": 1,
        "totalCompleted": 5,
        "totalFailed": 1,
        "loopLagMs": 0,
        "stuckCount": 0,
        "name": "w-1",
        "hostname": "host",
        "pid": 7,
        "version": "1.4",
        "labels": {"zone": "eu"},
        "sessionNo": 0,
    }


async def test_workers_are_listed_by_queue_status_label_version_and_health(site: Site) -> None:
    world, engine = site.world, site.engine
    europe = await world.worker(engine, labels={"zone": "eu", "os": "x"}, software_version="2")
    america = await world.worker(engine, labels={"zone": "us"}, software_version="1")
    await site.call("POST", f"/v1/workers/{america}/drain")
    for query, expected in (
        ("", [america, europe]),
        ("?status=DRAINING", [america]),
        ("?label=zone=eu&label=os=x", [europe]),
        ("?label=zone=eu&label=os=y", []),
        ("?version=1", [america]),
        ("?queue=none", []),
        ("?health=HEALTHY&version=2", [europe]),
    ):
        listed = await site.call("GET", f"/v1/workers{query}")
        assert [each["workerId"] for each in listed["workers"]] == expected, query
    both = await site.call("GET", f"/v1/workers?id={europe}&id={america}&id={UNKNOWN_ID}")
    assert [each["workerId"] for each in both["workers"]] == [america, europe]
    one = await site.call("GET", f"/v1/workers?id={europe}&id={america}&status=ONLINE")
    assert [each["workerId"] for each in one["workers"]] == [europe]
    first = await site.call("GET", "/v1/workers?pageSize=1&totalCount=true")
    assert (first["totalCount"], len(first["workers"])) == (2, 1)
    second = await site.call("GET", f"/v1/workers?pageToken={first['nextPageToken']}")
    assert [each["workerId"] for each in second["workers"]] == [europe]
    for query, field in (
        ("status=online", "status"),
        ("health=GOOD", "health"),
        ("label=zone", "label"),
        ("label=zone=a&label=zone=b", "label"),
        ("label=a b=c", "labels"),
        ("id=me", "id"),
        (f"id={europe}&pageToken=x", "pageToken"),
        ("&".join([f"id={europe}"] * 101), "id"),
    ):
        refused = await site.refused("GET", f"/v1/workers?{query}")
        assert refused == (400, "invalid_argument", {"field": field}), query


async def test_a_drained_worker_gets_nothing_more(site: Site) -> None:
    world, engine = site.world, site.engine
    worker_id = await world.worker(engine)
    await world.beat(engine, worker_id, 1, total_completed=5, total_failed=1)
    drained = await site.call("POST", f"/v1/workers/{worker_id}/drain", json={"deadlineMs": 1_500})
    assert (drained["status"], drained["totalCompleted"]) == ("DRAINING", 5)
    assert drained["drainDeadlineAt"] == "2026-01-01T00:00:01.500Z"
    evicted = await site.call("POST", f"/v1/workers/{worker_id}/evict")
    assert (evicted["status"], evicted["endReason"]) == ("OFFLINE", "evicted")
    assert (evicted["totalCompleted"], evicted["totalFailed"]) == (5, 1)
    assert await site.refused("POST", f"/v1/workers/{worker_id}/drain") == (
        409,
        "wrong_state",
        {"state": "OFFLINE"},
    )
    shown = await site.call("GET", f"/v1/workers/{worker_id}")
    assert "lease" not in shown
    assert "health" not in shown


async def test_all_workers_that_match_are_drained_together(site: Site) -> None:
    world, engine = site.world, site.engine
    old = [await world.worker(engine, software_version="1", labels={"z": "a"}) for _ in range(3)]
    new = await world.worker(engine, software_version="2", labels={"z": "a"})
    body = {"labels": {"z": "a"}, "version": "1"}
    drained = await site.call("POST", "/v1/workers:drain", json=body)
    assert sorted(drained["workerIds"]) == sorted(old)
    assert (await site.call("GET", f"/v1/workers/{new}"))["status"] == "ONLINE"
    refused = await site.refused("POST", "/v1/workers:drain", json={})
    assert refused == (400, "invalid_argument", {"field": "labels"})


async def test_an_unknown_or_malformed_worker_is_refused(small: Site) -> None:
    for verb in ("drain", "evict"):
        path = f"/v1/workers/{UNKNOWN_ID}/{verb}"
        assert await small.refused("POST", path) == (404, "not_found", {})
        refused = await small.refused("POST", f"/v1/workers/x/{verb}")
        assert refused == (400, "invalid_argument", {"field": "workerId"})
    refused = await small.refused("GET", "/v1/workers/me")
    assert refused == (400, "invalid_argument", {"field": "workerId"})
