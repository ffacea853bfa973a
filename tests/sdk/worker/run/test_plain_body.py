"""Bodies that are plain functions, with a real server and a real worker."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter

import pytest

from tenure import SyncWorkflowContext, WorkflowContext, activity, signal, workflow
from tenure.core.limits import WARM_THREADS
from tenure.sdk.worker.run import held_run, unwinding
from tenure.v1 import task_pb2
from tests.bounds import WAIT_S
from tests.polling import eventually
from tests.sdk.worker.rig import messages
from tests.sdk.worker.run.stage import RunStage

go = signal("go", int)


def double(number: int) -> int:
    return 2 * number


async def triple(number: int) -> int:
    return 3 * number


@activity(start_to_close="30s")
def square(number: int) -> int:
    return number * number


def threads_of(*run_ids: str) -> list[str]:
    """Return the threads of runs that have not ended; a body of another test may keep its own."""
    names = {f"tenure-body-{each}" for each in run_ids}
    return [each.name for each in threading.enumerate() if each.name in names]


@pytest.mark.parametrize("mode", ["session", "poll"])
async def test_a_plain_body_runs_on_a_thread_of_its_own(stage: RunStage, mode: str) -> None:
    threads: set[str] = set()

    @workflow
    def body(ctx: SyncWorkflowContext, number: int) -> list[int]:
        threads.add(threading.current_thread().name)
        first = ctx.step(triple, ctx.step(double, number))
        both = [ctx.begin(square, first), ctx.begin(square, number)]
        ctx.sleep("10ms")
        return [first, *ctx.gather(*both), *ctx.map(square, [1, 2, 3]).list()]

    async with stage.worker(body, activities=[square], mode=mode):
        runs = [await stage.start(body, number=each) for each in range(20)]
        for number, run_id in enumerate(runs):
            tripled = 6 * number
            expected = [tripled, tripled * tripled, number * number, 1, 4, 9]
            assert await stage.result(run_id) == expected
        assert threads == {f"tenure-body-{each}" for each in runs}
        await eventually(lambda: not threads_of(*runs))
    assert sorted(await stage.keys(runs[0])) == [
        *("child square", "child square#2", "group map:square"),
        *("step double", "step triple", "timer sleep"),
    ]


async def test_a_body_that_computes_holds_nobody_else(
    stage: RunStage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_run, "_RESTLESS_S_MAX", 0.05)
    is_over = threading.Event()

    @workflow
    def computes(ctx: SyncWorkflowContext) -> int:
        found = ctx.step(double, 1)
        # Stands for a computation: nothing that a body is refused.
        assert is_over.wait(WAIT_S)
        return ctx.step(double, found)

    @workflow
    async def other(ctx: WorkflowContext) -> int:
        return await ctx.step(triple, 1)

    async with stage.worker(computes, other) as worker:
        run_id = await stage.start(computes)
        await eventually(lambda: any("computes for over" in each for each in messages(caplog)))
        assert await stage.run(other) == 3
        assert worker.active_count == 1
        is_over.set()
        assert await stage.result(run_id) == 4
    (text,) = [each for each in messages(caplog) if "computes for over" in each]
    assert f"The body of run {run_id} (computes) computes" in text
    assert "at test_plain_body.py:" in text


async def test_a_body_that_calls_and_waits_for_nothing_holds_nobody_else(
    stage: RunStage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_run, "_RESTLESS_S_MAX", 0.05)
    is_over = threading.Event()

    @workflow
    def chatty(ctx: SyncWorkflowContext) -> int:
        calls = 0
        while not is_over.is_set():
            calls += 1
            assert ctx.unread(go) == 0
        return calls

    @workflow
    async def other(ctx: WorkflowContext) -> int:
        return await ctx.step(triple, 1)

    async with stage.worker(chatty, other):
        run_id = await stage.start(chatty)
        await eventually(lambda: any("come to rest" in each for each in messages(caplog)))
        assert await stage.run(other) == 3
        is_over.set()
        assert await stage.result(run_id)
    (text,) = [each for each in messages(caplog) if "come to rest" in each]
    assert f"The body of run {run_id} (chatty) does not come to rest" in text
    assert "at test_plain_body.py:" in text


async def test_a_body_that_computes_while_its_run_is_terminated_calls_nothing_more(
    stage: RunStage, caplog: pytest.LogCaptureFixture
) -> None:
    calls: Counter[str] = Counter()
    is_computing, is_over = threading.Event(), threading.Event()

    def note(name: str) -> None:
        calls[name] += 1

    @workflow
    def body(ctx: SyncWorkflowContext) -> None:
        try:
            ctx.step(note, "before")
            is_computing.set()
            assert is_over.wait(WAIT_S)
            ctx.step(note, "after")
        finally:
            calls["unwound"] += 1
            ctx.now()

    async with stage.worker(body) as worker:
        run_id = await stage.start(body)
        await eventually(is_computing.is_set)
        await stage.terminate(run_id)
        await eventually(lambda: worker.active_count == 0)
        is_over.set()
        await eventually(lambda: not threads_of(run_id))
    assert calls == {"before": 1, "unwound": 1}
    assert not [each for each in messages(caplog) if "body of run" in each]


async def test_a_body_is_unwound_without_noise_and_runs_again(
    stage: RunStage, caplog: pytest.LogCaptureFixture
) -> None:
    calls: Counter[str] = Counter()

    def note(name: str) -> None:
        calls[name] += 1

    @workflow
    def body(ctx: SyncWorkflowContext) -> int:
        calls["begun"] += 1
        try:
            ctx.step(note, "first")
            return ctx.wait_signal(go)
        except Exception:
            calls["caught"] += 1
            raise
        finally:
            ctx.step(note, "clean-up")
            calls["cleaned up"] += 1

    async with stage.worker(body, warm_runs=0):
        run_id = await stage.start(body)
        await stage.rig.until(run_id, "WAITING")
        await eventually(lambda: not threads_of(run_id))
        assert calls == {"begun": 1, "first": 1}
        await stage.signal(run_id, "go", 7)
        assert await stage.result(run_id) == 7
    assert calls == {"begun": 2, "first": 1, "clean-up": 1, "cleaned up": 1}
    assert not [each for each in messages(caplog) if run_id in each]


async def test_a_body_that_catches_everything_blocks_nobody_and_is_named(
    stage: RunStage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unwinding, "_GRACE_S", 0.2)

    caught: Counter[str] = Counter()

    @workflow
    def stubborn(ctx: SyncWorkflowContext) -> int:
        while True:
            try:
                return ctx.wait_signal(go)
            except BaseException:  # noqa: BLE001 (that is the point)
                # Nobody should do that.
                caught["stubborn"] += 1

    @workflow
    def other(ctx: SyncWorkflowContext) -> int:
        return ctx.step(double, 1)

    async with stage.worker(stubborn, other, warm_runs=0, max_concurrent=1):
        run_id = await stage.start(stubborn)
        await stage.rig.until(run_id, "WAITING")
        assert await stage.run(other) == 2
        await eventually(lambda: any("put aside" in each for each in messages(caplog)))
        await stage.signal(run_id, "go", 7)
        assert await stage.result(run_id) == 7
    (text,) = [each for each in messages(caplog) if "put aside" in each]
    assert f"The body of run {run_id} (stubborn) does not end" in text
    assert "at test_plain_body.py:" in text
    # It was stopped for good, and takes no processor.
    assert caught["stubborn"] <= 1_000


async def test_runs_that_wait_keep_their_threads_within_a_bound(stage: RunStage) -> None:
    begun: Counter[str] = Counter()

    @workflow
    def body(ctx: SyncWorkflowContext) -> int:
        begun[ctx.info.run_id] += 1
        return ctx.wait_signal(go)

    count = WARM_THREADS + 10
    async with stage.worker(body, max_concurrent=50):
        runs = [await stage.start(body) for _ in range(count)]
        for run_id in runs:
            await stage.rig.until(run_id, "WAITING")
        await eventually(lambda: len(threads_of(*runs)) == WARM_THREADS)
        for number, run_id in enumerate(runs):
            await stage.signal(run_id, "go", number)
        assert [await stage.result(each) for each in runs] == [*range(count)]
    assert sum(begun.values()) == count + 10


async def test_a_cancelled_body_cleans_up_with_steps_and_sleeps(stage: RunStage) -> None:
    done: list[int] = []

    def undo(number: int) -> None:
        done.append(number)

    @workflow
    def body(ctx: SyncWorkflowContext) -> None:
        try:
            ctx.sleep("10d")
        except asyncio.CancelledError:
            ctx.step(undo, 1)
            ctx.sleep("20ms")
            raise
        finally:
            ctx.step(undo, ctx.execute(square, 2))

    async with stage.worker(body, activities=[square], warm_runs=0):
        run_id = await stage.start(body)
        await stage.rig.until(run_id, "WAITING")
        await stage.cancel(run_id)
        task = await stage.ended(run_id)
    assert task.state == task_pb2.TASK_STATE_CANCELLED
    assert done == [1, 4]
    assert await stage.keys(run_id) == [
        *("cancel cancel", "step undo", "timer sleep#2", "child square", "step undo#2")
    ]


async def test_a_body_goes_on_with_the_next_worker_when_its_worker_drains(stage: RunStage) -> None:
    calls: Counter[str] = Counter()
    is_in_step, is_over = threading.Event(), threading.Event()

    def work(number: int) -> int:
        calls[f"step {number}"] += 1
        if number == 2:
            is_in_step.set()
            assert is_over.wait(WAIT_S)
        return number

    @workflow
    def body(ctx: SyncWorkflowContext) -> list[int]:
        return [ctx.step(work, number) for number in range(1, 5)]

    async with stage.worker(body) as first:
        run_id = await stage.start(body)
        await eventually(is_in_step.is_set)
        first.request_shutdown("20s")
        is_over.set()
        await eventually(lambda: first.has_ended)
        await eventually(lambda: not threads_of(run_id))
    async with stage.worker(body):
        assert await stage.result(run_id) == [1, 2, 3, 4]
    assert set(calls.values()) == {1}


async def test_a_body_that_blocks_fails_with_its_line(stage: RunStage) -> None:
    @workflow
    def body(_ctx: SyncWorkflowContext) -> None:
        time.sleep(0.001)

    async with stage.worker(body):
        task = await stage.ended(await stage.start(body))
    assert task.state == task_pb2.TASK_STATE_FAILED
    assert "test_plain_body.py:" in task.error.message
    assert "in body blocks the thread (time.sleep): ctx.sleep(…) instead" in task.error.message


async def test_a_body_whose_worker_has_no_thread_left_is_handed_back(
    stage: RunStage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    start = threading.Thread.start
    refused: list[str] = []

    def refuse_once(self: threading.Thread) -> None:
        if self.name.startswith("tenure-body") and not refused:
            refused.append(self.name)
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", refuse_once)

    @workflow
    def body(ctx: SyncWorkflowContext) -> int:
        return ctx.step(double, 1)

    async with stage.worker(body):
        run_id = await stage.start(body)
        assert await stage.result(run_id) == 2
    assert await stage.rig.outcomes(run_id) == ["released", "succeeded"]
    assert any(f"Run {run_id} cannot go on here" in each for each in messages(caplog))
