"""Runs meet code that has changed: they park and say why, and go on when the old code is back."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from typing import Final

import msgspec

from tenure import Client, RunDescription, RunHandle, RunStatus
from tests.bounds import LONG_WORK_S, START_S
from tests.polling import eventually
from tests.soak.code_version import STEPS, VERSIONS, base, nudge, sale
from tests.soak.result import Result
from tests.soak.scene import SCALES, Scale, on_both_stores, spotless
from tests.soak.sdk_workflow import go_on
from tests.wire.journal import Tail
from tests.wire.process import Process
from tests.wire.stage import Stage

NUDGES: Final = 3
_LINE: Final = re.compile(r"\bcode_version\.py:\d+")
_numbers = itertools.count(1)


class Size(msgspec.Struct, frozen=True):
    """How many runs of each change, and whether parked ones are left to be tried again."""

    runs: int
    is_left_alone: bool
    scale: Scale


SIZES: Final = {
    False: Size(20, is_left_alone=True, scale=SCALES[False]),
    True: Size(1, is_left_alone=False, scale=SCALES[True]),
}

Handle = RunHandle[list[str]]


async def run(small: bool) -> list[Result]:
    """Deploy every change under live runs, and take it back, on both stores."""
    size = SIZES[small]
    return await on_both_stores(size.scale, lambda stage, name: _Change(stage, size, name).play())


class _Change:
    """Runs by what is changed under them, and the workers that they meet."""

    def __init__(self, stage: Stage, size: Size, dialect: str) -> None:
        self._stage = stage
        self._size = size
        self._dialect = dialect
        self._runs: dict[str, list[Handle]] = {}
        self._tails: list[Tail] = []

    async def play(self) -> list[Result]:
        server = await self._stage.server()
        async with Client(server.grpc) as client:
            old = await self._worker(server.grpc)
            for queue in VERSIONS:
                flow = sale(base).with_options(queue=queue)
                self._runs[queue] = [await client.start(flow) for _ in range(self._size.runs)]
            await self._until(RunStatus.WAITING, self._runs, child_count=1)
            await old.kill()
            new = await self._worker(server.grpc, "--changed")
            fresh = await client.start(sale(base).with_options(queue="patched"))
            await self._until(RunStatus.WAITING, {"patched": [fresh]}, child_count=1)
            parked = await self._meet_changed_code(fresh)
            await new.kill()
            await self._worker(server.grpc)
            healed = await self._go_back(fresh, server.grpc)
        done = self._done()
        return [
            spotless(
                f"code is changed under runs in {len(VERSIONS) - 2} ways, {self._dialect}",
                "parked with names and line",
                f"{self._count(len(VERSIONS) - 2)} runs",
                parked,
            ),
            spotless(
                f"the old code is back, {self._dialect}",
                "all go on, no wrong value, no step and no child twice",
                f"{self._count(len(VERSIONS)) + 1} runs",
                healed + done,
            ),
        ]

    def _count(self, versions: int) -> int:
        return versions * self._size.runs

    async def _worker(self, target: str, *options: str, queues: str = "") -> Process:
        number = next(_numbers)
        journal = self._stage.folder / f"code-{number}.jsonl"
        log = self._stage.folder / f"code-{number}.log"
        named = queues or ",".join(VERSIONS)
        process = await Process.spawn(
            (
                *("-m", "tests.soak.code_worker", "--target", target, "--queues", named),
                *("--journal", str(journal), *options),
            ),
            log,
        )
        self._stage.adopt(process)
        self._tails.append(Tail(journal))
        await eventually(
            lambda: log.read_text(errors="replace").count("Registered as") > named.count(","),
            "workers registered",
            within_s=START_S,
        )
        return process

    async def _until(
        self, status: RunStatus, runs: dict[str, list[Handle]], *, child_count: int | None = None
    ) -> None:
        """Wait until all runs have a status, and so many open children."""
        for each in (handle for some in runs.values() for handle in some):

            async def is_there(handle: Handle = each) -> bool:
                found = await handle.describe()
                return found.status is status and child_count in (None, found.open_child_count)

            await eventually(is_there, f"{each} is {status}", within_s=LONG_WORK_S, every_s=0.05)

    async def _meet_changed_code(self, fresh: Handle) -> list[str]:
        """Wake all runs up, some more than once; return what is wrong with how they park."""
        broken = {name: self._runs[name] for name, (_, names) in VERSIONS.items() if names}
        others = {name: some for name, some in self._runs.items() if name not in broken}
        for handle in (each for some in broken.values() for each in some):
            await handle.signal(nudge)
        await self._until(RunStatus.PARKED, broken)
        for _ in range(NUDGES):
            for handle in [fresh, *(each for some in others.values() for each in some)]:
                await handle.signal(nudge)
            await self._until(RunStatus.WAITING, {**others, "fresh": [fresh]})
        return [
            wrong
            for name, some in broken.items()
            for handle in some
            for wrong in _wrong_park(name, await handle.describe())
        ]

    async def _go_back(self, fresh: Handle, target: str) -> list[str]:
        """Let every run end with the code that it fits; return what came out wrong."""
        wrong: list[str] = []
        for name, some in self._runs.items():
            is_parked = bool(VERSIONS[name][1])
            for handle in some:
                if is_parked and not self._size.is_left_alone:
                    await handle.resume()
            if is_parked:
                await self._until(RunStatus.WAITING, {name: some})
            for handle in some:
                await handle.signal(go_on, 1)
                result = await handle.result(timeout=LONG_WORK_S)
                if result != list(STEPS):
                    wrong.append(f"{name}: the result is {result}")
        # It began with the changed code and does not fit the old one.
        await fresh.signal(go_on, 1)
        await self._until(RunStatus.PARKED, {"patched": [fresh]})
        await self._worker(target, "--changed", queues="patched")
        result = await self._ended(fresh)
        if result != ["check_fraud", *STEPS]:
            wrong.append(f"patched, begun with it: the result is {result}")
        return wrong

    async def _ended(self, handle: Handle) -> list[str]:
        """Try a parked run until a worker has it whose code fits."""

        async def is_ended() -> bool:
            status = await handle.status()
            if status is RunStatus.PARKED:
                await handle.resume()
            return status is RunStatus.COMPLETED

        await eventually(is_ended, "the new run ends", within_s=LONG_WORK_S, every_s=0.2)
        return await handle.result()

    def _done(self) -> list[str]:
        """Return what was done more or less often than once."""
        done = Counter(line.event for tail in self._tails for line in tail.lines)
        runs = self._count(len(VERSIONS)) + 1
        expected = {**dict.fromkeys(STEPS, runs), "check_fraud": 1}
        return [
            f"{name} was done {done[name]} times, not {count}"
            for name, count in expected.items()
            if done[name] != count
        ] + [f"{name} was done" for name in set(done) - set(expected)]


def _wrong_park(name: str, info: RunDescription) -> list[str]:
    """Say what is missing in why a run is parked."""
    message = "" if info.park_error is None else info.park_error.message
    missing = [each for each in VERSIONS[name][1] if each not in message]
    if not _LINE.search(message):
        missing.append("the line")
    return [f"{name}: {', '.join(missing)} missing in {message!r}"] if missing else []
