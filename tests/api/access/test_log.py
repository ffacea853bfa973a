"""What is said of denied calls, and what is never said."""

from __future__ import annotations

import structlog

from tenure.api.http.app import make_app
from tenure.api.metric import Metrics
from tenure.api.readiness import Readiness
from tenure.api.setting import ServerSettings
from tenure.v1 import task_service_pb2 as pb
from tests.api.access.lobby import Lobby, bearer, key_id, shown
from tests.api.http.site import site_of
from tests.api.rpc.wire import refused
from tests.engine.world import NAMESPACE, OTHER_NAMESPACE


async def test_denied_calls_are_logged_with_who_and_what(small: Lobby) -> None:
    key = await small.make_key("viewer", NAMESPACE)
    with structlog.testing.capture_logs() as logs:
        await small.http("GET", "/v1/tasks")
        await small.http("POST", "/v1/tasks", key)
        foreign = {"tenure-namespace": OTHER_NAMESPACE}
        await small.http("GET", "/v1/tasks", key, headers=foreign)
        request = pb.GetTaskRequest(namespace_id=OTHER_NAMESPACE, task_id="x")
        await refused(small.wire.tasks.GetTask(request, metadata=shown(key)))
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


async def test_no_secret_is_in_a_log_an_error_or_a_metric(small: Lobby) -> None:
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
