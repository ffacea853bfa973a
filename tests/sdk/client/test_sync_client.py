"""The synchronous client: the same, for code without an event loop."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tenure import (
    Client,
    Completion,
    Handle,
    RunHandle,
    SyncClient,
    SyncCompletion,
    SyncHandle,
    SyncRunHandle,
    TaskCancelled,
)
from tenure.core.task.record import TaskState
from tenure.errors import Unavailable
from tenure.sdk.client import TaskProgress
from tenure.sdk.transport.connection_thread import CallInbox
from tests.bounds import LONG_WORK_S, WORK_S
from tests.polling import eventually
from tests.sdk.client.stage import RawWorker, ServerStage, double, hold, shout

T = TypeVar("T")
ROOT = Path(__file__).parents[3]


async def apart(work: Callable[[], T]) -> T:
    """Run what blocks in a thread: the server lives on this loop."""
    async with asyncio.timeout(WORK_S):
        return await asyncio.to_thread(work)


@pytest.mark.usefixtures("worker")
async def test_it_enqueues_waits_lists_and_describes(stage: ServerStage) -> None:
    def work() -> None:
        with SyncClient(stage.target) as client:
            handle = client.enqueue(double, 21)
            assert handle.result(timeout="30s") == 42
            assert client.run(shout, "ho", times=2) == "HOHO"
            assert handle.describe().state is TaskState.SUCCEEDED
            assert [each.outcome for each in handle.attempts()] == ["succeeded"]
            many = client.enqueue_many(double.call(n) for n in range(1_500))
            assert [each.result() for each in many[:20]] == [2 * n for n in range(20)]
            assert client.handle(handle.task_id, result=int).result() == 42
            assert len([*client.list()]) == 1_502
            assert client.enqueue_named("double", {"number": 2}, start_to_close=5).result() == 4

    await apart(work)


def test_a_call_that_blocks_an_event_loop_is_a_warning_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = SyncClient("127.0.0.1:1", timeout="10ms")

    async def block() -> None:
        for _ in range(2):
            with pytest.raises(Unavailable):
                client.handle("00000000-0000-7000-8000-000000000001").describe()

    with pytest.raises(Unavailable):
        client.enqueue(double, 1)
    assert "event loop" not in caplog.text
    asyncio.run(block())
    client.close()
    assert caplog.text.count("A SyncClient is used in a thread that runs an event loop") == 1


async def test_tasks_are_changed_and_completed(stage: ServerStage) -> None:
    def work() -> None:
        with SyncClient(stage.target) as client:
            handle = client.enqueue(double, 1)
            assert handle.pause() is TaskState.PAUSED
            assert handle.resume() is TaskState.PENDING
            assert handle.cancel("why not") is TaskState.CANCELLED
            with pytest.raises(TaskCancelled, match="why not"):
                handle.result()
            again = handle.retry()
            assert isinstance(again, SyncHandle)
            assert again.terminate() is TaskState.FAILED
            with pytest.raises(ValueError, match="either the token"):
                client.completion()

    await apart(work)


async def test_many_threads_share_one_client(stage: ServerStage, worker: RawWorker) -> None:
    def work() -> None:
        with SyncClient(stage.target) as client:
            results: list[int] = []

            def run(number: int) -> None:
                results.append(client.run(double, number))

            threads = [threading.Thread(target=run, args=(n,)) for n in range(50)]
            for each in threads:
                each.start()
            for each in threads:
                each.join()
            assert sorted(results) == [2 * n for n in range(50)]

    await apart(work)
    assert len(worker.started) == 50


async def test_progress_is_told_in_the_thread_that_waits(stage: ServerStage) -> None:
    seen: list[tuple[TaskProgress, int]] = []
    async with RawWorker(stage.target, hold) as worker:
        client = SyncClient(stage.target)
        handle = await apart(lambda: client.enqueue(double, 1))

        def wait() -> int:
            with pytest.raises(ZeroDivisionError):
                handle.result(on_progress=tell)
            return threading.get_ident()

        def tell(progress: TaskProgress) -> None:
            seen.append((progress, threading.get_ident()))
            if progress.percent == 2:
                raise ZeroDivisionError

        waiting = asyncio.ensure_future(apart(wait))
        await worker.holds(1)
        await worker.beat(handle.task_id, progress_percent=1.0)
        await eventually(lambda: len(seen) == 1)
        await worker.beat(handle.task_id, progress_percent=2.0)
        thread = await waiting
        assert seen == [(TaskProgress(1.0), thread), (TaskProgress(2.0), thread)]
        await apart(client.close)


async def test_a_closed_client_says_so(stage: ServerStage) -> None:
    def work() -> None:
        client = SyncClient(stage.target)
        client.enqueue(double, 1)
        client.close()
        client.close()
        with pytest.raises(RuntimeError, match="closed"):
            client.enqueue(double, 1)

    await apart(work)


def test_settings_that_are_wrong_are_refused_at_once() -> None:
    with pytest.raises(ValueError, match="port"):
        SyncClient("localhost")
    with pytest.raises(ValueError, match="timeout"):
        SyncClient(timeout="soon")
    assert repr(SyncClient(api_key="secret")) == "<SyncClient of 127.0.0.1:7301, namespace default>"


INTERRUPTED = """
import signal, sys, threading
from tenure import SyncClient, activity

@activity(start_to_close="10m", name="double")
def double(number: int) -> int: ...

# A shell that starts this in the background has it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
client = SyncClient(sys.argv[1])
handle = client.enqueue(double, 1)
try:
    print("waiting", flush=True)
    handle.result()
except KeyboardInterrupt:
    print(client.enqueue(double, 2).describe().state, flush=True)
"""


async def test_ctrl_c_ends_a_wait_and_the_client_goes_on(stage: ServerStage) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", INTERRUPTED, stage.target, cwd=ROOT, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    async with asyncio.timeout(WORK_S):
        assert await process.stdout.readline() == b"waiting\n"
        process.send_signal(signal.SIGINT)
        assert await process.stdout.readline() == b"pending\n"
        assert await process.wait() == 0


def test_a_signal_that_another_thread_took_ends_a_wait_too() -> None:
    """The same happens when a signal comes just before the main thread begins to wait."""
    never: Future[None] = Future()

    def take() -> None:
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    taking = threading.Timer(0.1, take)
    ending = threading.Timer(30, never.set_result, [None])
    taking.start()
    ending.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            CallInbox().serve(never)
        assert not never.done()
    finally:
        ending.cancel()
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("when", ["early", "late"])
@pytest.mark.usefixtures("worker")
async def test_it_survives_a_fork_before_and_after_its_first_call(
    stage: ServerStage, when: str
) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.sdk.client.forking", stage.target, when),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
    )
    async with asyncio.timeout(LONG_WORK_S):
        _, said = await process.communicate()
    assert process.returncode == 0, said.decode()
    # 4 children and twice the parent, 40 each, and one before.
    assert await stage.task_count() == 240 + (when == "late")


@pytest.mark.parametrize(
    ("synchronous", "asynchronous"),
    [
        (SyncClient, Client),
        (SyncHandle, Handle),
        (SyncRunHandle, RunHandle),
        (SyncCompletion, Completion),
    ],
)
def test_it_has_every_public_method_of_the_asynchronous_one(
    synchronous: type, asynchronous: type
) -> None:
    def names(kind: type) -> dict[str, Any]:
        return {
            name: [*inspect.signature(value).parameters]
            for name, value in vars(kind).items()
            if not name.startswith("_") and callable(value)
        }

    assert names(synchronous) == names(asynchronous)


async def test_the_module_is_that_of_the_asynchronous_client() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tools.make_sync_client", "--check", cwd=ROOT
    )
    assert await process.wait() == 0
