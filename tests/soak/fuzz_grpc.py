"""Calls that nobody would make on purpose, while a worker and a client do their usual work."""

from __future__ import annotations

import time
from typing import Any, Final

import grpc.aio
import msgspec

from tenure.errors import Unauthenticated
from tenure.v1 import admin_service_pb2
from tenure.v1 import workflow_service_pb2 as workflow_pb
from tenure.v1.admin_service_pb2_grpc import AdminServiceStub
from tenure.v1.workflow_service_pb2_grpc import WorkflowServiceStub
from tests.bounds import ANSWER_S, LONG_WORK_S
from tests.fuzz.found import Found, faults_in, memory_mib
from tests.fuzz.grpc import GrpcFuzzer, Keys
from tests.fuzz.message import Pool
from tests.soak.fuzz_http import SMALL_SEED, UNLIMITED, memory_result
from tests.soak.result import Result
from tests.soak.scene import SCALES, Scale, on_stores, spotless
from tests.wire import checker
from tests.wire.call import OPTIONS
from tests.wire.client import Client
from tests.wire.load import Load
from tests.wire.server import ServerProcess
from tests.wire.stage import STORES, Stage

QUEUE: Final = "standard"
PAUSE_S: Final = 0.1
# A part to warm the server up, one for the measurement, and one with keys.
SHARES: Final = (0.4, 0.4, 0.2)
# A twentieth of the calls with keys shows none; chance may want a few more.
KEYLESS_MAX: Final = 0.15


class Size(msgspec.Struct, frozen=True):
    """How many calls, and on which stores."""

    cases: int
    stores: tuple[str, ...]
    scale: Scale


SIZES: Final = {
    False: Size(10_000, STORES, SCALES[False]),
    True: Size(500, STORES[:1], SCALES[True]),
}


async def run(small: bool) -> list[Result]:
    """Make the calls to a server on each store."""
    size = SIZES[small]
    seed = SMALL_SEED if small else time.time_ns() % 10**9

    async def scene(stage: Stage, dialect: str) -> list[Result]:
        return await _Scene(stage, size, seed).play(f"fuzz_grpc, {dialect}")

    return await on_stores(size.stores, size.scale, scene)


class _Scene:
    """One server, its usual load, and one fuzzer."""

    def __init__(self, stage: Stage, size: Size, seed: int) -> None:
        self._stage = stage
        self._size = size
        self._seed = seed
        self._pool = Pool()
        self._whole = Found(seed)

    async def play(self, name: str) -> list[Result]:
        # Leases as they are by default: a loaded machine must not make a worker late.
        server = await self._stage.server(*UNLIMITED)
        worker = await self._stage.worker(server.grpc, queue=QUEUE)
        client = await self._stage.client(server.grpc)
        load = Load(client, queue=QUEUE, pause_s=PAUSE_S)
        async with load.running():
            await self._fuzz(server, 0)
            warm_mib = memory_mib(server.process.pid)
            await self._fuzz(server, 1)
        disturbed = await self._judge_load(client, load)
        # It has no key.
        await worker.process.stop()
        keyed = await self._fuzz(server, 2, await _make_keys(server))
        grown_mib = memory_mib(server.process.pid) - warm_mib
        complaints = [
            *self._whole.complaints,
            *faults_in(self._stage.folder / "server-1.log"),
            *await _complaints_of_health(server),
        ]
        whole, cases = self._whole, self._size.cases
        return [
            Result(
                f"{name}: calls",
                f"{cases:,}: no INTERNAL, no UNKNOWN, errors typed, no fault in the log, alive",
                f"seed {self._seed}: {whole.count:,}: {whole.told()}; {len(complaints)} complaints",
                held=not complaints and whole.count >= cases,
                details=tuple(complaints),
            ),
            _keyed_result(name, keyed),
            memory_result(name, warm_mib, grown_mib),
            spotless(
                f"{name}: usual load",
                "every task runs once and succeeds, the worker is not judged",
                f"{len(load.ids):,} tasks",
                disturbed,
            ),
        ]

    async def _fuzz(self, server: ServerProcess, part: int, keys: Keys | None = None) -> Found:
        cases = round(self._size.cases * SHARES[part])
        found = await GrpcFuzzer(server.grpc, self._pool, self._seed + part, keys).run(cases)
        self._whole.add(found)
        return found

    async def _judge_load(self, client: Client, load: Load) -> list[str]:
        await client.wait_all(load.ids, LONG_WORK_S)
        tail = self._stage.tails[0]
        return [
            *checker.check_once(tail.of("start"), load.ids),
            *checker.check_calm(tail.of("over", "odd")),
            *checker.check_succeeded(await client.get_all(load.ids)),
        ]


def _keyed_result(name: str, keyed: Found) -> Result:
    """Return whether the calls with keys got further than to the door."""
    refused = keyed.answers.get(Unauthenticated.code, 0)
    return Result(
        f"{name}: calls with keys",
        f"at most {KEYLESS_MAX:.0%} unauthenticated: those that show no key",
        f"{keyed.count:,}: {keyed.told()}",
        held=refused <= KEYLESS_MAX * keyed.count,
    )


async def _make_keys(server: ServerProcess) -> Keys:
    """Make the keys of an admin and of a viewer; from the first on the server is not open."""
    made: dict[str, str] = {}
    async with grpc.aio.insecure_channel(server.grpc, options=OPTIONS) as channel:
        stub: Any = AdminServiceStub(channel)
        for role in (admin_service_pb2.ROLE_ADMIN, admin_service_pb2.ROLE_VIEWER):
            name = admin_service_pb2.Role.Name(role).removeprefix("ROLE_").lower()
            metadata = (("authorization", f"Bearer {made['admin']}"),) if made else ()
            request = admin_service_pb2.CreateApiKeyRequest(name=name, role=role)
            answer = await stub.CreateApiKey(request, metadata=metadata, timeout=ANSWER_S)
            made[name] = answer.secret
    return Keys(**made)


async def _complaints_of_health(server: ServerProcess) -> list[str]:
    async with grpc.aio.insecure_channel(server.grpc, options=OPTIONS) as channel:
        stub: Any = WorkflowServiceStub(channel)
        answer = await stub.HealthCheck(workflow_pb.HealthCheckRequest(), timeout=ANSWER_S)
    is_well = answer.status == workflow_pb.HealthCheckResponse.SERVING_STATUS_SERVING
    return [] if is_well else [f"the server says of itself: {answer.message}"]
