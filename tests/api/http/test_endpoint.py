"""Endpoints over HTTP, and what arrives at one: the envelope, its signature, and a whole task."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from tenure.api.http.delivery.endpoint_poster import EndpointPoster
from tenure.core.address import AllowList
from tenure.core.task.record import TaskState
from tenure.engine.dial.dialer import Dialer
from tenure.engine.dial.resolver import SystemResolver
from tests.api.http.receiver import Receiver, Request, ok, receiving
from tests.api.http.site import Site
from tests.bounds import ANSWER_S
from tests.core.hostile_url import HOSTILE_URLS
from tests.engine.world import NAMESPACE
from tests.polling import eventually

PUBLIC: Final = "https://93.184.215.14/hook"


def serve_endpoints(site: Site, *entries: str, is_public: bool = True) -> None:
    """Let the engine of a site push tasks."""
    poster = EndpointPoster(
        site.engine,
        Dialer(SystemResolver()),
        allowed=AllowList.parse(entries, "endpoint-allow"),
        base_url=f"http://127.0.0.1:{site.port}",
        is_public=is_public,
    )
    site.engine.seats.open_endpoints(poster)


@pytest.fixture
async def receiver(small: Site) -> AsyncIterator[Receiver]:
    serve_endpoints(small, "127.0.0.0/8")
    async with receiving() as made:
        yield made


async def create(site: Site, url: str, **fields: Any) -> Any:
    body = {"name": "hook", "queue": "default", "types": ["mail"], "url": url, **fields}
    answer = await site.call("POST", "/v1/endpoints", json=body)
    await site.engine.seats.round()
    return answer


def local(receiver: Receiver, path: str = "/tasks?x=1") -> str:
    return f"http://127.0.0.1:{receiver.port}{path}"


def verify(secret: str, request: Request) -> None:
    """Check a signature as Standard Webhooks says."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    headers = request.headers
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + request.body
    expected = base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
    assert f"v1,{expected}" in headers["webhook-signature"].split(" ")


async def arrived(receiver: Receiver, count: int = 1) -> Request:
    await eventually(lambda: len(receiver.requests) >= count, within_s=ANSWER_S)
    return receiver.requests[count - 1]


async def test_a_task_goes_to_its_endpoint_and_back(small: Site, receiver: Receiver) -> None:
    made = await create(small, local(receiver), headers={"Authorization": "Bearer abc"})
    task_id = await small.enqueue(
        input={"to": "ann"},
        labels={"assetId": "asset_1", "taskKey": "events/raw", "traceparent": "00-1-2-01"},
        resources={"cpu": "2"},
        idempotencyKey="key",
    )
    request = await arrived(receiver)
    assert request.line == "POST /tasks?x=1 HTTP/1.1"
    assert request.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert request.headers["authorization"] == "Bearer abc"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["webhook-id"] == f"{task_id}:1"
    verify(made["secret"], request)
    envelope = request.json
    token = envelope.pop("taskToken")
    assert envelope.pop("tokenExpiresAt")
    assert envelope.pop("enqueuedAt")
    assert envelope.pop("deadline")
    assert envelope == {
        "taskId": task_id,
        "runId": task_id,
        "assetId": "asset_1",
        "taskKey": "events/raw",
        "tenantId": NAMESPACE.partition("/")[0],
        "workspaceId": NAMESPACE.partition("/")[2],
        "attempt": 1,
        "resources": {"cpu": "2"},
        "callbackBaseUrl": f"http://127.0.0.1:{small.port}",
        "heartbeatIntervalMs": 30_000,
        "heartbeatTimeoutMs": 90_000,
        "cancelGracePeriodMs": 30_000,
        "type": "mail",
        "queue": "default",
        "labels": {"assetId": "asset_1", "taskKey": "events/raw", "traceparent": "00-1-2-01"},
        "failureCount": 0,
        "input": {"to": "ann"},
        "idempotencyKey": "key",
        "traceparent": "00-1-2-01",
    }
    headers = {"authorization": f"Bearer {token}"}
    for verb, body in (
        ("started", {"attempt": 1, "workerId": "one"}),
        ("heartbeat", {"attempt": 1, "progressPct": 50}),
        ("completed", {"attempt": 1, "outcome": "SUCCEEDED", "output": {"sent": True}}),
    ):
        answer = await small.client.post(f"/v1/tasks/{task_id}/{verb}", headers=headers, json=body)
        assert answer.status_code == 200
    shown = await small.task(task_id)
    assert (shown["state"], shown["output"]) == ("SUCCEEDED", {"sent": True})
    assert shown["workerId"] == made["endpoint"]["workerId"]


async def test_bytes_travel_as_base64_and_what_is_missing_is_named(
    small: Site, receiver: Receiver
) -> None:
    await create(small, local(receiver))
    data = base64.b64encode(b"\x00\xff").decode()
    await small.enqueue(inputBase64=data, encoding="raw")
    envelope = (await arrived(receiver)).json
    assert (envelope["inputBase64"], envelope["encoding"]) == (data, "raw")
    assert "input" not in envelope
    assert (envelope["assetId"], envelope["taskKey"]) == (None, "mail")


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (ok(302, "Location: http://127.0.0.1:1/"), "The endpoint answered 302."),
        (ok(404), "The endpoint answered 404."),
        (ok(500, body=b"secret stack trace"), "The endpoint answered 500."),
        (b"", "The connection was closed without a reply."),
        (b"SSH-2.0-x\r\n\r\n", "The reply is not HTTP"),
        (ok(200, body=b"x" * 70_000), "The reply is larger than 64 KiB."),
    ],
)
async def test_any_other_answer_is_a_failed_delivery(
    small: Site, receiver: Receiver, reply: bytes, error: str
) -> None:
    receiver.answer = lambda _: reply
    await create(small, local(receiver), concurrency=1)
    task_id = await small.enqueue()
    await arrived(receiver)

    async def seen() -> bool:
        return "lastError" in await small.call("GET", "/v1/endpoints/hook")

    await eventually(seen, within_s=ANSWER_S)
    shown = await small.call("GET", "/v1/endpoints/hook")
    assert shown["lastError"].startswith(error)
    assert shown["failureCount"] >= 1
    task = await small.world.task(task_id)
    assert task.progress.failure_count == 0


async def test_a_busy_endpoint_says_for_how_long(small: Site, receiver: Receiver) -> None:
    receiver.answer = lambda _: ok(503, "Retry-After: 120")
    await create(small, local(receiver))
    await small.enqueue()
    await arrived(receiver)

    async def held() -> Any:
        return (await small.call("GET", "/v1/endpoints/hook")).get("heldUntil")

    assert await eventually(held, within_s=ANSWER_S)
    assert (await small.call("GET", "/v1/endpoints/hook"))["failureCount"] == 0


async def test_a_ping_is_signed_and_shows_what_became_of_it(
    small: Site, receiver: Receiver
) -> None:
    made = await create(small, local(receiver))
    answer = await small.call("POST", "/v1/endpoints/hook/test")
    assert answer["verdict"] == "ACCEPTED"
    request = receiver.requests[0]
    verify(made["secret"], request)
    assert request.json["type"] == "tenure.ping"
    receiver.answer = lambda _: ok(500)
    answer = await small.call("POST", "/v1/endpoints/hook/test")
    assert (answer["verdict"], answer["error"]) == ("FAILED", "The endpoint answered 500.")


async def test_a_rotated_secret_signs_beside_the_old_one(small: Site, receiver: Receiver) -> None:
    made = await create(small, local(receiver))
    again = await small.call("POST", "/v1/endpoints/hook/rotate-secret")
    assert again["secret"] != made["secret"]
    await small.call("POST", "/v1/endpoints/hook/test")
    verify(made["secret"], receiver.requests[0])
    verify(again["secret"], receiver.requests[0])


async def test_an_endpoint_is_created_listed_changed_paused_and_deleted(small: Site) -> None:
    serve_endpoints(small)
    made = await create(small, PUBLIC, headers={"X-Key": "s3cret-value"})
    assert made["endpoint"]["headers"] == ["X-Key"]
    assert made["secret"].startswith("whsec_")
    for path in ("/v1/endpoints", "/v1/endpoints/hook"):
        text = (await small.client.get(path)).text
        assert "s3cret-value" not in text
        assert "whsec_" not in text
    (listed,) = (await small.call("GET", "/v1/endpoints"))["endpoints"]
    assert listed["url"] == PUBLIC
    assert (listed["concurrency"], listed["timeoutMs"]) == (10, 10_000)
    assert (listed["deliveryTimeoutMs"], listed["tokenTtlMs"]) == (90_000, 3_600_000)
    changed = await small.call(
        "PUT", "/v1/endpoints/hook", json={"concurrency": 3, "types": ["mail", "sms"]}
    )
    assert (changed["concurrency"], changed["types"]) == (3, ["mail", "sms"])
    assert changed["url"] == PUBLIC
    paused = await small.call("POST", "/v1/endpoints/hook/pause")
    assert paused["paused"] == "OPERATOR"
    resumed = await small.call("POST", "/v1/endpoints/hook/resume")
    assert "paused" not in resumed
    assert (
        await small.refused(
            "POST",
            "/v1/endpoints",
            json={"name": "hook", "queue": "q", "types": ["a"], "url": PUBLIC},
        )
    )[:2] == (409, "already_exists")
    await small.call("DELETE", "/v1/endpoints/hook")
    assert (await small.call("GET", "/v1/endpoints/hook"))["isDeleting"] is True
    records = (await small.call("GET", "/v1/audit"))["records"]
    assert [each["action"] for each in records] == [
        "endpoint.delete",
        "endpoint.resume",
        "endpoint.pause",
        "endpoint.set",
        "endpoint.create",
    ]
    assert (await small.refused("GET", "/v1/endpoints/other"))[:2] == (404, "not_found")


@pytest.mark.parametrize(
    ("fields", "blamed"),
    [
        ({"name": "a b"}, "name"),
        ({"queue": ""}, "queue"),
        ({"types": []}, "types"),
        ({"types": [f"t{number}" for number in range(1_001)]}, "types"),
        ({"headers": {f"h{number}": "x" for number in range(21)}}, "headers"),
        ({"headers": {"Host": "internal"}}, "headers"),
        ({"headers": {"Content-Length": "0"}}, "headers"),
        ({"headers": {"webhook-id": "x"}}, "headers"),
        ({"headers": {"x": "a\r\nHost: internal"}}, "headers"),
        ({"headers": {"a b": "x"}}, "headers"),
        ({"headers": {"A": "x", "a": "y"}}, "headers"),
        ({"concurrency": 0}, "concurrency"),
        ({"concurrency": 10_001}, "concurrency"),
        ({"timeoutMs": 999}, "timeoutMs"),
        ({"timeoutMs": 900_001}, "timeoutMs"),
        ({"deliveryTimeoutMs": 3_600_001}, "deliveryTimeoutMs"),
        ({"heartbeatIntervalMs": 0}, "heartbeatIntervalMs"),
        ({"heartbeatTimeoutMs": 59_999}, "heartbeatTimeoutMs"),
        ({"tokenTtlMs": 7_200_001}, "tokenTtlMs"),
        ({"url": "http://93.184.215.14/"}, "url"),
        ({"more": 1}, "more"),
    ],
)
async def test_a_bad_field_is_named_and_nothing_is_stored(
    small: Site, fields: dict[str, Any], blamed: str
) -> None:
    serve_endpoints(small)
    before = await small.world.dump()
    body = {"name": "hook", "queue": "default", "types": ["mail"], "url": PUBLIC, **fields}
    status, code, more = await small.refused("POST", "/v1/endpoints", json=body)
    assert (status, code) == (400, "invalid_argument")
    assert more["field"].startswith(blamed)
    assert await small.world.dump() == before


async def test_no_hostile_url_becomes_an_endpoint(small: Site) -> None:
    serve_endpoints(small)
    before = await small.world.dump()
    for url in HOSTILE_URLS:
        body = {"name": "hook", "queue": "default", "types": ["mail"], "url": url}
        if not url.isprintable() or "\ud800" in url:
            continue
        status, code, more = await small.refused("POST", "/v1/endpoints", json=body)
        assert (status, code, more["field"]) == (400, "invalid_argument", "url"), url
    assert await small.world.dump() == before


async def test_without_a_callback_url_endpoints_are_only_on_this_machine(small: Site) -> None:
    serve_endpoints(small, "127.0.0.0/8", is_public=False)
    body = {"name": "hook", "queue": "default", "types": ["mail"], "url": PUBLIC}
    status, code, more = await small.refused("POST", "/v1/endpoints", json=body)
    assert (status, code, more) == (409, "wrong_state", {"state": "NO_CALLBACK_URL"})
    await create(small, "http://127.0.0.1:9/")


async def test_an_endpoint_whose_network_is_not_allowed_any_more_is_never_connected_to(
    small: Site, receiver: Receiver
) -> None:
    await create(small, local(receiver))
    serve_endpoints(small)
    answer = await small.call("POST", "/v1/endpoints/hook/test")
    assert answer["verdict"] == "FAILED"
    assert answer["error"] == "The URL is not allowed by this server any more."
    assert receiver.requests == []


async def test_a_task_of_a_type_that_nobody_offers_waits(small: Site, receiver: Receiver) -> None:
    await create(small, local(receiver))
    task_id = await small.enqueue(type="sms")
    await small.world.settle(small.engine)
    assert await small.world.state(task_id) is TaskState.PENDING
