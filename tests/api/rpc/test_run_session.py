"""Runs over a session: steps and their acks, pages of journals, and the ends of attempts."""

from __future__ import annotations

import pytest

from tenure.api.rpc.session import flush_delay
from tenure.core.limits import (
    JOURNAL_PAGE_ENTRIES_MAX,
    RUN_STATE_BYTES_MAX,
    SIGNAL_BYTES_MAX,
    STEP_ENTRIES_MAX,
)
from tenure.engine.engine import Engine
from tenure.engine.run.command import CancelRun
from tenure.engine.services.due_tasks import DueTasks
from tenure.v1 import session_service_pb2 as pb
from tenure.v1 import task_pb2
from tests.api.rpc.run_wire import (
    acks,
    entry,
    finished,
    heard,
    held_run,
    keys,
    page,
    record,
    released,
    report,
    signal,
    start,
    wanted,
    yielded,
)
from tests.api.rpc.wire import Wire, ref, state_name, succeeded
from tests.engine.world import NAMESPACE, World

FOR_EVER_MS = 3_600_000


async def test_steps_are_recorded_and_acked_with_number_position_and_time(
    wire: Wire, engine: Engine
) -> None:
    _, stream, task = await held_run(wire, engine)
    (first,) = await record(stream, report(task, entry("charge"), entry("ship")))
    (second,) = await record(stream, report(task, entry("mail"), first_no=3))
    assert (first.task_id, first.attempt, first.no, first.pos) == (task.task_id, 1, 2, 2)
    assert (second.no, second.pos, second.at_ms) == (3, 3, engine.clock.now_ms())
    found = await page(stream, wanted(task))
    assert keys(found) == [(1, "charge"), (2, "ship"), (3, "mail")]
    assert (found.after, found.end) == (0, 3)


async def test_an_ack_does_not_wait_for_the_lull(
    wire: Wire, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flush_delay, "LULL_MS", FOR_EVER_MS)
    _, stream, task = await held_run(wire, engine)
    for number in range(1, 4):
        (ack,) = await record(stream, report(task, first_no=number))
        assert ack.pos == number


async def test_every_part_of_an_entry_comes_back(wire: Wire, engine: Engine) -> None:
    _, stream, task = await held_run(wire, engine)
    now_ms = engine.clock.now_ms()
    told = entry(
        "2/charge#3",
        index=7,
        encoding="msgpack",
        attempts=3,
        started_at_ms=now_ms - 5,
        took_ms=4,
        site="orders.py:31",
    )
    failed = task_pb2.NewEntry(
        kind=task_pb2.ENTRY_KIND_RETRY,
        key="ship",
        error=task_pb2.TaskError(
            message="boom", type="ValueError", category=task_pb2.ERROR_CATEGORY_USER_CODE
        ),
        next_at_ms=now_ms + 9_000,
    )
    fired = task_pb2.NewEntry(kind=task_pb2.ENTRY_KIND_TIMER, key="sleep", fire_at_ms=now_ms)
    await record(stream, report(task, told, failed, fired))
    found = await page(stream, wanted(task))
    assert [each.content for each in found.entries] == [told, failed, fired]
    assert [(each.attempt, each.no) for each in found.entries] == [(1, 1), (1, 2), (1, 3)]


async def test_an_empty_output_is_not_the_same_as_none(wire: Wire, engine: Engine) -> None:
    _, stream, task = await held_run(wire, engine)
    none = task_pb2.NewEntry(kind=task_pb2.ENTRY_KIND_PATCH, key="patch:a")
    await record(stream, report(task, entry(output=b""), none))
    found = await page(stream, wanted(task))
    assert [each.content.HasField("output") for each in found.entries] == [True, False]


async def test_a_report_that_comes_again_gets_its_first_answer(wire: Wire, engine: Engine) -> None:
    _, stream, task = await held_run(wire, engine)
    (first,) = await record(stream, report(task))
    await signal(engine, task.task_id)
    (again,) = await record(stream, report(task))
    assert again == first


async def test_a_report_that_is_half_known_is_acked_in_two_parts(
    wire: Wire, engine: Engine
) -> None:
    _, stream, task = await held_run(wire, engine)
    await record(stream, report(task, entry("a"), entry("b")))
    await signal(engine, task.task_id)
    await stream.send(steps=[report(task, entry("a"), entry("b"), entry("c"))])
    told = await acks(stream, 2)
    assert [(each.no, each.pos) for each in told] == [(2, 2), (3, 4)]


async def test_a_step_counts_before_the_end_that_comes_with_it(wire: Wire, engine: Engine) -> None:
    _, stream, task = await held_run(wire, engine)
    await stream.send(finished=[succeeded(task)], steps=[report(task)])
    (ack,) = (await heard(stream, acks=1, step_acks=1)).step_acks
    assert (ack.pos, ack.HasField("error")) == (1, False)
    assert await wire.state(task.task_id) == "SUCCEEDED"


async def test_a_run_is_handed_out_with_its_journal(wire: Wire, engine: Engine) -> None:
    _, _, task = await held_run(wire, engine, "approve", "hurry")
    assert task.kind == task_pb2.TASK_KIND_WORKFLOW
    assert (task.journal.task_id, task.journal.attempt) == (task.task_id, 1)
    assert keys(task.journal) == [(1, "approve"), (2, "hurry")]
    assert (task.journal.after, task.journal.end) == (0, 2)
    assert [each.content.output for each in task.journal.entries] == [b'"yes"', b'"yes"']
    assert (task.generation, task.begun_at_ms) == (0, engine.clock.now_ms())


async def test_an_activity_has_no_journal(wire: Wire) -> None:
    _, stream = await wire.session_worker()
    await wire.enqueue()
    (task,) = await stream.tasks()
    assert not task.HasField("journal")


async def test_a_large_entry_does_not_come_with_the_task_but_on_request(
    wire: Wire, engine: Engine
) -> None:
    worker_id, stream, task = await held_run(wire, engine)
    await record(stream, report(task, entry(output=bytes(1_000_000)), entry("ship")))
    await stream.send(finished=[released(task)])
    stream.call.cancel()
    again = await wire.open_session(worker_id, session_no=2)
    (second,) = await again.tasks()
    assert (len(second.journal.entries), second.journal.end) == (0, 2)
    found = await page(again, wanted(second))
    assert keys(found) == [(1, "charge")]
    assert keys(await page(again, wanted(second, after=1))) == [(2, "ship")]


async def test_a_long_journal_comes_in_pages(wire: Wire, engine: Engine) -> None:
    _, stream, task = await held_run(wire, engine)
    many = [entry(f"s#{number}") for number in range(STEP_ENTRIES_MAX)]
    await record(stream, report(task, *many))
    await record(stream, report(task, *many, first_no=STEP_ENTRIES_MAX + 1))
    first = await page(stream, wanted(task, after=500))
    assert (len(first.entries), first.end) == (JOURNAL_PAGE_ENTRIES_MAX, 2 * STEP_ENTRIES_MAX)
    rest = await page(stream, wanted(task, after=first.entries[-1].pos))
    assert [rest.entries[0].pos, rest.entries[-1].pos] == [1_501, 2_000]
    assert not (await page(stream, wanted(task, after=2_000))).entries


async def test_many_pages_are_answered_in_frames_of_bounded_size(
    wire: Wire, engine: Engine
) -> None:
    _, stream, task = await held_run(wire, engine)
    for number in range(1, 9):
        await record(stream, report(task, entry(output=bytes(200_000)), first_no=number))
    await stream.send(journal=[wanted(task, after=each) for each in range(8)])
    got: list[task_pb2.JournalPage] = []
    while len(got) < 8:
        frame = await stream.read()
        assert frame.ByteSize() < 2**21
        got.extend(frame.pages)
    assert sorted((each.after, each.entries[0].pos) for each in got) == [
        (each, each + 1) for each in range(8)
    ]


async def test_a_run_yields_and_comes_back_with_what_it_has_not_seen(
    wire: Wire, engine: Engine
) -> None:
    _, stream, task = await held_run(wire, engine)
    await record(stream, report(task))
    waiting = task_pb2.Wait(kind="signal", key="approve")
    ack = await finished(stream, yielded(task, seen=1, waits=[waiting], wait_count=1))
    assert state_name(ack.state) == "WAITING"
    await signal(engine, task.task_id)
    (again,) = await stream.tasks()
    assert (again.attempt, again.journal.after) == (2, 1)
    assert keys(again.journal) == [(2, "approve")]
    assert again.begun_at_ms == task.begun_at_ms


async def test_a_run_that_sleeps_is_woken_with_its_timer(
    wire: Wire, world: World, engine: Engine
) -> None:
    _, stream, task = await held_run(wire, engine)
    wake_at_ms = engine.clock.now_ms() + 5_000
    await finished(stream, yielded(task, wake_at_ms=wake_at_ms, wake_key="sleep", wake_index=2))
    await world.advance(5_000)
    await world.round(DueTasks(), engine)
    (again,) = await stream.tasks()
    (fired,) = again.journal.entries
    assert fired.content == task_pb2.NewEntry(
        kind=task_pb2.ENTRY_KIND_TIMER, key="sleep", fire_at_ms=wake_at_ms, index=2
    )


async def test_a_run_parks_with_its_error(wire: Wire, engine: Engine) -> None:
    _, stream, task = await held_run(wire, engine)
    parked = task_pb2.TaskFinish(
        task_id=task.task_id,
        attempt=task.attempt,
        kind=task_pb2.FINISH_KIND_PARKED,
        error=task_pb2.TaskError(message="at 3 the journal has charge", type="journal_mismatch"),
    )
    ack = await finished(stream, parked)
    assert state_name(ack.state) == "WAITING"


async def test_a_published_state_stays_when_no_worker_has_the_run(
    wire: Wire, engine: Engine
) -> None:
    _, stream, task = await held_run(wire, engine)
    beat = task_pb2.TaskBeat(task_id=task.task_id, attempt=task.attempt, details=b'"half"')
    await stream.send(task_beats=[beat], finished=[yielded(task)])
    await wire.until_state(task.task_id, "WAITING")
    assert (await wire.get(task.task_id)).heartbeat_details == b'"half"'
    await signal(engine, task.task_id)
    (again,) = await stream.tasks()
    assert again.heartbeat_details == b'"half"'
    await finished(stream, succeeded(again))
    assert (await wire.get(task.task_id)).heartbeat_details == b'"half"'


async def test_a_published_state_that_is_too_large_is_refused_alone(
    wire: Wire, engine: Engine
) -> None:
    _, stream, task = await held_run(wire, engine)
    large = bytes(RUN_STATE_BYTES_MAX + 1)
    beat = task_pb2.TaskBeat(task_id=task.task_id, attempt=task.attempt, details=large)
    await stream.send(task_beats=[beat], steps=[report(task)])
    told = await heard(stream, acks=1, step_acks=1)
    refusal = told.acks[0]
    assert refusal.kind == pb.REPORT_KIND_BEAT
    assert (refusal.error.code, refusal.error.limit) == ("payload_too_large", RUN_STATE_BYTES_MAX)
    assert told.step_acks[0].pos == 1
    assert (await wire.get(task.task_id)).heartbeat_details == b""


async def test_a_goodbye_waits_for_the_answers(wire: Wire, engine: Engine) -> None:
    _, stream, task = await held_run(wire, engine)
    await stream.send(steps=[report(task)], journal=[wanted(task)], goodbye=pb.Goodbye())
    await heard(stream, step_acks=1, pages=1)
    await stream.end()


async def test_a_new_session_of_a_worker_reads_the_tails_of_its_runs(
    wire: Wire, engine: Engine
) -> None:
    worker_id, stream, task = await held_run(wire, engine)
    await stream.send(steps=[report(task)])
    await stream.until(lambda frame: frame.step_acks)
    stream.call.cancel()
    again = await wire.open_session(worker_id, session_no=2, held=[ref(task)])
    found = await page(again, wanted(task))
    assert (found.entries[0].attempt, found.entries[0].no) == (1, 1)
    (ack,) = await record(again, report(task, entry("ship"), first_no=2))
    assert ack.pos == 2


async def test_a_large_signal_reaches_its_run(wire: Wire, engine: Engine) -> None:
    _, stream, task = await held_run(wire, engine)
    await finished(stream, yielded(task))
    await signal(engine, task.task_id, payload=bytes(SIGNAL_BYTES_MAX))
    (again,) = await stream.tasks()
    found = again.journal if again.journal.entries else await page(stream, wanted(again))
    assert found.entries[0].content.output == bytes(SIGNAL_BYTES_MAX)


async def test_two_runs_in_one_frame_are_answered_both(wire: Wire, engine: Engine) -> None:
    _, stream, task = await held_run(wire, engine)
    await start(engine)
    (other,) = await stream.tasks()
    await stream.send(steps=[report(task), report(other)], journal=[wanted(task), wanted(other)])
    told = await heard(stream, step_acks=2, pages=2)
    assert {each.task_id for each in told.step_acks} == {task.task_id, other.task_id}
    assert [each.task_id for each in told.pages] == [task.task_id, other.task_id]


async def test_a_signal_is_pushed_to_the_worker_that_holds_the_run(
    wire: Wire, engine: Engine
) -> None:
    _, stream, task = await held_run(wire, engine)
    await record(stream, report(task))
    await signal(engine, task.task_id, payload=b'"yes"', encoding="json", sender="kim")
    (found,) = (await heard(stream, pages=1)).pages
    assert (found.task_id, found.attempt, found.after, found.end) == (task.task_id, 1, 1, 2)
    (sent,) = found.entries
    assert (sent.pos, sent.sender, sent.content.key) == (2, "kim", "approve")
    assert sent.content.kind == task_pb2.ENTRY_KIND_SIGNAL
    assert (sent.content.output, sent.content.encoding) == (b'"yes"', "json")


async def test_a_cancel_is_pushed_with_its_reason(wire: Wire, engine: Engine) -> None:
    _, stream, task = await held_run(wire, engine)
    await engine.submit(CancelRun(namespace=NAMESPACE, run_id=task.task_id, reason="enough"))
    told = await heard(stream, pages=1, cancel=1)
    (entry,) = told.pages[0].entries
    assert (entry.content.kind, entry.content.error.message) == (
        task_pb2.ENTRY_KIND_CANCEL,
        "enough",
    )
    # The clean-up goes on with its steps.
    (ack,) = await record(stream, report(task))
    assert ack.pos == 2


async def test_a_damaged_entry_spoils_its_own_page_and_nothing_else(
    wire: Wire, world: World, engine: Engine
) -> None:
    _, stream, task = await held_run(wire, engine)
    await start(engine)
    (other,) = await stream.tasks()
    await record(stream, report(task), report(other))
    damaged = "x'c1'" if world.dialect == "sqlite" else "'\\xc1'"
    (row,) = await world.database.rows(f"SELECT journal_id FROM tasks WHERE id = '{task.task_id}'")
    await world.database.execute(
        f"UPDATE journal SET body = {damaged} WHERE journal_id = '{row['journal_id']}'"
    )
    await stream.send(journal=[wanted(task), wanted(other)])
    bad, good = (await heard(stream, pages=2)).pages
    assert (bad.error.code, bad.error.reason, bad.end) == ("data_damaged", "journal", 1)
    assert keys(good) == [(1, "charge")]
