"""Requests that schemathesis makes up, to a server that is open and then to one with keys."""

from __future__ import annotations

import time
from typing import Any, Final

import httpx
import msgspec

from tests.bounds import LONG_WORK_S
from tests.fuzz.found import Found, faults_in, memory_mib
from tests.soak.result import Result
from tests.soak.scene import SCALES, Scale, on_stores
from tests.wire.process import Process
from tests.wire.server import ServerProcess
from tests.wire.stage import STORES, Stage

# Answers must depend on what is asked, not on how fast.
UNLIMITED: Final = ("--list-rate", "0", "--register-rate", "0")
SMALL_SEED: Final = 5
# The first part is for an open server, and warms it up.
OPEN_SHARE: Final = 0.25
# Names, settings and results that a server remembers, and what it has not cleared away yet.
GROWTH_MIB: Final = 64.0
SECONDS_EACH: Final = 0.5


class Size(msgspec.Struct, frozen=True):
    """How many requests, and on which stores."""

    cases: int
    stores: tuple[str, ...]
    scale: Scale


SIZES: Final = {
    False: Size(10_000, STORES, SCALES[False]),
    True: Size(500, STORES[:1], SCALES[True]),
}


async def run(small: bool) -> list[Result]:
    """Send the requests to a server on each store."""
    size = SIZES[small]
    seed = SMALL_SEED if small else time.time_ns() % 10**9

    async def scene(stage: Stage, dialect: str) -> list[Result]:
        return await _Scene(stage, size, seed).play(f"fuzz_http, {dialect}")

    return await on_stores(size.stores, size.scale, scene)


class _Scene:
    """One server and one fuzzer."""

    def __init__(self, stage: Stage, size: Size, seed: int) -> None:
        self._stage = stage
        self._cases = size.cases
        self._seed = seed

    async def play(self, name: str) -> list[Result]:
        server = await self._stage.server(*UNLIMITED)
        worker = await self._stage.worker(server.grpc)
        open_cases = int(self._cases * OPEN_SHARE)
        first = await self._fuzz(server, worker.worker_id, open_cases, {})
        warm_mib = memory_mib(server.process.pid)
        keys = await _make_keys(server)
        second = await self._fuzz(server, worker.worker_id, self._cases - open_cases, keys)
        grown_mib = memory_mib(server.process.pid) - warm_mib
        first.add(second)
        complaints = [
            *first.complaints,
            *faults_in(self._stage.folder / "server-1.log"),
            *await _complaints_of_health(server),
        ]
        return [
            Result(
                f"{name}: requests",
                f"{self._cases:,}: no 5xx, answers as documented, no fault in the log, alive",
                f"seed {self._seed}: {first.count:,}: {first.told()}; {len(complaints)} complaints",
                held=not complaints and first.count >= self._cases,
                details=tuple(complaints),
            ),
            memory_result(name, warm_mib, grown_mib),
        ]

    async def _fuzz(
        self, server: ServerProcess, worker_id: str, cases: int, keys: dict[str, str]
    ) -> Found:
        path = self._stage.folder / "found.json"
        log = self._stage.folder / "fuzz.log"
        process = await Process.spawn(
            (
                *("-m", "tests.fuzz.http", "--address", server.http, "--cases", str(cases)),
                *("--seed", str(self._seed), "--worker", worker_id, "--found", str(path)),
                *("--keys", msgspec.json.encode(keys).decode()),
            ),
            log,
        )
        await process.wait(LONG_WORK_S + SECONDS_EACH * cases)
        assert path.exists(), log.read_text()
        found = msgspec.json.decode(path.read_bytes(), type=Found)
        path.unlink()
        return found


def memory_result(name: str, warm_mib: float, grown_mib: float) -> Result:
    """Return whether a server's memory stayed flat once it was warm."""
    return Result(
        f"{name}: memory",
        f"at most {GROWTH_MIB:.0f} MiB more than after the first part",
        f"{grown_mib:+.0f} MiB to {warm_mib + grown_mib:.0f} MiB",
        held=grown_mib <= GROWTH_MIB,
    )


def _web(server: ServerProcess) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=f"http://{server.http}", timeout=LONG_WORK_S, trust_env=False)


async def _make_keys(server: ServerProcess) -> dict[str, str]:
    """Make the keys of an admin and of a viewer; from the first on the server is not open."""
    made: dict[str, str] = {}
    async with _web(server) as web:
        for role in ("admin", "viewer"):
            headers = {"authorization": f"Bearer {made['admin']}"} if made else {}
            body: dict[str, Any] = {"role": role, "name": role}
            answer = await web.post("/v1/api-keys", json=body, headers=headers)
            answer.raise_for_status()
            made[role] = answer.json()["secret"]
    return made


async def _complaints_of_health(server: ServerProcess) -> list[str]:
    async with _web(server) as web:
        answers = [(path, await web.get(path)) for path in ("/healthz", "/readyz")]
    return [f"{path}: {each.status_code}" for path, each in answers if not each.is_success]
