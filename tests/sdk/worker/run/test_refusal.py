"""What the server may answer to the reports of a run; frames against a server that does as told."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from tenure import Worker
from tenure.sdk.workflow.context import WorkflowContext
from tenure.sdk.workflow.definition import workflow
from tenure.sdk.workflow.signal import signal
from tenure.v1 import error_pb2, journal_pb2, task_pb2
from tenure.v1 import session_service_pb2 as pb
from tests.bounds import WAIT_S
from tests.polling import eventually
from tests.sdk.worker.rig import messages
from tests.sdk.worker.scripted import Script, Session, open_script

RUN: Final = "01a1ef22-b91a-703f-beef-06f0b468484a"
AT_MS: Final = 1_800_000_000_000

calls: Counter[int] = Counter()


go: Final = signal("go", int)


async def count(number: int) -> int:
    calls[number] += 1
    return number


@workflow
async def three(ctx: WorkflowContext) -> int:
    return sum([await ctx.step(count, number) for number in range(1, 4)])


@workflow
async def side_by_side(ctx: WorkflowContext) -> int:
    return sum(await asyncio.gather(*(ctx.step(count, number) for number in range(1, 4))))


@workflow
async def napping(ctx: WorkflowContext) -> str:
    async with asyncio.timeout(0.01):
        await ctx.step(asyncio.sleep, 60)
    return "unreachable"


@workflow
async def changed(ctx: WorkflowContext) -> int:
    first = await ctx.wait_signal(go)
    if ctx.patched("more"):
        await ctx.step(count, 7)
    return first + await ctx.step(count, 2)


class Server:
    """The server's end: a journal by hand."""

    def __init__(self, script: Script, session: Session) -> None:
        self.script = script
        self.session = session

    async def give(self, name: str, *, attempt: int = 1, **fields: Any) -> None:
        await self.session.give(
            RUN,
            attempt=attempt,
            type=name,
            kind=task_pb2.TASK_KIND_WORKFLOW,
            encoding="json",
            begun_at_ms=AT_MS,
            handed_at_ms=AT_MS,
            **fields,
        )

    async def steps(self) -> journal_pb2.StepReport:
        """Return the next report of steps."""
        frame = await self.session.until(lambda each: each.steps)
        (report,) = frame.steps
        return report

    async def asked(self) -> journal_pb2.JournalRequest:
        frame = await self.session.until(lambda each: each.journal)
        assert not frame.steps
        (request,) = frame.journal
        return request

    async def ack(self, no: int, pos: int, *, attempt: int = 1) -> None:
        ack = journal_pb2.StepAck(task_id=RUN, attempt=attempt, no=no, pos=pos, at_ms=AT_MS)
        await self.session.send(step_acks=[ack])

    async def refuse(self, no: int, code: str, **fields: Any) -> None:
        error = error_pb2.ErrorDetail(code=code, **fields)
        ack = journal_pb2.StepAck(task_id=RUN, attempt=1, no=no, error=error)
        await self.session.send(step_acks=[ack])

    async def page(self, after: int, *entries: task_pb2.Entry, end: int | None = None) -> None:
        last = after + len(entries) if end is None else end
        page = task_pb2.JournalPage(task_id=RUN, attempt=1, after=after, entries=entries, end=last)
        await self.session.send(pages=[page])

    async def finish(self) -> task_pb2.TaskFinish:
        frame = await self.session.until(lambda each: each.finished)
        (finish,) = frame.finished
        await self.session.ack(RUN, attempt=finish.attempt)
        return finish


def entry(pos: int, no: int, key: str, value: int, *, index: int = 0) -> task_pb2.Entry:
    return task_pb2.Entry(
        pos=pos,
        at_ms=AT_MS,
        attempt=1,
        no=no,
        content=task_pb2.NewEntry(
            kind=task_pb2.ENTRY_KIND_STEP,
            key=key,
            index=index,
            output=json.dumps(value).encode(),
            encoding="json",
        ),
    )


@asynccontextmanager
async def server() -> AsyncIterator[tuple[Server, Worker]]:
    calls.clear()
    async with open_script() as (script, target):
        worker = Worker(target, workflows=[three, side_by_side, napping, changed])
        running = asyncio.create_task(worker.run(handle_signals=False))
        made = Server(script, await script.session())
        try:
            yield made, worker
        finally:
            worker._connection.abort()  # noqa: SLF001 (there is no server to say goodbye to)
            async with asyncio.timeout(WAIT_S):
                await asyncio.wait([running])
            script.end_sessions()


async def test_a_run_ends_when_its_steps_are_acknowledged() -> None:
    async with server() as (there, _):
        await there.give("three")
        for no in (1, 2, 3):
            report = await there.steps()
            assert (report.first_no, len(report.entries)) == (no, 1)
            await there.ack(no, no)
        finish = await there.finish()
    assert finish.kind == task_pb2.FINISH_KIND_SUCCEEDED
    assert finish.output == b"6"


async def test_steps_that_end_together_are_one_report_and_one_answer() -> None:
    async with server() as (there, _):
        await there.give("side_by_side")
        report = await there.steps()
        assert [each.key for each in report.entries] == ["count", "count#2", "count#3"]
        await there.ack(3, 3)
        finish = await there.finish()
    assert finish.output == b"6"


async def test_a_gap_before_an_answer_is_asked_for() -> None:
    async with server() as (there, _):
        await there.give("three")
        await there.steps()
        signal = task_pb2.NewEntry(kind=task_pb2.ENTRY_KIND_SIGNAL, key="hello")
        await there.ack(1, 2)
        request = await there.asked()
        assert request.after == 0
        await there.page(0, task_pb2.Entry(pos=1, at_ms=AT_MS, content=signal), end=2)
        for no in (2, 3):
            await there.steps()
            await there.ack(no, no + 1)
        finish = await there.finish()
    assert finish.output == b"6"


@pytest.mark.parametrize("code", ["out_of_order", "unavailable"])
async def test_after_a_refusal_the_journal_is_asked_for_before_the_step_is_sent_again(
    code: str,
) -> None:
    async with server() as (there, _):
        await there.give("three")
        await there.steps()
        await there.refuse(1, code)
        request = await there.asked()
        assert request.after == 0
        await there.page(0)
        report = await there.steps()
        assert report.first_no == 1
        await there.ack(1, 1)
        report = await there.steps()
        assert report.first_no == 2
    assert calls == {1: 1, 2: 1}


async def test_a_step_that_was_recorded_before_the_session_broke_is_not_sent_again() -> None:
    async with server() as (there, _):
        await there.give("three")
        await there.steps()
        there.session.over.set()
        there.session = await there.script.session()
        request = await there.asked()
        assert request.after == 0
        await there.page(0, entry(1, 1, "count", 1))
        report = await there.steps()
        assert report.first_no == 2
        await there.ack(2, 2)
        await there.steps()
        await there.ack(3, 3)
        finish = await there.finish()
    assert finish.output == b"6"
    assert calls == {1: 1, 2: 1, 3: 1}


async def test_a_timer_that_came_too_early_is_sent_again_in_time() -> None:
    async with server() as (there, _):
        await there.give("napping")
        report = await there.steps()
        assert report.entries[0].kind == task_pb2.ENTRY_KIND_TIMER
        await there.refuse(1, "too_early", retry_after_ms=5)
        await there.asked()
        await there.page(0)
        again = await there.steps()
        assert again.entries == report.entries
        await there.ack(1, 1)
        finish = await there.finish()
    assert finish.kind == task_pb2.FINISH_KIND_FAILED
    assert finish.error.type == "TimeoutError"


@pytest.mark.parametrize(
    "code", ["attempt_mismatch", "task_already_terminal", "not_found", "worker_inactive"]
)
async def test_a_run_that_was_lost_ends_here_without_a_report(
    code: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with server() as (there, worker):
        await there.give("three")
        await there.steps()
        await there.refuse(1, code, reason="")
        await eventually(lambda: worker.active_count == 0)
        # The next frame is for the next attempt, and has nothing of the first.
        await there.give("three", attempt=2)
        frame = await there.session.until(lambda each: each.steps or each.finished)
        assert not frame.finished
        assert [each.attempt for each in frame.steps] == [2]
    assert calls[2] == 0
    assert not [each for each in caplog.records if each.name == "asyncio"]


async def test_a_full_journal_parks_the_run(caplog: pytest.LogCaptureFixture) -> None:
    async with server() as (there, _):
        await there.give("three")
        await there.steps()
        await there.refuse(1, "journal_full", message="The journal is full.")
        finish = await there.finish()
    assert finish.kind == task_pb2.FINISH_KIND_PARKED
    assert finish.error.type == "journal_full"
    assert any("is parked: The journal is full" in each for each in messages(caplog))


async def test_a_journal_that_does_not_come_whole_is_asked_for() -> None:
    async with server() as (there, _):
        first = task_pb2.JournalPage(
            task_id=RUN, attempt=1, entries=[entry(1, 1, "count", 1)], end=2
        )
        await there.give("three", journal=first, attempt=1)
        request = await there.asked()
        assert request.after == 1
        await there.page(1, entry(2, 2, "count#2", 2, index=1))
        report = await there.steps()
        assert report.entries[0].key == "count#3"
    assert calls[1] == calls[2] == 0


async def test_a_warm_run_goes_on_from_where_it_was_also_with_a_whole_journal() -> None:
    signal = task_pb2.NewEntry(
        kind=task_pb2.ENTRY_KIND_TIMER, key="timeout@0.1", fire_at_ms=AT_MS + 10
    )
    async with server() as (there, _):
        await there.give("napping")
        report = await there.steps()
        assert report.first_no == 1
        page = task_pb2.JournalPage(
            task_id=RUN,
            attempt=1,
            entries=[task_pb2.Entry(pos=1, at_ms=AT_MS + 10, content=signal)],
            end=1,
        )
        await there.session.send(pages=[page])
        await there.ack(1, 2)
        finish = await there.finish()
    assert finish.kind == task_pb2.FINISH_KIND_FAILED


async def test_a_run_that_somebody_else_had_meanwhile_begins_from_the_start() -> None:
    sent = task_pb2.NewEntry(
        kind=task_pb2.ENTRY_KIND_SIGNAL, key="go", output=b"1", encoding="json"
    )
    entries = [
        task_pb2.Entry(pos=1, at_ms=AT_MS, content=sent),
        # By a worker with the code from before the patch, in attempt 2.
        task_pb2.Entry(
            pos=2, at_ms=AT_MS, attempt=2, no=1, content=entry(2, 1, "count", 2).content
        ),
    ]
    async with server() as (there, _):
        await there.give("changed")
        assert (await there.finish()).kind == task_pb2.FINISH_KIND_YIELDED
        page = task_pb2.JournalPage(task_id=RUN, attempt=3, entries=entries, end=2)
        await there.give("changed", attempt=3, journal=page)
        frame = await there.session.until(lambda each: each.steps or each.finished)
        assert not frame.steps
        (finish,) = frame.finished
        await there.session.ack(RUN, attempt=3)
    assert (finish.kind, finish.output) == (task_pb2.FINISH_KIND_SUCCEEDED, b"3")


async def test_what_is_asked_again_is_in_the_next_frame_after_the_welcome() -> None:
    async with server() as (there, _):
        await there.give("three")
        await there.steps()
        there.session.over.set()
        there.session = await there.script.session()
        frame: pb.ClientFrame = await there.session.until(lambda each: each.journal)
        assert not frame.steps
        assert [(each.task_id, each.after) for each in frame.journal] == [(RUN, 0)]
        assert [each.task_id for each in there.session.hello.held] == [RUN]
