"""Weaknesses that other servers had at their edges, one test each."""

from __future__ import annotations

import asyncio
import base64
from typing import Any, Final

import grpc
import pytest

from tenure.v1 import session_service_pb2 as session_pb
from tenure.v1 import task_pb2
from tenure.v1 import task_service_pb2 as task_pb
from tests.api.access.keyed_server import KeyedServer, bearer, ended, shown
from tests.api.http.site import TASK, UNKNOWN_ID
from tests.api.rpc.wire import Stream, succeeded
from tests.bounds import ANSWER_S
from tests.engine.world import NAMESPACE, OTHER_NAMESPACE
from tests.polling import eventually

ORIGIN: Final = {"origin": "https://evil.example"}
UNAUTHENTICATED: Final = ("UNAUTHENTICATED", "unauthenticated")


async def _raw(lobby: KeyedServer, head: str, *lines: str) -> bytes:
    """Send a request line as it is, which no client library would."""
    data = "\r\n".join([f"{head} HTTP/1.1", "host: localhost", *lines, "connection: close", "", ""])
    return await lobby.site.raw(data.encode("latin-1"))


async def _session(lobby: KeyedServer, key: str) -> Stream:
    """Open a session of a new worker in the first namespace."""
    registration = await lobby.world.worker(lobby.engine, mode="session")
    stream = Stream(lobby.wire.sessions.Open(metadata=shown(key)))
    hello = session_pb.Hello(namespace_id=NAMESPACE, worker_id=registration, window=1, session_no=1)
    await stream.send(hello=hello)
    stream.welcome = (await stream.read()).welcome
    return stream


# -- Inner and outer namespace differ


async def test_weakness_inner_namespace_differs_header_and_query(lobby: KeyedServer) -> None:
    key = await lobby.make_key("client", NAMESPACE)
    mine, theirs = {"tenure-namespace": NAMESPACE}, {"tenure-namespace": OTHER_NAMESPACE}
    before = await lobby.world.dump()
    for path, headers in (
        (f"/v1/tasks?namespace={OTHER_NAMESPACE}", mine),
        (f"/v1/tasks?namespace={NAMESPACE}", theirs),
        ("/v1/tasks?namespace=other", mine),
    ):
        answer = await lobby.http("POST", path, key, headers=headers, json=TASK)
        assert (answer.status_code, answer.json()["field"]) == (400, "namespace"), path
    twice = [("tenure-namespace", NAMESPACE), ("tenure-namespace", OTHER_NAMESPACE)]
    doubled = [*bearer(key).items(), *twice]
    answer = await lobby.site.client.request("POST", "/v1/tasks", headers=doubled, json=TASK)
    assert (answer.status_code, answer.json()["field"]) == (400, "namespace")
    # A namespace inside the body is no field at all.
    body = {**TASK, "namespace": OTHER_NAMESPACE}
    answer = await lobby.http("POST", "/v1/tasks", key, json=body)
    assert (answer.status_code, answer.json()["field"]) == (400, "namespace")
    twice_in_query = f"/v1/tasks?namespace={NAMESPACE}&namespace={OTHER_NAMESPACE}"
    answer = await lobby.http("POST", twice_in_query, key, json=TASK)
    assert (answer.status_code, answer.json()["field"]) == (400, "namespace")
    assert await lobby.world.dump() == before


async def test_weakness_inner_namespace_differs_hello_and_later_frames(lobby: KeyedServer) -> None:
    """What a later frame says of itself moves no session into another namespace."""
    key = await lobby.make_key("worker", NAMESPACE)
    theirs = await lobby.world.worker(lobby.engine, namespace=OTHER_NAMESPACE)
    (victim,) = await lobby.world.enqueue(
        lobby.engine, lobby.world.new(), namespace=OTHER_NAMESPACE
    )
    before = await lobby.world.database.rows(
        f"SELECT * FROM tasks WHERE namespace = '{OTHER_NAMESPACE}'"
    )
    stream = await _session(lobby, key)
    again = session_pb.Hello(namespace_id=OTHER_NAMESPACE, worker_id=theirs, window=5, session_no=1)
    named = task_pb2.TaskRef(task_id=victim.task_id, attempt=1)
    beat = session_pb.WorkerBeat(token=stream.welcome.token)
    reports = {"started": [named], "finished": [succeeded(named)]}
    await stream.send(hello=again, window=1, beat=beat, **reports)
    assert await stream.until(lambda frame: frame.HasField("lease"))
    rows = await lobby.world.database.rows(
        f"SELECT * FROM tasks WHERE namespace = '{OTHER_NAMESPACE}'"
    )
    assert rows == before
    assert victim.task_id in str(rows)
    stream.call.cancel()


async def test_weakness_inner_namespace_differs_on_a_stream_of_results(lobby: KeyedServer) -> None:
    key = await lobby.make_key("viewer", NAMESPACE)
    whole = await lobby.make_key("viewer")
    for each in (key, whole):
        call = lobby.wire.tasks.WatchTasks(metadata=shown(each))
        await call.write(task_pb.WatchTasksRequest(namespace_id=NAMESPACE, add=[UNKNOWN_ID]))
        async with asyncio.timeout(ANSWER_S):
            assert (await call.read()).results[0].refusal.code == "not_found"
        await call.write(task_pb.WatchTasksRequest(namespace_id=OTHER_NAMESPACE, add=[UNKNOWN_ID]))
        assert (await ended(call))[0] == "INVALID_ARGUMENT"


async def test_weakness_inner_namespace_differs_in_an_enqueue_on_a_stream(
    lobby: KeyedServer,
) -> None:
    before = await lobby.world.dump()
    for key in (await lobby.make_key("client", NAMESPACE), await lobby.make_key("client")):
        call = lobby.wire.tasks.WatchTasks(metadata=shown(key))
        request = task_pb.EnqueueTasksRequest(
            namespace_id=OTHER_NAMESPACE, tasks=[lobby.wire.new()]
        )
        enqueue = task_pb.StreamedEnqueue(number=1, request=request)
        await call.write(task_pb.WatchTasksRequest(namespace_id=NAMESPACE, enqueues=[enqueue]))
        assert (await ended(call))[0] == "INVALID_ARGUMENT"
    assert (await lobby.world.dump("tasks")) == {"tasks": before["tasks"]}


async def test_weakness_inner_namespace_differs_in_a_nested_key(lobby: KeyedServer) -> None:
    """An administrator of one namespace makes no key for another one, not even among its own."""
    key = await lobby.make_key("admin", NAMESPACE)
    before = await lobby.world.dump("api_keys", "audit")
    for namespaces in ([OTHER_NAMESPACE], [NAMESPACE, OTHER_NAMESPACE], []):
        body = {"name": "n", "role": "viewer", "namespaces": namespaces}
        answer = await lobby.http("POST", "/v1/api-keys", key, json=body)
        assert answer.status_code in {403, 404}
    assert await lobby.world.dump("api_keys", "audit") == before


# -- Exemptions


HIDDEN_PATHS: Final = [
    "/x/healthz",
    "//healthz",
    "/HEALTHZ",
    "/healthz/",
    "/healthz%2f..",
    "/healthz/../v1/tasks",
    "/healthz;/v1/tasks",
    "/v1/tasks/healthz",
    "/v1/tasks?x=/healthz",
    "/v1/tasks/..%2f..%2fhealthz",
    "/healthz%00",
    "/%68ealthz",
    "/healthz.json",
    "/readyz/x",
    "/livez",
    "http://x/healthz",
    "*",
]


async def test_weakness_exemptions_matched_by_suffix_or_prefix(lobby: KeyedServer) -> None:
    await lobby.make_key("admin")
    for path in HIDDEN_PATHS:
        answer = await _raw(lobby, f"GET {path}")
        assert answer.startswith(b"HTTP/1.1 401 "), (path, answer)
        assert b'"error":"unauthenticated"' in answer


async def test_weakness_exemptions_of_any_method(lobby: KeyedServer) -> None:
    await lobby.make_key("admin")
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "get", "X"):
        for path in ("/healthz", "/readyz"):
            answer = await _raw(lobby, f"{method} {path}")
            assert not answer.startswith(b"HTTP/1.1 2"), (method, answer)


async def test_weakness_exemptions_by_a_header_that_overrides_the_path_or_method(
    lobby: KeyedServer,
) -> None:
    await lobby.make_key("admin")
    for line in (
        "x-original-url: /healthz",
        "x-rewrite-url: /healthz",
        "x-forwarded-uri: /healthz",
        "x-forwarded-prefix: /healthz",
        "x-http-method-override: HEAD",
        "x-forwarded-for: 127.0.0.1",
        "x-real-ip: 127.0.0.1",
        "forwarded: for=127.0.0.1",
        "host: localhost",
    ):
        answer = await _raw(lobby, "GET /v1/tasks", line)
        assert answer.startswith((b"HTTP/1.1 401 ", b"HTTP/1.1 400 ")), (line, answer)
    answer = await _raw(lobby, "GET /healthz", "x-original-url: /v1/tasks")
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b'"up"' in answer


HIDDEN_METHODS: Final = [
    "/tenure.v1.TaskService/Check",
    "/tenure.v1.AdminService/HealthCheck",
    "/grpc.health.v1.Health/check",
    "/grpc.health.v1.Health/Check/",
    "//grpc.health.v1.Health/Check",
    "/x/grpc.health.v1.Health/Check",
    "/grpc.health.v1.HealthX/Check",
    "/grpc.health.v1.Health/ListTasks",
    "/tenure.v1.TaskService/ListTasks?/grpc.health.v1.Health/Check",
]


async def test_weakness_exemptions_of_methods_that_end_in_check(lobby: KeyedServer) -> None:
    await lobby.make_key("admin")
    for path in HIDDEN_METHODS:
        call: Any = lobby.wire.channel.unary_unary(path)
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await call(b"")
        assert failure.value.code() is grpc.StatusCode.UNAUTHENTICATED, path


# -- Streams


async def test_weakness_streams_without_authentication_over_grpc(lobby: KeyedServer) -> None:
    key = await lobby.make_key("admin")
    # They are refused at their opening: nothing has to be said for it.
    for metadata in ((), shown(key[:-2] + "xx")):
        session = lobby.wire.sessions.Open(metadata=metadata)
        assert (await ended(session))[0] == "UNAUTHENTICATED"
        watch = lobby.wire.tasks.WatchTasks(metadata=metadata)
        assert (await ended(watch))[0] == "UNAUTHENTICATED"
    assert len(lobby.engine.results) == 0
    assert lobby.wire.server.session_count == 0


@pytest.mark.parametrize("path", ["/v1/events", f"/v1/tasks/{UNKNOWN_ID}/watch"])
async def test_weakness_streams_without_authentication_over_http(
    lobby: KeyedServer, path: str
) -> None:
    key = await lobby.make_key("admin")
    for headers in ((), ("accept: text/event-stream",), (f"authorization: Bearer {key[:-2]}xx",)):
        answer = await _raw(lobby, f"GET {path}", *headers)
        assert answer.startswith(b"HTTP/1.1 401 ")
        assert b"event" not in answer.partition(b"\r\n\r\n")[2]


async def test_weakness_streams_without_authentication_by_websocket(lobby: KeyedServer) -> None:
    key = await lobby.make_key("admin")
    upgrade = (
        "connection: upgrade",
        "upgrade: websocket",
        "sec-websocket-version: 13",
        f"sec-websocket-key: {base64.b64encode(bytes(16)).decode()}",
    )
    for path in ("/v1/events", "/", "/healthz", "/v1/tasks"):
        for more in ((), (f"authorization: Bearer {key}",)):
            head = "\r\n".join([f"GET {path} HTTP/1.1", "host: localhost", *upgrade, *more, "", ""])
            reader, writer = await asyncio.open_connection("127.0.0.1", lobby.site.port)
            writer.write(head.encode())
            async with asyncio.timeout(ANSWER_S):
                line = await reader.readline()
            writer.close()
            await writer.wait_closed()
            assert b" 101 " not in line
            if not more and path != "/healthz":
                assert b" 401 " in line


async def test_weakness_streams_that_outlive_their_key(lobby: KeyedServer) -> None:
    ending, staying = await lobby.make_key("admin"), await lobby.make_key("admin")
    session = await _session(lobby, ending)
    watch = lobby.wire.tasks.WatchTasks(metadata=shown(ending))
    (task_id,) = await lobby.world.add(lobby.engine, type="slow")
    await watch.write(task_pb.WatchTasksRequest(namespace_id=NAMESPACE, add=[task_id]))
    reading = [
        asyncio.create_task(_read_stream(lobby, path, ending))
        for path in (f"/v1/tasks/{task_id}/watch", "/v1/events")
    ]
    waiting = asyncio.create_task(lobby.http("GET", f"/v1/tasks/{task_id}?wait=60s", ending))
    await eventually(lambda: len(lobby.engine.results) == 1 and lobby.engine.events.is_wanted)
    await lobby.revoke(ending)
    assert (await ended(session.call))[0] == "UNAUTHENTICATED"
    assert (await ended(watch))[0] == "UNAUTHENTICATED"
    for each in reading:
        assert '"error":"unauthenticated"' in await each
    assert (await waiting).status_code == 401
    assert (await lobby.http("GET", f"/v1/tasks/{task_id}", staying)).status_code == 200


async def _read_stream(lobby: KeyedServer, path: str, key: str) -> str:
    async with lobby.site.client.stream("GET", path, headers=bearer(key)) as answer:
        return (await answer.aread()).decode()


# -- Browsers


async def test_weakness_permissive_cors(lobby: KeyedServer) -> None:
    key = await lobby.make_key("admin")
    asked = {**ORIGIN, "access-control-request-method": "POST"}
    wanted = {**asked, "access-control-request-headers": "authorization, content-type"}
    for path in ("/v1/tasks", "/v1/events", "/healthz", "/docs", "/nothing", f"/v1/x/{UNKNOWN_ID}"):
        for method in ("OPTIONS", "GET", "POST"):
            for shown_key in ("", key):
                for headers in (wanted, {"origin": "null"}):
                    if path == "/v1/events" and method == "GET" and shown_key:
                        continue
                    answer = await lobby.http(method, path, shown_key, headers=headers)
                    found = [name for name in answer.headers if name.startswith("access-control")]
                    assert not found, (method, path)
                    assert method != "OPTIONS" or not answer.is_success


async def test_weakness_requests_that_a_form_of_another_site_can_send(lobby: KeyedServer) -> None:
    """There are no cookies to ride on, and what a plain form can send is no body of ours."""
    key = await lobby.make_key("admin")
    before = await lobby.world.dump("tasks", "queues")
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        headers = {**ORIGIN, "content-type": kind}
        body = b'{"type": "mail", "queue": "q", "startToCloseMs": 1}'
        answer = await lobby.http("POST", "/v1/tasks", key, headers=headers, content=body)
        assert answer.status_code == 415
        assert "set-cookie" not in answer.headers
    cookies = {**ORIGIN, "cookie": f"authorization=Bearer {key}; key={key}"}
    assert (await lobby.http("GET", "/v1/tasks", headers=cookies)).status_code == 401
    assert await lobby.world.dump("tasks", "queues") == before
