"""What one tenant could learn of another, or do to it, beside the ids of its requests."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from tenure.engine.access import command as c
from tenure.v1 import admin_service_pb2 as admin_pb
from tenure.v1 import task_service_pb2 as task_pb
from tenure.v1 import workflow_service_pb2 as workflow_pb
from tests.api.access.keyed_server import KeyedServer, bearer, key_id, open_lobby, shown
from tests.api.http.site import TASK
from tests.api.rpc.wire import detail, refused
from tests.bounds import ANSWER_S
from tests.engine.world import NAMESPACE, OTHER_NAMESPACE, World

THEIRS = "their-queue"
LISTS = ("/v1/namespaces", "/v1/api-keys", "/v1/audit")


async def _pages(lobby: KeyedServer, path: str, key: str) -> tuple[str, str]:
    """Return all pages of a list as text, and the token of the first."""
    text, first, token = "", "", ""
    while True:
        answer = await lobby.http("GET", f"{path}?pageSize=1&pageToken={token}", key)
        assert answer.status_code == 200, answer.text
        text += answer.text
        token = answer.json().get("nextPageToken", "")
        first = first or token
        if not token:
            return text, first


@pytest.mark.parametrize("path", LISTS)
async def test_a_list_of_the_server_shows_a_tenant_its_own_on_all_pages(
    lobby: KeyedServer, path: str
) -> None:
    whole = await lobby.make_key("admin")
    names = ("acme/a", "acme/b", OTHER_NAMESPACE)
    for name in names[:2]:
        await lobby.http("POST", "/v1/namespaces", whole, json={"name": name})
    mine = await lobby.make_key("admin", *names[:2])
    both = await lobby.make_key("viewer", "acme/a", OTHER_NAMESPACE)
    theirs = await lobby.make_key("admin", OTHER_NAMESPACE)
    headers = {"tenure-namespace": OTHER_NAMESPACE}
    await lobby.http("POST", f"/v1/queues/{THEIRS}/pause", theirs, headers=headers)
    await lobby.http("POST", "/v1/queues/mine/pause", mine, headers={"tenure-namespace": "acme/a"})
    await lobby.make_key("viewer", "acme/b")
    text, token = await _pages(lobby, path, mine)
    hidden = (OTHER_NAMESPACE, THEIRS, *map(key_id, (whole, both, theirs)))
    allowed = {key_id(whole)} if path == "/v1/audit" else set()
    assert not [each for each in hidden if each in text and each not in allowed]
    assert token
    # A place in one caller's list is no place in that of another.
    for other in (whole, theirs):
        answer = await lobby.http("GET", f"{path}?pageSize=1&pageToken={token}", other)
        assert (answer.status_code, answer.json()["field"]) == (400, "pageToken"), path


async def test_a_diagnosis_says_nothing_of_other_namespaces_or_of_the_server(
    lobby: KeyedServer,
) -> None:
    mine = await lobby.make_key("admin", NAMESPACE)
    world, engine = lobby.world, lobby.engine
    worker = await world.worker(
        engine, queue=THEIRS, namespace=OTHER_NAMESPACE, hostname="their-host", software_version="9"
    )
    await world.enqueue(engine, world.new("theirs", queue=THEIRS), namespace=OTHER_NAMESPACE)
    await world.advance(3_600_000)
    whole = await lobby.make_key("admin")
    everything = (await lobby.http("GET", "/v1/diagnosis", whole)).text
    assert THEIRS in everything
    own = (await lobby.http("GET", "/v1/diagnosis", mine)).json()
    for each in (THEIRS, OTHER_NAMESPACE, worker, "their-host", "theirs"):
        assert each not in str(own)
    # Nor is the store shown to one tenant of many.
    assert not {each["check"] for each in own["findings"]} & {"durability", "disk", "migrations"}
    request = admin_pb.DiagnoseRequest()
    answer = await lobby.wire.admin.Diagnose(request, metadata=shown(mine))
    assert OTHER_NAMESPACE not in str(answer)


async def test_an_explanation_names_nobody_of_another_namespace(lobby: KeyedServer) -> None:
    """Queues of one name are two queues: who works on the other one is no reason here."""
    world, engine = lobby.world, lobby.engine
    theirs = await world.worker(engine, queue="same", namespace=OTHER_NAMESPACE)
    await engine.submit(c.SetQueue(namespace=OTHER_NAMESPACE, name="same", is_paused=True))
    await world.enqueue(engine, world.new(queue="same"), namespace=OTHER_NAMESPACE)
    (task,) = await world.enqueue(engine, world.new(queue="same"))
    key = await lobby.make_key("viewer", NAMESPACE)
    answer = await lobby.http("GET", f"/v1/tasks/{task.task_id}/explain", key)
    assert [each["code"] for each in answer.json()["reasons"]] == ["no_worker"]
    assert theirs not in answer.text


async def test_a_listener_to_events_hears_its_own_namespace_from_the_very_first_on(
    lobby: KeyedServer,
) -> None:
    viewer = await lobby.make_key("viewer", NAMESPACE)
    client = await lobby.make_key("client")
    server_id = lobby.engine.server_id
    path = f"/v1/events?lastEventId={server_id}:0"
    async with lobby.site.client.stream("GET", path, headers=bearer(viewer)) as stream:
        chunks = stream.aiter_text()
        await anext(chunks)
        for namespace in (OTHER_NAMESPACE, NAMESPACE):
            headers = {"tenure-namespace": namespace}
            body = {**TASK, "queue": namespace.partition("/")[0]}
            await lobby.http("POST", "/v1/tasks", client, headers=headers, json=body)
        text = ""
        async with asyncio.timeout(ANSWER_S):
            while '"acme"' not in text and NAMESPACE not in text:
                text += await anext(chunks)
    assert "other" not in text


async def test_a_flood_of_heartbeats_for_the_worker_of_another_costs_it_nothing(
    embedded: World,
) -> None:
    """Limits are counted where the caller is, or a stranger could use up those of a victim."""
    async with open_lobby(embedded) as lobby:
        mine = await lobby.make_key("worker", NAMESPACE)
        theirs = await lobby.make_key("worker", OTHER_NAMESPACE)
        made = await embedded.register(lobby.engine, namespace=OTHER_NAMESPACE)

        def beat(namespace: str, key: str) -> Any:
            request = workflow_pb.WorkerHeartbeatRequest(
                namespace_id=namespace, worker_id=made.worker.id
            )
            return lobby.wire.workflows.WorkerHeartbeat(request, metadata=shown(key))

        codes = [(await refused(beat(NAMESPACE, mine)))[1].code for _ in range(200)]
        assert "rate_limited" in codes
        assert set(codes) == {"rate_limited", "worker_inactive"}
        assert (await beat(OTHER_NAMESPACE, theirs)).accepted


async def test_lists_and_enqueues_of_one_tenant_take_nothing_of_the_rate_of_another(
    lobby: KeyedServer,
) -> None:
    mine = await lobby.make_key("viewer", NAMESPACE)
    theirs = await lobby.make_key("viewer", OTHER_NAMESPACE)
    request = task_pb.ListTasksRequest(namespace_id=OTHER_NAMESPACE)
    for _ in range(300):
        status, _detail = await refused(lobby.wire.tasks.ListTasks(request, metadata=shown(mine)))
        assert status == "NOT_FOUND"
    await lobby.wire.tasks.ListTasks(request, metadata=shown(theirs))


@pytest.mark.parametrize("edge", ["grpc", "http"])
async def test_lists_of_the_server_are_counted_for_each_key(lobby: KeyedServer, edge: str) -> None:
    noisy = await lobby.make_key("viewer", NAMESPACE)
    quiet = await lobby.make_key("viewer", OTHER_NAMESPACE)

    async def code(key: str) -> str:
        if edge == "http":
            return (await lobby.code("GET", "/v1/namespaces", key))[1]
        try:
            await lobby.wire.admin.ListNamespaces(
                admin_pb.ListNamespacesRequest(), metadata=shown(key)
            )
        except grpc.aio.AioRpcError as failure:
            return detail(failure).code
        return ""

    async with asyncio.timeout(ANSWER_S):
        while await code(noisy) != "rate_limited":
            pass
    assert await code(quiet) == ""
