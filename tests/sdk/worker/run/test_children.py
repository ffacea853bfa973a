"""Children of runs in real workers: queued activities, child runs, maps, and what may go wrong."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any

import pytest

from tenure import RetryPolicy, TaskFailed, activity
from tenure.engine.command import Command
from tenure.engine.run.child_command import SpawnTasks
from tenure.sdk.activity.context import Info
from tenure.sdk.activity.definition import Activity
from tenure.sdk.workflow.context import WorkflowContext
from tenure.sdk.workflow.definition import workflow
from tenure.sdk.workflow.signal import signal
from tenure.v1 import task_service_pb2 as task_pb
from tests.polling import eventually
from tests.sdk.worker.run.stage import RunStage
from tests.sdk.worker.run.test_fault import abort

MODES = pytest.mark.parametrize("mode", ["session", "poll"])
approve = signal("approve", int)


@activity(start_to_close="30s")
async def double(number: int) -> int:
    return 2 * number


@activity(start_to_close="30s")
async def refuse(number: int) -> int:
    raise ValueError(f"not {number}")


class Payments:
    """Activities that need something."""

    def __init__(self, fee: int) -> None:
        self.fee = fee
        self.infos: list[Info] = []

    @activity(start_to_close="30s")
    async def charge(self, amount: int) -> int:
        self.infos.append(activity.info())
        return amount + self.fee

    @activity(start_to_close="30s")
    def refund(self, amount: int) -> int:
        return amount - self.fee


@workflow
async def doubled(ctx: WorkflowContext, number: int) -> int:
    return await ctx.execute(double, number)


@workflow
async def three(ctx: WorkflowContext, number: int) -> list[int]:
    first = await ctx.execute(double, number)
    both = await asyncio.gather(ctx.execute(double, first), ctx.execute(double, number + 1))
    return [first, *both]


async def task_count(stage: RunStage, activity_type: str) -> int:
    """Return how many tasks of a type there are."""
    stub = stage.rig._stub("task")  # noqa: SLF001 (one of this folder)
    request = task_pb.ListTasksRequest(type=activity_type, wants_total=True)
    answer = await stub.ListTasks(request)
    return int(answer.total_count)


@MODES
async def test_a_parent_waits_for_three_queued_activities(stage: RunStage, mode: str) -> None:
    async with stage.worker(three, activities=[double], mode=mode):
        run_id = await stage.start(three, number=1)
        assert await stage.result(run_id) == [2, 4, 4]
    assert sorted(await stage.keys(run_id)) == ["child double", "child double#2", "child double#3"]


async def test_activities_are_methods_that_are_named_without_an_instance(stage: RunStage) -> None:
    payments = Payments(3)

    @workflow
    async def body(ctx: WorkflowContext, amount: int) -> list[int]:
        charged = await ctx.execute(Payments.charge, amount)
        return [charged, await ctx.execute(Payments.refund, charged)]

    async with stage.worker(body, activities=[payments]):
        run_id = await stage.start(body, amount=10)
        assert await stage.result(run_id) == [13, 10]
    (info,) = payments.infos
    assert info.run_id == run_id
    assert info.task_id != run_id
    assert info.idempotency_key == f"{run_id}:0:charge"
    assert not info.is_local


async def test_the_failure_of_an_activity_reaches_the_body(stage: RunStage) -> None:
    refused: Activity[[int], int] = refuse.with_options(retry=RetryPolicy(max_attempts=1))

    @workflow
    async def body(ctx: WorkflowContext) -> str:
        try:
            await ctx.execute(refused, 7)
        except TaskFailed as error:
            return f"{error.error}"
        return "unreachable"

    async with stage.worker(body, activities=[refuse]):
        assert await stage.run(body) == "ValueError: not 7"


@MODES
async def test_a_parent_waits_for_child_runs(stage: RunStage, mode: str) -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> list[int]:
        runs = [ctx.child(doubled, number) for number in range(5)]
        return list(await asyncio.gather(*runs))

    async with stage.worker(body, doubled, activities=[double], mode=mode):
        run_id = await stage.start(body)
        assert await stage.result(run_id) == [0, 2, 4, 6, 8]
    assert await task_count(stage, "doubled") == 5


@MODES
async def test_a_map_over_300_items_is_one_entry(stage: RunStage, mode: str) -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> int:
        done = await ctx.map(double, range(300))
        values = await done.list()
        assert values == [2 * each for each in range(300)]
        return await ctx.step(len, values)

    async with stage.worker(body, activities=[double], mode=mode):
        run_id = await stage.start(body)
        assert await stage.result(run_id) == 300
    assert await stage.keys(run_id) == ["group map:double", "step len"]
    assert await task_count(stage, "double") == 300


@MODES
async def test_parent_and_child_share_one_slot(stage: RunStage, mode: str) -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> int:
        return await ctx.child(doubled, await ctx.execute(double, 1))

    async with stage.worker(body, doubled, activities=[double], mode=mode, max_concurrent=1):
        began_s = time.monotonic()
        assert await stage.run(body) == 4
        assert time.monotonic() - began_s < 10.0


async def test_a_parent_lingers_for_a_child_that_ends_soon(stage: RunStage) -> None:
    async with stage.worker(doubled, activities=[double], max_concurrent=20):
        run_id = await stage.start(doubled, number=2)
        assert await stage.result(run_id) == 4
        # It was never handed out again.
        assert (await stage.rig.task(run_id)).attempt == 1


async def test_a_parent_makes_room_as_soon_as_slots_are_short(stage: RunStage) -> None:
    gate, counts = asyncio.Event(), Counter[str]()

    @activity(start_to_close="30s")
    async def wait() -> None:
        counts["begun"] += 1
        await gate.wait()

    @workflow
    async def body(ctx: WorkflowContext) -> int:
        await asyncio.gather(*(ctx.execute(wait) for _ in range(4)))
        return await ctx.execute(double, 3)

    async with stage.worker(body, activities=[wait, double], max_concurrent=4):
        run_id = await stage.start(body)
        # The fourth needs the slot of the parent.
        await eventually(lambda: counts["begun"] == 4)
        gate.set()
        assert await stage.result(run_id) == 6


@MODES
async def test_a_connection_that_is_cut_between_a_spawn_and_its_answer_makes_nothing_twice(
    stage: RunStage, mode: str
) -> None:
    calls: Counter[int] = Counter()
    cuts: Counter[str] = Counter()
    submit = stage.rig.engine.submit

    def cut_after(command: Command[Any]) -> Any:
        answer = submit(command)
        if isinstance(command, SpawnTasks) and not cuts["spawn"]:
            cuts["spawn"] += 1
            stage.rig.proxy.is_muted = True
            answer.add_done_callback(cut)
        return answer

    def cut(_: Any) -> None:
        stage.rig.proxy.cut()
        stage.rig.proxy.is_muted = False

    @activity(start_to_close="30s")
    async def count(number: int) -> int:
        calls[number] += 1
        return number

    @workflow
    async def body(ctx: WorkflowContext) -> list[int]:
        return list(await asyncio.gather(*(ctx.execute(count, each) for each in range(20))))

    stage.rig.engine.submit = cut_after  # type: ignore[method-assign]
    async with stage.worker(body, activities=[count], mode=mode):
        assert await stage.run(body) == list(range(20))
    assert cuts["spawn"] == 1
    assert await task_count(stage, "count") == 20
    assert set(calls.values()) == {1}


async def test_answers_that_are_lost_make_no_child_twice(stage: RunStage) -> None:
    calls: Counter[int] = Counter()

    @activity(start_to_close="30s")
    async def count(number: int) -> int:
        calls[number] += 1
        return number

    @workflow
    async def body(ctx: WorkflowContext) -> int:
        total = 0
        for first in range(0, 20, 4):
            some = (ctx.execute(count, each) for each in range(first, first + 4))
            total += sum(await asyncio.gather(*some))
        return total

    async with stage.worker(body, activities=[count]):
        stage.rig.proxy.loss = 0.1
        try:
            assert await stage.run(body) == 190
        finally:
            stage.rig.proxy.loss = 0.0
    assert stage.rig.proxy.lost_count
    assert await task_count(stage, "count") == 20
    assert set(calls) == set(range(20))


async def test_another_worker_goes_on_and_starts_no_child_again(fast: RunStage) -> None:
    gate, calls = asyncio.Event(), Counter[int]()

    @activity(start_to_close="30s", queue="elsewhere")
    async def wait(number: int) -> int:
        calls[number] += 1
        await gate.wait()
        return number

    @workflow
    async def body(ctx: WorkflowContext) -> list[int]:
        both = [ctx.execute(wait, each) for each in range(10)]
        third = ctx.map(wait, range(10, 40))
        done = await asyncio.gather(*both)
        return [*done, *await (await third).list()]

    async with fast.worker(activities=[wait], queue="elsewhere"), fast.worker(body) as first:
        run_id = await fast.start(body)
        await eventually(lambda: sum(calls.values()) == 40)
        abort(first)
        async with fast.worker(body):
            gate.set()
            assert await fast.result(run_id) == list(range(40))
    assert await task_count(fast, "wait") == 40
    assert set(calls.values()) == {1}


async def test_a_drain_does_not_wait_for_open_children(stage: RunStage) -> None:
    gate, calls = asyncio.Event(), Counter[int]()

    @activity(start_to_close="30s", queue="elsewhere")
    async def wait(number: int) -> int:
        calls[number] += 1
        await gate.wait()
        return number

    @workflow
    async def body(ctx: WorkflowContext) -> int:
        return sum(await asyncio.gather(*(ctx.execute(wait, each) for each in range(3))))

    async with stage.worker(activities=[wait], queue="elsewhere"):
        async with stage.worker(body) as first:
            run_id = await stage.start(body)
            await eventually(lambda: len(calls) == 3)
            first.request_shutdown("1h")
            await eventually(lambda: first.has_ended)
        await stage.rig.until(run_id, "WAITING")
        async with stage.worker(body):
            gate.set()
            assert await stage.result(run_id) == 3
    assert set(calls.values()) == {1}


async def test_a_body_signals_its_child_and_other_runs(stage: RunStage) -> None:
    @workflow
    async def waiting(ctx: WorkflowContext) -> int:
        return await ctx.wait_signal(approve)

    @workflow
    async def body(ctx: WorkflowContext, other: str) -> int:
        child = ctx.child(waiting)
        await child.signal(approve, 3)
        await ctx.external(other).signal(approve, 4)
        return await child

    async with stage.worker(body, waiting):
        other = await stage.start(waiting)
        assert await stage.run(body, other=other) == 3
        assert await stage.result(other) == 4


async def test_more_open_children_than_a_page_has_are_all_found_by_the_next_worker(
    fast: RunStage,
) -> None:
    halved: Activity[[int], int] = double.with_options(queue="elsewhere")

    @workflow
    async def body(ctx: WorkflowContext) -> int:
        return sum(await asyncio.gather(*(ctx.execute(halved, each) for each in range(1_200))))

    async with fast.worker(body) as first:
        run_id = await fast.start(body)
        await eventually(lambda: is_counted(fast, 1_200))
        await fast.rig.until(run_id, "WAITING")
        abort(first)
    async with fast.worker(body, warm_runs=0), fast.worker(activities=[double], queue="elsewhere"):
        assert await fast.result(run_id) == 1_200 * 1_199
    assert await task_count(fast, "double") == 1_200
    # What is read in pages when it is asked for.
    assert len(set(await fast.keys(run_id))) == 1_000


async def is_counted(stage: RunStage, count: int) -> bool:
    return await task_count(stage, "double") == count


async def test_results_of_a_map_are_read_in_pages_also_in_steps(stage: RunStage) -> None:
    async def total(results: Any) -> int:
        return sum([value async for _, value in results])

    def pairs(results: Any) -> int:
        return sum(value == 2 * item for item, value in results)

    @workflow
    async def body(ctx: WorkflowContext) -> list[int]:
        done = await ctx.map(double, range(1_500))
        both = await asyncio.gather(ctx.step(total, done), ctx.step(pairs, done))
        return [sum(await done.list()), *both]

    async with stage.worker(body, activities=[double]):
        assert await stage.run(body) == [2_248_500, 2_248_500, 1_500]


async def test_a_worker_that_ends_at_once_hands_back_a_run_that_lingers(stage: RunStage) -> None:
    gate, calls = asyncio.Event(), Counter[str]()

    @activity(start_to_close="30s", queue="elsewhere")
    async def wait() -> str:
        calls["begun"] += 1
        await gate.wait()
        return "done"

    @workflow
    async def body(ctx: WorkflowContext) -> str:
        return await ctx.execute(wait)

    async with stage.worker(activities=[wait], queue="elsewhere"):
        async with stage.worker(body) as first:
            run_id = await stage.start(body)
            await eventually(lambda: calls["begun"])
            first.request_shutdown("1ms")
            await eventually(lambda: first.has_ended)
        gate.set()
        async with stage.worker(body):
            assert await stage.result(run_id) == "done"
    assert calls["begun"] == 1
