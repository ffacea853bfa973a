"""What plain bodies can do: the same as async ones, call by call."""

from __future__ import annotations

import asyncio
import functools
import inspect
import itertools
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from tenure.sdk.activity.decorator import activity
from tenure.sdk.failure import StepFailed, TaskFailed
from tenure.sdk.workflow.context import WorkflowContext, WorkflowLog
from tenure.sdk.workflow.definition import workflow
from tenure.sdk.workflow.ending import Parked, Raised, Returned
from tenure.sdk.workflow.guard import NotDurable
from tenure.sdk.workflow.signal import signal
from tenure.sdk.workflow.sync.context import SyncWorkflowContext, SyncWorkflowLog
from tenure.sdk.workflow.sync.results import SyncResults
from tests.sdk.workflow.model import Model

approve = signal("approve", int)


def double(number: int) -> int:
    return 2 * number


def halve(number: int) -> int:
    return number // 2


def fail(text: str) -> None:
    raise ValueError(text)


@activity(start_to_close="30s")
def charge(amount: int) -> int:
    if amount < 0:
        raise ValueError("no money")
    return amount


@workflow
def ship(ctx: SyncWorkflowContext, order: int) -> int:
    return ctx.step(double, order)


CODE = (charge, ship)


async def async_sum(done: SyncResults[int]) -> int:
    return sum([value async for _, value in done])


def plain_sum(done: SyncResults[int]) -> int:
    return sum(value for _, value in done) + sum(done.list())


@pytest.mark.parametrize(
    ("plain", "origin"), [(SyncWorkflowContext, WorkflowContext), (SyncWorkflowLog, WorkflowLog)]
)
def test_a_plain_body_can_do_what_an_async_one_can(plain: type, origin: type) -> None:
    calls = {name for name in vars(origin) if not name.startswith("_")}

    assert calls <= {*vars(plain)}
    for name in calls:
        ours = inspect.signature(getattr(plain, name)).parameters
        theirs = inspect.signature(getattr(origin, name)).parameters
        assert [*ours] == [*theirs]
        assert [each.default for each in ours.values()] == [
            each.default for each in theirs.values()
        ]


@workflow(name="trip")
async def async_trip(ctx: WorkflowContext, number: int) -> list[Any]:
    first = await ctx.step(double, number)
    both = [ctx.execute(charge, first), ctx.child(ship, first)]
    await ctx.sleep("2h")
    story: list[Any] = [*await asyncio.gather(*both), ctx.now().timestamp()]
    branch = ctx.branch("insurance")
    story += [await branch.step(double, 5), str(ctx.uuid4()), ctx.random().random()]
    try:
        await ctx.wait_signal(approve, timeout="1h")
    except TimeoutError:
        story.append(ctx.patched("late"))
    done = await ctx.map(charge, [1, 2, 3])
    return [*story, await done.list(), await ctx.step(double, done.total)]


@workflow(name="trip")
def plain_trip(ctx: SyncWorkflowContext, number: int) -> list[Any]:
    first = ctx.step(double, number)
    both = [ctx.begin(charge, first), ctx.begin(ship, first)]
    ctx.sleep("2h")
    story: list[Any] = [*ctx.gather(*both), ctx.now().timestamp()]
    branch = ctx.branch("insurance")
    story += [branch.step(double, 5), str(ctx.uuid4()), ctx.random().random()]
    try:
        ctx.wait_signal(approve, timeout="1h")
    except TimeoutError:
        story.append(ctx.patched("late"))
    done = ctx.map(charge, [1, 2, 3])
    return [*story, done.list(), ctx.step(double, done.total)]


@pytest.mark.parametrize(("before", "after"), [(async_trip, plain_trip), (plain_trip, async_trip)])
def test_a_run_goes_on_when_its_body_becomes_plain_or_async(before: Any, after: Any) -> None:
    first = Model(before, 3, code=CODE)
    result = first.result()
    for length in reversed(range(len(first.journal) + 1)):
        model = Model(after, 3, code=CODE, seed=length)
        model.journal = [replace(each) for each in first.journal[:length]]
        pages = {key: [*group.ends.values()] for key, group in first.children.groups.items()}
        model.children.take_over(
            {key: ends for key, ends in pages.items() if any(e.key == key for e in model.journal)}
        )
        # What happens later happens at another time.
        assert _without_times(model.result()) == _without_times(result)
        if length == len(first.journal):
            assert len(model.journal) == length
            assert not model.executions


def _without_times(result: list[Any]) -> list[Any]:
    return result[:2] + result[3:]


def test_calls_run_beside_each_other_and_are_told_apart() -> None:
    @workflow
    def body(ctx: SyncWorkflowContext) -> list[Any]:
        good, bad, queued = ctx.begin(double, 1), ctx.begin(fail, "no"), ctx.begin(charge, -1)
        assert not good.done()
        done, pending = ctx.wait([bad, good, queued])
        assert (done, pending) == ([bad, good, queued], [])
        assert [each.key for each in done] == ["fail", "double", "charge"]
        found = ctx.gather(good, bad, queued, return_exceptions=True)
        with pytest.raises(StepFailed, match="no"):
            ctx.gather(good, bad)
        with pytest.raises(TaskFailed, match="no money"):
            queued.result()
        return [type(each).__name__ for each in found]

    assert Model(body, code=CODE).result() == ["int", "StepFailed", "TaskFailed"]


def test_a_call_that_is_late_goes_on() -> None:
    @workflow
    def body(ctx: SyncWorkflowContext) -> list[int]:
        slow = ctx.begin(double, 3)
        with pytest.raises(TimeoutError, match="double did not end in time"):
            slow.result(timeout="1ms")
        done, pending = ctx.wait([slow], timeout="1ms")
        assert (done, pending) == ([], [slow])
        return [slow.result(), slow.result(timeout="1h")]

    model = Model(body, seed=3)

    assert model.result() == [6, 6]
    assert model.executions == {"double": 1}


def test_a_call_can_be_cancelled() -> None:
    @workflow
    def body(ctx: SyncWorkflowContext) -> str:
        call = ctx.begin(charge, 1)
        assert call.cancel()
        assert call.cancelled()
        assert not call.cancel()
        with pytest.raises(asyncio.CancelledError):
            call.result()
        return "done"

    assert Model(body, code=CODE).result() == "done"


def test_a_run_that_is_cancelled_cleans_up_with_steps_and_sleeps() -> None:
    @workflow
    def body(ctx: SyncWorkflowContext) -> None:
        try:
            ctx.execute(charge, 1, on_cancel="wait")
            ctx.sleep("10d")
        except asyncio.CancelledError:
            ctx.sleep("1h")
            ctx.step(double, ctx.execute(charge, 5))
            raise
        finally:
            ctx.step(double, 7)

    for at_ms in (0, 5, 1_000, 3_600_000):
        model = Model(body, code=CODE, seed=at_ms)
        model.at(model.now_ms + at_ms, model.cancel)
        ending = model.play()
        assert isinstance(ending, Raised)
        assert isinstance(ending.error, asyncio.CancelledError)
        assert ending.is_cancel
        assert model.executions == {"double": 1, "double#2": 1}


def test_signals_are_taken_one_by_one() -> None:
    @workflow
    def body(ctx: SyncWorkflowContext) -> list[int]:
        found = [*itertools.islice(ctx.signals(approve), 3)]
        return [*found, ctx.unread(approve)]

    model = Model(body)
    for number in range(5):
        model.at(model.now_ms + number, functools.partial(model.signal, "approve", number))

    assert model.result()[:3] == [0, 1, 2]


def test_signals_to_other_runs_are_sent_once() -> None:
    other = "0198f2c4-0000-7000-8000-0000000000aa"

    @workflow
    def body(ctx: SyncWorkflowContext) -> str:
        child = ctx.begin(ship, 1)
        child.signal(approve, 2)
        ctx.external(other).signal(approve, 3)
        ctx.external("external:order-1").signal("hurry")
        assert child.result() == 2
        return child.id

    model = Model(body, code=CODE)
    child_id = model.result()

    assert sorted(run_id for run_id, _, _ in model.sent.values()) == sorted(
        [child_id, other, "external:order-1"]
    )


def test_results_of_a_map_are_read_in_the_body_and_in_steps() -> None:
    @workflow
    def body(ctx: SyncWorkflowContext) -> list[Any]:
        done = ctx.map(charge, iter([1, 2, -1, 4]), on_error="collect")
        values = [value for _, value in done if isinstance(value, int)]
        whole = ctx.map(charge, (number for number in range(4)))
        return [values, done.failed, ctx.step(plain_sum, whole), len(whole.list())]

    assert Model(body, code=CODE).result() == [[1, 2, 4], 1, 12, 4]


def test_what_is_shown_and_logged_is_so_once(caplog: pytest.LogCaptureFixture) -> None:
    @workflow
    def body(ctx: SyncWorkflowContext) -> int:
        ctx.log.warning("begun by %s", ctx.info.type)
        ctx.set_state({"at": "start"})
        ctx.progress(10, "begun")
        return ctx.step(double, 1)

    model = Model(body)
    model.on_recorded = lambda _: model.crash() if model.holder else None

    assert model.result() == 2
    assert [each.getMessage() for each in caplog.records if "begun" in each.getMessage()] == [
        f"body {model.identity.run_id}: begun by body"
    ]
    assert (None, 10, "begun") in model.published


def test_a_plain_body_begins_anew() -> None:
    @workflow
    def body(ctx: SyncWorkflowContext, rest: int) -> int:
        try:
            if ctx.step(double, rest) > 2:
                ctx.continue_as_new(rest - 1)
        finally:
            ctx.log.info("one turn")
        return rest

    model = Model(body, 3)

    assert model.result() == 1
    assert model.identity.generation == 3


def test_instants_need_a_zone_and_pass() -> None:
    @workflow
    def body(ctx: SyncWorkflowContext) -> float:
        with pytest.raises(ValueError, match="time zone"):
            ctx.sleep_until(datetime(2030, 1, 1))  # noqa: DTZ001 (what is refused)
        before = ctx.now()
        ctx.sleep_until(before + timedelta(days=3))
        ctx.sleep_until(datetime(2020, 1, 1, tzinfo=UTC))
        return (ctx.now() - before).total_seconds()

    assert Model(body).result() >= 3 * 86_400


def test_wrong_calls_are_refused_in_the_body() -> None:
    @workflow
    def body(ctx: SyncWorkflowContext) -> str:
        anything: Any = ctx
        with pytest.raises(TypeError, match=r"Expected what ctx\.begin returns, not"):
            anything.wait([3])
        with pytest.raises(ValueError, match="return_when must be one of all, first, not 'some'"):
            anything.wait([], return_when="some")
        with pytest.raises(TypeError, match=r"ship is a workflow: write ctx\.child"):
            anything.execute(ship, 1)
        with pytest.raises(TypeError, match=r"ctx\.step takes a function"):
            anything.begin(3)
        assert ctx.wait([]) == ([], [])
        assert ctx.gather() == []
        return "done"

    assert Model(body).result() == "done"


def test_code_that_does_not_fit_parks_the_run_with_its_line() -> None:
    names = ["double"]

    @workflow
    def body(ctx: SyncWorkflowContext) -> None:
        try:
            ctx.step(double if names[0] == "double" else halve, 1)
        except BaseException:  # noqa: BLE001 (what a body should not do)
            # Nothing that it calls now counts.
            ctx.sleep("1h")
        ctx.wait_signal(approve)

    model = Model(body)
    model.at(model.now_ms + 5_000, lambda: names.append(names.pop() + "d"))
    model.at(model.now_ms + 6_000, lambda: _hand_out_cold(model))
    ending = model.play()

    assert isinstance(ending, Parked)
    line = inspect.getsourcelines(body.function)[1] + 3
    assert ending.mismatch.text == (
        "changed at position 1: at 0 the journal has double (step), the code calls halve "
        f"(test_context.py:{line} in body)"
    )


def _hand_out_cold(model: Model) -> None:
    model.hand_out(is_cold=True)


def dial() -> None:
    with socket.socket() as dialled:
        dialled.connect(("127.0.0.1", 1))


@pytest.mark.parametrize(
    ("blocks", "problem"),
    [
        (lambda: time.sleep(0.001), r"blocks the thread (time.sleep): ctx.sleep(…) instead"),
        (dial, "connects a socket (socket.connect): put it into a step, ctx.step(…)"),
        (
            lambda: subprocess.run([sys.executable, "-V"], check=True),
            "starts a process (subprocess.Popen): put it into a step, ctx.step(…)",
        ),
    ],
)
def test_what_blocks_is_refused_with_its_line(blocks: Callable[[], object], problem: str) -> None:
    @workflow
    def body(ctx: SyncWorkflowContext) -> None:
        ctx.step(double, 1)
        blocks()

    ending = Model(body).play()

    assert isinstance(ending, Raised)
    assert isinstance(ending.error, NotDurable)
    assert str(ending.error).startswith("test_context.py:")
    assert str(ending.error).endswith(problem)


def test_steps_and_other_threads_cannot_use_the_context() -> None:
    refused: list[str] = []

    @workflow
    def body(ctx: SyncWorkflowContext) -> None:
        def use() -> None:
            for each in (ctx.now, ctx.uuid4, lambda: ctx.step(double, 1)):
                with pytest.raises(RuntimeError, match="ctx works only in the body") as error:
                    each()
                refused.append(str(error.value))

        ctx.step(use)
        other = threading.Thread(target=use)
        other.start()
        other.join()

    assert isinstance(Model(body).play(), Returned)
    assert len(refused) == 6
    assert all(each.startswith("test_context.py:") for each in refused)
