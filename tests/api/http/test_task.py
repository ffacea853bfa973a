"""Tasks over HTTP."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest

from tenure.core.task.record import TaskState
from tenure.engine.task import command as c
from tests.api.http.site import TASK, UNKNOWN_ID, Site
from tests.engine.world import FAULT, NAMESPACE, finish, spec
from tests.polling import eventually

JSON = {"content-type": "application/json"}


async def test_an_enqueued_task_is_shown_with_all_that_was_asked_for(site: Site) -> None:
    asked = {
        **TASK,
        "input": {"to": "ann"},
        "priority": 2,
        "runAt": "2026-02-01T12:00:00.250+01:00",
        "scheduleToStartMs": 1_000,
        "scheduleToCloseMs": 90_000,
        "heartbeatTimeoutMs": 9_000,
        "heartbeatIntervalMs": 3_000,
        "cancelGracePeriodMs": 5_000,
        "deliveryTimeoutMs": 7_000,
        "retry": {"initialIntervalMs": 50, "maximumAttempts": 3, "nonRetryableErrorTypes": ["X"]},
        "idempotencyKey": "k 1",
        "labels": {"team": "blue"},
        "resources": {"cpu": "2"},
    }
    answer = await site.client.post("/v1/tasks", json=asked)
    assert answer.status_code == 201
    assert answer.json() == {"taskId": answer.json()["taskId"], "state": "PENDING", "isNew": True}
    shown = await site.task(answer.json()["taskId"])
    asked |= {
        "runAt": "2026-02-01T11:00:00.250Z",
        "retry": {
            "initialIntervalMs": 50,
            "backoffCoefficient": 2.0,
            "maximumIntervalMs": 0,
            "maximumAttempts": 3,
            "nonRetryableErrorTypes": ["X"],
        },
    }
    assert {key: shown[key] for key in asked} == asked
    assert shown["createdAt"] == "2026-01-01T00:00:00.000Z"
    assert shown["namespace"] == NAMESPACE


async def test_the_input_comes_back_byte_for_byte(site: Site) -> None:
    written = b'{ "b":1.50, "a" : [1e3,\n 12345678901234567890 ], "c": "\\u00e4" }'
    body = b'{"type":"mail","queue":"q","startToCloseMs":1,"input": %b }' % written
    answer = await site.client.post("/v1/tasks", content=body, headers=JSON)
    task_id = answer.json()["taskId"]
    assert written in (await site.client.get(f"/v1/tasks/{task_id}")).content
    assert (await site.world.task(task_id)).input == written


async def test_bytes_of_another_encoding_come_back_as_base64(site: Site) -> None:
    data = base64.b64encode(b"\x00\xff").decode()
    task_id = await site.enqueue(inputBase64=data, encoding="msgpack")
    shown = await site.task(task_id)
    assert (shown["inputBase64"], shown["encoding"]) == (data, "msgpack")
    assert "input" not in shown


async def test_stored_bytes_that_only_claim_to_be_json_come_back_as_base64(site: Site) -> None:
    (task_id,) = await site.world.add(site.engine, spec=spec(encoding="json"), input=b'{"a":')
    assert (await site.task(task_id))["inputBase64"] == base64.b64encode(b'{"a":').decode()


async def test_a_repeated_enqueue_finds_its_first_task(site: Site) -> None:
    body = {**TASK, "taskId": UNKNOWN_ID}
    first = await site.client.post("/v1/tasks", json=body)
    again = await site.client.post("/v1/tasks", json={**body, "isResend": True})
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == {"taskId": UNKNOWN_ID, "state": "PENDING", "isNew": False}
    assert await site.refused("POST", "/v1/tasks", json=body) == (409, "already_exists", {})


async def test_an_idempotency_key_stands_for_one_content(site: Site) -> None:
    task_id = await site.enqueue(idempotencyKey="order 7")
    again = await site.client.post("/v1/tasks", json={**TASK, "idempotencyKey": "order 7"})
    assert (again.status_code, again.json()["taskId"]) == (200, task_id)
    other = {**TASK, "idempotencyKey": "order 7", "input": 1}
    refused = await site.refused("POST", "/v1/tasks", json=other)
    assert refused == (409, "idempotency_conflict", {"taskId": task_id, "field": "input"})


async def test_a_batch_is_enqueued_all_or_none(site: Site) -> None:
    many = await site.call("POST", "/v1/tasks:batch", json={"tasks": [TASK] * 3})
    assert [each["isNew"] for each in many["tasks"]] == [True] * 3
    before = await site.world.dump()
    bad = {"tasks": [TASK, TASK, {**TASK, "queue": "no good"}]}
    refused = await site.refused("POST", "/v1/tasks:batch", json=bad)
    assert refused == (400, "invalid_argument", {"field": "tasks[2].queue"})
    too_many = {"tasks": [TASK] * 1_001}
    refused = await site.refused("POST", "/v1/tasks:batch", json=too_many)
    assert refused == (413, "payload_too_large", {"limit": 1_000})
    assert await site.world.dump() == before


async def test_lists_have_pages_filters_and_a_total(site: Site) -> None:
    mails = [await site.enqueue(input={"secret": 1}) for _ in range(3)]
    calls = [await site.enqueue(type="call") for _ in range(2)]
    first = await site.call("GET", "/v1/tasks?pageSize=2&totalCount=true")
    assert (first["totalCount"], first["isTotalExact"]) == (5, True)
    token = first["nextPageToken"]
    rest = await site.call("GET", f"/v1/tasks?pageSize=100&pageToken={token}")
    found = [each["taskId"] for page in (first, rest) for each in page["tasks"]]
    assert found == [*reversed(calls), *reversed(mails)]
    assert "nextPageToken" not in rest
    assert all("input" not in each for each in rest["tasks"])
    mail = await site.call("GET", "/v1/tasks?type=mail&queue=default&state=PENDING")
    assert len(mail["tasks"]) == 3
    assert (await site.call("GET", "/v1/tasks?state=FAILED")) == {"tasks": []}
    for query in (f"type=mail&pageToken={token}", "pageToken=forged"):
        refused = await site.refused("GET", f"/v1/tasks?{query}")
        assert refused == (400, "invalid_argument", {"field": "pageToken"})


async def test_nothing_of_another_namespace_is_seen_or_changed(site: Site) -> None:
    task_id = await site.enqueue()
    worker_id = await site.world.worker(site.engine)
    other: dict[str, Any] = {"headers": {"tenure-namespace": "other"}}
    before = await site.world.dump()
    for method, path in (
        ("GET", f"/v1/tasks/{task_id}"),
        ("GET", f"/v1/tasks/{task_id}/attempts"),
        ("GET", f"/v1/tasks/{task_id}/watch"),
        ("POST", f"/v1/tasks/{task_id}/cancel"),
        ("POST", f"/v1/tasks/{task_id}/terminate"),
        ("GET", f"/v1/workers/{worker_id}"),
        ("POST", f"/v1/workers/{worker_id}/evict"),
    ):
        assert await site.refused(method, path, **other) == (404, "not_found", {}), path
    unknown = await site.client.get(f"/v1/tasks/{UNKNOWN_ID}", **other)
    elsewhere = await site.client.get(f"/v1/tasks/{task_id}", **other)
    assert elsewhere.text == unknown.text.replace(UNKNOWN_ID, task_id)
    assert await site.call("GET", "/v1/tasks", **other) == {"tasks": []}
    assert await site.world.dump() == before


async def test_the_namespace_may_stand_in_the_query_but_not_twice(site: Site) -> None:
    task_id = await site.enqueue()
    site.client.headers.pop("tenure-namespace")
    assert (await site.call("GET", f"/v1/tasks/{task_id}?namespace=acme"))["taskId"] == task_id
    assert await site.refused("GET", f"/v1/tasks/{task_id}") == (404, "not_found", {})
    same = {"tenure-namespace": "acme/default"}
    await site.call("GET", f"/v1/tasks/{task_id}?namespace=acme", headers=same)
    refused = await site.refused("GET", "/v1/tasks?namespace=other", headers=same)
    assert refused == (400, "invalid_argument", {"field": "namespace"})
    missing = await site.refused("POST", "/v1/tasks?namespace=nobody", json=TASK)
    assert missing == (404, "not_found", {})


async def test_a_task_is_paused_resumed_and_cancelled(site: Site) -> None:
    task_id = await site.enqueue()
    for verb, state in (("pause", "PAUSED"), ("resume", "PENDING")):
        answer = await site.call("POST", f"/v1/tasks/{task_id}/{verb}")
        assert answer == {"taskId": task_id, "state": state}
    refused = await site.refused("POST", f"/v1/tasks/{task_id}/resume")
    assert refused == (409, "wrong_state", {"state": "PENDING"})
    await site.call("POST", f"/v1/tasks/{task_id}/cancel", json={"reason": "too late"})
    shown = await site.task(task_id)
    assert (shown["state"], shown["cancelReason"]) == ("CANCELLED", "too late")
    refused = await site.refused("POST", f"/v1/tasks/{task_id}/cancel")
    assert refused == (409, "task_already_terminal", {"state": "CANCELLED"})


async def test_a_terminated_task_fails_and_can_be_retried_as_a_new_one(site: Site) -> None:
    task_id = await site.enqueue(input=[1])
    assert await site.refused("POST", f"/v1/tasks/{task_id}/retry") == (
        409,
        "wrong_state",
        {"state": "PENDING"},
    )
    await site.call("POST", f"/v1/tasks/{task_id}/terminate")
    shown = await site.task(task_id)
    assert (shown["state"], shown["failureReason"]) == ("FAILED", "TERMINATED")
    body = {"newTaskId": UNKNOWN_ID}
    first = await site.client.post(f"/v1/tasks/{task_id}/retry", json=body)
    again = await site.client.post(f"/v1/tasks/{task_id}/retry", json=body)
    assert (first.status_code, again.status_code) == (201, 200)
    fresh = await site.task(UNKNOWN_ID)
    assert (fresh["retryOf"], fresh["input"], fresh["state"]) == (task_id, [1], "PENDING")


async def test_the_attempts_of_a_task_are_listed_with_their_ends(site: Site) -> None:
    world, engine = site.world, site.engine
    worker_id = await world.worker(engine)
    task = await world.running(engine, worker_id)
    await world.finish(engine, worker_id, task, c.FinishKind.FAILED, error=FAULT)
    await world.advance(2_000)
    listed = await site.call("GET", f"/v1/tasks/{task.id}/attempts")
    (attempt,) = listed["attempts"]
    assert (attempt["attempt"], attempt["outcome"]) == (1, "FAILED")
    assert (attempt["workerId"], attempt["error"]["type"]) == (worker_id, "ValueError")
    assert attempt["handedAt"] == attempt["endedAt"] == "2026-01-01T00:00:00.000Z"


@pytest.mark.parametrize(
    ("body", "state"),
    [
        ({"outcome": "SUCCEEDED", "output": {"sent": True}}, "SUCCEEDED"),
        ({"outcome": "SUCCEEDED", "outputBase64": "MQ==", "attempt": 1}, "SUCCEEDED"),
        (
            {
                "outcome": "FAILED",
                "error": {"message": "no", "category": "DATA_QUALITY", "details": [1]},
            },
            "FAILED",
        ),
        ({"outcome": "FAILED", "error": {"message": "no", "nextRetryDelayMs": 5}}, "PENDING"),
        ({"outcome": "CANCELLED"}, "CANCELLED"),
    ],
)
async def test_a_deferred_task_is_completed_by_id(
    small: Site, body: dict[str, Any], state: str
) -> None:
    world, engine = small.world, small.engine
    worker_id = await world.worker(engine)
    task_id = await small.enqueue(input=1)
    (task,) = await world.claim(engine, worker_id)
    await world.confirm(engine, worker_id, task)
    await world.finish(engine, worker_id, task, c.FinishKind.DEFERRED)
    if state == "CANCELLED":
        await small.call("POST", f"/v1/tasks/{task_id}/cancel")
    path = f"/v1/tasks/{task_id}/complete"
    assert await small.call("POST", path, json=body) == {"taskId": task_id, "state": state}
    shown = await small.task(task_id)
    assert shown["state"] == state
    if "output" in body:
        assert shown["output"] == body["output"]
    if state == "FAILED":
        assert shown["error"] == {**body["error"]}


async def running_task(site: Site, **asked: Any) -> str:
    """Enqueue a task and let a worker begin it."""
    worker_id = await site.world.worker(site.engine)
    task_id = await site.enqueue(**asked)
    (task,) = await site.world.claim(site.engine, worker_id)
    await site.world.confirm(site.engine, worker_id, task)
    return task_id


@pytest.mark.parametrize(
    ("asked", "completion", "shown"),
    [
        pytest.param({"input": 1}, {"output": 2}, {"output": 2}, id="JSON for JSON"),
        pytest.param(
            {"input": 1},
            {"outputBase64": "/w==", "outputEncoding": "bytes"},
            {"outputBase64": "/w==", "outputEncoding": "bytes"},
            id="bytes for JSON",
        ),
        pytest.param(
            {"inputBase64": "AA==", "encoding": "msgpack"},
            {"output": [2]},
            {"output": [2]},
            id="JSON for bytes",
        ),
        pytest.param(
            {"inputBase64": "AA==", "encoding": "msgpack"},
            {"outputBase64": "MQ=="},
            {"outputBase64": "MQ==", "outputEncoding": "msgpack"},
            id="as the input",
        ),
        pytest.param(
            {"input": 1},
            {"outputBase64": "MQ==", "outputEncoding": "bytes"},
            {"outputBase64": "MQ==", "outputEncoding": "bytes"},
            id="bytes that happen to be JSON",
        ),
        pytest.param(
            {"inputBase64": "AA==", "encoding": "msgpack"},
            {"outputBase64": "MQ==", "outputEncoding": "json"},
            {"output": 1},
            id="JSON as base64",
        ),
        pytest.param(
            {"input": 1},
            {"outputBase64": "/w=="},
            {"outputBase64": "/w==", "outputEncoding": "json"},
            id="no JSON although it should be",
        ),
        pytest.param({"input": 1}, {}, {}, id="none"),
    ],
)
async def test_an_output_is_shown_in_its_own_encoding(
    site: Site, asked: dict[str, Any], completion: dict[str, Any], shown: dict[str, Any]
) -> None:
    task_id = await running_task(site, **asked)
    path = f"/v1/tasks/{task_id}/complete"
    body = {"outcome": "SUCCEEDED", **completion}
    for _ in range(2):
        assert (await site.call("POST", path, json=body))["state"] == "SUCCEEDED"
    task = await site.task(task_id)
    assert {key: value for key, value in task.items() if key.startswith("output")} == shown
    assert task["encoding"] == asked.get("encoding", "json")
    (listed,) = (await site.call("GET", "/v1/tasks"))["tasks"]
    assert not [key for key in listed if key.startswith("output")]


async def test_an_output_without_any_encoding_is_shown_as_base64(site: Site) -> None:
    worker_id = await site.world.worker(site.engine)
    task = await site.world.running(site.engine, worker_id)
    await site.world.finish(site.engine, worker_id, task, output=b"1")
    shown = await site.task(task.id)
    assert (shown["outputBase64"], "outputEncoding" in shown) == ("MQ==", False)


async def test_a_completion_with_the_wrong_fields_or_attempt_changes_nothing(site: Site) -> None:
    world, engine = site.world, site.engine
    worker_id = await world.worker(engine)
    task = await world.running(engine, worker_id)
    path = f"/v1/tasks/{task.id}/complete"
    before = await world.dump()
    for body, field in (
        ({"outcome": "FAILED"}, "error"),
        ({"outcome": "SUCCEEDED", "error": {"message": "x"}}, "error"),
        ({"outcome": "CANCELLED", "output": 1}, "output"),
        ({"outcome": "SUCCEEDED", "output": 1, "outputEncoding": "json"}, "outputEncoding"),
        ({"outcome": "SUCCEEDED", "outputEncoding": "bytes"}, "outputEncoding"),
        ({"outcome": "CANCELLED", "outputEncoding": "bytes"}, "outputEncoding"),
        (
            {"outcome": "SUCCEEDED", "outputBase64": "AA==", "outputEncoding": "a b"},
            "outputEncoding",
        ),
        ({"outcome": "SUCCEEDED", "outputBase64": "AA==", "outputEncoding": 1}, "outputEncoding"),
        ({"outcome": "LOST"}, "outcome"),
        ({"outcome": "SUCCEEDED", "attempt": 0}, "attempt"),
    ):
        refused = await site.refused("POST", path, json=body)
        assert refused == (400, "invalid_argument", {"field": field}), body
    stale = await site.refused("POST", path, json={"outcome": "CANCELLED", "attempt": 2})
    assert stale == (409, "attempt_mismatch", {"expectedAttempt": 1, "receivedAttempt": 2})
    assert await world.dump() == before


async def test_a_waiting_get_is_answered_when_the_task_ends(site: Site) -> None:
    world, engine = site.world, site.engine
    worker_id = await world.worker(engine)
    task = await world.running(engine, worker_id)
    path = f"/v1/tasks/{task.id}"
    waiting = asyncio.create_task(site.call("GET", f"{path}?wait=20s"))
    await eventually(lambda: len(engine.results) == 1)
    await engine.submit(
        c.FinishTasks(namespace=NAMESPACE, worker_id=worker_id, items=(finish(task, output=b"1"),))
    )
    assert (await waiting)["state"] == "SUCCEEDED"
    assert len(engine.results) == 0
    assert (await site.call("GET", f"{path}?waitMs=20000"))["state"] == "SUCCEEDED"


async def test_a_waiting_get_shows_the_task_as_it_is_when_the_time_is_over(site: Site) -> None:
    task_id = await site.enqueue()
    for query in ("wait=20ms", "waitMs=20", "wait=0s"):
        assert (await site.call("GET", f"/v1/tasks/{task_id}?{query}"))["state"] == "PENDING"
    for query in ("wait=61s", "wait=1h", "wait=-1s", "wait=1s&waitMs=5"):
        refused = await site.refused("GET", f"/v1/tasks/{task_id}?{query}")
        assert refused == (400, "invalid_argument", {"field": "wait"}), query
    refused = await site.refused("GET", f"/v1/tasks/{UNKNOWN_ID}?wait=20s")
    assert refused == (404, "not_found", {})
    assert await site.world.state(task_id) is TaskState.PENDING
