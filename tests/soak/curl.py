"""Anybody can use a server: with curl alone over HTTP, and by reflection over gRPC."""

from __future__ import annotations

import asyncio
import json
import shutil
from typing import Any, Final

import grpc
from google.protobuf import descriptor_pool, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from tests.bounds import WORK_S
from tests.polling import eventually
from tests.soak.result import Result
from tests.soak.scene import SCALES, on_both_stores
from tests.wire.server import ServerProcess
from tests.wire.stage import Stage

SERVICES: Final = frozenset(
    {
        "tenure.v1.WorkflowService",
        "tenure.v1.TaskService",
        "tenure.v1.SessionService",
        "tenure.v1.AdminService",
        "grpc.health.v1.Health",
    }
)
LONG_MS: Final = 600_000


async def run(small: bool) -> list[Result]:
    """Enqueue, watch and cancel without any client of ours."""
    assert shutil.which("curl"), "curl is needed for this"

    async def scene(stage: Stage, dialect: str) -> list[Result]:
        server = await stage.server()
        await stage.worker(server.grpc)
        return [
            await _enqueue_and_watch(server, dialect),
            await _watch_and_cancel(server, dialect),
            await asyncio.to_thread(_reflect, server.grpc, dialect),
        ]

    return await on_both_stores(SCALES[small], scene)


async def _curl(*arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        "curl",
        *("--silent", "--show-error", "--fail-with-body", "--no-buffer", "--noproxy", "*"),
        *("--max-time", f"{WORK_S:.0f}", *arguments),
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, f"curl {' '.join(arguments)} said {said.decode()}"
    return said.decode()


async def _post(url: str, body: dict[str, Any]) -> dict[str, Any]:
    found = json.loads(
        await _curl("--header", "content-type: application/json", "--data", json.dumps(body), url)
    )
    assert isinstance(found, dict)
    return found


def _events(text: str) -> list[tuple[str, dict[str, Any]]]:
    """Read server-sent events."""
    found = []
    for block in text.split("\n\n"):
        fields = [line.partition(": ") for line in block.splitlines()]
        name = next((value for key, _, value in fields if key == "event"), None)
        if name is not None:
            data = "\n".join(value for key, _, value in fields if key == "data")
            found.append((name, json.loads(data)))
    return found


async def _enqueue(server: ServerProcess, sleep_ms: int) -> str:
    body = {
        "type": "work",
        "queue": "default",
        "input": {"sleep_ms": sleep_ms},
        "startToCloseMs": LONG_MS,
    }
    task_id = (await _post(f"http://{server.http}/v1/tasks", body))["taskId"]
    assert isinstance(task_id, str)
    return task_id


async def _enqueue_and_watch(server: ServerProcess, dialect: str) -> Result:
    task_id = await _enqueue(server, 1_200)
    events = _events(await _curl(f"http://{server.http}/v1/tasks/{task_id}/watch"))
    states = [data["state"] for _, data in events]
    return Result(
        f"curl, {dialect}: enqueue and watch",
        "each state as it comes, then the result",
        f"{' → '.join(states)}, last event {events[-1][0]}",
        held=events[-1][0] == "result" and states[-1] == "SUCCEEDED" and len(set(states)) > 1,
    )


async def _watch_and_cancel(server: ServerProcess, dialect: str) -> Result:
    task_id = await _enqueue(server, LONG_MS)
    url = f"http://{server.http}/v1/tasks/{task_id}"
    watch = asyncio.ensure_future(_curl(f"{url}/watch"))

    async def is_running() -> bool:
        return bool(json.loads(await _curl(url))["state"] == "RUNNING")

    await eventually(is_running, within_s=WORK_S, every_s=0.05)
    answer = await _post(f"{url}/cancel", {"reason": "not needed"})
    events = _events(await watch)
    state = events[-1][1]["state"]
    return Result(
        f"curl, {dialect}: cancel a running task",
        "CANCELLED, and the watch ends with it",
        f"answered {answer['state']}, watched to {state}",
        held=state == "CANCELLED" and events[-1][0] == "result",
    )


def _reflect(target: str, dialect: str) -> Result:
    """Call a method that is known by what the server says of itself alone."""
    with grpc.insecure_channel(target) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        services = set(database.get_services())
        pool = descriptor_pool.DescriptorPool(database)
        service: Any = pool.FindServiceByName(  # type: ignore[no-untyped-call]
            "tenure.v1.TaskService"
        )
        method = service.FindMethodByName("EnqueueTasks")
        request = message_factory.GetMessageClass(method.input_type)()
        task = request.tasks.add()  # type: ignore[attr-defined]
        task.type, task.task_queue = "nothing", "nobody"
        task.options.start_to_close_ms = 1_000
        call: Any = channel.unary_unary(
            "/tenure.v1.TaskService/EnqueueTasks",
            request_serializer=message_factory.GetMessageClass(method.input_type).SerializeToString,
            response_deserializer=message_factory.GetMessageClass(method.output_type).FromString,
        )
        answer = call(request, timeout=10)
    count = sum(bool(each.task_id) for each in answer.results)
    return Result(
        f"reflection, {dialect}: services listed, a method called by its descriptor",
        f"{len(SERVICES)} services, one task enqueued",
        f"{len(services & SERVICES)} services, {count} task enqueued",
        held=services >= SERVICES and count == 1,
    )
