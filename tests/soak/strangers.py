"""Who has no key, or sends slowly on purpose: what it costs, for how long, and whom it disturbs.

Calls over gRPC whose messages lack their last byte: without a key, to a method that needs none, and
to an open server. Memory is that of the real server process. Then bodies over HTTP that do not come
whole, all of one key, while another key and a load balancer go on.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio
import httpx
import msgspec

from tenure.v1 import task_pb2
from tenure.v1 import task_service_pb2 as pb
from tenure.v1.task_service_pb2_grpc import TaskServiceStub
from tests.bounds import WORK_S
from tests.soak.result import Result
from tests.soak.scene import SCALES, Scale
from tests.wire.http2 import RawConnection
from tests.wire.process import Process
from tests.wire.server import ServerProcess
from tests.wire.stage import Stage, open_stage

MESSAGE_BYTES: Final = 4 * 1024 * 1024
GROWTH_MIB_MAX: Final = 64
END_S: Final = 10.0
CONNECTIONS: Final = 4
BODIES: Final = 1_000
ENQUEUE: Final = "/tenure.v1.TaskService/EnqueueTasks"
HEALTH: Final = "/grpc.health.v1.Health/Check"
TASK: Final = {"type": "mail", "queue": "default", "startToCloseMs": 60_000}


class Size(msgspec.Struct, frozen=True):
    """How many calls are left unfinished."""

    calls: int
    scale: Scale


SIZES: Final = {False: Size(800, SCALES[False]), True: Size(60, SCALES[True])}


async def run(small: bool) -> list[Result]:
    """Attack a server for each kind; memory has little to do with the store."""
    size = SIZES[small]
    parts = (
        _unfinished("with keys, no key shown", ENQUEUE, size, is_keyed=True),
        _unfinished("with keys, health checks", HEALTH, size, is_keyed=True),
        _unfinished("open", ENQUEUE, size, is_keyed=False),
        _slow_bodies(size),
    )
    found: list[list[Result]]
    if size.scale.is_side_by_side:
        found = list(await asyncio.gather(*parts))
    else:
        found = [await part for part in parts]
    return [each for some in found for each in some]


async def new_key(stage: Stage, role: str) -> str:
    """Make a key in the store of a scene."""
    process = await Process.spawn(
        ("-m", "tenure.cli", "keys", "create", "--role", role, "--store", stage.store),
        stage.folder / "keys.log",
    )
    key = (await process.stdout.readline()).decode().strip()
    assert await process.wait() == 0
    return key


def _memory_mib(server: ServerProcess) -> float:
    """Return what a server process has in memory."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    (line,) = (each for each in status.splitlines() if each.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024


class _Attack:
    """Unfinished messages over some connections."""

    def __init__(self, connections: list[RawConnection], path: str, count: int) -> None:
        self.began_s = time.monotonic()
        self.calls = []
        self._sending = []
        for number in range(count):
            connection = connections[number % len(connections)]
            call = connection.call(path)
            self.calls.append(call)
            self._sending.append(
                asyncio.ensure_future(connection.send_unfinished(call, MESSAGE_BYTES))
            )

    @property
    def open_count(self) -> int:
        return sum(not each.is_over.is_set() for each in self.calls)

    async def stop(self) -> None:
        for each in self._sending:
            each.cancel()
        await asyncio.gather(*self._sending, return_exceptions=True)


@asynccontextmanager
async def _connections(address: str) -> AsyncIterator[list[RawConnection]]:
    made = [await RawConnection.open(address) for _ in range(CONNECTIONS)]
    try:
        yield made
    finally:
        for each in made:
            await each.close()


async def _unfinished(name: str, path: str, size: Size, *, is_keyed: bool) -> list[Result]:
    async with open_stage("sqlite", size.scale.settings) as stage:
        key = await new_key(stage, "admin") if is_keyed else ""
        server = await stage.server()
        before_mib = most_mib = _memory_mib(server)
        good = _GoodClient(server.grpc, key)
        async with _connections(server.grpc) as connections:
            attack = _Attack(connections, path, size.calls)
            while attack.open_count and time.monotonic() - attack.began_s < WORK_S:
                most_mib = max(most_mib, _memory_mib(server))
                await good.call()
                await asyncio.sleep(0.05)
            left_count = attack.open_count
            await attack.stop()
            assert not any(each.is_over for each in connections), "only calls are ended"
        await good.close()
        growth_mib = most_mib - before_mib
        ended_s = max(each.took_s for each in attack.calls)
        what = f"strangers, {name}: {size.calls} unfinished messages of 4 MiB"
        return [
            Result(
                what,
                f"at most {GROWTH_MIB_MAX} MiB, ended within {END_S:g} s",
                f"{growth_mib:.0f} MiB, {ended_s:.1f} s, {left_count} left",
                held=growth_mib <= GROWTH_MIB_MAX
                and left_count == 0
                and ended_s <= END_S * size.scale.slack,
            ),
            Result(
                f"{what}: enqueues meanwhile",
                "all accepted" if is_keyed else "reported",
                f"{dict(good.answers)}, at most {max(good.took_s) * 1_000:.0f} ms",
                held=set(good.answers) == {"OK"} if is_keyed else None,
            ),
        ]


class _GoodClient:
    """Enqueues one task after the other."""

    def __init__(self, address: str, key: str) -> None:
        self._channel = grpc.aio.insecure_channel(address)
        self._metadata = (("authorization", f"Bearer {key}"),) if key else ()
        self.answers: Counter[str] = Counter()
        self.took_s: list[float] = []

    async def call(self) -> None:
        task = task_pb2.NewTask(
            type="mail",
            task_queue="default",
            options=task_pb2.TaskOptions(start_to_close_ms=60_000),
        )
        tasks: Any = TaskServiceStub(self._channel)
        began_s = time.monotonic()
        try:
            await tasks.EnqueueTasks(
                pb.EnqueueTasksRequest(tasks=[task]), metadata=self._metadata, timeout=WORK_S
            )
            answer = "OK"
        except grpc.aio.AioRpcError as error:
            answer = error.code().name
        self.took_s.append(time.monotonic() - began_s)
        self.answers[answer] += 1

    async def close(self) -> None:
        await self._channel.close()


async def _slow_bodies(size: Size) -> list[Result]:
    async with open_stage("sqlite", size.scale.settings) as stage:
        # The first key must be one that can make others.
        await new_key(stage, "admin")
        greedy, other = await new_key(stage, "client"), await new_key(stage, "client")
        server = await stage.server()
        async with httpx.AsyncClient(
            base_url=f"http://{server.http}", timeout=WORK_S, trust_env=False
        ) as client:
            slow = [asyncio.ensure_future(_slow_body(server.http, greedy)) for _ in range(BODIES)]
            answers: Counter[str] = Counter()
            while not all(each.done() for each in slow):
                for path, method in (("/healthz", "GET"), ("/v1/tasks", "POST")):
                    answer = await client.request(
                        method,
                        path,
                        headers={"authorization": f"Bearer {other}"},
                        json=TASK if method == "POST" else None,
                    )
                    answers[f"{path} {answer.status_code}"] += 1
                await asyncio.sleep(0.05)
        ends = Counter(each.result()[0] for each in slow)
        ended_s = max(each.result()[1] for each in slow)
    good = {"/healthz 200", "/v1/tasks 201"}
    return [
        Result(
            f"strangers, {BODIES} slow bodies of one key: others",
            "probes and enqueues of another key answered",
            ", ".join(f"{answer}: {count}" for answer, count in sorted(answers.items())),
            held=set(answers) == good,
        ),
        Result(
            f"strangers, {BODIES} slow bodies of one key: their end",
            f"408 or 429, within {END_S:g} s",
            f"{ended_s:.1f} s, {dict(sorted(ends.items()))}",
            held=set(ends) <= {"408", "429"} and ended_s <= END_S * size.scale.slack,
        ),
    ]


async def _slow_body(address: str, key: str) -> tuple[str, float]:
    """Send a request without the end of its body; return the status of its answer, and when."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = (
        f"POST /v1/tasks HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n"
        "content-type: application/json\r\ncontent-length: 100\r\n\r\n{"
    )
    began_s = time.monotonic()
    writer.write(head.encode())
    try:
        async with asyncio.timeout(WORK_S):
            status = (await reader.readline()).split()[1].decode()
        return status, time.monotonic() - began_s
    finally:
        writer.close()
