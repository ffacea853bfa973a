"""The attempts of a run's steps: page by page, and one by its id."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.core.journal.entry import EntryBody, EntryKind, NewEntry
from tenure.core.limits import PAYLOAD_BYTES_MAX
from tenure.core.run.step_attempt import MapCounts, StepAttempt, StepKind, StepStatus
from tenure.core.task.record import Spec, Task
from tenure.core.task.retry import RetryPolicy
from tenure.engine.engine import Engine
from tenure.engine.read import step_attempt as step_read
from tenure.engine.read.query import Page, PageRequest
from tenure.engine.services.due_tasks import DueTasks
from tenure.engine.task.command import FinishKind
from tenure.errors import DataDamaged, InvalidArgument, NotFound, TenureError
from tenure.store.table import group as group_table
from tests.engine.run.children import (
    claim_children,
    items,
    new_child,
    new_run,
    resizer,
    spawn,
    spawn_children,
    spawn_report,
)
from tests.engine.run.runs import (
    continue_as_new,
    give_up_slot,
    positions,
    report,
    running_run,
    signal,
    start,
    step,
    timer,
)
from tests.engine.world import FAULT, NAMESPACE, OTHER_NAMESPACE, World

KEY = b"k" * 32
TWICE = Spec(
    encoding="json",
    start_to_close_ms=60_000,
    retry=RetryPolicy(maximum_attempts=2, initial_interval_ms=1),
)
NOBODY = "0190a000-0000-7000-8000-00000000dead"
DAMAGE = {
    "sqlite": "UPDATE journal SET body = x'ff'",
    "postgres": "UPDATE journal SET body = '\\xff'",
}


def begun(key: str, number: int = 1) -> NewEntry:
    return NewEntry(EntryKind.BEGUN, key, EntryBody(attempts=number, started_at_ms=5))


def put_off(key: str, number: int = 1) -> NewEntry:
    return NewEntry(EntryKind.RETRY, key, EntryBody(attempts=number, error=FAULT, next_at_ms=9))


async def page(
    engine: Engine, run_id: str, *, size: int = 100, token: str = "", **changes: Any
) -> Page[StepAttempt]:
    fields = {"namespace": NAMESPACE, "run_id": run_id, **changes}
    request = PageRequest(cursor_key=KEY, size=size, token=token)
    return await step_read.list_steps(engine.store, page=request, **fields)


async def listed(engine: Engine, run_id: str, **changes: Any) -> list[StepAttempt]:
    """Return all pages."""
    found: list[StepAttempt] = []
    token = ""
    while True:
        got = await page(engine, run_id, token=token, **changes)
        assert len(got.items) <= changes.get("size", 100)
        found += got.items
        token = got.next_page_token
        if not token:
            return found


async def got(engine: Engine, step_attempt_id: str, **changes: Any) -> StepAttempt:
    fields = {"namespace": NAMESPACE, **changes}
    return await step_read.get_step(engine.store, step_attempt_id=step_attempt_id, **fields)


def shown(steps: list[StepAttempt]) -> list[tuple[str, int, StepStatus]]:
    return [(each.step_id, each.number, each.status) for each in steps]


async def busy_run(world: World, engine: Engine) -> Task:
    """Return a run with steps of every kind, ended and open, and other entries between them."""
    worker, other = await world.worker(engine), await resizer(world, engine)
    run = await running_run(world, engine, worker)
    await signal(engine, run.id)
    await positions(
        engine,
        worker,
        report(
            run,
            *(begun("charge"), begun("pack"), step("charge", attempts=1)),
            *(put_off("mail"), step("mail", attempts=2, error=FAULT), timer(1)),
            begun("ship"),
        ),
    )
    children = [
        new_child(world, "resize", new={"spec": TWICE}),
        new_child(world, "resize#2", new={"spec": TWICE, "input": b'"large"'}),
    ]
    await spawn_children(engine, worker, run, *children)
    for task in await claim_children(world, engine, other):
        await world.finish(engine, other, task, FinishKind.FAILED)
    await world.advance(1_000)
    await world.round(DueTasks(), engine)
    (again,) = await claim_children(world, engine, other, max_tasks=1)
    await world.finish(engine, other, again, output=b"640")
    await spawn_children(
        engine, worker, run, new_run(world), new_child(world, "late", new={"type": "nobody"})
    )
    group = items(world, 0, 3, new={"type": "thumb"})
    in_group: Any = {"number": 3, "group_key": "map:thumb", "group_index": 9, "group_total": 3}
    assert await spawn(engine, worker, spawn_report(run, *group, **in_group)) == (None,)
    return run


async def test_a_run_that_did_nothing_has_no_steps(world: World, engine: Engine) -> None:
    assert await listed(engine, await start(world, engine)) == []


async def test_steps_of_every_kind_are_listed_in_the_order_of_the_journal(
    world: World, engine: Engine
) -> None:
    run = await busy_run(world, engine)
    steps = await listed(engine, run.id)
    ended, open_ = steps[:7], steps[7:]
    assert shown(ended) == [
        ("pack", 1, StepStatus.RUNNING),
        ("charge", 1, StepStatus.COMPLETED),
        ("mail", 1, StepStatus.FAILED),
        ("mail", 2, StepStatus.FAILED),
        ("ship", 1, StepStatus.RUNNING),
        ("resize", 1, StepStatus.FAILED),
        ("resize", 2, StepStatus.COMPLETED),
    ]
    assert sorted(shown(open_)) == [
        ("child:ship", 1, StepStatus.PENDING),
        ("late", 1, StepStatus.PENDING),
        ("map:thumb", 1, StepStatus.RUNNING),
        ("resize#2", 1, StepStatus.FAILED),
        ("resize#2", 2, StepStatus.PENDING),
    ]
    assert len({each.id for each in steps}) == len(steps)
    assert {each.run_id for each in steps} == {run.id}


@pytest.mark.parametrize("size", [1, 2, 3, 5, 11, 12, 13])
async def test_pages_of_every_size_have_the_same_steps(
    world: World, engine: Engine, size: int
) -> None:
    run = await busy_run(world, engine)
    assert await listed(engine, run.id, size=size) == await listed(engine, run.id)


async def test_one_step_is_listed_by_its_key(world: World, engine: Engine) -> None:
    run = await busy_run(world, engine)
    all_of_it = await listed(engine, run.id)
    for key in ("mail", "resize", "resize#2", "map:thumb", "child:ship"):
        expected = [each for each in all_of_it if each.step_id == key]
        assert expected
        assert await listed(engine, run.id, step_id=key, size=1) == expected
    assert await listed(engine, run.id, step_id="nothing") == []


async def test_each_attempt_is_found_by_its_id(world: World, engine: Engine) -> None:
    run = await busy_run(world, engine)
    for each in await listed(engine, run.id):
        found = await got(engine, each.id)
        assert (found.id, found.status, found.error) == (each.id, each.status, each.error)
        assert (found.number, found.output) == (each.number, each.output)
    (first, _) = await listed(engine, run.id, step_id="resize#2")
    assert first.input is None
    found = await got(engine, first.id)
    assert (found.input, found.input_encoding) == (b'"large"', "json")


async def test_a_local_step_has_the_input_that_its_worker_told(
    world: World, engine: Engine
) -> None:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    told = EntryBody(output=b'"lamp"', encoding="json", attempts=1)
    sleep = NewEntry(EntryKind.BEGUN, "nap", EntryBody(fire_at_ms=world.clock.now_ms() + 9))
    await positions(
        engine,
        worker,
        report(run, NewEntry(EntryKind.BEGUN, "charge", told), step("charge"), sleep),
    )
    (listed_one,) = await listed(engine, run.id)
    assert (listed_one.step_id, listed_one.input) == ("charge", None)
    # By its beginning and by its end it is the same attempt.
    for pos in (1, 2):
        found = await got(engine, f"{run.id}.0.{pos}")
        assert (found.id, found.output) == (f"{run.id}.0.2", b"12")
        assert (found.input, found.input_encoding) == (b'"lamp"', "json")
    with pytest.raises(NotFound):
        await got(engine, f"{run.id}.0.3")


async def test_an_id_is_good_for_as_long_as_the_run_goes_on(world: World, engine: Engine) -> None:
    worker, other = await world.worker(engine), await resizer(world, engine)
    run = await running_run(world, engine, worker)
    await positions(engine, worker, report(run, begun("charge")))
    await spawn_children(engine, worker, run, new_child(world))
    in_group: Any = {"number": 2, "group_key": "map:resize", "group_index": 9, "group_total": 2}
    await spawn(engine, worker, spawn_report(run, *items(world, 0, 2), **in_group))
    ids = [each.id for each in await listed(engine, run.id)]
    for task in await claim_children(world, engine, other):
        await world.finish(engine, other, task, output=b"1")
    await positions(engine, worker, report(run, step("charge"), first_no=2))
    found = [await got(engine, each) for each in ids]
    assert [each.status for each in found] == [StepStatus.COMPLETED] * 3
    assert {each.kind for each in found} == set(StepKind)
    (counted,) = [each.counts for each in found if each.counts is not None]
    assert counted == MapCounts(total=2, succeeded=2, failed=0, cancelled=0)
    again = await listed(engine, run.id)
    assert {each.step_id for each in again} == {"charge", "resize", "map:resize"}
    assert all(each.status is StepStatus.COMPLETED for each in again)


async def test_what_ends_between_two_pages_is_not_missed(world: World, engine: Engine) -> None:
    worker, other = await world.worker(engine), await resizer(world, engine)
    run = await running_run(world, engine, worker)
    children = [new_child(world, f"resize#{number}") for number in range(4)]
    await spawn_children(engine, worker, run, *children)
    first = await page(engine, run.id, size=2)
    for task in await claim_children(world, engine, other):
        await world.finish(engine, other, task)
    rest: list[StepAttempt] = []
    token = first.next_page_token
    while token:
        following = await page(engine, run.id, size=2, token=token)
        rest += following.items
        token = following.next_page_token
    assert {each.step_id for each in rest} == {f"resize#{number}" for number in range(4)}
    assert {each.status for each in rest} == {StepStatus.COMPLETED}


async def test_a_step_that_its_worker_left_is_interrupted(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    await positions(engine, worker, report(run, begun("charge"), begun("pack")))
    await give_up_slot(world, engine, worker, run, seen=0)
    (again,) = await world.claim(engine, worker)
    await world.confirm(engine, worker, again)
    await positions(engine, worker, report(again, step("charge")))
    assert shown(await listed(engine, run.id)) == [
        ("charge", 1, StepStatus.INTERRUPTED),
        ("pack", 1, StepStatus.INTERRUPTED),
        ("charge", 1, StepStatus.COMPLETED),
    ]


async def test_a_page_has_a_bounded_size(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    large = [step(f"load#{number}", output=b"x" * 100_000) for number in range(5)]
    await positions(engine, worker, report(run, *large))
    huge = step("load#5", output=b"x" * PAYLOAD_BYTES_MAX)
    await positions(engine, worker, report(run, huge, step("end"), first_no=6))
    token, counts = "", []
    while True:
        found = await page(engine, run.id, token=token)
        counts.append(len(found.items))
        token = found.next_page_token
        if not token:
            break
    assert sum(counts) == 7
    assert max(counts) <= 3


async def test_an_earlier_generation_is_gone_and_its_pages_too(
    world: World, engine: Engine
) -> None:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    await positions(engine, worker, report(run, step("one"), step("two")))
    first = await page(engine, run.id, size=1)
    (old,) = first.items
    await continue_as_new(world, engine, worker, run, seen=2)
    assert await listed(engine, run.id) == []
    with pytest.raises(InvalidArgument) as refusal:
        await page(engine, run.id, token=first.next_page_token)
    assert refusal.value.fields["field"] == "page_token"
    with pytest.raises(NotFound):
        await got(engine, old.id)


async def test_a_token_of_another_list_is_refused(world: World, engine: Engine) -> None:
    run, other = await busy_run(world, engine), await start(world, engine)
    token = (await page(engine, run.id, size=1)).next_page_token
    others: tuple[dict[str, Any], ...] = ({"run_id": other}, {"step_id": "mail"})
    for changes in others:
        with pytest.raises(InvalidArgument) as refusal:
            await page(engine, **{"run_id": run.id, "token": token} | changes)
        assert refusal.value.fields["field"] == "page_token"


async def test_what_is_no_run_of_the_namespace_is_not_found(world: World, engine: Engine) -> None:
    run = await busy_run(world, engine)
    (task_id,) = await world.add(engine)
    (found, *_) = await listed(engine, run.id)
    for run_id, namespace in ((run.id, OTHER_NAMESPACE), (NOBODY, NAMESPACE), (task_id, NAMESPACE)):
        with pytest.raises(NotFound):
            await page(engine, run_id, namespace=namespace)
        with pytest.raises(NotFound):
            await got(engine, f"{run_id}.0.{found.place}", namespace=namespace)


async def test_an_attempt_that_is_not_there_is_not_found(world: World, engine: Engine) -> None:
    run = await busy_run(world, engine)
    steps = {each.step_id: each for each in await listed(engine, run.id)}
    elsewhere = steps["late"].task_id
    other = await start(world, engine)
    item_ids = await engine.store.read(
        lambda tx: group_table.read_groups(tx, (NAMESPACE, run.id), amount=1)
    )
    for place in (
        *("1", "99", "2.1", f"{steps['resize'].place.split('.')[0]}.3"),
        *(f"{steps['resize'].place.split('.')[0]}.0", NOBODY, f"{NOBODY}.1"),
        *(f"{item_ids[0].group_id}.1", f"{elsewhere}.2"),
    ):
        with pytest.raises(NotFound):
            await got(engine, f"{run.id}.0.{place}")
    for place in (elsewhere, item_ids[0].group_id, "1"):
        with pytest.raises(NotFound):
            await got(engine, f"{other}.0.{place}")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"run_id": "x"}, "runId"),
        ({"namespace": "a b"}, "namespace"),
        ({"step_id": "x" * 513}, "stepId"),
        ({"step_id": "\0"}, "stepId"),
        ({"size": -1}, "page_size"),
        ({"token": "x"}, "page_token"),
    ],
)
async def test_bad_input_is_refused(
    world: World, engine: Engine, changes: dict[str, Any], field: str
) -> None:
    run_id = await start(world, engine)
    with pytest.raises(TenureError) as refusal:
        await page(engine, **{"run_id": run_id, **changes})
    assert (refusal.value.code, refusal.value.fields["field"]) == ("invalid_argument", field)


async def test_a_damaged_entry_is_told(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    await positions(engine, worker, report(run, step("one")))
    await world.database.execute(DAMAGE[world.dialect])
    for asked in (page(engine, run.id), got(engine, f"{run.id}.0.1")):
        with pytest.raises(DataDamaged) as told:
            await asked
        assert told.value.fields["reason"] == "journal"
