"""What is said of denied calls, and what is never said."""

from __future__ import annotations

import pytest
import structlog

from tenure.api.guard.client_address import rpc_address
from tenure.api.guard.refusal_log import RefusalLog
from tenure.api.http.edge.app import make_app
from tenure.api.metrics.metric import Metrics
from tenure.api.readiness import Readiness
from tenure.api.setting import ServerSettings
from tenure.core.limits import REFUSAL_ADDRESSES_MAX, REFUSAL_LOG_MS
from tenure.v1 import task_service_pb2 as pb
from tests.api.access.keyed_server import KeyedServer, bearer, key_id, shown
from tests.api.http.site import site_of
from tests.api.rpc.wire import refused
from tests.engine.world import NAMESPACE, OTHER_NAMESPACE, Clock


async def test_denied_calls_are_logged_with_who_and_what(small: KeyedServer) -> None:
    key = await small.make_key("viewer", NAMESPACE)
    with structlog.testing.capture_logs() as logs:
        await small.http("GET", "/v1/tasks")
        await small.http("POST", "/v1/tasks", key)
        foreign = {"tenure-namespace": OTHER_NAMESPACE}
        await small.http("GET", "/v1/tasks", key, headers=foreign)
        request = pb.GetTaskRequest(namespace_id=OTHER_NAMESPACE, task_id="x")
        await refused(small.wire.tasks.GetTask(request, metadata=shown(key)))
        small.world.clock.advance(REFUSAL_LOG_MS)
        await small.http("GET", "/v1/tasks", f"tnr_{'a' * 16}_{'s' * 43}")
        await small.http("GET", f"/v1/tasks/{'0' * 36}", key)
    denied = [
        (each["method"], each["key_id"], each["code"], each.get("namespace", ""))
        for each in logs
        if each["event"] == "access.denied"
    ]
    mine = key_id(key)
    assert denied == [
        ("unknown", "", "unauthenticated", ""),
        ("enqueueTask", mine, "permission_denied", ""),
        ("listTasks", mine, "not_found", OTHER_NAMESPACE),
        ("GetTask", mine, "not_found", OTHER_NAMESPACE),
        ("unknown", "a" * 16, "unauthenticated", ""),
    ]
    reasons = [each["reason"] for each in logs if "namespace" in each and "reason" in each]
    assert reasons == ["foreign_namespace"] * 2


async def test_no_secret_is_in_a_log_an_error_or_a_metric(small: KeyedServer) -> None:
    metrics = Metrics()
    app = make_app(small.engine, ServerSettings(), Readiness(small.engine), metrics)
    key = await small.make_key("admin")
    wrong = key[:-5] + "wrong"
    said = []
    with structlog.testing.capture_logs() as logs:
        async with site_of(small.world, small.engine, app) as site:
            for each in (key, wrong):
                for path in ("/v1/tasks", "/nothing", f"/v1/api-keys/{each}", f"/v1/tasks/{each}"):
                    answer = await site.client.get(path, headers=bearer(each))
                    said.append(answer.text + str(answer.headers))
            metrics_text = (await site.client.get("/metrics", headers=bearer(key))).text
    for secret in (key.split("_", 2)[2], wrong.split("_", 2)[2]):
        assert secret not in str(logs)
        assert secret not in metrics_text
        assert not any(secret in each for each in said[4:])
    assert 'code="unauthenticated"' in metrics_text


async def _knock(lobby: KeyedServer, edge: str) -> None:
    """Call without a key, in ways that are refused at different places."""
    if edge == "http":
        assert await lobby.code("GET", "/v1/tasks") == (401, "unauthenticated")
        twice = [("content-type", "a"), ("content-type", "b")]
        answer = await lobby.site.client.get("/v1/tasks", headers=twice)
        assert answer.status_code == 400
    else:
        request = pb.GetTaskRequest(namespace_id=NAMESPACE, task_id="x")
        assert (await lobby.refused(lobby.wire.tasks.GetTask(request)))[1] == "unauthenticated"
        token = pb.CompleteByTokenRequest(task_token="x")
        assert (await lobby.refused(lobby.wire.tasks.CompleteByToken(token)))[0] != "OK"


@pytest.mark.parametrize("edge", ["http", "grpc"])
async def test_strangers_are_logged_once_a_second(small: KeyedServer, edge: str) -> None:
    key = await small.make_key("viewer", NAMESPACE)
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            for _ in range(5):
                await _knock(small, edge)
            small.world.clock.advance(REFUSAL_LOG_MS)
    lines = [each for each in logs if each["event"] in {"http.request", "rpc.refused"}]
    denied = [each for each in logs if each["event"] == "access.denied"]
    assert len(lines) == 3
    assert [each["left_out"] for each in denied] == [0, 9, 9]
    assert {each["address"] for each in denied} == {"127.0.0.1"}
    # Who has a key is told of each time.
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            await small.http("POST", "/v1/tasks", key)
    assert len([each for each in logs if each["event"] == "http.request"]) == 3


async def test_strangers_are_counted_each_time(small: KeyedServer) -> None:
    metrics = Metrics()
    app = make_app(small.engine, ServerSettings(), Readiness(small.engine), metrics)
    key = await small.make_key("admin")
    async with site_of(small.world, small.engine, app) as site:
        for _ in range(5):
            await site.client.get("/v1/tasks")
        text = (await site.client.get("/metrics", headers=bearer(key))).text
    (line,) = [each for each in text.splitlines() if "total" in each and "unauthenticated" in each]
    assert line.endswith(" 5.0")


def test_few_addresses_are_told_apart_at_a_time() -> None:
    clock = Clock()
    log = RefusalLog(clock)
    first = [f"10.0.0.{number}" for number in range(REFUSAL_ADDRESSES_MAX)]
    assert [log.take(each) for each in first] == [0] * REFUSAL_ADDRESSES_MAX
    # All others share one line.
    assert [log.take(f"10.1.{n // 250}.{n % 250}") for n in range(1_000)] == [0] + [None] * 999
    assert len(log) == REFUSAL_ADDRESSES_MAX + 1
    clock.advance(REFUSAL_LOG_MS)
    assert log.take(first[0]) == 0
    told = [log.take(f"10.2.{n // 250}.{n % 250}") for n in range(1_000)]
    assert told.count(None) >= 1_000 - REFUSAL_ADDRESSES_MAX - 1
    assert len(log) <= REFUSAL_ADDRESSES_MAX + 1


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:127.0.0.1:5000", "127.0.0.1"),
        ("ipv6:%5B::1%5D:5000", "::1"),
        ("ipv6:[2001:db8::1]:5000", "2001:db8::1"),
        ("unix:/run/tenure", "unix"),
        ("", ""),
    ],
)
def test_the_address_of_a_peer_is_without_its_port(peer: str, address: str) -> None:
    assert rpc_address(peer) == address
