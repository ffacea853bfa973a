"""The steps of a run over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.engine.engine import Engine
from tests.api.http.site import UNKNOWN_ID, Site
from tests.engine.run.children import items as items_of
from tests.engine.run.children import parent_of, spawn, spawn_report
from tests.engine.run.runs import positions, report, start, step
from tests.engine.world import FAULT, World


async def stepped_run(world: World, engine: Engine) -> str:
    """Return a run with two local steps, a queued one, and a map."""
    worker = await world.worker(engine)
    run, _ = await parent_of(world, engine, worker)
    now_ms = world.clock.now_ms()
    done = step("charge", output=b'{"no": 7}', attempts=2, started_at_ms=now_ms - 5, site="a.py:3")
    failed = step("pack", output=None, error=FAULT)
    raw = step("scan", output=b"\x00\x01", encoding="bytes")
    await positions(engine, worker, report(run, done, failed, raw))
    group: Any = {"number": 2, "group_key": "map:thumb", "group_index": 3, "group_total": 9}
    thumbs = items_of(world, 0, 2, new={"type": "nobody"})
    assert await spawn(engine, worker, spawn_report(run, *thumbs, **group)) == (None,)
    return run.id


async def test_steps_are_shown_with_all_that_is_known(site: Site) -> None:
    run_id = await stepped_run(site.world, site.engine)
    found = await site.call("GET", f"/v1/runs/{run_id}/steps")
    assert "nextPageToken" not in found
    charge, pack, scan, *open_ = found["steps"]
    assert charge.pop("startedAt") < charge.pop("finishedAt")
    assert charge == {
        "stepAttemptId": f"{run_id}.0.1",
        "runId": run_id,
        "stepId": "charge",
        "attemptNumber": 2,
        "status": "COMPLETED",
        "kind": "LOCAL",
        "output": {"no": 7},
        "site": "a.py:3",
    }
    assert (pack["status"], pack["error"]["message"]) == ("FAILED", FAULT.message)
    assert pack.keys().isdisjoint({"output", "taskId", "retryAt", "items", "startedAt"})
    assert (scan["outputBase64"], scan["outputEncoding"]) == ("AAE=", "bytes")
    (queued,) = [each for each in open_ if each["kind"] == "CHILD"]
    assert (queued["status"], queued["stepId"]) == ("PENDING", "resize#0")
    assert queued["stepAttemptId"] == f"{run_id}.0.{queued['taskId']}.1"
    (mapped,) = [each for each in open_ if each["kind"] == "MAP"]
    assert mapped["items"] == {"total": 9, "succeeded": 0, "failed": 0, "cancelled": 0}


async def test_steps_come_in_pages_and_by_key(site: Site) -> None:
    run_id = await stepped_run(site.world, site.engine)
    path = f"/v1/runs/{run_id}/steps"
    whole = (await site.call("GET", path))["steps"]
    found: list[Any] = []
    query: dict[str, Any] = {"pageSize": 2}
    while "pageToken" not in query or query["pageToken"]:
        page = await site.call("GET", path, params=query)
        found += page["steps"]
        query["pageToken"] = page.get("nextPageToken", "")
    assert found == whole
    one = await site.call("GET", path, params={"stepId": "pack"})
    assert [each["stepId"] for each in one["steps"]] == ["pack"]


async def test_a_run_is_named_by_its_external_id_too(site: Site) -> None:
    await start(site.world, site.engine, external_id="order-42")
    assert await site.call("GET", "/v1/runs/external:order-42/steps") == {"steps": []}


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"pageSize": -1}, "pageSize"),
        ({"pageToken": "x"}, "pageToken"),
        ({"stepId": "x" * 513}, "stepId"),
        ({"step": "x"}, "step"),
    ],
)
async def test_a_wrong_query_names_its_field(
    small: Site, query: dict[str, Any], field: str
) -> None:
    run_id = await start(small.world, small.engine)
    found = await small.refused("GET", f"/v1/runs/{run_id}/steps", params=query)
    assert found == (400, "invalid_argument", {"field": field})


async def test_what_is_no_run_has_no_steps(small: Site) -> None:
    run_id, task_id = await start(small.world, small.engine), await small.enqueue()
    elsewhere = {"tenure-namespace": "other"}
    for wanted, headers in ((run_id, elsewhere), (UNKNOWN_ID, {}), (task_id, {})):
        found = await small.refused("GET", f"/v1/runs/{wanted}/steps", headers=headers)
        assert found == (404, "not_found", {})
