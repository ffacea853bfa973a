"""A server inside a test: time that the test moves, real workers, and faults."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tenure import Client, Handle, RetryPolicy, TaskFailed, TaskTimedOut, Worker, activity
from tenure.core.task.record import TaskState
from tenure.testing import TestEngine, open_engine
from tests.polling import eventually


class Diary:
    """What activities have done, and gates that they wait at."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.gate = asyncio.Event()

    @activity(start_to_close="30s")
    async def note(self, line: str) -> str:
        self.lines.append(line)
        return line.upper()

    @activity(start_to_close="30s", retry=RetryPolicy(initial_interval="1m", max_attempts=4))
    async def flaky(self, good_from: int) -> int:
        attempt = activity.info().attempt
        self.lines.append(f"attempt {attempt}")
        if attempt < good_from:
            raise ValueError("not yet")
        return attempt

    @activity(start_to_close="1h", heartbeat_timeout="10s")
    async def wait(self) -> int:
        attempt = activity.info().attempt
        self.lines.append(f"attempt {attempt}")
        if attempt == 1:
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.lines.append(str(activity.stop_reason()))
                raise
        return attempt

    @activity(start_to_close="1h")
    def block(self) -> int:
        return activity.info().attempt


@pytest.fixture
def diary() -> Diary:
    return Diary()


async def state(handle: Handle[Any]) -> TaskState:
    return (await handle.describe()).state


async def until_running(handle: Handle[Any]) -> None:
    async def is_running() -> bool:
        return await state(handle) is TaskState.RUNNING

    await eventually(is_running)


# -- Time


async def test_a_task_runs_at_once(tenure_engine: TestEngine, diary: Diary) -> None:
    async with tenure_engine.client() as client, tenure_engine.worker([diary]):
        assert await client.run(diary.note, "hello") == "HELLO"


async def test_a_delay_of_days_passes_when_the_test_says_so(
    tenure_engine: TestEngine, tenure_client: Client, diary: Diary
) -> None:
    async with tenure_engine.worker([diary]):
        handle = await tenure_client.enqueue(diary.note.with_options(delay="3d"), "later")
        before = tenure_engine.now()
        await tenure_engine.advance("2d")
        assert await state(handle) is TaskState.PENDING
        await tenure_engine.advance("1d")
        assert await handle.result() == "LATER"
        assert tenure_engine.now() - before == timedelta(days=3)


async def test_time_stands_still_between(
    tenure_engine: TestEngine, tenure_client: Client, diary: Diary
) -> None:
    async with tenure_engine.worker([diary]):
        handle = await tenure_client.enqueue(diary.note.with_options(delay="1ms"), "later")
        await tenure_client.run(diary.note, "now")
        assert await state(handle) is TaskState.PENDING
        await tenure_engine.advance("1ms")
        assert diary.lines == ["now", "later"]


async def test_what_comes_due_in_between_happens_in_its_order(
    tenure_engine: TestEngine, tenure_client: Client, diary: Diary
) -> None:
    seen: list[datetime] = []

    @activity(start_to_close="30s")
    async def look(line: str) -> None:
        diary.lines.append(line)
        seen.append(tenure_engine.now())

    begin = tenure_engine.now()
    async with tenure_engine.worker([look]):
        for hours in (30, 10, 20):
            await tenure_client.enqueue(look.with_options(delay=f"{hours}h"), f"after {hours} h")
        await tenure_engine.advance("3d")
    assert diary.lines == ["after 10 h", "after 20 h", "after 30 h"]
    assert seen == [begin + timedelta(hours=hours) for hours in (10, 20, 30)]


async def test_retries_come_after_exactly_their_intervals(
    tenure_engine: TestEngine, tenure_client: Client, diary: Diary
) -> None:
    async with tenure_engine.worker([diary]):
        handle = await tenure_client.enqueue(diary.flaky, 3)
        await tenure_engine.advance("59s")
        assert diary.lines == ["attempt 1"]
        await tenure_engine.advance("1s")
        assert diary.lines == ["attempt 1", "attempt 2"]
        await tenure_engine.advance("2m")
        assert await handle.result() == 3


async def test_all_retries_of_a_task_fit_into_one_advance(
    tenure_engine: TestEngine, tenure_client: Client, diary: Diary
) -> None:
    async with tenure_engine.worker([diary]):
        handle = await tenure_client.enqueue(diary.flaky, 100)
        await tenure_engine.advance("1h")
        assert len(diary.lines) == 4
        with pytest.raises(TaskFailed, match="not yet"):
            await handle.result()


async def test_time_passes_until_a_result_is_there(
    tenure_engine: TestEngine, tenure_client: Client, diary: Diary
) -> None:
    begin = tenure_engine.now()
    async with tenure_engine.worker([diary]):
        assert await tenure_engine.advance_until(tenure_client.run(diary.flaky, 4)) == 4
    assert tenure_engine.now() - begin == timedelta(minutes=1 + 2 + 4)


async def test_waiting_for_what_nobody_works_on_ends_with_an_error(
    tenure_engine: TestEngine, tenure_client: Client, diary: Diary
) -> None:
    with pytest.raises(TimeoutError, match="Is there a worker for it"):
        await tenure_engine.advance_until(tenure_client.run(diary.note, "nobody"))


async def test_waiting_goes_on_for_as_long_as_the_test_says(
    tenure_engine: TestEngine, tenure_client: Client, diary: Diary
) -> None:
    begin = tenure_engine.now()
    late = diary.note.with_options(schedule_to_start="2d")
    handle = await tenure_client.enqueue(late, "nobody")
    with pytest.raises(TimeoutError):
        await tenure_engine.advance_until(handle.result(), most="1d")
    assert tenure_engine.now() == begin
    with pytest.raises(TaskTimedOut):
        await tenure_engine.advance_until(handle.result(), most="3d")
    assert tenure_engine.now() == begin + timedelta(days=2)


async def test_a_timeout_ends_code_that_does_not_come_back(
    tenure_engine: TestEngine, tenure_client: Client, diary: Diary
) -> None:
    async with tenure_engine.worker([diary]):
        handle = await tenure_client.enqueue(diary.wait)
        await until_running(handle)
        await tenure_engine.advance("9s")
        assert await state(handle) is TaskState.RUNNING
        await tenure_engine.advance("5s")
        assert await handle.result() == 2
    attempts = await handle.attempts()
    assert [each.outcome for each in attempts] == ["timed_out", "succeeded"]
    assert diary.lines == ["attempt 1", "timed_out", "attempt 2"]


async def test_live_workers_keep_their_leases_over_any_time(
    tenure_engine: TestEngine, tenure_client: Client, diary: Diary
) -> None:
    poller = tenure_engine.worker([diary], queue="polled", mode="poll")
    async with tenure_engine.worker([diary]) as worker, poller as polling:
        ids = worker.worker_id, polling.worker_id
        for _ in range(3):
            await tenure_engine.advance("300d")
            assert await tenure_client.run(diary.note, "here") == "HERE"
            polled = diary.note.with_options(queue="polled")
            assert await tenure_client.run(polled, "there") == "THERE"
        assert (worker.worker_id, polling.worker_id) == ids


async def test_a_worker_that_holds_a_task_keeps_it_over_any_time(
    tenure_engine: TestEngine, tenure_client: Client, diary: Diary
) -> None:
    async with tenure_engine.worker([diary]):
        long = diary.wait.with_options(start_to_close="100d", heartbeat_timeout="100d")
        handle = await tenure_client.enqueue(long)
        await until_running(handle)
        await tenure_engine.advance("99d")
        assert await state(handle) is TaskState.RUNNING
        diary.gate.set()
        assert await handle.result() == 1


async def test_history_is_forgotten_after_its_time(
    tenure_engine: TestEngine, tenure_client: Client, diary: Diary
) -> None:
    async with tenure_engine.worker([diary]):
        await tenure_client.run(diary.note, "old")
        await tenure_engine.advance("8d")
        await tenure_client.run(diary.note, "new")
        assert len([info async for info in tenure_client.list()]) == 1


async def test_the_clock_begins_where_the_test_wants_it(diary: Diary) -> None:
    begin = datetime(2026, 3, 1, 9, tzinfo=UTC)
    async with open_engine(start_at=begin) as engine, engine.client() as client:
        assert engine.now() == begin
        handle = await client.enqueue(diary.note.with_options(run_at=begin + timedelta(1)), "x")
        async with engine.worker([diary]):
            await engine.advance("23h")
            assert diary.lines == []
            await engine.advance("1h")
            assert await handle.result() == "X"


@pytest.mark.parametrize("duration", [0, -1, "soon", "20000d"])
async def test_a_duration_that_is_none_is_refused(
    tenure_engine: TestEngine, duration: float | str
) -> None:
    with pytest.raises(ValueError, match="duration must be"):
        await tenure_engine.advance(duration)


def test_a_clock_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="time zone"):
        open_engine(start_at=datetime(2026, 3, 1))  # noqa: DTZ001 (what is refused)


# -- Workers


async def test_two_engines_share_nothing(diary: Diary) -> None:
    async with open_engine() as one, open_engine() as other:
        assert one.target != other.target
        async with one.client() as client, other.client() as stranger, one.worker([diary]):
            await client.run(diary.note, "here")
            assert [info async for info in stranger.list()] == []


async def test_an_engine_is_used_once() -> None:
    engine = open_engine()
    with pytest.raises(RuntimeError, match="not open"):
        await engine.advance("1s")
    async with engine:
        with pytest.raises(RuntimeError, match="opened already"):
            engine.open()


async def test_another_namespace_is_made_by_the_test(
    tenure_engine: TestEngine, diary: Diary
) -> None:
    await tenure_engine.create_namespace("acme")
    async with (
        tenure_engine.client(namespace="acme") as client,
        tenure_engine.worker([diary], namespace="acme"),
    ):
        assert await client.run(diary.note, "hello") == "HELLO"


async def test_a_worker_that_the_server_refuses_fails_the_test(
    tenure_engine: TestEngine, diary: Diary
) -> None:
    with pytest.raises(Exception, match="nowhere"):
        async with tenure_engine.worker([diary], namespace="nowhere"):
            pass


async def test_a_worker_with_hanging_code_does_not_hang_the_test(diary: Diary) -> None:
    async with open_engine(patience="50ms") as engine, engine.client() as client:
        async with engine.worker([diary]):
            handle = await client.enqueue(diary.wait)
            await until_running(handle)
        assert await state(handle) is TaskState.PENDING
        assert (await handle.attempts())[0].outcome == "released"


# -- Faults


async def test_the_task_of_a_killed_worker_goes_to_another(
    tenure_engine: TestEngine, tenure_client: Client, diary: Diary
) -> None:
    async with tenure_engine.worker([diary]) as victim:
        handle = await tenure_client.enqueue(diary.wait)
        await until_running(handle)
        await tenure_engine.kill_worker(victim)
        async with tenure_engine.worker([diary]):
            await tenure_engine.advance("2999ms")
            assert await state(handle) is TaskState.RUNNING
            await tenure_engine.advance("1ms")
            assert await handle.result() == 2
    attempts = await handle.attempts()
    assert [each.outcome for each in attempts] == ["worker_lost", "succeeded"]


async def test_the_result_of_a_killed_worker_never_arrives(
    tenure_engine: TestEngine, tenure_client: Client, diary: Diary
) -> None:
    async with tenure_engine.worker([diary]) as victim:
        handle = await tenure_client.enqueue(diary.wait)
        await until_running(handle)
        await tenure_engine.kill_worker(victim)
        diary.gate.set()
        await tenure_engine.advance("10s")
        assert await state(handle) is TaskState.PENDING


async def test_a_killed_poller_is_missed_when_its_lease_is_over(
    tenure_engine: TestEngine, tenure_client: Client, diary: Diary
) -> None:
    async with tenure_engine.worker([diary], mode="poll") as victim:
        long = diary.wait.with_options(heartbeat_timeout="1h")
        handle = await tenure_client.enqueue(long)
        await until_running(handle)
        await tenure_engine.kill_worker(victim)
        async with tenure_engine.worker([diary]):
            await tenure_engine.advance("20s")
            assert await state(handle) is TaskState.RUNNING
            await tenure_engine.advance("11s")
            assert await handle.result() == 2


async def test_a_lost_reply_enqueues_once(
    tenure_engine: TestEngine, tenure_client: Client, diary: Diary
) -> None:
    tenure_engine.lose_next_reply(tenure_client)
    handle = await tenure_client.enqueue(diary.note, "once")
    infos = [info async for info in tenure_client.list()]
    assert [info.task_id for info in infos] == [handle.task_id]


async def test_a_worker_that_loses_a_reply_goes_on(
    tenure_engine: TestEngine, tenure_client: Client, diary: Diary
) -> None:
    async with tenure_engine.worker([diary]) as worker:
        tenure_engine.lose_next_reply(worker)
        assert await tenure_client.run(diary.note, "hello") == "HELLO"
        assert diary.lines == ["hello"]


async def test_a_partition_shorter_than_the_lease_costs_nothing(
    tenure_engine: TestEngine, tenure_client: Client, diary: Diary
) -> None:
    async with tenure_engine.worker([diary]) as worker:
        worker_id = worker.worker_id
        handle = await tenure_client.enqueue(diary.wait)
        await until_running(handle)
        async with tenure_engine.partition(worker):
            diary.gate.set()
            await tenure_engine.advance("9s")
            assert await state(handle) is TaskState.RUNNING
        assert await handle.result() == 1
        assert worker.worker_id == worker_id


async def test_a_partition_longer_than_the_lease_costs_the_task(
    tenure_engine: TestEngine, tenure_client: Client, diary: Diary
) -> None:
    async with tenure_engine.worker([diary]) as lonely:
        # Before there is another one, so that it is known who holds it.
        held = await tenure_client.enqueue(diary.wait.with_options(heartbeat_timeout="1h"))
        await until_running(held)
        async with tenure_engine.worker([diary]) as other:
            lonely_id, other_id = lonely.worker_id, other.worker_id
            assert await holder(held) == lonely_id
            async with tenure_engine.partition(lonely):
                await tenure_engine.advance("20s")
                assert await held.result() == 2
            assert other.worker_id == other_id
            await until_new_incarnation(lonely, lonely_id)


async def holder(handle: Handle[Any]) -> str:
    return (await handle.describe()).worker_id


async def until_new_incarnation(worker: Worker, old_id: str) -> None:
    await eventually(lambda: worker.worker_id not in ("", old_id), "a new incarnation")


async def test_only_what_the_engine_made_can_be_disturbed(
    tenure_engine: TestEngine, diary: Diary
) -> None:
    stranger = Worker(tenure_engine.target, activities=[diary])
    with pytest.raises(ValueError, match=r"engine\.worker"):
        await tenure_engine.kill_worker(stranger)
