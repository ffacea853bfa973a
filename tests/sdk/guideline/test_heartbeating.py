"""Heartbeating: what it finds, what it shows, and how the next attempt goes on."""

from __future__ import annotations

import asyncio
import socket
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tenure import Client, RetryPolicy, TaskFailed, activity
from tenure.core.limits import PAYLOAD_BYTES_MAX
from tenure.core.task.record import TaskState
from tenure.testing import TestEngine
from tests.polling import eventually
from tests.sdk.guideline import program
from tests.sdk.guideline.outside_world import OutsideWorld
from tests.sdk.guideline.scene import hang, lengths_s, outcomes, until_progress, until_state
from tests.sdk.guideline.world import open_world


@dataclass
class Cursor:
    page: int
    after_id: str


@activity(start_to_close="1m")
async def count_async(items: int) -> int:
    return program.show_progress(items)


@activity(start_to_close="1m")
def count_in_thread(items: int) -> int:
    return program.show_progress(items)


# -- When required


async def test_an_activity_that_heartbeats_may_run_for_many_times_its_heartbeat_timeout(
    engine: TestEngine, client: Client
) -> None:
    pages: asyncio.Queue[int] = asyncio.Queue()

    @activity(start_to_close="1h", heartbeat_timeout="60ms")
    async def export() -> int:
        for page in range(5):
            activity.progress(message=f"page {page}")
            await pages.get()
        return activity.info().attempt

    async with engine.worker([export]):
        handle = await client.enqueue(export)
        for page in range(5):
            await until_progress(handle, f"page {page}")
            await engine.advance("50ms")
            pages.put_nowait(page)
        assert await handle.result() == 1


async def test_a_batch_that_fails_in_the_middle_goes_on_with_the_next_item(
    engine: TestEngine, client: Client
) -> None:
    done: list[int] = []

    @activity(start_to_close="1h", heartbeat_timeout="1m")
    def index(count: int) -> int:
        first = activity.heartbeat_details(int) + 1 if activity.has_heartbeat_details() else 0
        for item in range(first, count):
            if item == 700 and activity.info().attempt == 1:
                raise ConnectionError("the search engine is away")
            done.append(item)
            activity.heartbeat(item)
        return count - first

    async with engine.worker([index]):
        assert await engine.advance_until(client.run(index, 1_000)) == 300
    assert done == list(range(1_000))


async def test_a_network_call_that_never_returns_is_found_by_its_silence_and_made_again(
    engine: TestEngine, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    listener = socket.create_server(("127.0.0.1", 0))

    @activity(start_to_close="1d", heartbeat_timeout="30s", cancel_grace="100ms")
    def call() -> str:
        activity.heartbeat()
        if activity.info().attempt == 1:
            with socket.create_connection(listener.getsockname()) as connection:
                connection.recv(1)
        return f"attempt {activity.info().attempt}"

    with listener:
        async with engine.worker([call]):
            handle = await client.enqueue(call)
            await until_state(handle, TaskState.RUNNING)
            silent, _ = listener.accept()
            await engine.advance("30s")
            # The second attempt starts when the worker has given up the first, in real time.
            await eventually(lambda: "abandoned" in caplog.text)
            assert await engine.advance_until(handle.result()) == "attempt 2"
            silent.close()
    assert await outcomes(handle) == ["timed_out", "succeeded"]


# -- Key benefits


async def test_a_killed_worker_is_found_within_the_heartbeat_timeout_and_another_one_resumes(
    tmp_path: Path,
) -> None:
    """With ``kill -9``; the checkpoint is all that the second process knows of the first."""
    outside = OutsideWorld(tmp_path)
    async with open_world(tmp_path) as world, Client(world.target) as client:
        first = await world.worker()
        handle = await client.enqueue(program.import_rows, str(tmp_path), 50, 30)
        await eventually(lambda: 30 in outside.rows())
        await until_progress(handle, "row 29")
        await world.worker()
        await first.kill()
        killed_at_s = time.monotonic()
        assert await handle.result() == sum(range(50))
        took_s = time.monotonic() - killed_at_s
        found = await handle.attempts()
    assert [each.outcome for each in found] == ["worker_lost", "succeeded"]
    assert 1_000 * took_s < program.import_rows.options.heartbeat_timeout_ms
    (_, one), (_, other) = outside.runs("import_rows")
    assert one != other
    # Nothing before the checkpoint is repeated; what came after it is, and it is safe to repeat.
    assert outside.rows() == {**dict.fromkeys(range(50), 1), 30: 2}


async def test_progress_is_seen_from_outside_while_the_activity_runs(
    engine: TestEngine, client: Client
) -> None:
    gate = asyncio.Event()

    @activity(start_to_close="1h", heartbeat_timeout="1m")
    async def export() -> str:
        activity.progress(40, "page 4 of 10")
        await gate.wait()
        activity.progress(100, "page 10 of 10")
        return "done"

    seen: list[tuple[float | None, str]] = []

    async with engine.worker([export]):
        handle = await client.enqueue(export)
        await until_progress(handle, "page 4 of 10")
        assert [each.progress.percent async for each in client.list(state="running")] == [40]
        waiting = asyncio.ensure_future(
            handle.result(on_progress=lambda each: seen.append((each.percent, each.message)))
        )
        await eventually(lambda: seen)
        gate.set()
        assert await waiting == "done"
    assert seen[0] == (40, "page 4 of 10")


@pytest.mark.parametrize("where", ["loop", "thread", "process"])
async def test_the_last_progress_is_shown_when_the_activity_has_ended(
    engine: TestEngine, client: Client, where: str
) -> None:
    """However short it was: progress is sent at most once a second, but for the last one."""
    called = {"loop": count_async, "thread": count_in_thread, "process": program.count}[where]
    seen: list[float | None] = []
    async with engine.worker([called]):
        handle = await client.enqueue(called, 4)
        assert await handle.result(on_progress=lambda each: seen.append(each.percent)) == 4
        shown = (await handle.describe()).progress
    assert seen[-1] == 100
    assert (shown.percent, shown.message) == (100, "item 4 of 4")


@pytest.mark.parametrize("end", ["failure", "heartbeat timeout", "start to close", "drain"])
async def test_the_next_attempt_resumes_from_the_last_heartbeat_whatever_ended_the_one_before(
    engine: TestEngine, client: Client, end: str
) -> None:
    begun: list[int] = []

    @activity(start_to_close="40m")
    async def walk() -> int:
        first = activity.heartbeat_details(int) if activity.has_heartbeat_details() else 0
        begun.append(first)
        for step in range(first, 10):
            if step == 4 and activity.info().attempt == 1:
                activity.progress(message="at step 4")
                if end == "failure":
                    raise ConnectionError("step 4")
                await hang()
            activity.heartbeat(step + 1)
        return first

    watched = walk.with_options(heartbeat_timeout="10m") if end == "heartbeat timeout" else walk
    async with engine.worker([walk]) as worker:
        handle = await client.enqueue(watched)
        if end != "failure":
            await until_progress(handle, "at step 4")
        if end == "drain":
            await worker.shutdown("1ms")
        else:
            assert await engine.advance_until(handle.result()) == 4
    if end == "drain":
        async with engine.worker([walk]):
            assert await handle.result() == 4
    assert begun == [0, 4]
    outcome, length_s = {
        "failure": ("failed", 0),
        "heartbeat timeout": ("timed_out", 600),
        "start to close": ("timed_out", 2_400),
        "drain": ("released", 0),
    }[end]
    assert await outcomes(handle) == [outcome, "succeeded"]
    assert (await lengths_s(handle))[0] == length_s


# -- Design guidelines


async def test_heartbeats_may_be_as_frequent_as_one_likes_and_the_last_one_always_arrives(
    engine: TestEngine, client: Client
) -> None:
    @activity(start_to_close="1h", heartbeat_timeout="10m")
    def count() -> int:
        if activity.has_heartbeat_details():
            return activity.heartbeat_details(int)
        for number in range(1_000):
            activity.heartbeat(number)
        raise ConnectionError("now")

    async with engine.worker([count]):
        assert await engine.advance_until(client.run(count)) == 999


async def test_the_checkpoint_is_a_typed_value_such_as_a_cursor(
    engine: TestEngine, client: Client
) -> None:
    @activity(start_to_close="1h", heartbeat_timeout="1m")
    def sync() -> str:
        if not activity.has_heartbeat_details():
            activity.heartbeat(Cursor(3, "customer-91"), {"skipped": [7]})
            raise ConnectionError("page 4")
        cursor, counts = activity.heartbeat_details(Cursor, dict[str, list[int]])
        assert isinstance(cursor, Cursor)
        return f"page {cursor.page} after {cursor.after_id}, {counts}"

    async with engine.worker([sync]):
        found = await engine.advance_until(client.run(sync))
    assert found == "page 3 after customer-91, {'skipped': [7]}"


async def test_one_heartbeat_per_unit_repeats_at_most_that_unit(
    engine: TestEngine, client: Client
) -> None:
    """The unit is a page of ten: those that were finished are not fetched again."""
    fetched: list[int] = []

    @activity(start_to_close="1h", heartbeat_timeout="1m")
    def crawl(pages: int) -> None:
        start = activity.heartbeat_details(int) if activity.has_heartbeat_details() else 0
        for page in range(start, pages):
            for item in range(10):
                if (page, item, activity.info().attempt) == (2, 5, 1):
                    raise ConnectionError("in the middle of page 2")
                fetched.append(10 * page + item)
            activity.heartbeat(page + 1)

    async with engine.worker([crawl]):
        await engine.advance_until(client.run(crawl, 4))
    assert sorted(fetched) == sorted([*range(40), *range(20, 25)])


# -- Heartbeat details


async def test_details_that_are_not_small_are_refused_inside_the_activity(
    engine: TestEngine, client: Client
) -> None:
    @activity(start_to_close="1h", heartbeat_timeout="1m", retry=RetryPolicy(max_attempts=1))
    def hoard() -> None:
        activity.heartbeat("x" * PAYLOAD_BYTES_MAX)

    async with engine.worker([hoard]):
        with pytest.raises(TaskFailed, match="details") as caught:
            await client.run(hoard)
    assert caught.value.error is not None
    assert caught.value.error.type == "PayloadTooLarge"


async def test_details_of_another_shape_fail_with_what_is_wrong_and_are_never_taken_for_nothing(
    engine: TestEngine, client: Client
) -> None:
    """A deployment that changed the checkpoint does not start from the beginning unseen."""

    @activity(start_to_close="1h", heartbeat_timeout="1m", retry=RetryPolicy(max_attempts=2))
    def sync() -> None:
        if activity.has_heartbeat_details():
            activity.heartbeat_details(Cursor)
        activity.heartbeat(3)
        raise ConnectionError("page 4")

    async with engine.worker([sync]):
        with pytest.raises(TaskFailed, match="Cursor") as caught:
            await engine.advance_until(client.run(sync))
    assert caught.value.error is not None
    assert caught.value.error.type == "PayloadError"
