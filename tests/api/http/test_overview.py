"""A server, a namespace and a fleet as a whole, over HTTP."""

from __future__ import annotations

import asyncio

import pytest

import tenure
from tenure.api.metrics.metric import Metrics
from tenure.api.metrics.sampler import Sampler
from tenure.core.worker.record import WorkerMode
from tenure.engine.read import fleet as fleet_read
from tenure.engine.read.shared_read import SharedReads
from tenure.engine.services.server_row import ServerTouch
from tenure.engine.worker.command import CloseSession
from tests.api.http.site import Site
from tests.engine.world import NAMESPACE, OTHER_NAMESPACE


async def sample(site: Site) -> None:
    assert await Sampler(site.engine, Metrics()).run_once()


async def test_a_server_says_who_it_is(site: Site) -> None:
    shown = await site.call("GET", "/v1/server")
    assert shown == {
        "serverId": site.engine.server_id,
        "version": tenure.__version__,
        "store": site.world.dialect,
        "now": "2026-01-01T00:00:00.000Z",
        "dashboard": False,
    }
    await site.world.round(ServerTouch(), site.engine)
    await sample(site)
    shown = await site.call("GET", "/v1/server")
    assert (shown["servers"], shown["sampleAt"]) == (1, "2026-01-01T00:00:00.000Z")


async def test_an_overview_shows_a_namespace_in_numbers(site: Site) -> None:
    world, engine = site.world, site.engine
    worker = await world.worker(engine, slots=7)
    await world.held(engine, worker)
    gone = await world.worker(engine, mode=WorkerMode.SESSION, slots=3)
    await world.session(engine, gone)
    await engine.submit(CloseSession(namespace=NAMESPACE, worker_id=gone, session_no=1))
    await site.enqueue(queue="nobody")
    await world.enqueue(engine, world.new(), namespace=OTHER_NAMESPACE)
    before = await site.call("GET", "/v1/overview")
    assert (before["tasks"], before["perMinute"]["enqueued"]) == ({}, 2)
    assert "sampleAt" not in before
    await world.advance(15_000)
    await sample(site)
    world.faults.points.clear()
    shown = await site.call("GET", "/v1/overview")
    assert set(world.faults.points) == {"read_namespaces"}
    assert shown["tasks"] == {"DISPATCHED": 1, "PENDING": 1}
    assert shown["workers"] == {"ONLINE": 2}
    assert shown["healths"]["SUSPECT"] == 1
    assert (shown["slots"], shown["held"], shown["oldestWaitingMs"]) == (10, 1, 15_000)
    assert shown["sampleAt"] == "2026-01-01T00:00:15.000Z"
    codes = [each["code"] for each in shown["attention"]]
    assert codes == ["no_worker", "workers_unwell"]
    assert shown["attention"][0]["since"] == "2026-01-01T00:00:00.000Z"


async def test_a_fleet_is_shown_in_columns_or_added_up(site: Site) -> None:
    world, engine = site.world, site.engine
    first = await world.worker(
        engine, name="a", slots=4, software_version="1", labels={"zone": "eu"}, lease_ms=30_000
    )
    second = await world.worker(engine, queue="q", slots=2, software_version="2")
    await world.worker(engine, namespace=OTHER_NAMESPACE)
    await world.held(engine, first)
    await site.call("POST", f"/v1/workers/{second}/drain")
    shown = await site.call("GET", "/v1/workers:fleet")
    assert (shown["workerCount"], shown["hasMore"]) == (2, False)
    columns = shown["columns"]
    left = columns.pop("leaseLeftMs")
    assert left[1] == 30_000
    assert columns == {
        "id": [second, first],
        "name": ["", "a"],
        "status": ["DRAINING", "ONLINE"],
        "health": ["HEALTHY", "HEALTHY"],
        "version": ["2", "1"],
        "queue": ["q", "default"],
        "held": [0, 1],
        "slots": [2, 4],
    }
    groups = {}
    for by, names in (
        ("version", ["1", "2"]),
        ("queue", ["default", "q"]),
        ("label:zone", ["", "eu"]),
    ):
        found = (await site.call("GET", f"/v1/workers:fleet?by={by}"))["groups"]
        groups = {each["name"]: each for each in found}
        assert list(groups) == names, by
    eu, other = groups["eu"], groups[""]
    assert (eu["workerCount"], eu["heldCount"], eu["slots"], eu["mayStopCount"]) == (1, 1, 4, 0)
    assert (other["drainingCount"], other["mayStopCount"], other["unwellCount"]) == (1, 1, 0)
    refused = await site.refused("GET", "/v1/workers:fleet?by=size")
    assert refused == (400, "invalid_argument", {"field": "by"})


async def test_a_fleet_is_shown_as_it_was(site: Site) -> None:
    world, engine = site.world, site.engine
    first = await world.worker(engine)
    await world.advance(60_000)
    second = await world.worker(engine)
    await site.call("POST", f"/v1/workers/{first}/drain")
    await world.advance(60_000)
    await site.call("POST", f"/v1/workers/{first}/evict")
    await world.advance(60_000)
    for at, ids, statuses in (
        ("00:00:30", [first], ["ONLINE"]),
        ("00:01:30", [second, first], ["ONLINE", "DRAINING"]),
        ("00:02:30", [second], ["ONLINE"]),
    ):
        shown = await site.call("GET", f"/v1/workers:fleet?at=2026-01-01T{at}Z")
        assert (shown["columns"]["id"], shown["columns"]["status"]) == (ids, statuses), at
        assert shown["columns"]["held"] == [-1] * len(ids)
    for at in ("2025-12-30T00:00:00Z", "2026-01-01T00:10:00Z"):
        refused = await site.refused("GET", f"/v1/workers:fleet?at={at}")
        assert refused == (400, "invalid_argument", {"field": "at"})


async def test_a_large_fleet_is_cut_and_many_groups_are_added_up(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        await site.world.worker(site.engine, software_version=f"{number}")
    monkeypatch.setattr(fleet_read, "FLEET_GROUPS_MAX", 2)
    groups = (await site.call("GET", "/v1/workers:fleet?by=version"))["groups"]
    assert [(each["name"], each["workerCount"]) for each in groups] == [("0", 1), ("other", 3)]
    monkeypatch.setattr(fleet_read, "FLEET_MAX", 3)
    shown = await site.call("GET", "/v1/workers:fleet?at=2026-01-01T00:00:00Z")
    assert (shown["workerCount"], shown["hasMore"]) == (3, True)


async def test_callers_of_one_moment_share_a_read() -> None:
    reads: list[int] = []

    async def read() -> int:
        reads.append(1)
        await asyncio.sleep(0)
        return len(reads)

    shared = SharedReads(60_000)
    assert await asyncio.gather(*(shared.get("a", read) for _ in range(3))) == [1, 1, 1]
    assert await shared.get("b", read) == 2
    brief = SharedReads(0)
    assert [await brief.get("a", read), await brief.get("a", read)] == [3, 4]
