"""What belongs to every request: id, log, deadline, limits, errors, and a client that goes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import structlog

from tenure.api.http.body import EmptyBody
from tenure.api.http.edge.app import Edge
from tenure.api.http.edge.serving import Protocol
from tenure.api.http.operation import Answer, Operation, OperationCall, RequestContext, SharedGate
from tenure.api.http.parameter import NoQuery
from tenure.api.http.route.health import HealthView
from tenure.api.http.table import Table
from tenure.api.metrics.metric import Metrics
from tenure.api.readiness import Readiness
from tenure.api.setting import ServerSettings
from tests.api.http.site import TASK, Site, site_of
from tests.engine.world import World
from tests.polling import eventually

SECRET = "hunter2"


class Plan:
    """Handlers that behave badly on purpose."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.dropped = asyncio.Event()

    async def hang(self, call: OperationCall[NoQuery, None]) -> Answer:
        del call
        self.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.dropped.set()
        return Answer(HealthView(status="never"))

    async def break_(self, call: OperationCall[NoQuery, None]) -> Answer:
        raise RuntimeError(f"{SECRET} {call.path}")

    def operations(self) -> tuple[Operation, ...]:
        def made(path: str, handle: object, **more: object) -> Operation:
            return Operation(
                method="POST",
                path=path,
                name=path.strip("/"),
                summary="",
                group="",
                handle=handle,  # type: ignore[arg-type]  # each is one
                **more,  # type: ignore[arg-type]  # fields of the operation
            )

        return (
            made("/late", self.hang, deadline_ms=50, body=EmptyBody),
            made("/hang", self.hang),
            made("/break", self.break_),
        )


@asynccontextmanager
async def planned(
    world: World, *, requests: int = 10
) -> AsyncIterator[tuple[Site, Plan, RequestContext]]:
    """Serve the bad handlers."""
    engine, plan = await world.start(), Plan()
    gate = SharedGate(requests, "requests")
    desk = RequestContext(engine, Readiness(engine), Metrics(), requests=gate)
    app = Edge(desk, Table(plan.operations()), ServerSettings())
    async with site_of(world, engine, app) as site:
        yield site, plan, desk


async def test_a_request_that_takes_too_long_is_given_up(embedded: World) -> None:
    async with planned(embedded) as (site, plan, desk):
        assert await site.refused("POST", "/late") == (504, "deadline_exceeded", {})
        assert plan.dropped.is_set()
        assert desk.requests.count == 0


async def test_a_body_that_comes_too_slowly_is_given_up(embedded: World) -> None:
    async with planned(embedded) as (site, plan, _):
        head = b"POST /late HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        answer = await site.raw(head + b"connection: close\r\ncontent-length: 5\r\n\r\n{")
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b'"error":"deadline_exceeded"' in answer
        assert not plan.began.is_set()


async def test_the_work_of_a_client_that_is_gone_is_dropped(embedded: World) -> None:
    async with planned(embedded) as (site, plan, desk):
        _, writer = await asyncio.open_connection("127.0.0.1", site.port)
        writer.write(b"POST /hang HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n")
        await plan.began.wait()
        writer.close()
        await plan.dropped.wait()
        await writer.wait_closed()
        await eventually(lambda: desk.requests.count == 0)


async def test_more_requests_than_allowed_are_refused_before_they_are_read(embedded: World) -> None:
    async with planned(embedded, requests=1) as (site, plan, _):
        hanging = asyncio.create_task(site.client.post("/hang"))
        await plan.began.wait()
        answer = await site.client.post("/late")
        assert (answer.status_code, answer.json()["error"]) == (429, "rate_limited")
        assert answer.headers["retry-after"] == "1"
        hanging.cancel()
        await plan.dropped.wait()


async def test_a_mistake_of_ours_is_told_by_its_id_alone(
    embedded: World, capsys: pytest.CaptureFixture[str]
) -> None:
    async with planned(embedded) as (site, _, _):
        answer = await site.client.post("/break", headers={"x-request-id": "req-7"})
        assert answer.status_code == 503
        body = answer.json()
        assert (body["error"], body["reason"]) == ("unavailable", "internal")
        assert "req-7" in body["message"]
        assert SECRET not in answer.text
        assert answer.headers["retry-after"] == "1"
    assert "req-7" in capsys.readouterr().out


async def test_each_request_has_an_id(small: Site) -> None:
    chosen = await small.client.get("/healthz", headers={"x-request-id": "abc:1"})
    assert chosen.headers["x-request-id"] == "abc:1"
    for bad in ("a b", "x" * 256, "<b>"):
        answer = await small.client.get("/healthz", headers={"x-request-id": bad})
        assert re.fullmatch(r"[0-9a-f-]{36}", answer.headers["x-request-id"])


async def test_a_request_is_logged_without_what_it_carried(small: Site) -> None:
    with structlog.testing.capture_logs() as lines:
        task_id = await small.enqueue(input=SECRET, idempotencyKey=SECRET)
        await small.client.get(f"/v1/tasks/{task_id}", headers={"authorization": SECRET})
        await small.client.get(f"/v1/tasks?pageToken={SECRET}")
        await small.client.get(f"/{SECRET}%0a")
    assert SECRET not in str(lines)
    assert task_id not in str(lines)
    found = [line for line in lines if line["event"] == "http.request"]
    assert [(line["method"], line["route"], line["status"]) for line in found] == [
        ("POST", "/v1/tasks", 201),
        ("GET", "/v1/tasks/{taskId}", 200),
        ("GET", "/v1/tasks", 400),
        ("GET", "unknown", 404),
    ]
    assert all({"ms", "request_id"} <= line.keys() for line in found)


async def test_unknown_paths_and_methods_are_typed(small: Site) -> None:
    assert await small.refused("GET", "/v1/nothing") == (404, "not_found", {})
    answer = await small.client.delete("/v1/tasks")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD, POST")
    assert (answer.json()["error"], answer.json()["field"]) == ("invalid_argument", "method")
    head = await small.client.head("/v1/tasks")
    assert (head.status_code, head.content) == (200, b"")


async def test_a_body_that_nobody_reads_does_not_spoil_the_connection(small: Site) -> None:
    for _ in range(3):
        answer = await small.client.post("/v1/nothing", content=b"x" * 200_000)
        assert answer.status_code == 404
    assert (await small.client.post("/v1/tasks", json=TASK)).status_code == 201


async def test_a_head_that_is_too_large_is_refused(small: Site) -> None:
    answer = await small.client.get("/healthz", headers={"x-large": "x" * 10_000})
    assert answer.status_code == 431
    assert (answer.json()["error"], answer.json()["limit"]) == ("payload_too_large", 8_192)
    # One that never ends is refused while it comes in.
    endless = await small.raw(b"GET /healthz HTTP/1.1\r\nx: " + b"y" * 9_000)
    assert endless.startswith(b"HTTP/1.1 431 ")
    assert b'"error":"payload_too_large"' in endless


async def test_what_is_no_http_is_refused_with_a_typed_error(small: Site) -> None:
    answer = await small.raw(b"\x16\x03\x01 hello\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'"field":"request"' in answer
    upgrade = (
        b"GET /v1/tasks HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade, close\r\n"
        b"upgrade: websocket\r\n\r\n"
    )
    # Nobody speaks WebSocket here: the wish is ignored, as HTTP allows.
    assert (await small.raw(upgrade)).startswith(b"HTTP/1.1 200 ")


async def test_a_head_that_comes_too_slowly_is_refused(embedded: World) -> None:
    class Hasty(Protocol):
        head_ms = 50

    async with site_of(embedded, await embedded.start(), protocol=Hasty) as site:
        for begun in (b"", b"GET /heal"):
            answer = await site.raw(begun)
            assert answer.startswith(b"HTTP/1.1 408 ")
            assert b'"error":"deadline_exceeded"' in answer
        # The deadline is for heads alone.
        slow = await site.client.get(f"/v1/tasks/{await site.enqueue()}?waitMs=200")
        assert slow.status_code == 200


async def test_requests_are_counted_by_operation_and_code(small: Site) -> None:
    await small.enqueue()
    await small.client.get("/v1/tasks/x")
    answer = await small.client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    for line in (
        'tenure_requests_total{code="ok",edge="http",method="enqueueTask"} 1.0',
        'tenure_requests_total{code="invalid_argument",edge="http",method="getTask"} 1.0',
    ):
        assert line in answer.text
