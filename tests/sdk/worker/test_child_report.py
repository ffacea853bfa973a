"""What runs report of their children, in frames and calls to a server that answers as told."""

from __future__ import annotations

from typing import Any

from tenure.sdk.activity.context import StopReason
from tenure.sdk.worker.executor_protocol import AnsweredReport, NumberedEntry, WantedPage
from tenure.v1 import journal_pb2, task_pb2
from tests.polling import eventually
from tests.sdk.worker.rig import FakeExecutor
from tests.sdk.worker.scripted import Session
from tests.sdk.worker.scripted_worker import worker
from tests.sdk.worker.test_child_outbox import ack, cancel, spawn


async def has_run(session: Session, executor: FakeExecutor) -> None:
    await session.give("run", kind=task_pb2.TASK_KIND_WORKFLOW)
    await executor.has_started(1)


def refusal(number: int, code: str, **fields: Any) -> journal_pb2.ChildAck:
    refused = ack(number)
    refused.error.code = code
    for name, value in fields.items():
        setattr(refused.error, name, value)
    return refused


async def spawned(session: Session) -> list[int]:
    frame = await session.until(lambda each: each.spawns)
    return [each.number for each in frame.spawns]


async def test_entries_and_children_go_in_one_frame_and_an_answer_is_told() -> None:
    async with worker() as (_, session, executor, _connection):
        await has_run(session, executor)
        entry = task_pb2.NewEntry(kind=task_pb2.ENTRY_KIND_NOTE, key="a")
        # In the order in which a run reports.
        executor.reporter.record([NumberedEntry("run", 1, 1, entry, 0)])
        executor.reporter.report_children([spawn(1), spawn(2)])

        frame = await session.until(lambda each: each.spawns)
        assert [each.first_no for each in frame.steps] == [1]
        assert [each.number for each in frame.spawns] == [1, 2]

        await session.send(child_acks=[ack(1), ack(2), ack(2)])
        await eventually(lambda: len(executor.answered) == 2)
        assert executor.answered == [AnsweredReport("run", 1, 1), AnsweredReport("run", 1, 2)]

        executor.reporter.report_children([cancel(3)])
        frame = await session.until(lambda each: each.child_cancels)
        assert frame.child_cancels[0].child_ids == ["a"]


async def test_what_was_not_answered_goes_again_on_the_next_session() -> None:
    async with worker() as (script, session, executor, _connection):
        await has_run(session, executor)
        executor.reporter.report_children([spawn(1), spawn(2)])
        assert await spawned(session) == [1, 2]
        await session.send(child_acks=[ack(1)])
        await eventually(lambda: executor.answered)

        session.over.set()
        other = await script.session()

        assert await spawned(other) == [2]
        await other.send(child_acks=[ack(2)])
        await eventually(lambda: len(executor.answered) == 2)


async def test_a_server_under_load_is_asked_again_a_little_later() -> None:
    async with worker() as (_, session, executor, _connection):
        await has_run(session, executor)
        executor.reporter.report_children([spawn(1)])
        assert await spawned(session) == [1]

        await session.send(child_acks=[refusal(1, "rate_limited", retry_after_ms=1)])

        assert await spawned(session) == [1]
        assert not executor.answered


async def test_a_refusal_for_good_is_told_to_the_run() -> None:
    async with worker() as (_, session, executor, _connection):
        await has_run(session, executor)
        executor.reporter.report_children([spawn(1), cancel(2)])
        assert await spawned(session) == [1]

        await session.send(child_acks=[refusal(1, "invalid_argument", message="too deep")])

        await eventually(lambda: executor.answered)
        (answered,) = executor.answered
        assert answered.error is not None
        assert answered.error.message == "too deep"
        await session.until(lambda each: each.child_cancels)
        assert not executor.stopped


async def test_a_run_that_the_server_has_given_up_ends_here_at_once() -> None:
    async with worker() as (_, session, executor, _connection):
        await has_run(session, executor)
        executor.reporter.report_children([spawn(1), cancel(2)])
        assert await spawned(session) == [1]

        await session.send(child_acks=[refusal(1, "attempt_mismatch")])

        await eventually(lambda: executor.stopped)
        assert executor.stopped == [("run", 1, StopReason.LOST_LEASE)]
        # Whatever it says from now on is dropped.
        executor.reporter.report_children([spawn(3)])
        executor.reporter.fetch(WantedPage("run", 1, 4))
        await session.give("other")
        await executor.has_started(2)
        executor.succeed("other")
        frame = await session.until(lambda each: each.finished)
        assert not frame.spawns
        assert not frame.child_cancels
        assert not frame.journal


async def test_pages_of_results_and_of_open_children_are_asked_for_and_told() -> None:
    async with worker() as (_, session, executor, _connection):
        await has_run(session, executor)
        executor.reporter.fetch(WantedPage("run", 1, 3, group_key="map:a"))
        executor.reporter.fetch(WantedPage("run", 1, open_after="id"))

        frames = [await session.until(lambda each: each.journal)]
        while sum(len(each.journal) for each in frames) < 2:
            frames.append(await session.until(lambda each: each.journal))
        asked = [(r.after, r.group_key, r.open_after) for each in frames for r in each.journal]
        assert asked == [(3, "map:a", ""), (0, "", "id")]

        page = task_pb2.JournalPage(task_id="run", attempt=1, after=3, group_key="map:a")
        refused = task_pb2.JournalPage()
        refused.CopyFrom(page)
        refused.error.code = "unavailable"
        await session.send(pages=[refused])
        frame = await session.until(lambda each: each.journal)
        assert [each.group_key for each in frame.journal] == ["map:a"]
        await session.send(pages=[page])
        await eventually(lambda: executor.pages)
        assert executor.pages == [page]
