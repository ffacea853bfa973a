"""Large inputs that wait for workers: the server hands them out in a bounded memory."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from tenure import Client
from tests.bounds import WORK_S
from tests.soak import sdk_activity
from tests.soak.result import Result
from tests.soak.scene import SCALES, Scale, on_both_stores, spotless
from tests.soak.sdk_scene import SdkWorker
from tests.wire.stage import Stage

MIB: Final = 1024 * 1024
TEXT_BYTES: Final = int(1.9 * MIB)
# A batch of 64 MiB and sessions of 16 MiB each, once in rows and once in messages, and what the
# allocator keeps. Unbounded it was 1,193 MiB with 300 tasks.
GROWTH_MIB_MAX: Final = 256
# One batch in rows and in messages, which is 128 MiB, and what the allocator keeps: seen 39 to 144.
SMALL_GROWTH_MIB_MAX: Final = 200
# One call has room for two of them.
ENQUEUES: Final = 4


class Size(msgspec.Struct, frozen=True):
    """How many tasks there are, and who works on them."""

    tasks: int
    modes: tuple[str, ...]
    slots: int
    growth_mib_max: int
    scale: Scale


SIZES: Final = {
    False: Size(300, ("session", "session", "poll"), 100, GROWTH_MIB_MAX, SCALES[False]),
    # With the leases of the large size: how fast payloads travel is the machine's business.
    True: Size(
        80,
        ("session", "poll"),
        100,
        SMALL_GROWTH_MIB_MAX,
        replace(SCALES[True], settings=SCALES[False].settings),
    ),
}


async def run(small: bool) -> list[Result]:
    """Enqueue, then let workers take all of it, on both stores."""
    size = SIZES[small]

    async def scene(stage: Stage, dialect: str) -> list[Result]:
        return await _play(stage, dialect, size)

    return await on_both_stores(size.scale, scene)


async def _play(stage: Stage, dialect: str, size: Size) -> list[Result]:
    server = await stage.server()
    pid = server.process.pid
    quiet_mib = _memory_mib(pid, "VmRSS")
    text = "x" * TEXT_BYTES
    async with Client(server.grpc, timeout=WORK_S) as client:
        places = asyncio.Semaphore(ENQUEUES)

        async def enqueue(number: int) -> str:
            async with places:
                handle = await client.enqueue(sdk_activity.measure, text + "y" * number)
            return handle.task_id

        ids = await asyncio.gather(*map(enqueue, range(size.tasks)))
        enqueued_mib = _memory_mib(pid, "VmHWM")
        before_mib = _memory_mib(pid, "VmRSS")
        _forget_peak(pid)
        for mode in size.modes:
            await SdkWorker.start(stage, server.grpc, mode=mode, slots=size.slots)

        async def wrong(number: int, task_id: str) -> list[str]:
            handle = client.handle(task_id, result=int)
            result = await handle.result(timeout=2 * WORK_S)
            attempt = (await handle.describe()).attempt
            is_right = result == TEXT_BYTES + number and attempt == 1
            return [] if is_right else [f"task {number}: {attempt} attempts, result {result}"]

        found = await asyncio.gather(*(wrong(*each) for each in enumerate(ids)))
    peak_mib = _memory_mib(pid, "VmHWM")
    name = f"large inputs, {dialect}, {size.tasks} of 1.9 MiB"
    growth_mib = max(enqueued_mib - quiet_mib, peak_mib - before_mib)
    return [
        Result(
            f"{name}: the server's memory",
            f"grows by at most {size.growth_mib_max} MiB",
            f"{growth_mib:.0f} MiB: {quiet_mib:.0f} at first, {enqueued_mib:.0f} while they were "
            f"enqueued, {peak_mib:.0f} while they were handed out",
            held=growth_mib <= size.growth_mib_max,
        ),
        spotless(
            f"{name}: all of them",
            "each is done once, with its own input",
            f"{size.tasks} tasks, {len(size.modes)} workers",
            [each for some in found for each in some],
        ),
    ]


def _memory_mib(pid: int, name: str) -> float:
    """Return what the kernel says of a process: VmRSS, or VmHWM, the most of it."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"The kernel does not say {name} of process {pid}.")


def _forget_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")
