"""Explaining over HTTP."""

from __future__ import annotations

from tests.api.http.site import UNKNOWN_ID, Site


async def test_a_task_is_explained_with_what_to_do(site: Site) -> None:
    task_id = await site.enqueue()
    answer = await site.call("GET", f"/v1/tasks/{task_id}/explain")
    (reason,) = answer.pop("reasons")
    assert answer == {"taskId": task_id, "state": "PENDING"}
    assert reason["code"] == "no_worker"
    assert reason["message"] == "No worker serves queue default."
    assert "tenure worker MODULE --queue default" in reason["advice"]
    assert reason["evidence"]["queue"] == "default"


async def test_reasons_come_in_their_order(site: Site) -> None:
    await site.enqueue()
    task_id = await site.enqueue()
    await site.call("POST", "/v1/queues/default/pause")
    answer = await site.call("GET", f"/v1/tasks/{task_id}/explain")
    assert [each["code"] for each in answer["reasons"]] == [
        "queue_paused",
        "no_worker",
        "work_ahead",
    ]


async def test_a_finished_task_has_one_reason(small: Site) -> None:
    task_id = await small.enqueue()
    await small.call("POST", f"/v1/tasks/{task_id}/cancel")
    answer = await small.call("GET", f"/v1/tasks/{task_id}/explain")
    assert answer["state"] == "CANCELLED"
    assert [each["code"] for each in answer["reasons"]] == ["finished"]


async def test_what_is_not_there_is_not_found(small: Site) -> None:
    task_id = await small.enqueue()
    unknown = await small.refused("GET", f"/v1/tasks/{UNKNOWN_ID}/explain")
    assert unknown == (404, "not_found", {})
    foreign = {"tenure-namespace": "other"}
    path = f"/v1/tasks/{task_id}/explain"
    assert await small.refused("GET", path, headers=foreign) == (404, "not_found", {})


async def test_bad_ids_and_parameters_are_refused(small: Site) -> None:
    bad = await small.refused("GET", "/v1/tasks/no-id/explain")
    assert bad == (400, "invalid_argument", {"field": "taskId"})
    path = f"/v1/tasks/{UNKNOWN_ID}/explain?deep=true"
    assert (await small.refused("GET", path))[:2] == (400, "invalid_argument")


async def test_the_document_describes_it(small: Site) -> None:
    document = await small.call("GET", "/openapi.json")
    described = document["paths"]["/v1/tasks/{taskId}/explain"]["get"]
    assert described["operationId"] == "explainTask"
    assert set(document["components"]["schemas"]["ReasonView"]["required"]) == {
        "code",
        "message",
        "advice",
        "evidence",
    }
