"""Heartbeats: throttled, merged, resumed from, and never lost before a failure."""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import threading
from collections.abc import Callable

import pytest

from tenure import PayloadError, activity
from tenure.errors import InvalidArgument, PayloadTooLarge
from tenure.sdk.worker.execution.task_heartbeat import TaskHeartbeat, interval_of
from tenure.v1 import task_pb2
from tests.polling import eventually
from tests.sdk.execution.rig import Rig

SEEN: list[object] = []
GATES: dict[str, asyncio.Event] = {}


@pytest.fixture(autouse=True)
def _fresh() -> None:
    SEEN.clear()
    GATES.clear()
    GATES.update(beaten=asyncio.Event(), leave=asyncio.Event())


class Beats:
    """A pulse on a clock that the test moves."""

    def __init__(self, heartbeat_timeout_ms: int = 0) -> None:
        self.now_s = 1_000.0
        self.sent: list[task_pb2.TaskBeat] = []
        task = task_pb2.AssignedTask(
            task_id="a", attempt=2, heartbeat_timeout_ms=heartbeat_timeout_ms
        )
        self.heartbeats = TaskHeartbeat(task, self.sent.append, lambda: self.now_s)

    @property
    def details(self) -> list[bytes]:
        return [each.details for each in self.sent]


@dataclasses.dataclass
class Place:
    file: str
    line: int


@activity(start_to_close="30s")
async def resume() -> None:
    SEEN.append(activity.has_heartbeat_details())
    if activity.has_heartbeat_details():
        SEEN.append(activity.heartbeat_details(Place))
        SEEN.append(activity.heartbeat_details(Place, int))
        SEEN.append(activity.heartbeat_details())


@activity(start_to_close="30s")
async def ask_for_details() -> None:
    activity.heartbeat_details(int)


@activity(start_to_close="30s", heartbeat_timeout="10s")
async def beat_and_fail(count: int) -> None:
    for number in range(count):
        activity.heartbeat({"line": number})
        activity.progress(number, f"line {number}")
    raise ValueError("no more")


@activity(start_to_close="30s")
async def beat_and_wait() -> None:
    activity.heartbeat(1)
    activity.heartbeat(2)
    GATES["beaten"].set()
    await GATES["leave"].wait()


@activity(start_to_close="30s")
async def beat_wrongly() -> None:
    wrong: list[tuple[type[Exception], Callable[[], None]]] = [
        (PayloadError, lambda: activity.heartbeat(object())),
        (PayloadTooLarge, lambda: activity.heartbeat("x" * 3_000_000)),
        (InvalidArgument, lambda: activity.progress(101)),
        (InvalidArgument, lambda: activity.progress(float("nan"))),
        (InvalidArgument, lambda: activity.progress(1, "a\0b")),
    ]
    for error, call in wrong:
        with pytest.raises(error):
            call()


@activity(start_to_close="30s")
def beat_from_a_thread_of_its_own() -> None:
    context = contextvars.copy_context()
    helper = threading.Thread(target=context.run, args=(activity.heartbeat, "from a helper"))
    helper.start()
    helper.join()


ALL = (resume, ask_for_details, beat_and_fail, beat_and_wait, beat_wrongly)


@pytest.mark.parametrize(
    ("interval_ms", "timeout_ms", "expected_s"),
    [(0, 10_000, 8.0), (0, 60_000, 30.0), (0, 0, 30.0), (2_000, 60_000, 2.0)],
)
def test_the_interval_follows_the_timeout_unless_the_server_names_one(
    interval_ms: int, timeout_ms: int, expected_s: float
) -> None:
    task = task_pb2.AssignedTask(heartbeat_interval_ms=interval_ms, heartbeat_timeout_ms=timeout_ms)
    assert interval_of(task) == expected_s


def test_the_first_is_sent_at_once_and_the_newest_of_the_others_in_time() -> None:
    beats = Beats(heartbeat_timeout_ms=10_000)
    for number in range(5):
        beats.heartbeats.beat(b"%d" % number)
    assert beats.details == [b"0"]
    beats.now_s += 7.9
    beats.heartbeats.tick()
    assert beats.details == [b"0"]
    beats.now_s += 0.2
    beats.heartbeats.tick()
    assert beats.details == [b"0", b"4"]
    beats.now_s += 100
    beats.heartbeats.tick()
    assert beats.details == [b"0", b"4"]
    beats.heartbeats.beat(b"5")
    assert beats.details == [b"0", b"4", b"5"]


def test_progress_is_shown_within_a_second_and_keeps_the_details() -> None:
    beats = Beats()
    beats.heartbeats.beat(b"here")
    beats.heartbeats.beat(None, 10.0, "ten")
    beats.heartbeats.beat(b"there")
    beats.now_s += 1.0
    beats.heartbeats.tick()
    last = beats.sent[-1]
    assert (last.details, last.progress_percent, last.message) == (b"there", 10.0, "ten")
    assert (last.task_id, last.attempt) == ("a", 2)
    beats.heartbeats.beat(None, 20.0)
    beats.heartbeats.flush()
    assert (beats.sent[-1].details, beats.sent[-1].message) == (b"there", "ten")


def test_a_heartbeat_without_details_says_nothing_about_them() -> None:
    beats = Beats()
    beats.heartbeats.beat(None)
    assert not beats.sent[0].HasField("details")


async def test_the_last_details_arrive_before_the_failure() -> None:
    async with Rig(*ALL) as rig:
        finish = await rig.run(beat_and_fail, 50)
        assert finish.kind == task_pb2.FINISH_KIND_FAILED
        beats = rig.reporter.beats()
        assert [each.details for each in beats] == [b'[{"line":0}]', b'[{"line":49}]']
        assert beats[-1].progress_percent == 49
        assert rig.reporter.heard[-1] is finish


async def test_what_waits_is_sent_while_the_activity_does_something_else() -> None:
    async with Rig(*ALL) as rig:
        task = await rig.start(beat_and_wait, heartbeat_interval_ms=200)
        await GATES["beaten"].wait()
        await eventually(
            lambda: [each.details for each in rig.reporter.beats()] == [b"[1]", b"[2]"]
        )
        GATES["leave"].set()
        await rig.finish_of(task)


async def test_a_later_attempt_goes_on_from_the_details_by_their_types() -> None:
    async with Rig(*ALL) as rig:
        await rig.run(resume)
        details = rig.converter.encode_details((Place("a.txt", 7), 3))
        await rig.run(resume, attempt=2, heartbeat_details=details)
        place = Place("a.txt", 7)
        both = ({"file": "a.txt", "line": 7}, 3)
        expected = [False, True, place, (place, 3), both]
        assert expected == SEEN


async def test_details_that_are_not_there_are_a_clear_error() -> None:
    async with Rig(*ALL) as rig:
        finish = await rig.run(ask_for_details)
        assert finish.error.type == "LookupError"
        assert "has_heartbeat_details" in finish.error.message


async def test_what_the_server_would_refuse_is_refused_in_the_activity() -> None:
    async with Rig(*ALL) as rig:
        assert (await rig.run(beat_wrongly)).kind == task_pb2.FINISH_KIND_SUCCEEDED
        assert rig.reporter.beats() == []


async def test_a_thread_that_the_activity_starts_can_heartbeat() -> None:
    async with Rig(beat_from_a_thread_of_its_own) as rig:
        finish = await rig.run(beat_from_a_thread_of_its_own)
        assert finish.kind == task_pb2.FINISH_KIND_SUCCEEDED
        assert rig.reporter.beats()[0].details == b'["from a helper"]'
