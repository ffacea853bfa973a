"""Recorded steps: each once, in order, from nobody but the holder."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from tenure.core import limits
from tenure.core.journal.entry import EntryBody, EntryKind, NewEntry
from tenure.core.task.record import Task, TaskState
from tenure.engine.command import AnyCommand
from tenure.engine.engine import Engine
from tenure.engine.run.command import CancelRun, NewSignal, RecordSteps, StepsPlaced, TerminateRun
from tenure.engine.task.command import FinishKind, FinishTasks, ProcessDue
from tenure.errors import Rejection, WorkerInactive
from tests.engine.run.runs import (
    AGAIN_SPEC,
    cancel,
    give_up_slot,
    held_run,
    journal,
    kinds,
    placed,
    positions,
    record,
    refusal,
    report,
    running_run,
    signal,
    start,
    step,
    timer,
)
from tests.engine.world import NAMESPACE, OTHER_NAMESPACE, World, codes, finish


class TestSteps:
    async def test_steps_stand_in_the_journal_in_their_order(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        run = await held_run(world, engine, worker)
        assert await positions(engine, worker, report(run, step("a"), step("b"))) == [1, 2]
        assert await positions(engine, worker, report(run, step("c"), first_no=3)) == [3]
        entries = await journal(engine, run.id)
        assert [(each.key, each.no, each.attempt) for each in entries] == [
            ("a", 1, 1),
            ("b", 2, 1),
            ("c", 3, 1),
        ]
        assert entries[0].content.output == b"12"
        assert entries[0].at_ms == world.clock.now_ms()

    async def test_a_step_does_not_write_the_row_of_its_run(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        run = await running_run(world, engine, worker)
        before = await world.dump("tasks", "attempts", "history")
        await positions(engine, worker, report(run))
        assert await world.dump("tasks", "attempts", "history") == before

    async def test_a_lone_step_is_one_statement(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine)
        run = await held_run(world, engine, worker)
        await positions(engine, worker, report(run))
        world.faults.points.clear()
        assert await positions(engine, worker, report(run, first_no=2)) == [2]
        assert world.faults.points == ["before COMMIT", "insert_entries", "after COMMIT"] or (
            world.dialect == "sqlite"
            and world.faults.points == ["insert_entries", "before COMMIT", "after COMMIT"]
        )

    async def test_steps_of_a_batch_read_nothing_that_is_remembered(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        runs = [await held_run(world, engine, worker) for _ in range(3)]
        world.faults.points.clear()
        answers = await record(engine, worker, *[report(run, step(), step()) for run in runs])
        assert all(isinstance(each, StepsPlaced) for each in answers)
        read = set(world.faults.points) - {"now_ms", "before COMMIT", "after COMMIT"}
        assert read == {"insert_entries"}

    async def test_a_report_that_comes_again_gets_the_same_answer(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        run = await held_run(world, engine, worker)
        first = await record(engine, worker, report(run, step("a"), step("b")))
        await signal(engine, run.id)
        await world.advance(50)
        again = await record(engine, worker, report(run, step("a"), step("b")))
        assert [each.places for each in placed(again)] == [each.places for each in placed(first)]
        assert [each.is_new for each in placed((*first, *again))] == [True, False]
        # A part of it came before, the rest is new.
        item = report(run, step("b"), step("c"), first_no=2)
        assert await positions(engine, worker, item) == [2, 4]
        assert len(await journal(engine, run.id)) == 4

    async def test_a_report_that_is_twice_in_one_batch_is_recorded_once(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        run = await held_run(world, engine, worker)
        one, two = await record(engine, worker, report(run), report(run))
        (first, again) = placed((one, two))
        assert (first.places, first.is_new, again.is_new) == (again.places, True, False)
        assert await kinds(engine, run.id) == [EntryKind.STEP]

    async def test_a_repeat_of_what_began_anew_at_another_server_is_no_failure(
        self, world: World, engine: Engine
    ) -> None:
        other = await world.start()
        worker = await world.worker(engine)
        run = await held_run(world, engine, worker, spec=AGAIN_SPEC)
        await positions(engine, worker, report(run))
        await world.finish(other, worker, run, FinishKind.FAILED)
        items = report(run), report(run, step("b"), step("c"), first_no=1)
        for answer in await record(engine, worker, *items):
            # One database still has the old journal, and says where the entry stood.
            is_known = isinstance(answer, StepsPlaced) and answer.places[0].pos == 1
            assert is_known or codes([answer]) == ["attempt_mismatch"]

    async def test_a_restarted_server_knows_what_was_recorded(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        run = await held_run(world, engine, worker)
        await positions(engine, worker, report(run))
        other = await world.start()
        assert await positions(other, worker, report(run)) == [1]
        assert await positions(other, worker, report(run, first_no=2)) == [2]
        # The first server remembers an end that is none any more.
        assert await positions(engine, worker, report(run, first_no=3)) == [3]
        assert await positions(engine, worker, report(run, first_no=4)) == [4]

    async def test_what_another_server_appended_moves_the_next_step(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        run = await held_run(world, engine, worker)
        await positions(engine, worker, report(run))
        other = await world.start()
        await signal(other, run.id)
        assert await positions(engine, worker, report(run, first_no=2)) == [3]
        assert await kinds(engine, run.id) == [EntryKind.STEP, EntryKind.SIGNAL, EntryKind.STEP]

    async def test_steps_in_a_clean_up_are_recorded_too(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine)
        run = await running_run(world, engine, worker)
        await cancel(engine, run.id)
        assert await positions(engine, worker, report(run)) == [2]

    async def test_a_timer_is_recorded_when_it_has_fired(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        run = await held_run(world, engine, worker)
        fire_at_ms = world.clock.now_ms() + 40
        early = await refusal(engine, worker, report(run, timer(fire_at_ms)))
        assert (early.code, early.fields) == ("too_early", {"retry_after_ms": 40})
        assert await journal(engine, run.id) == ()
        await world.advance(40)
        assert await positions(engine, worker, report(run, timer(fire_at_ms))) == [1]


class TestRefusals:
    async def test_a_stale_attempt_records_nothing(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine)
        run = await held_run(world, engine, worker)
        await positions(engine, worker, report(run))
        await world.finish(engine, worker, run, FinishKind.RELEASED)
        (again,) = await world.claim(engine, worker)
        late = await refusal(engine, worker, report(run, first_no=2))
        assert (late.code, late.fields["expected_attempt"]) == ("attempt_mismatch", 2)
        # Each attempt has numbers of its own.
        assert await positions(engine, worker, report(again)) == [2]

    async def test_another_worker_records_nothing(self, world: World, engine: Engine) -> None:
        worker, other = await world.worker(engine), await world.worker(engine)
        run = await held_run(world, engine, worker)
        assert (await refusal(engine, other, report(run))).code == "attempt_mismatch"
        assert await journal(engine, run.id) == ()

    async def test_a_take_over_by_another_server_is_seen(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        run = await held_run(world, engine, worker)
        await positions(engine, worker, report(run))
        other = await world.start()
        await world.finish(other, worker, run, FinishKind.RELEASED)
        (again,) = await world.claim(other, worker)
        assert (await refusal(engine, worker, report(run, first_no=2))).code == "attempt_mismatch"
        assert await positions(other, worker, report(again)) == [2]

    async def test_a_number_out_of_order_names_the_one_that_is_expected(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        run = await held_run(world, engine, worker)
        await positions(engine, worker, report(run))
        gap = await refusal(engine, worker, report(run, first_no=3))
        assert (gap.code, gap.fields) == ("out_of_order", {"expected_no": 2})

    async def test_bad_items_leave_their_neighbours_alone(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        good = await held_run(world, engine, worker)
        bad = await held_run(world, engine, worker)
        activity = await world.held(engine, worker)
        unknown = report(good, task_id=world.clock.new_id())
        answers = await record(
            engine,
            worker,
            unknown,
            report(bad, first_no=2),
            report(bad, attempt=2),
            report(activity),
            report(good),
        )
        codes = [each.code if isinstance(each, Rejection) else "placed" for each in answers]
        expected = ["not_found", "out_of_order", "attempt_mismatch", "wrong_state", "placed"]
        assert codes == expected
        assert await kinds(engine, good.id) == [EntryKind.STEP]
        assert await journal(engine, bad.id) == ()

    async def test_a_run_of_another_namespace_is_not_found(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        run = await held_run(world, engine, worker)
        (answer,) = await record(engine, worker, report(run), namespace=OTHER_NAMESPACE)
        assert isinstance(answer, Rejection)
        assert answer.code == "not_found"

    async def test_a_finished_run_takes_no_step(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine)
        run = await held_run(world, engine, worker)
        await engine.submit(TerminateRun(namespace=NAMESPACE, run_id=run.id))
        late = await refusal(engine, worker, report(run))
        assert (late.code, late.fields["state"]) == ("task_already_terminal", "FAILED")

    async def test_a_full_journal_refuses_steps_and_takes_signals(
        self, world: World, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tenure.core.journal.room.JOURNAL_ENTRIES_MAX", 2)
        worker = await world.worker(engine)
        run = await held_run(world, engine, worker)
        await positions(engine, worker, report(run, step(), step()))
        full = await refusal(engine, worker, report(run, first_no=3))
        assert full.code == "journal_full"
        await signal(engine, run.id)
        assert len(await journal(engine, run.id)) == 3

    async def test_a_journal_that_gets_large_is_told_once(
        self, world: World, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tenure.core.journal.room.JOURNAL_ENTRIES_WARNING", 2)
        worker = await world.worker(engine)
        run = await held_run(world, engine, worker)
        with capture_logs() as logs:
            for no in range(1, 5):
                await positions(engine, worker, report(run, first_no=no))
            await world.finish(engine, worker, run, FinishKind.RELEASED)
            await world.claim(engine, worker)
        told = [each for each in logs if each["event"] == "run.journal_large"]
        assert [(each["run_id"], each["entries"]) for each in told] == [(run.id, 2)]

    async def test_a_key_of_another_worker_records_nothing(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine, key_id="a" * 16)
        run = await held_run(world, engine, worker)
        with pytest.raises(WorkerInactive):
            await record(engine, worker, report(run), speaker="b" * 16)
        assert await journal(engine, run.id) == ()
        (answer,) = await record(engine, worker, report(run), speaker="a" * 16)
        assert isinstance(answer, StepsPlaced)


class TestHandOut:
    async def test_a_run_comes_with_its_journal(self, world: World, engine: Engine) -> None:
        worker, other = await world.worker(engine), await world.worker(engine)
        run = await held_run(world, engine, worker)
        assert run.link is not None
        assert run.link.page is not None
        assert (run.link.page.after, run.link.page.entries, run.link.page.end) == (0, (), 0)
        await positions(engine, worker, report(run, step("a"), step("b")))
        await world.finish(engine, worker, run, FinishKind.RELEASED)
        (again,) = await world.claim(engine, other)
        assert again.link is not None
        assert again.link.page is not None
        assert [each.key for each in again.link.page.entries] == ["a", "b"]
        assert again.link.page.end == 2

    async def test_a_run_comes_with_the_signals_of_its_start(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        signals = (NewSignal(name="a", payload=b"1", encoding="json"), NewSignal(name="b"))
        run = await held_run(world, engine, worker, signals=signals)
        assert run.link is not None
        assert run.link.page is not None
        assert [each.key for each in run.link.page.entries] == ["a", "b"]
        content = run.link.page.entries[0].content
        assert (content.output, content.encoding) == (b"1", "json")

    async def test_a_run_that_is_handed_out_at_once_comes_with_its_signals(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        waiting = world.poll(engine, worker)
        await world.settle(engine)
        run_id = await start(world, engine, signals=(NewSignal(name="go"),))
        (run,) = await asyncio.wait_for(waiting, 10)
        assert run.id == run_id
        assert [each.key for each in run.link.page.entries] == ["go"]
        assert await positions(engine, worker, report(run)) == [2]

    async def test_a_long_journal_comes_in_pages(self, world: World, engine: Engine) -> None:
        worker, other = await world.worker(engine), await world.worker(engine)
        run = await held_run(world, engine, worker)
        many = limits.JOURNAL_PAGE_ENTRIES_MAX
        notes = (NewEntry(EntryKind.NOTE, "x", EntryBody()),) * many
        await positions(engine, worker, report(run, *notes))
        await positions(engine, worker, report(run, *notes[:3], first_no=many + 1))
        await world.finish(engine, worker, run, FinishKind.RELEASED)
        (again,) = await world.claim(engine, other)
        assert again.link is not None
        assert again.link.page is not None
        assert (len(again.link.page.entries), again.link.page.end) == (many, many + 3)
        assert [each.pos for each in await journal(engine, run.id, many)] == [
            many + 1,
            many + 2,
            many + 3,
        ]

    async def test_plain_tasks_are_handed_out_as_before(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine)
        task = await world.held(engine, worker)
        assert (task.link, task.state) == (None, TaskState.DISPATCHED)


class TestOneBatch:
    """What happens to a run in the batch that records its steps."""

    @pytest.mark.parametrize("end", ["terminate", "release", "succeed", "cancel"])
    async def test_a_step_and_the_end_of_its_attempt_are_both_taken(
        self, world: World, engine: Engine, end: str
    ) -> None:
        worker = await world.worker(engine)
        run = await running_run(world, engine, worker)
        await positions(engine, worker, report(run))
        ends: dict[str, AnyCommand] = {
            "terminate": TerminateRun(namespace=NAMESPACE, run_id=run.id),
            "cancel": CancelRun(namespace=NAMESPACE, run_id=run.id),
            "release": finish_of(worker, run, FinishKind.RELEASED),
            "succeed": finish_of(worker, run, FinishKind.SUCCEEDED),
        }
        steps = RecordSteps(namespace=NAMESPACE, worker_id=worker, items=(report(run, first_no=2),))
        (placed,), _ = await asyncio.gather(engine.submit(steps), engine.submit(ends[end]))
        assert isinstance(placed, StepsPlaced)
        found = [EntryKind.STEP, EntryKind.STEP]
        assert await kinds(engine, run.id) == found + [EntryKind.CANCEL] * (end == "cancel")

    async def test_a_timer_fires_beside_a_step_that_has_to_be_looked_up_again(
        self, world: World, engine: Engine
    ) -> None:
        worker = await world.worker(engine)
        sleeper = await running_run(world, engine, worker)
        wake_at_ms = world.clock.now_ms() + 1_000
        await give_up_slot(world, engine, worker, sleeper, wake_at_ms=wake_at_ms, wake_key="sleep")
        run = await running_run(world, engine, worker)
        await positions(engine, worker, report(run))
        other = await world.start()
        await positions(other, worker, report(run, first_no=2))
        await world.advance(1_000)
        steps = RecordSteps(namespace=NAMESPACE, worker_id=worker, items=(report(run, first_no=3),))
        due = ProcessDue(sighted_ms=10**9, amount=10)
        (placed,), _ = await asyncio.gather(engine.submit(steps), engine.submit(due))
        assert isinstance(placed, StepsPlaced)
        assert await kinds(engine, sleeper.id) == [EntryKind.TIMER]


def finish_of(worker: str, run: Task, kind: FinishKind) -> FinishTasks:
    return FinishTasks(namespace=NAMESPACE, worker_id=worker, items=(finish(run, kind),))
