"""What a client does when answers are lost and servers are away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tenure import Client
from tenure.core.task.record import TaskState
from tenure.errors import DeadlineExceeded, Unavailable
from tenure.sdk.client.task_stream import STREAM_TASKS_MAX, TaskStreams
from tenure.sdk.transport.channel import Channel
from tests.bounds import WORK_S
from tests.polling import eventually
from tests.sdk.client.stage import RawWorker, ServerStage, double
from tests.wire.proxy import Proxy

Act = Callable[[Client], Awaitable[object]]

ENQUEUES: dict[str, tuple[Act, int]] = {
    "one": (lambda client: client.enqueue(double, 1), 1),
    "combined": (
        lambda client: asyncio.gather(*(client.enqueue(double, n) for n in range(50))),
        50,
    ),
    "bulk": (lambda client: client.enqueue_many(double.call(n) for n in range(1_200)), 1_200),
    "with a key": (lambda client: client.enqueue(double.with_options(idempotency_key="k"), 1), 1),
}


async def lose_first_answer(proxy: Proxy, work: Awaitable[object]) -> object:
    """Let a call reach the server and cut the connection before its answer has left."""
    proxy.loss = 1.0
    doing = asyncio.ensure_future(work)
    await eventually(lambda: proxy.lost_count > 0)
    proxy.loss = 0.0
    async with asyncio.timeout(WORK_S):
        return await doing


@pytest.mark.parametrize("name", ENQUEUES)
async def test_a_lost_answer_never_enqueues_twice(any_stage: ServerStage, name: str) -> None:
    act, count = ENQUEUES[name]
    async with Proxy(any_stage.target) as proxy, Client(proxy.address) as client:
        await lose_first_answer(proxy, act(client))
        assert proxy.lost_count >= 1
        assert await any_stage.task_count() == count


async def test_many_lost_answers_never_enqueue_twice(stage: ServerStage) -> None:
    async with (
        Proxy(stage.target, seed=7) as proxy,
        Client(proxy.address, timeout="1m") as client,
        RawWorker(stage.target) as worker,
    ):
        proxy.loss = 0.1
        results = await asyncio.gather(*(client.run(double, n) for n in range(500)))
        assert results == [2 * n for n in range(500)]
        assert len(worker.started) == len(set(worker.started)) == 500
        assert await stage.task_count() == 500


async def test_a_change_whose_answer_was_lost_is_a_success(stage: ServerStage) -> None:
    async with Proxy(stage.target) as proxy, Client(proxy.address) as client:
        handle = await client.enqueue(double, 1)
        assert await lose_first_answer(proxy, handle.pause()) is TaskState.PAUSED
        proxy.lost_count = 0
        assert await lose_first_answer(proxy, handle.resume()) is TaskState.PENDING
        proxy.lost_count = 0
        assert await lose_first_answer(proxy, handle.cancel()) is TaskState.CANCELLED
        proxy.lost_count = 0
        again = await lose_first_answer(proxy, handle.retry())
        assert await stage.task_count() == 2
        assert again is not None


async def test_a_server_that_is_away_is_named_and_found_again(stage: ServerStage) -> None:
    await stage.stop()
    async with Client(stage.target, timeout="300ms") as client:
        for act in (client.enqueue(double, 1), client.enqueue_many([double.call(1)])):
            with pytest.raises(Unavailable, match="No server answers at") as caught:
                await act
            assert stage.target in caught.value.message
            assert "Start one with `tenure server`" in caught.value.message
            assert "Connection refused" in caught.value.message
        await stage.start()
        await client.enqueue(double, 1)
        assert await stage.task_count() == 1


async def test_calls_go_on_over_a_restart_of_the_server(stage: ServerStage) -> None:
    async with Client(stage.target) as client:
        first = await client.enqueue(double, 1)
        waiting = asyncio.ensure_future(first.result())
        await eventually(lambda: stage.watched_count == 1)
        await stage.stop()
        second = asyncio.ensure_future(client.enqueue(double, 2))
        await stage.start()
        async with RawWorker(stage.target), asyncio.timeout(WORK_S):
            assert await waiting == 2
            assert await (await second).result() == 4


async def test_a_wait_that_times_out_while_the_server_is_away_says_why(stage: ServerStage) -> None:
    async with Client(stage.target) as client:
        handle = await client.enqueue(double, 1)
        await stage.stop()
        with pytest.raises(TimeoutError, match="has not ended") as caught:
            await handle.result(timeout="500ms")
        assert isinstance(caught.value.__cause__, Unavailable)


async def test_a_silent_server_is_an_error_after_the_timeout(stage: ServerStage) -> None:
    async with Proxy(stage.target) as proxy, Client(proxy.address, timeout="500ms") as client:
        proxy.is_muted = True
        with pytest.raises((DeadlineExceeded, Unavailable)):
            await client.enqueue(double, 1)
        proxy.is_muted = False
        await client.enqueue(double, 2)


async def test_the_next_of_several_targets_is_taken(stage: ServerStage) -> None:
    async with Client(f"127.0.0.1:1,{stage.target}") as client:
        handle = await client.enqueue(double, 1)
        async with RawWorker(stage.target):
            assert await handle.result(timeout="30s") == 2
    async with Client(["127.0.0.1:1", "127.0.0.1:2"], timeout="300ms") as client:
        with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1, 127\.0\.0\.1:2"):
            await client.enqueue(double, 1)


async def test_five_thousand_results_come_over_one_stream(stage: ServerStage) -> None:
    link = Channel(stage.target)
    streams = TaskStreams(link, "default")
    async with Client(stage.target) as client:
        handles = await client.enqueue_many(double.call(n) for n in range(12_000))
    ids = [each.task_id for each in handles]
    waits = [asyncio.ensure_future(streams.wait(each)) for each in ids]
    await eventually(lambda: stage.watched_count == 12_000)
    # A stream has its limit at the server; what is beyond goes over another one.
    assert streams.stream_count == 3
    for each in waits[STREAM_TASKS_MAX:]:
        each.cancel()
    await eventually(lambda: stage.watched_count == STREAM_TASKS_MAX)
    assert streams.task_count == STREAM_TASKS_MAX
    async with RawWorker(stage.target), asyncio.timeout(WORK_S):
        results = await asyncio.gather(*waits[:STREAM_TASKS_MAX])
    assert [each.task_id for each in results] == ids[:STREAM_TASKS_MAX]
    assert (streams.task_count, stage.watched_count) == (0, 0)
    await streams.close()
    await link.close()


async def test_a_thousand_single_calls_at_once_are_answered(stage: ServerStage) -> None:
    async with Client(stage.target) as client:
        handles = await client.enqueue_many(double.call(n) for n in range(1_000))
        states = await asyncio.gather(*(each.cancel() for each in handles))
    assert set(states) == {TaskState.CANCELLED}


async def test_waits_that_end_early_leave_nothing_behind(stage: ServerStage) -> None:
    async with Client(stage.target) as client:
        handle = await client.enqueue(double, 1)
        waits = [asyncio.ensure_future(handle.result()) for _ in range(3)]
        await eventually(lambda: stage.watched_count == 1)
        waits[0].cancel()
        with pytest.raises(TimeoutError):
            await handle.result(timeout="20ms")
        waits[1].cancel()
        # Somebody still waits.
        async with RawWorker(stage.target):
            assert await waits[2] == 2
        other = await client.enqueue(double, 2)
        left = asyncio.ensure_future(other.result())
        await eventually(lambda: stage.watched_count == 1)
        left.cancel()
        await eventually(lambda: stage.watched_count == 0)
        # The same task again, over the same stream.
        async with RawWorker(stage.target):
            assert await other.result(timeout="30s") == 4


async def test_closing_tells_everybody_who_waits(stage: ServerStage) -> None:
    client = Client(stage.target)
    handle = await client.enqueue(double, 1)
    waiting = asyncio.ensure_future(handle.result())
    await eventually(lambda: stage.watched_count == 1)
    await client.close()
    with pytest.raises(Unavailable, match="closed"):
        await waiting
    with pytest.raises(RuntimeError, match="closed"):
        await client.enqueue(double, 1)
    await client.close()


async def test_one_client_belongs_to_one_loop(stage: ServerStage) -> None:
    client = Client(stage.target)
    await client.enqueue(double, 1)

    def elsewhere() -> None:
        asyncio.run(enqueue())

    async def enqueue() -> None:
        with pytest.raises(RuntimeError, match="one event loop"):
            await client.enqueue(double, 1)

    await asyncio.to_thread(elsewhere)
    await client.close()
