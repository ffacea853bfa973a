"""The engine for tests without an event loop."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tenure import RetryPolicy, SyncClient, SyncHandle, TaskFailed, activity
from tenure.core.task.record import TaskState
from tenure.testing import SyncTestEngine, open_sync_engine
from tests.polling import eventually_sync


class Diary:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.gate = threading.Event()

    @activity(start_to_close="30s")
    def note(self, line: str) -> str:
        self.lines.append(line)
        return line.upper()

    @activity(start_to_close="30s", retry=RetryPolicy(initial_interval="1m", max_attempts=4))
    async def flaky(self, good_from: int) -> int:
        attempt = activity.info().attempt
        if attempt < good_from:
            raise ValueError("not yet")
        return attempt

    @activity(start_to_close="1h")
    def wait(self) -> int:
        attempt = activity.info().attempt
        if attempt == 1:
            self.gate.wait()
        return attempt


@pytest.fixture
def diary() -> Diary:
    return Diary()


def until_running(handle: SyncHandle[Any]) -> None:
    eventually_sync(lambda: handle.describe().state is TaskState.RUNNING, "a running task")


def test_time_passes_without_an_event_loop(
    tenure_sync_engine: SyncTestEngine, tenure_sync_client: SyncClient, diary: Diary
) -> None:
    with tenure_sync_engine.worker([diary]):
        handle = tenure_sync_client.enqueue(diary.note.with_options(delay="3d"), "later")
        tenure_sync_engine.advance("2d")
        assert handle.describe().state is TaskState.PENDING
        tenure_sync_engine.advance("1d")
        assert handle.result() == "LATER"


def test_time_passes_until_a_call_returns(
    tenure_sync_engine: SyncTestEngine, tenure_sync_client: SyncClient, diary: Diary
) -> None:
    begin = tenure_sync_engine.now()
    with tenure_sync_engine.worker([diary]):
        handle = tenure_sync_client.enqueue(diary.flaky, 4)
        assert tenure_sync_engine.advance_until(handle.result) == 4
        assert tenure_sync_engine.now() - begin == timedelta(minutes=7)
        handle = tenure_sync_client.enqueue(diary.flaky, 100)
        with pytest.raises(TaskFailed):
            tenure_sync_engine.advance_until(handle.result)


def test_the_task_of_a_killed_worker_goes_to_another_without_a_loop(
    tenure_sync_engine: SyncTestEngine, tenure_sync_client: SyncClient, diary: Diary
) -> None:
    with tenure_sync_engine.worker([diary]) as victim:
        handle = tenure_sync_client.enqueue(diary.wait)
        until_running(handle)
        tenure_sync_engine.kill_worker(victim)
        with tenure_sync_engine.worker([diary]):
            tenure_sync_engine.advance("3s")
            assert handle.result() == 2
        diary.gate.set()


def test_replies_are_lost_and_lines_cut_without_a_loop(
    tenure_sync_engine: SyncTestEngine, tenure_sync_client: SyncClient, diary: Diary
) -> None:
    tenure_sync_engine.lose_next_reply(tenure_sync_client)
    handle = tenure_sync_client.enqueue(diary.note, "once")
    with tenure_sync_engine.worker([diary]) as worker:
        assert handle.result() == "ONCE"
        with tenure_sync_engine.partition(worker):
            late = tenure_sync_client.enqueue(diary.note, "late")
            tenure_sync_engine.advance("5s")
            assert diary.lines == ["once"]
        assert late.result() == "LATE"


def test_another_namespace_is_made_without_a_loop(diary: Diary) -> None:
    begin = datetime(2026, 3, 1, tzinfo=UTC)
    with open_sync_engine(start_at=begin, patience="500ms") as engine:
        assert engine.now() == begin
        assert engine.target.startswith("127.0.0.1:")
        engine.create_namespace("acme")
        with engine.client(namespace="acme") as client, engine.worker([diary], namespace="acme"):
            assert client.run(diary.note, "hello") == "HELLO"


def test_an_engine_that_is_not_open_says_so() -> None:
    with pytest.raises(RuntimeError, match="not open"):
        open_sync_engine().advance("1s")
