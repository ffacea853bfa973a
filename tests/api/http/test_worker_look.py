"""What a worker holds, its past, and whether it may be stopped, over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenure.core.worker.record import WorkerMode
from tenure.engine.read import stop_check
from tenure.engine.services.held_release import HeldRelease
from tenure.engine.worker.command import CloseSession, DeregisterWorker, DrainWorker
from tenure.errors import WorkerDraining
from tests.api.http.site import UNKNOWN_ID, Site
from tests.engine.world import NAMESPACE

WORKERS = "/v1/workers"


async def check(site: Site, worker_id: str, query: str = "") -> Any:
    return await site.call("GET", f"{WORKERS}/{worker_id}/stop-check{query}")


async def test_what_a_worker_holds_is_listed_oldest_first_beside_what_it_reports(
    site: Site,
) -> None:
    world, engine = site.world, site.engine
    worker = await world.worker(engine)
    first = await world.held(engine, worker)
    await world.advance(1_000)
    second = await world.held(engine, worker)
    await world.beat(engine, worker, 1, active_count=1)
    shown = await site.call("GET", f"{WORKERS}/{worker}/held")
    assert [each["taskId"] for each in shown["held"]] == [first.id, second.id]
    assert shown["held"][0] == {
        "taskId": first.id,
        "type": "mail",
        "state": "DISPATCHED",
        "attempt": 1,
        "handedAt": "2026-01-01T00:00:00.000Z",
    }
    assert (shown["hasMore"], shown["reportedCount"]) == (False, 1)
    shown = await site.call("GET", f"{WORKERS}/{worker}/held?pageSize=1")
    assert (len(shown["held"]), shown["hasMore"]) == (1, True)


async def test_the_changes_of_a_worker_are_kept_with_their_causes(site: Site) -> None:
    world, engine = site.world, site.engine
    worker = await world.worker(engine, mode=WorkerMode.SESSION)
    await world.session(engine, worker)
    await world.advance(1_000)
    await engine.submit(CloseSession(namespace=NAMESPACE, worker_id=worker, session_no=1))
    await engine.submit(CloseSession(namespace=NAMESPACE, worker_id=worker, session_no=1))
    await site.call("POST", f"{WORKERS}/{worker}/drain")
    await site.call("POST", f"{WORKERS}/{worker}/drain")
    await site.call("POST", f"{WORKERS}/{worker}/evict")
    shown = (await site.call("GET", f"{WORKERS}/{worker}/events"))["events"]
    assert [(each["kind"], each.get("cause")) for each in reversed(shown)] == [
        ("registered", None),
        ("connected", "session 1"),
        ("disconnected", "the worker closed its session"),
        ("draining", "operator"),
        ("offline", "evicted"),
    ]
    assert shown[-1]["at"] == "2026-01-01T00:00:00.000Z"
    records = {each["auditId"]: each for each in (await site.call("GET", "/v1/audit"))["records"]}
    assert records[shown[0]["auditId"]]["action"] == "worker.evict"
    assert records[shown[1]["auditId"]]["action"] == "worker.drain"
    assert "auditId" not in shown[2]


async def test_the_last_heartbeats_of_a_worker_come_from_the_server_that_hears_it(
    site: Site,
) -> None:
    world, engine = site.world, site.engine
    worker = await world.worker(engine)
    assert await site.call("GET", f"{WORKERS}/{worker}/beats") == {"beats": [], "isHeard": False}
    await world.beat(engine, worker, 1, total_completed=5, active_count=2)
    await world.advance(5_000)
    await world.beat(engine, worker, 2, total_completed=9, loop_lag_ms=7)
    shown = await site.call("GET", f"{WORKERS}/{worker}/beats")
    assert shown["isHeard"]
    assert shown["beats"] == [
        {"at": "2026-01-01T00:00:00.000Z", "endedTotal": 5, "activeCount": 2, "loopLagMs": 0},
        {"at": "2026-01-01T00:00:05.000Z", "endedTotal": 9, "activeCount": 0, "loopLagMs": 7},
    ]
    assert (await site.call("GET", f"{WORKERS}/{worker}"))["perMinute"] == 4


async def test_a_stop_is_safe_when_a_drained_worker_holds_nothing(site: Site) -> None:
    world, engine = site.world, site.engine
    worker = await world.worker(engine)
    await world.beat(engine, worker, 1)
    running = await world.running(engine, worker)
    await world.advance(1_000)
    sent = await world.held(engine, worker)
    shown = await check(site, worker)
    assert (shown["isSafe"], shown["reason"], shown["heldCount"]) == (False, "not_drained", 2)
    assert "committedAt" not in shown
    await world.advance(1_000)
    await site.call("POST", f"{WORKERS}/{worker}/drain", json={"deadlineMs": 60_000})
    await site.enqueue()
    with pytest.raises(WorkerDraining):
        await world.claim(engine, worker)
    shown = await check(site, worker)
    assert (shown["isSafe"], shown["reason"]) == (False, "holds_attempts")
    assert (shown["heldCount"], shown["unconfirmedCount"]) == (2, 1)
    assert shown["committedAt"] == "2026-01-01T00:00:02.000Z"
    assert shown["clearsAt"] == "2026-01-01T00:01:02.000Z"
    assert shown["oldestHeldAt"] == "2026-01-01T00:00:00.000Z"
    assert [each["taskId"] for each in shown["blockers"]] == [running.id, sent.id]
    records = (await site.call("GET", "/v1/audit?action=worker.drain"))["records"]
    assert shown["auditId"] == records[0]["auditId"]
    await world.finish(engine, worker, running)
    await world.finish(engine, worker, sent)
    await world.advance(500)
    await world.beat(engine, worker, 2, total_completed=2)
    shown = await check(site, worker)
    assert (shown["isSafe"], shown["reason"], shown["heldCount"]) == (True, "drained", 0)
    assert shown["lastResultAt"] == "2026-01-01T00:00:02.500Z"
    assert shown["blockers"] == []
    assert (await site.call("GET", f"{WORKERS}/{worker}"))["mayStop"] is True


async def test_an_ended_worker_is_safe_when_what_it_held_was_put_back(site: Site) -> None:
    world, engine = site.world, site.engine
    worker = await world.worker(engine)
    await world.held(engine, worker)
    await site.call("POST", f"{WORKERS}/{worker}/evict")
    await world.round(HeldRelease(), engine)
    shown = await check(site, worker)
    assert (shown["isSafe"], shown["reason"]) == (True, "offline")
    assert shown["committedAt"] == "2026-01-01T00:00:00.000Z"


async def test_a_check_of_a_version_is_safe_only_if_each_of_its_workers_is(site: Site) -> None:
    world, engine = site.world, site.engine
    old = [await world.worker(engine, software_version="1", labels={"z": "a"}) for _ in range(3)]
    await world.worker(engine, software_version="2", labels={"z": "a"})
    path = f"{WORKERS}:stop-check?version=1&label=z=a"
    task = await world.held(engine, old[0])
    shown = await site.call("GET", path)
    assert (shown["isSafe"], shown["reason"]) == (False, "not_drained")
    assert (shown["workerCount"], shown["safeCount"], len(shown["workers"])) == (3, 0, 3)
    await site.call("POST", f"{WORKERS}:drain", json={"version": "1", "deadlineMs": 5_000})
    shown = await site.call("GET", path)
    assert (shown["reason"], shown["safeCount"], shown["heldCount"]) == ("holds_attempts", 2, 1)
    assert shown["workers"] == [{"workerId": old[0], "reason": "holds_attempts", "heldCount": 1}]
    assert shown["clearsAt"] == "2026-01-01T00:00:05.000Z"
    await world.finish(engine, old[0], task)
    await engine.submit(DeregisterWorker(namespace=NAMESPACE, worker_id=old[1]))
    shown = await site.call("GET", path)
    assert (shown["isSafe"], shown["reason"], shown["safeCount"]) == (True, "drained", 3)
    nobody = await site.call("GET", f"{WORKERS}:stop-check?version=9")
    assert (nobody["isSafe"], nobody["reason"]) == (False, "no_worker")
    refused = await site.refused("GET", f"{WORKERS}:stop-check")
    assert refused == (400, "invalid_argument", {"field": "labels"})


async def test_a_check_goes_through_all_workers_and_says_if_it_could_not(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, engine = site.world, site.engine
    for _ in range(4):
        worker = await world.worker(engine, software_version="1")
        await engine.submit(DrainWorker(namespace=NAMESPACE, worker_id=worker))
    monkeypatch.setattr(stop_check, "STOP_CHECKED_MAX", 2)
    shown = await site.call("GET", f"{WORKERS}:stop-check?version=1")
    assert (shown["isSafe"], shown["workerCount"]) == (True, 4)
    monkeypatch.setattr(stop_check, "STOP_READS_MAX", 1)
    shown = await site.call("GET", f"{WORKERS}:stop-check?version=1")
    assert (shown["isSafe"], shown["reason"]) == (False, "too_many_workers")


async def test_a_check_that_waits_answers_when_the_last_attempt_is_over(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stop_check, "STOP_LOOK_MS", 5)
    world, engine = site.world, site.engine
    worker = await world.worker(engine)
    task = await world.held(engine, worker)
    await site.call("POST", f"{WORKERS}/{worker}/drain")
    shown = await check(site, worker, "?wait=20ms")
    assert (shown["isSafe"], shown["heldCount"]) == (False, 1)
    waiting = asyncio.ensure_future(check(site, worker, "?wait=60s"))
    await asyncio.sleep(0)
    await world.finish(engine, worker, task)
    assert (await waiting)["isSafe"]
    refused = await site.refused("GET", f"{WORKERS}/{worker}/stop-check?wait=2m")
    assert refused == (400, "invalid_argument", {"field": "wait"})


async def test_a_worker_that_is_not_there_has_nothing_to_show(small: Site) -> None:
    for name in ("held", "events", "beats", "stop-check"):
        path = f"{WORKERS}/{UNKNOWN_ID}/{name}"
        assert await small.refused("GET", path) == (404, "not_found", {})
        refused = await small.refused("GET", f"{WORKERS}/x/{name}")
        assert refused == (400, "invalid_argument", {"field": "workerId"})
