"""Who is let in over HTTP, and what happens to answers whose key ends."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from tenure.engine.access import command as c
from tenure.v1 import workflow_service_pb2 as workflow_pb
from tests.api.access.keyed_server import FREE, KeyedServer, bearer, key_id, shown
from tests.api.http.site import TASK
from tests.engine.world import NAMESPACE, OTHER_NAMESPACE
from tests.polling import eventually

UNAUTHENTICATED = (401, "unauthenticated")
DENIED = (403, "permission_denied")
NOT_FOUND = (404, "not_found")


async def test_exactly_the_two_paths_of_health_need_no_key(small: KeyedServer) -> None:
    await small.make_key("admin")
    for path in FREE:
        for method in ("GET", "HEAD"):
            # Whether it is ready is another question.
            assert (await small.http(method, path)).status_code in {200, 503}
        assert await small.code("POST", path) == UNAUTHENTICATED
    for path in (
        "//healthz",
        "/healthz/",
        "/HEALTHZ",
        "/x/healthz",
        "/%68ealthz",
        "/healthz%2f",
        "/healthz/../v1/tasks",
        "/v1/tasks/healthz",
        "/v1/nothing",
        "/",
        "/metrics",
        "/docs",
        "/openapi.json",
    ):
        data = f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode()
        assert (await small.site.raw(data)).startswith(b"HTTP/1.1 401"), path


async def test_who_is_refused_is_told_how_to_come_in(small: KeyedServer) -> None:
    key = await small.make_key("viewer")
    answer = await small.http("GET", "/v1/tasks")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.json().keys() == {"error", "message"}
    assert answer.headers["x-request-id"]
    for header in (f"bearer {key}", f"BEARER   {key}"):
        answer = await small.http("GET", "/v1/tasks", headers={"authorization": header})
        assert answer.status_code == 200, header
    for header in (key, f"Token {key}", f"Bearer {key}x", f"Bearer{key}", "Bearer", "Bearer \xff"):
        answer = await small.http(
            "GET", "/v1/tasks", headers={"authorization": header.encode("latin-1")}
        )
        assert (answer.status_code, answer.json()["error"]) == UNAUTHENTICATED, header
    headers = [("authorization", f"Bearer {key}"), ("authorization", f"Bearer {key}")]
    answer = await small.site.client.request("GET", "/v1/tasks", headers=headers)
    assert answer.status_code == 401


async def test_no_answer_opens_the_server_to_scripts_of_other_sites(small: KeyedServer) -> None:
    key = await small.make_key("viewer")
    origin = {"origin": "https://evil.example", "access-control-request-method": "GET"}
    for method, presented in (("OPTIONS", ""), ("GET", ""), ("GET", key)):
        answer = await small.http(method, "/v1/tasks", presented, headers=origin)
        assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_the_role_comes_first_then_the_namespace_then_the_rest(lobby: KeyedServer) -> None:
    viewer = await lobby.make_key("viewer", NAMESPACE)
    client = await lobby.make_key("client", NAMESPACE)
    foreign = {"tenure-namespace": OTHER_NAMESPACE}
    assert await lobby.code("POST", "/v1/tasks", viewer, headers=foreign, json={}) == DENIED
    assert await lobby.code("POST", "/v1/tasks", client, headers=foreign, json={}) == NOT_FOUND
    assert await lobby.code("POST", "/v1/tasks", client, json={}) == (400, "invalid_argument")
    assert await lobby.code("POST", "/v1/tasks", client, json=TASK) == (201, "")
    # What the header and the query say must be the same.
    answer = await lobby.code("GET", f"/v1/tasks?namespace={OTHER_NAMESPACE}", client)
    assert answer == (400, "invalid_argument")


async def test_a_foreign_namespace_is_told_like_one_that_does_not_exist(lobby: KeyedServer) -> None:
    whole, bound = await lobby.make_key("viewer"), await lobby.make_key("viewer", NAMESPACE)

    async def said(key: str, namespace: str) -> tuple[int, str]:
        headers = {"tenure-namespace": namespace}
        answer = await lobby.http("GET", "/v1/workers", key, headers=headers)
        return answer.status_code, answer.text.replace(namespace, "NAME")

    absent = await said(whole, "nobody/here")
    assert absent[0] == 404
    assert await said(bound, OTHER_NAMESPACE) == await said(bound, "nobody/here") == absent


async def test_what_is_about_the_whole_server_needs_a_key_of_all_namespaces(
    small: KeyedServer,
) -> None:
    bound, whole = await small.make_key("admin", NAMESPACE), await small.make_key("admin")
    assert await small.code("GET", "/metrics", bound) == DENIED
    assert (await small.http("GET", "/metrics", whole)).status_code == 200
    for path in ("/v1/namespaces", f"/v1/namespaces/{NAMESPACE}/disable"):
        assert await small.code("POST", path, bound, json={"name": "new"}) == DENIED


# -- Answers that take long


async def test_a_wait_and_a_stream_end_with_their_key_and_others_go_on(lobby: KeyedServer) -> None:
    ending, staying = await lobby.make_key("viewer"), await lobby.make_key("client")
    made = await lobby.http("POST", "/v1/tasks:batch", staying, json={"tasks": [TASK] * 3})
    paths = [f"/v1/tasks/{each['taskId']}" for each in made.json()["tasks"]]
    waiting = asyncio.create_task(lobby.http("GET", f"{paths[0]}?wait=60s", ending))
    ended = asyncio.create_task(_read(lobby, paths[1], ending))
    going = asyncio.create_task(_read(lobby, paths[2], staying))
    await eventually(lambda: len(lobby.engine.results) == len(paths))

    await lobby.revoke(ending)

    waited = await waiting
    assert (waited.status_code, waited.json()["error"]) == UNAUTHENTICATED
    assert "event: error" in await ended
    assert '"error":"unauthenticated"' in await ended
    await lobby.http("POST", f"{paths[2]}/terminate", staying)
    assert "event: result" in await going


async def _read(lobby: KeyedServer, path: str, key: str) -> str:
    async with lobby.site.client.stream("GET", f"{path}/watch", headers=bearer(key)) as answer:
        return (await answer.aread()).decode()


async def test_a_stream_of_events_ends_with_its_key(small: KeyedServer) -> None:
    key = await small.make_key("viewer")
    async with small.site.client.stream("GET", "/v1/events", headers=bearer(key)) as answer:
        assert answer.status_code == 200
        await small.revoke(key)
        said = (await answer.aread()).decode()
    assert said.endswith("\n\n")
    assert '"error":"unauthenticated"' in said
    assert await small.code("GET", "/v1/events", key) == UNAUTHENTICATED


# -- Keys


async def _created(lobby: KeyedServer, key: str, **body: object) -> httpx.Response:
    return await lobby.http("POST", "/v1/api-keys", key, json={"name": "n", **body})


async def test_a_key_is_made_shown_used_and_revoked(lobby: KeyedServer) -> None:
    admin = await lobby.make_key("admin")
    made = await _created(
        lobby, admin, role="client", namespaces=["acme", NAMESPACE], expiresInMs=60_000
    )
    assert made.status_code == 201
    assert made.headers["cache-control"] == "no-store"
    key, secret = made.json()["key"], made.json()["secret"]
    assert key["namespaces"] == [NAMESPACE]
    assert key["createdBy"] == key_id(admin)
    assert secret.startswith(f"tnr_{key['keyId']}_")
    assert await lobby.code("POST", "/v1/tasks", secret, json=TASK) == (201, "")
    path = f"/v1/api-keys/{key['keyId']}"
    assert (await lobby.http("GET", path, admin)).json() == key
    for each in (path, "/v1/api-keys", "/v1/audit"):
        assert secret.rpartition("_")[2] not in (await lobby.http("GET", each, admin)).text
    revoked = await lobby.http("DELETE", path, admin)
    assert revoked.json()["revokedAt"]
    assert (await lobby.http("DELETE", path, admin)).json() == revoked.json()
    assert await lobby.code("GET", "/v1/tasks", secret) == UNAUTHENTICATED
    listed = (await lobby.http("GET", "/v1/api-keys", admin)).json()["keys"]
    assert [each["keyId"] for each in listed] == [key["keyId"], key_id(admin)]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"role": "root"}, "role"),
        ({}, "role"),
        ({"role": "admin", "name": ""}, "name"),
        ({"role": "admin", "namespaces": [""]}, "namespaces"),
        ({"role": "admin", "namespaces": ["a/b/c"]}, "namespaces"),
        ({"role": "admin", "namespaces": "acme"}, "namespaces"),
        ({"role": "admin", "namespaces": ["acme"] * 101}, "namespaces"),
        ({"role": "admin", "expiresInMs": -1}, "expiresInMs"),
        ({"role": "admin", "secret": "mine"}, "secret"),
    ],
)
async def test_a_key_that_cannot_be_is_refused(
    small: KeyedServer, body: dict[str, object], field: str
) -> None:
    answer = await _created(small, "", **body)
    assert (answer.status_code, answer.json()["field"]) == (400, field)
    assert small.engine.access_cache.has_keys is False


async def test_an_unknown_or_malformed_key_id_is_refused(small: KeyedServer) -> None:
    admin = await small.make_key("admin")
    for method in ("GET", "DELETE"):
        assert await small.code(method, f"/v1/api-keys/{'a' * 16}", admin) == NOT_FOUND
        answer = await small.http(method, f"/v1/api-keys/{admin}", admin)
        assert answer.json()["field"] == "keyId"
        # Who sends the whole key by mistake does not get it back in words.
        assert admin not in answer.text


async def test_a_bound_admin_administers_what_is_in_its_namespaces(lobby: KeyedServer) -> None:
    whole = await lobby.make_key("admin")
    bound = await lobby.make_key("admin", NAMESPACE)
    mine = await _created(lobby, bound, role="worker", namespaces=[NAMESPACE])
    assert mine.status_code == 201
    assert (await _created(lobby, bound, role="worker")).status_code == 403
    wide = await _created(lobby, bound, role="worker", namespaces=[NAMESPACE, OTHER_NAMESPACE])
    assert wide.status_code == 404
    absent = await _created(lobby, bound, role="worker", namespaces=["nobody/here"])
    assert absent.status_code == 404
    foreign = await lobby.make_key("worker", OTHER_NAMESPACE)
    both = await lobby.make_key("worker", NAMESPACE, OTHER_NAMESPACE)
    for key in (whole, foreign, both):
        for method in ("GET", "DELETE"):
            assert await lobby.code(method, f"/v1/api-keys/{key_id(key)}", bound) == NOT_FOUND
    listed = (await lobby.http("GET", "/v1/api-keys", bound)).json()["keys"]
    assert {each["keyId"] for each in listed} == {mine.json()["key"]["keyId"], key_id(bound)}
    assert await lobby.code("GET", "/v1/workers", foreign) == NOT_FOUND


async def test_lists_of_keys_have_pages(small: KeyedServer) -> None:
    keys = [await small.make_key("admin") for _ in range(3)]
    first = (await small.http("GET", "/v1/api-keys?pageSize=2", keys[0])).json()
    path = f"/v1/api-keys?pageSize=2&pageToken={first['nextPageToken']}"
    second = (await small.http("GET", path, keys[0])).json()
    assert len(first["keys"]) == 2
    assert len(second["keys"]) == 1
    assert "nextPageToken" not in second


# -- Namespaces and audit


async def test_a_caller_sees_the_namespaces_of_its_key(lobby: KeyedServer) -> None:
    whole, bound = await lobby.make_key("viewer"), await lobby.make_key("viewer", NAMESPACE)

    async def names(key: str) -> set[str]:
        found = (await lobby.http("GET", "/v1/namespaces", key)).json()["namespaces"]
        return {each["name"] for each in found}

    assert await names(bound) == {NAMESPACE}
    assert await names(whole) > {NAMESPACE, OTHER_NAMESPACE}
    assert await lobby.code("GET", f"/v1/namespaces/{NAMESPACE}", bound) == (200, "")
    assert await lobby.code("GET", f"/v1/namespaces/{OTHER_NAMESPACE}", bound) == NOT_FOUND
    assert await lobby.code("GET", "/v1/namespaces/no/body", whole) == NOT_FOUND


async def test_a_disabled_namespace_takes_nothing_until_it_is_enabled(lobby: KeyedServer) -> None:
    admin = await lobby.make_key("admin")
    disabled = await lobby.http("POST", f"/v1/namespaces/{NAMESPACE}/disable", admin)
    assert disabled.json()["isDisabled"] is True
    answer = await lobby.http("POST", "/v1/tasks", admin, json=TASK)
    assert (answer.status_code, answer.json()["state"]) == (409, "disabled")
    assert await lobby.code("GET", "/v1/tasks", admin) == (200, "")
    enabled = await lobby.http("POST", f"/v1/namespaces/{NAMESPACE}/enable", admin)
    assert enabled.json()["isDisabled"] is False
    assert await lobby.code("POST", "/v1/tasks", admin, json=TASK) == (201, "")


async def test_the_audit_log_says_who_changed_a_run(lobby: KeyedServer) -> None:
    admin, client = await lobby.make_key("admin"), await lobby.make_key("client")
    body = {"type": "order", "queue": "default"}
    run_id = (await lobby.http("POST", "/v1/runs", client, json=body)).json()["runId"]
    fields = {"namespace_id": NAMESPACE, "run_id": run_id}
    await lobby.http("POST", f"/v1/tasks/{run_id}/pause", client)
    await lobby.http("POST", f"/v1/runs/{run_id}/resume", client)
    terminate = workflow_pb.TerminateWorkflowRunRequest(**fields)
    await lobby.wire.workflows.TerminateWorkflowRun(terminate, metadata=shown(admin))
    retry = workflow_pb.RetryWorkflowRunRequest(**fields)
    new = await lobby.wire.workflows.RetryWorkflowRun(retry, metadata=shown(client))
    path = f"/v1/runs/{new.run_id}/cancel"
    await lobby.http("POST", path, admin, json={"reason": "enough"})
    found = (await lobby.http("GET", "/v1/audit", admin)).json()["records"]
    who = {key_id(admin): "admin", key_id(client): "client"}
    assert [
        (each["action"], who[each["actor"]], each["target"])
        for each in reversed(found)
        if each["action"].startswith("run.")
    ] == [
        ("run.pause", "client", run_id),
        ("run.resume", "client", run_id),
        ("run.terminate", "admin", run_id),
        ("run.retry", "client", run_id),
        ("run.cancel", "admin", new.run_id),
    ]


async def test_the_audit_log_says_who_did_what(lobby: KeyedServer) -> None:
    admin = await lobby.make_key("admin")
    bound = await lobby.make_key("admin", NAMESPACE)
    await lobby.http("POST", "/v1/namespaces", admin, json={"name": "new"})
    await lobby.http("POST", "/v1/queues/mail/pause", bound)
    found = (await lobby.http("GET", "/v1/audit", admin)).json()["records"]
    assert [(each["action"], each.get("actor")) for each in found] == [
        ("queue.set", key_id(bound)),
        ("namespace.create", key_id(admin)),
        ("key.create", None),
        ("key.create", None),
    ]
    seen = (await lobby.http("GET", "/v1/audit", bound)).json()["records"]
    assert {each["action"] for each in seen} == {"queue.set", "key.create"}
    assert all(each["namespaces"] == [NAMESPACE] for each in seen)
    where = f"/v1/audit?action=queue.set&actor={key_id(bound)}&namespace={NAMESPACE}"
    assert len((await lobby.http("GET", where, admin)).json()["records"]) == 1
    assert await lobby.code("GET", f"/v1/audit?namespace={OTHER_NAMESPACE}", bound) == NOT_FOUND
    for role in ("client", "worker", "viewer"):
        assert await lobby.code("GET", "/v1/audit", await lobby.make_key(role)) == DENIED


async def test_a_key_that_was_revoked_elsewhere_makes_no_other(lobby: KeyedServer) -> None:
    """What the edge has let in is looked at once more when the command runs."""
    admin = await lobby.make_key("admin")
    await lobby.make_key("admin")
    revoking = lobby.engine.submit(c.RevokeKey(key_id=key_id(admin)))
    creating = asyncio.create_task(_created(lobby, admin, role="admin"))
    await revoking
    assert (await creating).status_code == 401
