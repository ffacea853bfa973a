"""Explaining runs over HTTP."""

from __future__ import annotations

from tenure.core.run.record import Wait
from tests.api.http.site import UNKNOWN_ID, Site
from tests.engine.run.children import new_child, spawn_children
from tests.engine.run.runs import give_up_slot, running_run


async def test_a_run_is_explained_with_the_task_that_it_waits_for(site: Site) -> None:
    world, engine = site.world, site.engine
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker, external_id="order-42")
    (child_id,) = await spawn_children(engine, worker, run, new_child(world))
    waits = (Wait("child", "resize", 1, child_id, "orders.py:52"), Wait("signal", "go"))
    await give_up_slot(world, engine, worker, run, waits=waits, wait_count=2)
    answer = await site.call("GET", "/v1/runs/external:order-42/explain")
    child, signal = answer.pop("reasons")
    assert answer == {"runId": run.id, "status": "WAITING"}
    assert child["evidence"]["site"] == "orders.py:52"
    (task,) = child["tasks"]
    (why,) = task.pop("reasons")
    assert task == {"taskId": child_id, "type": "resize", "kind": "ACTIVITY", "status": "PENDING"}
    assert (why["code"], "tasks" in why) == ("no_worker_for_type", False)
    assert (signal["code"], "tasks" in signal) == ("waiting", False)
    assert await site.call("GET", f"/v1/tasks/{run.id}/explain") == {
        "taskId": run.id,
        "state": "WAITING",
        "reasons": [{**child, "tasks": [{**task, "reasons": [why]}]}, signal],
    }


async def test_what_cannot_be_explained_is_refused(small: Site) -> None:
    task_id = await small.enqueue()
    for run_id in (UNKNOWN_ID, task_id, "external:order-1"):
        found = await small.refused("GET", f"/v1/runs/{run_id}/explain")
        assert found == (404, "not_found", {})
    bad = await small.refused("GET", "/v1/runs/no-id/explain")
    assert bad == (400, "invalid_argument", {"field": "runId"})
    path = f"/v1/runs/{UNKNOWN_ID}/explain?deep=true"
    assert (await small.refused("GET", path))[:2] == (400, "invalid_argument")


async def test_the_document_describes_what_contains_itself(small: Site) -> None:
    document = await small.call("GET", "/openapi.json")
    described = document["paths"]["/v1/runs/{runId}/explain"]["get"]
    assert described["operationId"] == "explainRun"
    schemas = document["components"]["schemas"]
    tasks = schemas["ReasonView"]["properties"]["tasks"]
    assert tasks["items"] == {"$ref": "#/components/schemas/ExplainedTaskView"}
