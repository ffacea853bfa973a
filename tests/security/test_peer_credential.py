"""Weaknesses that other servers had with keys and tokens, one test each."""

from __future__ import annotations

import base64
import hmac
import itertools
from typing import Any, Final

import pytest
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tenure.v1 import task_pb2
from tenure.v1 import task_service_pb2 as task_pb
from tests.api.access.keyed_server import KeyedServer, ended, key_id, shown
from tests.api.rpc.wire import ref, refused
from tests.engine.world import NAMESPACE, OTHER_NAMESPACE

UNAUTHENTICATED: Final = ("UNAUTHENTICATED", "unauthenticated")
SUCCEEDED: Final = task_pb2.FINISH_KIND_SUCCEEDED
GOOD_LIST: Final = task_pb.ListTasksRequest(namespace_id=NAMESPACE)


# -- Keys


QUERY_NAMES: Final = [
    "api_key",
    "apiKey",
    "key",
    "token",
    "access_token",
    "authorization",
    "Authorization",
]


async def test_weakness_a_key_in_the_query_string(lobby: KeyedServer) -> None:
    """A query ends in logs, in histories and in the Referer of other sites."""
    key = await lobby.make_key("admin")
    for name, value in itertools.product(QUERY_NAMES, (key, f"Bearer%20{key}")):
        answer = await lobby.http("GET", f"/v1/tasks?{name}={value}")
        assert answer.status_code == 401
        assert key not in answer.text
        # Beside a good header it is refused as what it is: no parameter of ours.
        answer = await lobby.http("GET", f"/v1/tasks?{name}={value}", key)
        assert answer.status_code == 400
        assert key.split("_")[2] not in answer.text


async def test_weakness_a_key_in_another_header(lobby: KeyedServer) -> None:
    key = await lobby.make_key("admin")
    for name in ("x-api-key", "api-key", "x-auth-token", "proxy-authorization", "cookie"):
        for value in (key, f"Bearer {key}"):
            assert (await lobby.http("GET", "/v1/tasks", headers={name: value})).status_code == 401
            call = lobby.wire.tasks.ListTasks(GOOD_LIST, metadata=((name, value),))
            assert await lobby.refused(call) == UNAUTHENTICATED


async def test_weakness_authorization_of_another_scheme(lobby: KeyedServer) -> None:
    key = await lobby.make_key("admin")
    basic = base64.b64encode(f"{key_id(key)}:{key}".encode()).decode()
    for value in (
        f"Basic {basic}",
        f"Basic {key}",
        f"Token {key}",
        f"Digest {key}",
        f"Bearer Bearer {key}",
        f"Bearer,{key}",
        f"Bearer\t{key}",
        f"Basic {basic}, Bearer {key}",
        f"Bearer {key}, Basic {basic}",
        f'Bearer "{key}"',
        key,
    ):
        headers = {"authorization": value}
        assert (await lobby.http("GET", "/v1/tasks", headers=headers)).status_code == 401, value
        if "\t" not in value:
            call = lobby.wire.tasks.ListTasks(GOOD_LIST, metadata=(("authorization", value),))
            assert await lobby.refused(call) == UNAUTHENTICATED, value


async def test_weakness_secrets_compared_byte_by_byte(
    lobby: KeyedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right, wrong and unknown keys take the same comparison; what is compared are digests."""
    key = await lobby.make_key("viewer")
    compared: list[tuple[int, int]] = []
    real = hmac.compare_digest

    def note(a: bytes, b: bytes) -> bool:
        compared.append((len(a), len(b)))
        return real(a, b)

    monkeypatch.setattr(hmac, "compare_digest", note)
    for each in (key, key[:-2] + "xx", key.replace(key_id(key), "z" * 16)):
        compared.clear()
        await lobby.http("GET", "/openapi.json", each)
        assert compared == [(32, 32)]


async def test_weakness_an_open_description_of_the_api(lobby: KeyedServer) -> None:
    key = await lobby.make_key("viewer", NAMESPACE)
    for path in ("/openapi.json", "/docs"):
        assert (await lobby.http("GET", path)).status_code == 401
        assert (await lobby.http("GET", path, key)).status_code == 200
    reflection: Any = reflection_pb2_grpc.ServerReflectionStub(lobby.wire.channel)
    for asked in (
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="tenure.v1.TaskService"),
    ):
        status, said = await ended(reflection.ServerReflectionInfo(iter([asked])))
        assert status == "UNAUTHENTICATED"
        assert "TaskService" not in said
        stream = reflection.ServerReflectionInfo(iter([asked]), metadata=shown(key))
        assert (await ended(stream))[0] == "OK"


async def test_weakness_names_of_keys_that_become_header_or_log_lines(lobby: KeyedServer) -> None:
    admin = await lobby.make_key("admin")
    for name in ("a\nb", "a\r\nx: y", "\x1b[31m", "a\0b", "\u202e", "\u2028"):
        body = {"name": name, "role": "viewer"}
        answer = await lobby.http("POST", "/v1/api-keys", admin, json=body)
        assert (answer.status_code, answer.json()["field"]) == (400, "name")
        assert name not in answer.text


async def test_weakness_more_rights_by_making_a_key(lobby: KeyedServer) -> None:
    """Only administrators make keys, and never wider ones than their own."""
    for role in ("viewer", "client", "worker"):
        key = await lobby.make_key(role)
        body = {"name": "n", "role": "viewer", "namespaces": [NAMESPACE]}
        assert await lobby.code("POST", "/v1/api-keys", key, json=body) == (
            403,
            "permission_denied",
        )
    bound = await lobby.make_key("admin", NAMESPACE)
    made = await lobby.http("POST", "/v1/api-keys", bound, json={"name": "n", "role": "admin"})
    assert made.status_code == 403
    inner = {"name": "n", "role": "admin", "namespaces": [NAMESPACE]}
    secret = (await lobby.http("POST", "/v1/api-keys", bound, json=inner)).json()["secret"]
    assert await lobby.code("GET", "/metrics", secret) == (403, "permission_denied")
    assert await lobby.code("GET", "/v1/workers", secret) == (200, "")
    headers = {"tenure-namespace": OTHER_NAMESPACE}
    assert await lobby.code("GET", "/v1/workers", secret, headers=headers) == (404, "not_found")


# -- The first key


async def test_weakness_a_server_that_is_open_again_when_its_keys_are_gone(
    lobby: KeyedServer,
) -> None:
    key = await lobby.make_key("admin", expires_in_ms=1_000)
    await lobby.world.advance(1_000)
    assert await lobby.code("GET", "/v1/tasks") == (401, "unauthenticated")
    assert await lobby.code("POST", "/v1/api-keys", json={"name": "n", "role": "admin"}) == (
        401,
        "unauthenticated",
    )
    again = await lobby.world.start()
    assert again.access_cache.has_keys
    assert again.access_cache.find(key_id(key)) is None


# -- Tokens of tasks


async def held(lobby: KeyedServer) -> tuple[str, Any]:
    """Return a worker and a task that runs there, with its token."""
    queue = lobby.world.clock.new_id()
    (task_id,) = await lobby.wire.enqueue(lobby.wire.new(task_queue=queue))
    worker = (await lobby.wire.register(task_queue=queue)).worker_id
    (task,) = await lobby.wire.poll(worker, task_queue=queue)
    assert task.task_id == task_id
    request = task_pb.StartTasksRequest(namespace_id=NAMESPACE, worker_id=worker, items=[ref(task)])
    await lobby.wire.tasks.StartTasks(request)
    return worker, task


async def test_weakness_the_token_of_one_task_completes_another(lobby: KeyedServer) -> None:
    """A token is for its own task and attempt: there is no field beside it to name another."""
    fields = {each.name for each in task_pb.CompleteByTokenRequest.DESCRIPTOR.fields}
    assert fields == {"task_token", "kind", "output", "error", "output_encoding"}
    (_, one), (_, two) = await held(lobby), await held(lobby)
    raw = [base64.urlsafe_b64decode(each.task_token + "==") for each in (one, two)]
    # The signature of one with the claims of the other.
    mixed = base64.urlsafe_b64encode(raw[0][:34] + raw[1][34:]).rstrip(b"=").decode()
    request = task_pb.CompleteByTokenRequest(task_token=mixed, kind=SUCCEEDED)
    status, found = await refused(lobby.wire.tasks.CompleteByToken(request))
    assert (status, found.code) == ("UNAUTHENTICATED", "invalid_token")
    request = task_pb.CompleteByTokenRequest(task_token=one.task_token, kind=SUCCEEDED)
    await lobby.wire.tasks.CompleteByToken(request)
    assert await lobby.wire.state(one.task_id) == "SUCCEEDED"
    assert await lobby.wire.state(two.task_id) == "RUNNING"


async def test_weakness_a_token_that_is_good_after_the_end_of_its_task(lobby: KeyedServer) -> None:
    _, task = await held(lobby)
    done = task_pb.CompleteByTokenRequest(task_token=task.task_token, kind=SUCCEEDED, output=b"1")
    await lobby.wire.tasks.CompleteByToken(done)
    before = await lobby.world.dump()
    other = task_pb.CompleteByTokenRequest(task_token=task.task_token, kind=SUCCEEDED, output=b"2")
    status, found = await refused(lobby.wire.tasks.CompleteByToken(other))
    assert (status, found.code) == ("FAILED_PRECONDITION", "task_already_terminal")
    beat = task_pb.HeartbeatByTokenRequest(task_token=task.task_token, message="still")
    status, found = await refused(lobby.wire.tasks.HeartbeatByToken(beat))
    assert (status, found.code) == ("FAILED_PRECONDITION", "task_already_terminal")
    assert await lobby.world.dump() == before


async def test_weakness_the_token_of_a_task_as_an_api_key(lobby: KeyedServer) -> None:
    _, task = await held(lobby)
    await lobby.make_key("admin")
    for path in ("/v1/tasks", f"/v1/tasks/{task.task_id}", "/v1/api-keys", "/v1/audit"):
        assert await lobby.code("GET", path, task.task_token) == (401, "unauthenticated")
    call = lobby.wire.tasks.ListTasks(GOOD_LIST, metadata=shown(task.task_token))
    assert await lobby.refused(call) == UNAUTHENTICATED


async def test_weakness_an_api_key_as_the_token_of_a_task(lobby: KeyedServer) -> None:
    key = await lobby.make_key("admin")
    request = task_pb.CompleteByTokenRequest(task_token=key, kind=SUCCEEDED)
    status, found = await refused(lobby.wire.tasks.CompleteByToken(request, metadata=shown(key)))
    assert (status, found.code) == ("UNAUTHENTICATED", "invalid_token")
    assert key.split("_")[2] not in found.message
