"""Who is let in over gRPC, and what happens to streams whose key ends."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tenure.v1 import admin_service_pb2 as admin_pb
from tenure.v1 import session_service_pb2 as session_pb
from tenure.v1 import task_service_pb2 as pb
from tenure.v1 import worker_pb2
from tenure.v1 import workflow_service_pb2 as workflow_pb
from tests.api.access.keyed_server import KeyedServer, ended, key_id, open_lobby, shown
from tests.api.rpc.wire import Stream, refused
from tests.bounds import ANSWER_S
from tests.engine.world import NAMESPACE, OTHER_NAMESPACE, QUEUE, World
from tests.polling import eventually

UNAUTHENTICATED = ("UNAUTHENTICATED", "unauthenticated")
LIST = pb.ListTasksRequest(namespace_id=NAMESPACE)


async def test_without_a_good_key_nobody_is_let_in(lobby: KeyedServer) -> None:
    key = await lobby.make_key("viewer")
    assert (await lobby.wire.tasks.ListTasks(LIST, metadata=shown(key))).tasks == []
    assert await lobby.refused(lobby.wire.tasks.ListTasks(LIST)) == UNAUTHENTICATED
    other = await lobby.make_key("viewer")
    wrong = (
        key[:-1] + ("A" if key[-1] != "A" else "B"),
        key.replace(key_id(key), key_id(other)),
        key.replace(key_id(key), "a" * 16),
        key.upper(),
        key + "A",
        "tnr__",
        "x" * 5_000,
        "",
    )
    said = set()
    for each in wrong:
        status, found = await refused(lobby.wire.tasks.ListTasks(LIST, metadata=shown(each)))
        assert (status, found.code) == UNAUTHENTICATED, each
        said.add(found.message)
        assert key not in found.message
    # Nobody learns which part was wrong.
    assert len(said) == 1
    basic = (("authorization", f"Basic {key}"),)
    assert await lobby.refused(lobby.wire.tasks.ListTasks(LIST, metadata=basic)) == UNAUTHENTICATED
    twice = (*shown(key), *shown(key))
    assert await lobby.refused(lobby.wire.tasks.ListTasks(LIST, metadata=twice)) == UNAUTHENTICATED


async def test_a_key_that_ended_is_refused(lobby: KeyedServer) -> None:
    kept, brief = await lobby.make_key("viewer"), await lobby.make_key("viewer", expires_in_ms=1000)
    for key in (kept, brief):
        await lobby.wire.tasks.ListTasks(LIST, metadata=shown(key))
    await lobby.world.advance(1_000)
    assert await lobby.refused(lobby.wire.tasks.ListTasks(LIST, metadata=shown(brief))) == (
        UNAUTHENTICATED
    )
    await lobby.wire.tasks.ListTasks(LIST, metadata=shown(kept))
    await lobby.revoke(kept)
    assert await lobby.refused(lobby.wire.tasks.ListTasks(LIST, metadata=shown(kept))) == (
        UNAUTHENTICATED
    )


async def test_a_key_is_not_even_looked_at_by_an_open_server(small: KeyedServer) -> None:
    for metadata in (shown("tnr_nonsense"), (*shown("a"), *shown("b"))):
        await small.wire.tasks.ListTasks(LIST, metadata=metadata)


async def test_a_server_that_ever_had_a_key_is_never_open_again(lobby: KeyedServer) -> None:
    key = await lobby.make_key("admin")
    await lobby.revoke(key)
    assert await lobby.refused(lobby.wire.tasks.ListTasks(LIST)) == UNAUTHENTICATED


async def test_the_role_comes_first_then_the_namespace_then_the_rest(lobby: KeyedServer) -> None:
    viewer = await lobby.make_key("viewer", NAMESPACE)
    client = await lobby.make_key("client", NAMESPACE)
    bad = pb.EnqueueTasksRequest(namespace_id=OTHER_NAMESPACE)
    enqueue = lobby.wire.tasks.EnqueueTasks
    assert await lobby.refused(enqueue(bad, metadata=shown(viewer))) == (
        "PERMISSION_DENIED",
        "permission_denied",
    )
    assert await lobby.refused(enqueue(bad, metadata=shown(client))) == ("NOT_FOUND", "not_found")
    own = pb.EnqueueTasksRequest(namespace_id=NAMESPACE, tasks=[lobby.wire.new(type="")])
    assert await lobby.refused(enqueue(own, metadata=shown(client))) == (
        "INVALID_ARGUMENT",
        "invalid_argument",
    )


async def test_a_foreign_namespace_is_told_like_one_that_does_not_exist(lobby: KeyedServer) -> None:
    whole, bound = await lobby.make_key("viewer"), await lobby.make_key("viewer", NAMESPACE)

    async def said(key: str, namespace: str) -> tuple[str, str, str]:
        request = pb.ListTasksRequest(namespace_id=namespace)
        status, found = await refused(lobby.wire.tasks.ListTasks(request, metadata=shown(key)))
        return status, found.code, found.message.replace(namespace, "NAME")

    absent = await said(whole, "nobody/here")
    assert absent == ("NOT_FOUND", "not_found", "Namespace NAME was not found.")
    assert await said(bound, "nobody/here") == absent
    assert await said(bound, OTHER_NAMESPACE) == absent
    # A bare name and none at all are namespaces too.
    for name in ("other", ""):
        request = pb.ListTasksRequest(namespace_id=name)
        call = lobby.wire.tasks.ListTasks(request, metadata=shown(bound))
        assert await lobby.refused(call) == ("NOT_FOUND", "not_found")
    request = pb.ListTasksRequest(namespace_id="acme")
    await lobby.wire.tasks.ListTasks(request, metadata=shown(bound))


async def test_what_needs_no_key_is_open_and_everything_else_is_not(small: KeyedServer) -> None:
    key = await small.make_key("viewer")
    health: Any = health_pb2_grpc.HealthStub(small.wire.channel)
    await health.Check(health_pb2.HealthCheckRequest())
    await small.wire.workflows.HealthCheck(workflow_pb.HealthCheckRequest())
    status, found = await refused(
        small.wire.tasks.CompleteByToken(pb.CompleteByTokenRequest(task_token="x"))
    )
    assert (status, found.code) == ("UNAUTHENTICATED", "invalid_token")
    reflection: Any = reflection_pb2_grpc.ServerReflectionStub(small.wire.channel)
    asked = reflection_pb2.ServerReflectionRequest(list_services="")
    assert (await ended(reflection.ServerReflectionInfo(iter([asked]))))[0] == "UNAUTHENTICATED"
    stream = reflection.ServerReflectionInfo(iter([asked]), metadata=shown(key))
    services = (await stream.read()).list_services_response.service
    assert "tenure.v1.TaskService" in {each.name for each in services}
    assert await ended(stream) == ("OK", "")


async def test_who_has_no_key_does_not_learn_which_methods_there_are(small: KeyedServer) -> None:
    key = await small.make_key("viewer")
    for path in ("/tenure.v1.TaskService/Nothing", "/x.Y/Check", "/grpc.health.v1.Health/check"):
        call: Any = small.wire.channel.unary_unary(path)
        assert (await small.refused(call(b"")))[0] == "UNAUTHENTICATED", path
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await call(b"", metadata=shown(key))
        assert failure.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_bad_message_without_a_key_is_told_that_it_has_none(small: KeyedServer) -> None:
    key = await small.make_key("viewer")
    call: Any = small.wire.channel.unary_unary("/tenure.v1.TaskService/ListTasks")
    assert await small.refused(call(b"\xff")) == UNAUTHENTICATED
    assert await small.refused(call(b"\xff", metadata=shown(key))) == (
        "INVALID_ARGUMENT",
        "invalid_argument",
    )


# -- Streams


async def _session(lobby: KeyedServer, key: str) -> tuple[str, Stream]:
    request = workflow_pb.RegisterWorkerRequest(
        namespace_id=NAMESPACE,
        task_queue=QUEUE,
        workflow_types=["mail"],
        mode=worker_pb2.WORKER_MODE_SESSION,
    )
    made = await lobby.wire.workflows.RegisterWorker(request, metadata=shown(key))
    stream = Stream(lobby.wire.sessions.Open(metadata=shown(key)))
    hello = session_pb.Hello(
        namespace_id=NAMESPACE, worker_id=made.worker_id, window=5, session_no=1
    )
    await stream.send(hello=hello)
    stream.welcome = (await stream.read()).welcome
    return made.worker_id, stream


async def _watch(lobby: KeyedServer, key: str, task_id: str) -> Any:
    call = lobby.wire.tasks.WatchTasks(metadata=shown(key))
    await call.write(pb.WatchTasksRequest(namespace_id=NAMESPACE, add=[task_id]))
    return call


async def test_streams_of_a_revoked_key_end_and_others_go_on(lobby: KeyedServer) -> None:
    ending, staying = await lobby.make_key("admin"), await lobby.make_key("admin")
    worker_id, stream = await _session(lobby, ending)
    _, other = await _session(lobby, staying)
    request = pb.EnqueueTasksRequest(namespace_id=NAMESPACE, tasks=[lobby.wire.new(type="slow")])
    answer = await lobby.wire.tasks.EnqueueTasks(request, metadata=shown(staying))
    task_id = answer.results[0].task_id
    watches = [await _watch(lobby, key, task_id) for key in (ending, staying)]
    polled = workflow_pb.RegisterWorkerRequest(
        namespace_id=NAMESPACE, task_queue=QUEUE, workflow_types=["mail"]
    )
    poller = await lobby.wire.workflows.RegisterWorker(polled, metadata=shown(ending))
    asked = workflow_pb.PollActivityRequest(
        namespace_id=NAMESPACE,
        worker_id=poller.worker_id,
        task_queue=QUEUE,
        supported_workflow_types=["mail"],
        wait=Duration(seconds=60),
    )
    poll = lobby.wire.workflows.PollActivity(asked, metadata=shown(ending))
    await eventually(lambda: _is_watched(lobby))

    await lobby.revoke(ending)

    assert (await ended(stream.call))[0] == "UNAUTHENTICATED"
    assert (await ended(watches[0]))[0] == "UNAUTHENTICATED"
    assert await lobby.refused(poll) == UNAUTHENTICATED
    # The worker is treated like any whose stream broke: suspect, then gone when its grace is over.
    get = workflow_pb.GetWorkerRequest(namespace_id=NAMESPACE, worker_id=worker_id)

    async def is_suspect() -> bool:
        shown_worker = await lobby.wire.workflows.GetWorker(get, metadata=shown(staying))
        return bool(shown_worker.worker.health == worker_pb2.WORKER_HEALTH_SUSPECT)

    await eventually(is_suspect)
    await other.send(beat=session_pb.WorkerBeat(token=other.welcome.token))
    assert await other.until(lambda frame: frame.HasField("lease"))
    terminate = pb.TerminateTaskRequest(namespace_id=NAMESPACE, task_id=task_id)
    await lobby.wire.tasks.TerminateTask(terminate, metadata=shown(staying))
    async with asyncio.timeout(ANSWER_S):
        assert (await watches[1].read()).results[0].task_id == task_id


async def _is_watched(lobby: KeyedServer) -> bool:
    return len(lobby.engine.results) > 0


async def test_a_stream_ends_when_its_key_expires(lobby: KeyedServer) -> None:
    key = await lobby.make_key("worker", expires_in_ms=300)
    _, stream = await _session(lobby, key)
    await lobby.world.advance(300)
    assert (await ended(stream.call))[0] == "UNAUTHENTICATED"


async def test_streams_of_an_open_server_end_with_its_first_key(lobby: KeyedServer) -> None:
    _, stream = await _session(lobby, "")
    await lobby.make_key("admin")
    status, said = await ended(stream.call)
    assert status == "UNAUTHENTICATED"
    assert "first API key" in said


async def test_a_stream_without_a_key_or_with_a_foreign_namespace_is_refused(
    small: KeyedServer,
) -> None:
    worker = await small.make_key("worker", NAMESPACE)
    viewer = await small.make_key("viewer")
    calls = (small.wire.sessions.Open, small.wire.tasks.WatchTasks)
    for open_stream in calls:
        assert (await ended(open_stream()))[0] == "UNAUTHENTICATED"
    assert (await ended(small.wire.sessions.Open(metadata=shown(viewer))))[0] == "PERMISSION_DENIED"
    hello = session_pb.Hello(namespace_id=OTHER_NAMESPACE, worker_id="x", window=1)
    session = small.wire.sessions.Open(metadata=shown(worker))
    await session.write(session_pb.ClientFrame(hello=hello))
    assert (await ended(session))[0] == "NOT_FOUND"
    watch = small.wire.tasks.WatchTasks(metadata=shown(worker))
    await watch.write(pb.WatchTasksRequest(namespace_id=OTHER_NAMESPACE))
    assert (await ended(watch))[0] == "NOT_FOUND"


async def test_only_who_may_enqueue_does_so_on_a_stream(small: KeyedServer) -> None:
    new = pb.EnqueueTasksRequest(tasks=[small.wire.new()])
    enqueue = pb.StreamedEnqueue(number=1, request=new)
    refusals = {}
    for role in ("viewer", "worker", "client", "admin"):
        key = await small.make_key(role, NAMESPACE)
        stream = small.wire.tasks.WatchTasks(metadata=shown(key))
        await stream.write(pb.WatchTasksRequest(namespace_id=NAMESPACE, enqueues=[enqueue]))
        await stream.done_writing()
        (answer,) = [each async for frame in stream for each in frame.answers]
        refusals[role] = answer.refusal.code
    denied = "permission_denied"
    assert refusals == {"viewer": denied, "worker": denied, "client": "", "admin": ""}


async def test_a_key_counts_and_ends_at_every_server(world: World) -> None:
    """On SQLite there is one server only."""
    if world.dialect == "sqlite":
        return
    async with open_lobby(world) as here, open_lobby(world) as there:
        assert (await there.wire.tasks.ListTasks(LIST)).tasks == []
        await here.make_key("admin")
        await eventually(lambda: _is_closed(there))
        key = await here.make_key("worker")
        _, stream = await _session(there, key)
        await here.revoke(key)
        assert (await ended(stream.call))[0] == "UNAUTHENTICATED"
        call = there.wire.tasks.ListTasks(LIST, metadata=shown(key))
        assert await there.refused(call) == UNAUTHENTICATED


async def _is_closed(lobby: KeyedServer) -> bool:
    return lobby.engine.access_cache.has_keys


async def test_nobody_administers_a_server_that_got_its_first_key_elsewhere(world: World) -> None:
    """On SQLite there is one server only."""
    if world.dialect == "sqlite":
        return
    async with open_lobby(world) as here, open_lobby(world) as there:
        await here.make_key("admin")
        # Whether it has heard of the key already or not.
        request = admin_pb.CreateApiKeyRequest(name="mine", role=admin_pb.ROLE_ADMIN)
        assert await there.refused(there.wire.admin.CreateApiKey(request)) == UNAUTHENTICATED
        assert await there.code("GET", "/v1/api-keys") == (401, "unauthenticated")
