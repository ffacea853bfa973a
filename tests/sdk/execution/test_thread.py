"""Sync activities run in threads, and a stop is raised in them at their next bytecode."""

from __future__ import annotations

import contextvars
import json
import logging
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tenure import Stopped, StopReason, activity
from tenure.sdk.worker.execution.settings import ExecutionSettings
from tenure.sdk.worker.execution.thread_pool import Pool
from tenure.v1 import task_pb2
from tests.bounds import WAIT_S
from tests.polling import eventually
from tests.sdk.execution.rig import Rig

GATES: dict[str, threading.Event] = {}
SEEN: list[object] = []
TINT: contextvars.ContextVar[str] = contextvars.ContextVar("tint", default="none")


@pytest.fixture(autouse=True)
def _fresh() -> None:
    SEEN.clear()
    GATES.clear()
    GATES.update(entered=threading.Event(), leave=threading.Event())


def spin(is_done: Callable[[], object]) -> None:
    """Run bytecodes until something is true."""
    ends_at_s = time.monotonic() + WAIT_S
    while not is_done():
        assert time.monotonic() < ends_at_s


def spin_for_ever() -> None:
    spin(lambda: False)


@activity(start_to_close="30s")
def double(number: int) -> int:
    return 2 * number


@activity(start_to_close="30s")
def fail(kind: str) -> None:
    raise {"value": ValueError("no"), "exit": SystemExit(3), "stopped": Stopped()}[kind]


@activity(start_to_close="30s")
def block() -> str:
    """Wait where no bytecode runs."""
    GATES["entered"].set()
    GATES["leave"].wait(WAIT_S)
    return threading.current_thread().name


@activity(start_to_close="30s")
def loop(kind: str = "give way") -> str:
    GATES["entered"].set()
    try:
        spin_for_ever()
    except Stopped:
        SEEN.append(activity.stop_reason())
        with activity.shield():
            # Cleaning up under a shield is not interrupted a second time.
            activity.heartbeat("last")
        match kind:
            case "return":
                return "done all the same"
            case "fail":
                raise ValueError("while cleaning up") from None
            case "stay":
                GATES["leave"].wait(WAIT_S)
                return "late"
            case _:
                pass
        raise
    return ""


@activity(start_to_close="30s")
def read(file: int) -> None:
    GATES["entered"].set()
    os.read(file, 1)
    SEEN.append("after")
    spin_for_ever()


class Slow:
    """What takes its time to go."""

    def __del__(self) -> None:
        GATES["entered"].set()
        try:
            spin_for_ever()
        finally:
            SEEN.append("destroyed")


@activity(start_to_close="30s")
def destroy() -> None:
    Slow()
    spin_for_ever()


@activity(start_to_close="30s")
def swallow() -> str:
    """Handle errors as people do; a stop is none."""
    GATES["entered"].set()
    while True:
        try:
            spin_for_ever()
        except Exception:  # noqa: BLE001 (that is what is tested)
            SEEN.append("swallowed")


@activity(start_to_close="30s")
def shielded() -> str:
    with activity.shield():
        with activity.shield():
            GATES["entered"].set()
            spin(activity.is_cancelled)
        ends_at_s = time.monotonic() + 0.05
        spin(lambda: time.monotonic() > ends_at_s)
        SEEN.append("saved")
    SEEN.append("never")
    return ""


@activity(start_to_close="30s")
def tinted(name: str) -> str:
    before = TINT.get()
    TINT.set(name)
    return f"{before}>{TINT.get()}>{activity.info().task_id}"


@activity(start_to_close="30s")
def short(steps: int) -> int:
    total = 0
    for number in range(steps):
        total += number
        if number % 7 == 0:
            activity.heartbeat(number)
        if number % 11 == 0:
            with activity.shield():
                total += 0
    return total


@activity(start_to_close="30s")
def log_something() -> str:
    GATES["entered"].set()
    logging.getLogger("tests.thread").warning("slowly")
    spin_for_ever()
    return ""


ALL = (*(double, fail, block, loop, read, destroy, swallow, shielded, tinted, short), log_something)


def output_of(finish: task_pb2.TaskFinish) -> Any:
    assert finish.kind == task_pb2.FINISH_KIND_SUCCEEDED, finish
    return json.loads(finish.output)


async def entered() -> None:
    await eventually(GATES["entered"].is_set)


async def test_a_result_is_reported() -> None:
    async with Rig(*ALL) as rig:
        assert output_of(await rig.run(double, 4)) == 8
        assert rig.executor.active_count == 0


@pytest.mark.parametrize("kind", ["value", "exit", "stopped"])
async def test_whatever_is_raised_is_a_failure_of_the_activity_alone(kind: str) -> None:
    async with Rig(*ALL) as rig:
        finish = await rig.run(fail, kind)
        assert finish.kind == task_pb2.FINISH_KIND_FAILED
        assert "in fail" in finish.error.stack_trace
        assert "sync_call" not in finish.error.stack_trace
        assert output_of(await rig.run(double, 4)) == 8


async def test_input_that_does_not_fit_fails_for_good() -> None:
    async with Rig(*ALL) as rig:
        finish = await rig.run(double, 4, input=b'{"number": null}')
        assert finish.error.category == task_pb2.ERROR_CATEGORY_DATA_QUALITY
        assert not finish.error.retryable


async def test_activities_that_block_run_beside_each_other() -> None:
    async with Rig(*ALL) as rig:
        tasks = [await rig.start(block) for _ in range(20)]
        assert rig.executor.active_count == 20
        await eventually(lambda: thread_count() >= 20)
        GATES["leave"].set()
        names = {output_of(await rig.finish_of(each)) for each in tasks}
        assert len(names) == 20


def thread_count() -> int:
    return sum(each.name.startswith("tenure-activity") for each in threading.enumerate())


async def test_a_burst_of_quick_activities_is_done_by_few_threads() -> None:
    settings = ExecutionSettings(max_concurrent=1_000)
    async with Rig(*ALL, settings=settings) as rig:
        tasks = [rig.task(double, number) for number in range(1_000)]
        await rig.start_all(tasks)
        await eventually(lambda: len(rig.reporter.finishes()) == 1_000)
        assert thread_count() < 100


async def test_a_pool_never_has_more_threads_than_its_limit() -> None:
    leave, served = threading.Event(), list[int]()

    def serve(item: int) -> None:
        leave.wait(WAIT_S)
        served.append(item)

    pool: Pool[int] = Pool("tests-pool", 3, serve)
    for number in range(10):
        pool.submit(number)
    assert pool.withdraw(9)
    assert not pool.withdraw(9)
    leave.set()
    await eventually(lambda: len(served) == 9)
    assert sum(each.name.startswith("tests-pool") for each in threading.enumerate()) <= 3
    pool.close()
    await eventually(
        lambda: not any(t.name.startswith("tests-pool") for t in threading.enumerate())
    )


async def test_a_pool_survives_what_its_items_do(caplog: pytest.LogCaptureFixture) -> None:
    served = list[int]()

    def serve(item: int) -> None:
        if item == 0:
            raise RuntimeError("a mistake")
        served.append(item)

    pool: Pool[int] = Pool("tests-pool", 1, serve)
    pool.submit(0)
    pool.submit(1)
    await eventually(lambda: served == [1])
    assert "a mistake" in caplog.text
    pool.close()


async def test_a_stop_is_raised_in_code_that_never_asks() -> None:
    async with Rig(*ALL) as rig:
        task = await rig.start(loop)
        await entered()
        await rig.stop(task)
        assert (await rig.finish_of(task)).kind == task_pb2.FINISH_KIND_CANCELLED
        assert SEEN == [StopReason.CANCELLED]


async def test_a_stop_that_strikes_in_a_destructor_is_raised_again_behind_it() -> None:
    async with Rig(*ALL) as rig:
        task = await rig.start(destroy)
        await entered()
        await rig.stop(task)
        assert (await rig.finish_of(task)).kind == task_pb2.FINISH_KIND_CANCELLED
        assert SEEN == ["destroyed"]


async def test_a_stop_waits_for_a_call_that_blocks_and_comes_right_after_it() -> None:
    ours, theirs = os.pipe()
    async with Rig(*ALL) as rig:
        task = await rig.start(read, ours)
        await entered()
        await rig.stop(task)
        os.write(theirs, b"x")
        assert (await rig.finish_of(task)).kind == task_pb2.FINISH_KIND_CANCELLED
        # Where threads are traced, the stop may come a moment later.
        assert SEEN == [] or sys.gettrace() is not None
    os.close(ours)
    os.close(theirs)


async def test_code_that_handles_every_exception_lets_the_stop_through() -> None:
    async with Rig(*ALL) as rig:
        task = await rig.start(swallow)
        await entered()
        await rig.stop(task)
        assert (await rig.finish_of(task)).kind == task_pb2.FINISH_KIND_CANCELLED
        assert SEEN == []


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("return", task_pb2.FINISH_KIND_SUCCEEDED), ("fail", task_pb2.FINISH_KIND_FAILED)],
)
async def test_an_activity_that_ends_otherwise_after_a_stop_is_reported_so(
    kind: str, expected: int
) -> None:
    async with Rig(*ALL) as rig:
        task = await rig.start(loop, kind)
        await entered()
        await rig.stop(task)
        assert (await rig.finish_of(task)).kind == expected


async def test_a_shield_postpones_the_stop_to_its_end() -> None:
    async with Rig(*ALL) as rig:
        task = await rig.start(shielded)
        await entered()
        await rig.stop(task)
        assert (await rig.finish_of(task)).kind == task_pb2.FINISH_KIND_CANCELLED
        assert SEEN == ["saved"]


@pytest.fixture
def _shaken() -> Iterator[None]:
    """Let threads change places as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.000_01)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_shaken")
async def test_a_stop_never_hits_what_a_thread_does_after_the_activity() -> None:
    chance = random.Random(7)
    async with Rig(*ALL, settings=ExecutionSettings(max_concurrent=50)) as rig:
        # Some are over before the stop, most are about to end, and a few would never end.
        steps = [chance.choice((0, 5, 50, 500, 500, 10**9)) for _ in range(600)]
        tasks = [rig.task(short, each) for each in steps]

        def start_and_stop(first: int) -> None:
            for each in tasks[first : first + 10]:
                rig.executor.start(each)
            for each in tasks[first : first + 10]:
                # Give way, so that some are hit in the middle of their work.
                time.sleep(chance.choice((0, 0.000_02, 0.000_1)))
                rig.executor.stop(each.task_id, 1, StopReason.CANCELLED)

        for first in range(0, len(tasks), 10):
            await rig.call(start_and_stop, first)
        await eventually(lambda: rig.executor.active_count == 0)
        kinds = [each.kind for each in rig.reporter.finishes()]
        assert len(kinds) == len(tasks)
        assert set(kinds) <= {task_pb2.FINISH_KIND_SUCCEEDED, task_pb2.FINISH_KIND_CANCELLED}
        assert task_pb2.FINISH_KIND_CANCELLED in kinds
        assert rig.reporter.stuck_counts == []
        # Every thread has survived and does the next work unharmed.
        for number in range(100):
            assert output_of(await rig.run(double, number)) == 2 * number


async def test_a_thread_that_stays_busy_is_abandoned_and_keeps_its_slot() -> None:
    async with Rig(*ALL) as rig:
        task = await rig.start(block, cancel_grace_period_ms=200)
        await entered()
        await rig.stop(task)
        await eventually(lambda: rig.reporter.stuck_counts == [1])
        assert rig.executor.active_count == 1
        assert rig.reporter.finishes() == []
        GATES["leave"].set()
        await eventually(lambda: rig.reporter.stuck_counts == [1, 0])
        assert rig.executor.active_count == 0
        assert rig.reporter.finishes() == []
        assert output_of(await rig.run(double, 4)) == 8


async def test_a_thread_that_stays_busy_after_its_time_has_failed_by_timeout() -> None:
    async with Rig(*ALL) as rig:
        task = await rig.start(block, start_to_close_ms=50, cancel_grace_period_ms=100)
        finish = await rig.finish_of(task)
        assert finish.error.category == task_pb2.ERROR_CATEGORY_TIMEOUT
        assert rig.reporter.stuck_counts == [1]
        GATES["leave"].set()
        await eventually(lambda: rig.reporter.stuck_counts == [1, 0])


async def test_a_thread_that_stays_busy_at_a_hand_back_is_released() -> None:
    settings = ExecutionSettings(hand_back_grace_ms=100)
    async with Rig(*ALL, settings=settings) as rig:
        task = await rig.start(loop, "stay")
        await entered()
        await rig.call(rig.executor.hand_back)
        assert (await rig.finish_of(task)).kind == task_pb2.FINISH_KIND_RELEASED
        assert rig.reporter.beats(task.task_id)[-1].details == b'["last"]'
        GATES["leave"].set()
        await eventually(lambda: rig.executor.active_count == 0)


async def test_what_waits_for_a_thread_and_is_stopped_never_runs() -> None:
    settings = ExecutionSettings(max_concurrent=1)
    async with Rig(*ALL, settings=settings) as rig:
        first = await rig.start(block)
        await entered()
        second = await rig.start(tinted, "red")
        await rig.stop(second)
        GATES["leave"].set()
        assert (await rig.finish_of(second)).kind == task_pb2.FINISH_KIND_CANCELLED
        await rig.finish_of(first)


async def test_context_variables_do_not_leak_from_one_activity_to_the_next() -> None:
    async with Rig(*ALL) as rig:
        for name in ("red", "blue"):
            task = await rig.start(tinted, name)
            assert output_of(await rig.finish_of(task)) == f"none>{name}>{task.task_id}"


async def test_a_stop_waits_until_a_log_record_is_written() -> None:
    class Slow(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            spin(activity.is_cancelled)
            ends_at_s = time.monotonic() + 0.2
            spin(lambda: time.monotonic() > ends_at_s)
            SEEN.append(record.getMessage())

    logger, handler = logging.getLogger("tests.thread"), Slow()
    logger.addHandler(handler)
    try:
        async with Rig(*ALL) as rig:
            task = await rig.start(log_something)
            await entered()
            await rig.stop(task)
            assert (await rig.finish_of(task)).kind == task_pb2.FINISH_KIND_CANCELLED
            assert SEEN == ["slowly"]
    finally:
        logger.removeHandler(handler)
