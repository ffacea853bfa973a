"""Activities that write a journal of what they do; the variable JOURNAL names the file."""

from __future__ import annotations

import asyncio
import ctypes
import functools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from tenure import activity
from tests.wire.journal import RunJournal

JOURNAL: Final = "TENURE_TEST_JOURNAL"
STEP_S: Final = 0.05


@functools.cache
def _journal() -> RunJournal:
    return RunJournal(Path(os.environ[JOURNAL]))


def note(event: str, text: str = "") -> None:
    """Write down what happens to the attempt that asks."""
    info = activity.info()
    _journal().write(event, info.worker_id, (info.task_id, info.attempt), text)


@activity(start_to_close="1h")
async def nap(milliseconds: int) -> None:
    note("start")
    await asyncio.sleep(milliseconds / 1_000)
    note("done")


@activity(start_to_close="1h")
def nap_in_thread(milliseconds: int) -> None:
    note("start")
    time.sleep(milliseconds / 1_000)
    note("done")


@activity(start_to_close="1h")
async def measure(text: str) -> int:
    """Say how large the input is."""
    return len(text)


@activity(start_to_close="1h", heartbeat_timeout="10s")
def climb(steps: int) -> int:
    """Take many small steps; the checkpoint is the last one taken."""
    first = 0
    if activity.has_heartbeat_details():
        first = activity.heartbeat_details(int) + 1
    note("resumed" if first else "start", str(first))
    for step in range(first, steps):
        time.sleep(STEP_S)
        note("step", str(step))
        activity.heartbeat(step)
    return steps


@activity(start_to_close="1h")
def hold_gil(seconds: float, times: int) -> int:
    """Compute in C without ever giving the interpreter's lock away, several times."""
    note("start")
    count = 1_000_000
    held = 0
    while held < times:
        began = time.monotonic()
        sum(range(count))
        took = time.monotonic() - began
        if took >= seconds * 0.9:
            held += 1
            note("held", f"{took:.2f}")
        else:
            count = int(count * min(max(seconds / max(took, 0.001), 1.1), 10))
    return held


@activity(start_to_close="1h")
async def block_loop(seconds: float) -> None:
    """Do what nobody should do in async code."""
    note("start")
    time.sleep(seconds)  # noqa: ASYNC251 (that is the point)
    note("done")


@activity(start_to_close="1h")
async def kill_worker(milliseconds: int) -> None:
    """End the whole process, as a fault in native code does."""
    note("start")
    await asyncio.sleep(milliseconds / 1_000)
    os.kill(os.getpid(), signal.SIGKILL)


@activity(start_to_close="1h", exclusive=True)
async def walk(seconds: float) -> None:
    """Do what nobody else may do meanwhile; only the first attempt takes so long."""
    for _ in range(int(seconds / STEP_S) if activity.info().attempt == 1 else 1):
        note("step")
        await asyncio.sleep(STEP_S)


@activity(start_to_close="1h", exclusive=True, executor="process")
def walk_in_process(seconds: float) -> None:
    """Do the same in a process of its own, and hear of no stop."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for _ in range(int(seconds / STEP_S) if activity.info().attempt == 1 else 1):
        note("step")
        time.sleep(STEP_S)


@activity(start_to_close="1h", executor="process")
def ignore_stops(seconds: float) -> None:
    """Run in a process, with another one below it, and hear of no stop."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    note("start", str(os.getpid()))
    if activity.info().attempt == 1:
        below = subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({seconds})"])
        note("below", str(below.pid))
        _sleep_in_c(seconds)


@activity(start_to_close="1h")
def block_in_c(seconds: float) -> None:
    """Block a thread where no exception of Python reaches it."""
    note("start")
    if activity.info().attempt == 1:
        _sleep_in_c(seconds)


@activity(start_to_close="1h")
async def swallow_stops(seconds: float) -> None:
    """Go on after each cancellation."""
    note("start")
    while activity.info().attempt == 1:
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            note("swallowed")


@activity(start_to_close="1h", exclusive=True)
async def swallow_stops_exclusively(seconds: float) -> None:
    """Go on after each cancellation, with what nobody else may do meanwhile."""
    steps = int(seconds / STEP_S) if activity.info().attempt == 1 else 1
    for _ in range(steps):
        note("step")
        try:
            await asyncio.sleep(STEP_S)
        except asyncio.CancelledError:
            note("swallowed")


def _sleep_in_c(seconds: float) -> None:
    """Sleep until the time is over, whatever signal comes."""
    left = int(seconds)
    while left > 0:
        left = ctypes.CDLL(None).sleep(left)


STUBBORN = [ignore_stops, block_in_c, swallow_stops, swallow_stops_exclusively]
ACTIVITIES = [
    *STUBBORN,
    nap,
    nap_in_thread,
    measure,
    climb,
    hold_gil,
    block_loop,
    kill_worker,
    walk,
    walk_in_process,
]
