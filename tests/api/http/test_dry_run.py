"""``dryRun``: what would happen, decided by the same rules, and nothing is written."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.engine.command import TaskRef
from tenure.engine.services.held_release import HeldRelease
from tenure.engine.task.command import ConfirmTasks
from tests.api.http.site import UNKNOWN_ID, Site
from tests.engine.world import NAMESPACE

DRY = {"dryRun": True}


async def told(site: Site, method: str, path: str, **body: Any) -> dict[str, int]:
    """Return the consequences of a request that changes nothing, by their codes."""
    before = await site.world.dump()
    answer = await site.call(method, path, json={**DRY, **body})
    assert await site.world.dump() == before
    assert all(each["message"].endswith(".") for each in answer["consequences"])
    return {each["code"]: each["count"] for each in answer["consequences"]}


async def test_a_drain_tells_what_finishes_where_it_is(site: Site) -> None:
    world, engine = site.world, site.engine
    worker = await world.worker(engine)
    path = f"/v1/workers/{worker}/drain"
    assert await told(site, "POST", path) == {"worker_draining": 1, "may_stop": 1}
    for _ in range(3):
        await world.held(engine, worker)
    assert await told(site, "POST", path) == {"worker_draining": 1, "held_finish": 3}
    drained = await site.call("POST", path, json={"dryRun": False})
    assert drained["status"] == "DRAINING"
    assert "consequences" not in drained
    assert await told(site, "POST", path) == {"nothing": 0}
    await site.call("POST", f"/v1/workers/{worker}/evict")
    refused = await site.refused("POST", path, json=DRY)
    assert refused == (409, "wrong_state", {"state": "OFFLINE"})


async def test_an_eviction_tells_what_becomes_of_each_held_attempt(site: Site) -> None:
    world, engine = site.world, site.engine
    worker = await world.worker(engine)
    path = f"/v1/workers/{worker}/evict"
    assert await told(site, "POST", path) == {"worker_offline": 1}
    again = await world.running(engine, worker)
    stopped = await world.running(engine, worker)
    await site.call("POST", f"/v1/tasks/{stopped.id}/cancel")
    kept = await world.held(engine, worker)
    ref = TaskRef(kept.id, kept.attempt)
    await engine.submit(
        ConfirmTasks(
            namespace=NAMESPACE, worker_id=worker, items=(ref,), exclusive=frozenset({ref})
        )
    )
    assert await told(site, "POST", path) == {
        "worker_offline": 1,
        "tasks_again": 1,
        "tasks_cancelled": 1,
        "exclusive_kept": 1,
    }
    assert (await site.task(again.id))["state"] == "RUNNING"
    assert (await site.call("POST", path))["endReason"] == "evicted"
    await world.round(HeldRelease(), engine)
    await world.settle(engine)
    assert await told(site, "POST", path) == {"nothing": 0}


async def test_a_drain_of_many_adds_up_what_its_workers_hold(site: Site) -> None:
    world, engine = site.world, site.engine
    workers = [await world.worker(engine, software_version="1") for _ in range(3)]
    await world.held(engine, workers[0])
    await world.held(engine, workers[0])
    await world.held(engine, workers[1])
    path = "/v1/workers:drain"
    assert await told(site, "POST", path, version="1") == {"worker_draining": 3, "held_finish": 3}
    assert await told(site, "POST", path, version="2") == {"nothing": 0}
    refused = await site.refused("POST", path, json=DRY)
    assert refused == (400, "invalid_argument", {"field": "labels"})


@pytest.mark.parametrize(
    ("verb", "pending", "running"),
    [
        ("cancel", "task_cancelled", "task_cancelling"),
        ("pause", "task_paused", "task_running"),
        ("terminate", "task_failed", "task_failed"),
    ],
)
async def test_a_change_of_a_task_tells_its_next_state(
    site: Site, verb: str, pending: str, running: str
) -> None:
    world, engine = site.world, site.engine
    waiting = await site.enqueue(type="other")
    worker = await world.worker(engine)
    held = await world.running(engine, worker)
    assert await told(site, "POST", f"/v1/tasks/{waiting}/{verb}") == {pending: 1}
    found = await told(site, "POST", f"/v1/tasks/{held.id}/{verb}")
    assert found.pop("attempt_held", 1) == 1
    assert found == {running: 1}
    refused = await site.refused("POST", f"/v1/tasks/{UNKNOWN_ID}/{verb}", json=DRY)
    assert refused == (404, "not_found", {})


async def test_a_change_that_is_not_possible_is_refused_as_without_dry_run(site: Site) -> None:
    task_id = await site.enqueue()
    refused = await site.refused("POST", f"/v1/tasks/{task_id}/resume", json=DRY)
    assert refused[:2] == (409, "wrong_state")
    await site.call("POST", f"/v1/tasks/{task_id}/pause")
    assert await told(site, "POST", f"/v1/tasks/{task_id}/resume") == {"task_pending": 1}
    assert await told(site, "POST", f"/v1/tasks/{task_id}/pause") == {"nothing": 0}


async def test_brakes_of_a_queue_tell_what_waits_and_what_goes_on(site: Site) -> None:
    world, engine = site.world, site.engine
    worker = await world.worker(engine)
    for _ in range(2):
        await world.held(engine, worker)
    await site.enqueue()
    path = "/v1/queues/default"
    assert await told(site, "POST", f"{path}/pause") == {"tasks_wait": 1, "held_finish": 2}
    assert await told(site, "PUT", path, concurrencyMax=1) == {"over_limit": 1}
    assert await told(site, "PUT", path, concurrencyMax=2) == {"nothing": 0}
    assert await told(site, "POST", f"{path}/resume") == {"nothing": 0}
    await site.call("POST", f"{path}/pause")
    assert await told(site, "POST", f"{path}/resume") == {"tasks_start": 1}
