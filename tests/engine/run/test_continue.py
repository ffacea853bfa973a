"""Runs that begin anew by themselves: a new journal, the same run, and no signal lost."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from tenure.core.journal.entry import EntryKind
from tenure.core.run.wake_up import run_of
from tenure.core.task.attempt import Outcome
from tenure.core.task.record import Task, TaskState
from tenure.engine.engine import Engine
from tenure.engine.read import run as run_read
from tenure.engine.run.command import NewSignal
from tenure.engine.services.due_tasks import DueTasks
from tenure.engine.task.command import Anew, FinishKind, PauseTask
from tenure.errors import InvalidArgument, PayloadTooLarge
from tests.engine.run.runs import (
    AGAIN_SPEC,
    RUN_SPEC,
    cancel,
    continue_as_new,
    held_run,
    journal,
    kinds,
    positions,
    report,
    running_run,
    signal,
    start,
    step,
    terminate,
)
from tests.engine.world import NAMESPACE, World, codes
from tests.polling import eventually

LARGE = b"x" * 100_000


async def next_hand_out(world: World, engine: Engine, worker: str) -> Task:
    (task,) = await world.claim(engine, worker)
    await world.confirm(engine, worker, task)
    return task


def page_of(task: Task) -> list[tuple[int, EntryKind, str]]:
    """Return what a run was handed out with."""
    assert task.link is not None
    assert task.link.page is not None
    return [(each.pos, each.kind, each.key) for each in task.link.page.entries]


async def test_a_run_begins_anew_with_its_next_input(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    spec = replace(RUN_SPEC, schedule_to_close_ms=60_000)
    run = await running_run(world, engine, worker, input=b"1", external_id="o", spec=spec)
    await positions(engine, worker, report(run, step("a"), step("b")))
    answer = await continue_as_new(world, engine, worker, run, seen=2, input=b"2")
    assert codes([answer]) == ["pending"]
    assert await journal(engine, run.id) == ()
    again = await next_hand_out(world, engine, worker)
    assert (again.id, again.attempt, again.input, page_of(again)) == (run.id, 2, b"2", [])
    assert run_of(again).generation == 1
    assert again.link is not None
    assert again.link.external_id == "o"
    assert await positions(engine, worker, report(again)) == [1]
    assert (await world.task(run.id)).spec.close_at_ms == run.spec.close_at_ms
    await world.finish(engine, worker, again, FinishKind.SUCCEEDED, output=b"3")
    view = await run_read.get_run(engine.store, namespace=NAMESPACE, run_id="external:o")
    assert (view.task.id, view.task.input, view.task.output) == (run.id, b"2", b"3")
    assert not (await world.dump("attempts"))["attempts"]


async def test_signals_that_nobody_took_go_along_in_their_order(
    world: World, engine: Engine
) -> None:
    worker = await world.worker(engine)
    first = NewSignal(name="first", payload=b"1", signal_id="s1", sender="ann")
    run = await running_run(world, engine, worker, signals=(first,))
    await signal(engine, run.id, "taken")
    await positions(engine, worker, report(run))
    await signal(engine, run.id, "second", payload=b"2", signal_id="s2")
    await continue_as_new(world, engine, worker, run, seen=3, keep=(1,))
    again = await next_hand_out(world, engine, worker)
    assert page_of(again) == [(1, EntryKind.SIGNAL, "first"), (2, EntryKind.SIGNAL, "second")]
    one, two = await journal(engine, run.id)
    assert (one.content.output, one.content.signal_id, one.content.sender) == (b"1", "s1", "ann")
    assert (two.content.output, two.attempt, two.no) == (b"2", 0, 0)
    # A signal counts once, whatever the generation.
    repeated = await signal(engine, run.id, "second", payload=b"2", signal_id="s2")
    assert not repeated.is_new


async def test_a_signal_meets_the_end_of_a_generation(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    other = await world.start()
    sent = [
        asyncio.ensure_future(signal(each, run.id, f"n{number}"))
        for number, each in enumerate([engine, other] * 5)
    ]
    await asyncio.sleep(0)
    await continue_as_new(world, engine, worker, run)
    await asyncio.gather(*sent)
    assert await kinds(engine, run.id) == [EntryKind.SIGNAL] * 10
    assert sorted(each.key for each in await journal(engine, run.id)) == [
        f"n{number}" for number in range(10)
    ]


async def test_what_one_batch_brings_goes_along(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    _, _, answer = await asyncio.gather(
        signal(engine, run.id, "go"),
        cancel(engine, run.id, "enough"),
        continue_as_new(world, engine, worker, run),
    )
    assert codes([answer]) == ["pending"]
    assert await kinds(engine, run.id) == [EntryKind.SIGNAL, EntryKind.CANCEL]
    assert (await world.task(run.id)).is_cancel_requested


async def test_a_cancel_that_was_not_delivered_goes_along(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    await positions(engine, worker, report(run))
    await cancel(engine, run.id, "enough")
    await continue_as_new(world, engine, worker, run, seen=1)
    again = await next_hand_out(world, engine, worker)
    assert page_of(again) == [(1, EntryKind.CANCEL, "cancel")]
    await world.finish(engine, worker, again, FinishKind.CANCELLED)
    assert await world.state(run.id) is TaskState.CANCELLED


async def test_after_a_cancel_that_it_has_seen_a_run_can_be_cancelled_again(
    world: World, engine: Engine
) -> None:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    await cancel(engine, run.id)
    await continue_as_new(world, engine, worker, run, seen=1)
    again = await next_hand_out(world, engine, worker)
    assert page_of(again) == []
    await cancel(engine, again.id)
    assert await kinds(engine, run.id) == [EntryKind.CANCEL]


async def test_a_repeated_report_gets_its_first_answer(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    answers = [await continue_as_new(world, engine, worker, run) for _ in range(2)]
    assert codes(answers) == ["pending", "pending"]
    stored = await world.task(run.id)
    assert (run_of(stored).generation, stored.last_outcome) == (1, Outcome.CONTINUED)
    await next_hand_out(world, engine, worker)
    late = await continue_as_new(world, engine, worker, run)
    assert codes([late]) == ["attempt_mismatch"]
    assert run_of(await world.task(run.id)).generation == 1


async def test_steps_that_come_with_the_end_are_written_and_gone(
    world: World, engine: Engine
) -> None:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    _, answer = await asyncio.gather(
        positions(engine, worker, report(run)), continue_as_new(world, engine, worker, run, seen=1)
    )
    assert codes([answer]) == ["pending"]
    again = await next_hand_out(world, engine, worker)
    assert page_of(again) == []
    assert await positions(engine, worker, report(again)) == [1]


async def test_a_run_that_begins_anew_is_handed_out_at_once_with_all_that_it_needs(
    world: World, engine: Engine
) -> None:
    worker = await world.worker(engine)
    sink, _ = await world.session(engine, worker)
    await start(world, engine, input=b"1")
    await eventually(lambda: sink.given)
    (run,) = sink.take()
    await world.confirm(engine, worker, run)
    await signal(engine, run.id, "go")
    await continue_as_new(world, engine, worker, run, input=LARGE, encoding="other")
    await eventually(lambda: sink.given)
    (again,) = sink.take()
    assert (again.input, again.attempt, again.spec.encoding) == (LARGE, 2, "other")
    assert page_of(again) == [(1, EntryKind.SIGNAL, "go")]
    assert (await world.task(run.id)).input == LARGE


async def test_a_run_that_is_handed_out_by_the_batch_that_ends_it_has_its_next_input(
    world: World, engine: Engine
) -> None:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker, input=b"1")
    # Somebody is served by this batch, because a run is started in it.
    answer, given, _ = await asyncio.gather(
        continue_as_new(world, engine, worker, run, input=b"2"),
        world.claim(engine, worker),
        start(world, engine),
    )
    assert codes([answer]) == ["pending"]
    (again,) = [each for each in given if each.id == run.id]
    assert (again.input, again.attempt) == (b"2", 2)
    repeated = await continue_as_new(world, engine, worker, run, input=b"2")
    assert codes([repeated]) == ["attempt_mismatch"]
    assert (await world.task(run.id)).input == b"2"


async def test_an_end_in_the_same_batch_keeps_the_next_input(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker, input=b"1")
    await asyncio.gather(
        continue_as_new(world, engine, worker, run, input=b"2"), terminate(engine, run.id)
    )
    ended = await world.task(run.id)
    assert (ended.state, ended.input) == (TaskState.FAILED, b"2")


async def test_a_run_is_paused_between_its_generations(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    await engine.submit(PauseTask(namespace=NAMESPACE, task_id=run.id))
    assert codes([await continue_as_new(world, engine, worker, run)]) == ["paused"]
    assert await world.claim(engine, worker) == ()


async def test_many_rounds_leave_the_entries_of_one(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker, input=b"0")
    rounds = 20
    for number in range(1, rounds + 1):
        await positions(engine, worker, report(run, *[step(f"s{n}") for n in range(5)]))
        await signal(engine, run.id, f"n{number}")
        given = str(number).encode()
        await continue_as_new(world, engine, worker, run, seen=5, input=given)
        run = await next_hand_out(world, engine, worker)
        assert (run.input, page_of(run)) == (given, [(1, EntryKind.SIGNAL, f"n{number}")])
        # The signal of this round is taken, and not named again.
        await continue_as_new(world, engine, worker, run, seen=1, input=given)
        run = await next_hand_out(world, engine, worker)
    assert run_of(run).generation == 2 * rounds
    assert await kinds(engine, run.id) == []
    if world.dialect == "sqlite":
        # The other store drops them with their day.
        assert not (await world.dump("journal"))["journal"]


async def test_a_failure_after_that_begins_anew_with_the_present_input(
    world: World, engine: Engine
) -> None:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker, input=b"1", spec=AGAIN_SPEC)
    await continue_as_new(world, engine, worker, run, input=b"2")
    again = await next_hand_out(world, engine, worker)
    await world.finish(engine, worker, again, FinishKind.FAILED)
    await world.advance(2_000)
    await world.round(DueTasks(), engine)
    await world.beat(engine, worker, 1)
    last = await next_hand_out(world, engine, worker)
    assert (last.input, run_of(last).generation) == (b"2", 2)


async def test_a_server_takes_along_what_another_one_has_appended(
    world: World, engine: Engine
) -> None:
    other = await world.start()
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    await positions(engine, worker, report(run))
    await signal(other, run.id, "go")
    await continue_as_new(world, engine, worker, run, seen=1)
    assert await kinds(other, run.id) == [EntryKind.SIGNAL]


@pytest.mark.parametrize("keep", [(1,), (1, 2), (2, 3)])
async def test_only_signals_are_kept(world: World, engine: Engine, keep: tuple[int, ...]) -> None:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    await positions(engine, worker, report(run))
    await signal(engine, run.id)
    before = await world.dump()
    answer = await continue_as_new(world, engine, worker, run, seen=3, keep=keep)
    assert codes([answer]) == ["invalid_argument"]
    assert await world.dump() == before


async def test_a_stale_report_is_refused_as_ever(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    stale = replace(run, attempt=2)
    answer = await continue_as_new(world, engine, worker, stale, seen=3, keep=(3,))
    assert codes([answer]) == ["attempt_mismatch"]
    activity = await world.held(engine, worker)
    assert codes([await continue_as_new(world, engine, worker, activity)]) == ["wrong_state"]
    gone = replace(run, id=world.clock.new_id())
    assert codes([await continue_as_new(world, engine, worker, gone)]) == ["not_found"]


@pytest.mark.parametrize(
    ("anew", "field"),
    [
        (None, "nextInput"),
        (Anew(seen=-1), "seen"),
        (Anew(seen=2**63), "seen"),
        (Anew(seen=3, keep=(0,)), "keep"),
        (Anew(seen=3, keep=(4,)), "keep"),
        (Anew(seen=3, keep=(2, 2)), "keep"),
        (Anew(seen=3, keep=(2, 1)), "keep"),
        (Anew(seen=0, keep=(1,)), "keep"),
        (Anew(seen=1, encoding="a b"), "nextEncoding"),
        (Anew(seen=1, input="text"), "nextInput"),  # type: ignore[arg-type]  # on purpose
    ],
)
async def test_bad_input_is_named_and_changes_nothing(
    world: World, engine: Engine, anew: Anew | None, field: str
) -> None:
    worker = await world.worker(engine)
    run = await held_run(world, engine, worker)
    before = await world.dump()
    with pytest.raises(InvalidArgument) as refusal:
        await world.finish(engine, worker, run, FinishKind.CONTINUED, anew=anew)
    assert refusal.value.fields["field"] == field
    assert await world.dump() == before


@pytest.mark.parametrize(
    "anew",
    [
        Anew(seen=1, input=bytes(2 * 1024 * 1024 + 1)),
        Anew(seen=10**6, keep=tuple(range(1, 50_002))),
    ],
)
async def test_what_is_too_large_is_refused(world: World, engine: Engine, anew: Anew) -> None:
    worker = await world.worker(engine)
    run = await held_run(world, engine, worker)
    with pytest.raises(PayloadTooLarge):
        await world.finish(engine, worker, run, FinishKind.CONTINUED, anew=anew)
