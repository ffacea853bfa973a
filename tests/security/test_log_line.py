"""What others can write into our logs and answers: their words, and never a line or a place."""

from __future__ import annotations

import io
import json
import re
from typing import Any, Final

import grpc
import pytest

from tenure.api.log import configure_logging
from tenure.v1 import task_service_pb2 as task_pb
from tests.api.access.keyed_server import KeyedServer, bearer, shown
from tests.api.http.site import TASK
from tests.api.rpc.wire import detail
from tests.api.test_log import other_logs
from tests.engine.world import NAMESPACE

__all__ = ["other_logs"]

FORGED: Final = (
    'x\n{"event": "forged", "level": "info"}\r\n2026-01-01 [info] forged\x1b[31m\x9b\u2028\0'
)
_PLACES: Final = re.compile(
    r"Traceback|File \"|\.py\b|/(usr|home|work|tmp|etc)/|sqlite|asyncpg", re.IGNORECASE
)
_STATEMENTS: Final = re.compile(r"\b(SELECT|INSERT|UPDATE|DELETE FROM|PRAGMA|WHERE)\b")


async def _say_everything(lobby: KeyedServer) -> None:
    """Put it wherever words are taken."""
    key = await lobby.make_key("admin")
    metadata = shown(key)
    for fields in (
        {"hostname": FORGED},
        {"version": FORGED},
        {"name": FORGED},
        {"labels": {"a": FORGED}},
        {"labels": {FORGED: "a"}},
        {"workflow_types": [FORGED]},
        {"task_queue": FORGED},
        {"namespace_id": FORGED},
        {"instance_key": FORGED},
    ):
        with pytest.raises(grpc.aio.AioRpcError):
            await lobby.wire.register(**fields)
    for message in (
        task_pb.EnqueueTasksRequest(namespace_id=NAMESPACE, tasks=[lobby.wire.new(FORGED)]),
        task_pb.EnqueueTasksRequest(namespace_id=FORGED, tasks=[lobby.wire.new()]),
    ):
        with pytest.raises(grpc.aio.AioRpcError):
            await lobby.wire.tasks.EnqueueTasks(message, metadata=metadata)
    cancel = task_pb.CancelTaskRequest(namespace_id=NAMESPACE, task_id=FORGED, reason=FORGED)
    with pytest.raises(grpc.aio.AioRpcError):
        await lobby.wire.tasks.CancelTask(cancel, metadata=metadata)
    for body in (
        {**TASK, "type": FORGED},
        {**TASK, "labels": {"a": FORGED}},
        {**TASK, "idempotencyKey": FORGED},
        {FORGED: 1},
    ):
        await lobby.http("POST", "/v1/tasks", key, json=body)
    for path in ("/v1/%0a%1b[31m", "/v1/tasks/%0d%0aforged%00", "/v1/queues/%1b[31m/pause"):
        await lobby.http("POST", path, key)
    await lobby.http("GET", "/v1/tasks", key, params={"queue": FORGED, FORGED: FORGED})
    for header in ("x-request-id", "tenure-namespace", "user-agent", "accept"):
        value = FORGED.replace("\n", "").replace("\r", "").replace("\0", "").encode()
        headers = {header.encode(): value, b"authorization": bearer(key)["authorization"].encode()}
        await lobby.site.client.get("/v1/tasks", headers=headers)
    lobby.world.faults.raise_at("find_live_tasks", RuntimeError(FORGED))
    await lobby.http("GET", "/v1/tasks", key)


@pytest.mark.parametrize("form", ["json", "text"])
async def test_weakness_log_injection_by_names_and_words(lobby: KeyedServer, form: Any) -> None:
    stream = io.StringIO()
    configure_logging(form, "debug", stream=stream)
    await _say_everything(lobby)
    text = stream.getvalue()
    assert not re.search("[\x1b\x9b\r\0\u2028]", text)
    for line in text.split("\n"):
        if form == "json" and line:
            assert json.loads(line)["event"] != "forged"
        elif line and not line.startswith(" "):
            # The lines of a trace follow their event; all others begin with their time.
            assert re.match(r"\d{4}-\d\d-\d\dT|caused by |\w+(Error)?(: |$)", line), line
            assert "[info] forged" not in line[:40]


async def test_weakness_error_bodies_with_traces_statements_or_paths(lobby: KeyedServer) -> None:
    """Whatever breaks inside, a caller gets a sentence, a code and an id."""
    key = await lobby.make_key("admin")
    inner = 'File "/usr/lib/python/x.py": SELECT secret FROM tasks WHERE password = 1; Traceback'
    said = []
    for point, method, body in (
        ("insert_tasks", "POST", {"json": TASK}),
        ("find_live_tasks", "GET", {}),
    ):
        lobby.world.faults.raise_at(point, RuntimeError(inner))
        answer = await lobby.http(method, "/v1/tasks", key, **body)
        assert answer.json()["error"] == "unavailable"
        said.append(answer.text + str(answer.headers))
    lobby.world.faults.raise_at("find_live_tasks", OSError(5, inner, "/etc/passwd"))
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await lobby.wire.tasks.ListTasks(
            task_pb.ListTasksRequest(namespace_id=NAMESPACE), metadata=shown(key)
        )
    found = failure.value
    said += [str(detail(found)), repr(found.trailing_metadata()), found.details() or ""]
    for text in said:
        assert not _PLACES.search(text), text
        assert not _STATEMENTS.search(text), text
