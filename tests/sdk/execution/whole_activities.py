"""The same activities on the loop, in threads and in child processes, for real workers."""

from __future__ import annotations

import asyncio
import os
import signal
import time

from tenure import ApplicationError, RetryPolicy, activity
from tests.bounds import WAIT_S

SOON = RetryPolicy(initial_interval="10ms", max_attempts=3)
ONCE = RetryPolicy(max_attempts=1)


def go_on(until: int) -> list[int]:
    """Work up to a point, and fail there in the first attempt."""
    done = activity.heartbeat_details(list[int]) if activity.has_heartbeat_details() else []
    for number in range(len(done), until):
        done.append(activity.info().attempt)
        activity.heartbeat(done)
        activity.progress(100 * len(done) / until, f"{len(done)} of {until}")
        if number == 1 and activity.info().attempt == 1:
            raise ApplicationError("not today", {"at": number}, type="Tired")
    return done


@activity(start_to_close="30s", retry=SOON)
async def resume_on_the_loop(until: int) -> list[int]:
    return go_on(until)


@activity(start_to_close="30s", retry=SOON)
def resume_in_a_thread(until: int) -> list[int]:
    return go_on(until)


@activity(start_to_close="30s", retry=SOON, executor="process")
def resume_in_a_process(until: int) -> list[int]:
    return go_on(until)


def wait_here() -> None:
    activity.progress(1, "waits")
    ends_at_s = time.monotonic() + WAIT_S
    while time.monotonic() < ends_at_s:
        time.sleep(0.01)


@activity(start_to_close="30s", retry=ONCE)
async def wait_on_the_loop() -> None:
    activity.progress(1, "waits")
    await asyncio.sleep(WAIT_S)


@activity(start_to_close="30s", retry=ONCE)
def wait_in_a_thread() -> None:
    wait_here()


@activity(start_to_close="30s", retry=ONCE, executor="process")
def wait_in_a_process() -> None:
    wait_here()


@activity(start_to_close="30s", retry=SOON, executor="process")
def die_first() -> str:
    if activity.info().attempt == 1:
        activity.heartbeat("before the end")
        os.kill(os.getpid(), signal.SIGKILL)
    return activity.heartbeat_details(str)


@activity(start_to_close="30s", retry=ONCE, executor="process")
def die_always() -> None:
    os._exit(3)


RESUME = (resume_on_the_loop, resume_in_a_thread, resume_in_a_process)
WAIT = (wait_on_the_loop, wait_in_a_thread, wait_in_a_process)
