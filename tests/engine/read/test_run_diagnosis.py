"""What the doctor says of runs, on both databases."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tenure.core.diagnosis.finding import Finding, Level
from tenure.core.limits import CLOSING_PROBLEM_MS, JOURNAL_ENTRIES_WARNING
from tenure.core.run.record import Wait
from tenure.core.task.retry import ErrorInfo
from tenure.engine.engine import Engine
from tenure.engine.read import run_diagnosis
from tenure.engine.task.command import FinishKind
from tests.engine.read.test_diagnosis import found, one
from tests.engine.run.children import new_child, spawn_children
from tests.engine.run.runs import (
    give_up_slot,
    held_run,
    positions,
    report,
    running_run,
    start,
    step,
    terminate,
)
from tests.engine.world import FATAL, NAMESPACE, OTHER_NAMESPACE, World


async def park(
    world: World, engine: Engine, worker: str, error: ErrorInfo = FATAL, type: str = "mail"
) -> str:
    run_id = await start(world, engine, type=type)
    (run,) = await world.claim(engine, worker, types=frozenset({type}))
    await world.finish(engine, worker, run, FinishKind.PARKED, error=error)
    return run_id


async def levels(engine: Engine, namespace: str = "") -> dict[str, Level]:
    checks = ("parked_runs", "journal_size", "late_closings")
    fields = {"namespace": namespace} if namespace else {}
    return {check: (await found(engine, check, **fields))[0].level for check in checks}


async def test_parked_runs_are_counted_by_type_with_the_commonest_reason(
    world: World, engine: Engine
) -> None:
    worker = await world.worker(engine, "mail", "bill")
    other = replace(FATAL, message="something else")
    for error in (FATAL, other, FATAL):
        await park(world, engine, worker, error)
    await park(world, engine, worker, other, "bill")
    # Neither a run that waits nor a task is parked.
    waiting = await held_run(world, engine, worker)
    await give_up_slot(world, engine, worker, waiting, waits=(Wait("signal", "go"),))
    await world.add(engine)
    first, second = await found(engine, "parked_runs")
    assert (first.evidence["type"], first.evidence["count"]) == ("mail", "3")
    assert first.evidence["errorMessage"] == FATAL.message
    assert "(2 of 3 that were read)" in first.message
    assert (second.evidence["type"], second.evidence["count"]) == ("bill", "1")
    assert second.evidence["errorMessage"] == "something else"


async def test_a_run_that_has_ended_is_parked_no_more(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    run_id = await park(world, engine, worker)
    assert (await one(engine, "parked_runs")).level is Level.PROBLEM
    await terminate(engine, run_id)
    assert (await one(engine, "parked_runs")).level is Level.OK


async def test_a_long_journal_of_a_live_run_is_named(
    world: World, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    for first in range(1, JOURNAL_ENTRIES_WARNING, 500):
        entries = [step(f"charge#{number}", output=None) for number in range(first, first + 500)]
        await positions(engine, worker, report(run, *entries, first_no=first))
    short = await running_run(world, engine, worker)
    await positions(engine, worker, report(short))
    finding = await one(engine, "journal_size")
    assert (finding.level, finding.evidence["run"]) == (Level.WARNING, run.id)
    assert finding.evidence["entryCount"] == str(JOURNAL_ENTRIES_WARNING)
    # The oldest runs are looked at first, up to a number.
    monkeypatch.setattr(run_diagnosis, "DIAGNOSED_JOURNALS_MAX", 1)
    assert (await one(engine, "journal_size")).level is Level.WARNING
    await world.finish(engine, worker, run)
    assert (await one(engine, "journal_size")).level is Level.OK


async def test_children_of_a_run_that_ended_long_ago_are_a_problem(
    world: World, engine: Engine
) -> None:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    await spawn_children(engine, worker, run, new_child(world))
    await terminate(engine, run.id)
    # No server closes children.
    await world.advance(CLOSING_PROBLEM_MS)
    assert (await one(engine, "late_closings")).level is Level.OK
    await world.advance(1)
    finding = await one(engine, "late_closings")
    assert (finding.level, finding.evidence["count"]) == (Level.PROBLEM, "1")


async def test_a_namespace_has_only_its_own_runs(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    await park(world, engine, worker)
    parent = await running_run(world, engine, worker)
    await spawn_children(engine, worker, parent, new_child(world))
    await terminate(engine, parent.id)
    await world.advance(CLOSING_PROBLEM_MS + 1)
    await world.worker(engine, namespace=OTHER_NAMESPACE)
    bad = {"parked_runs": Level.PROBLEM, "late_closings": Level.PROBLEM}
    well = dict.fromkeys(("parked_runs", "journal_size", "late_closings"), Level.OK)
    assert await levels(engine) == {**well, **bad}
    assert await levels(engine, NAMESPACE) == {**well, **bad}
    assert await levels(engine, OTHER_NAMESPACE) == well
    limited: list[Finding] = await found(engine, "parked_runs", namespaces=(OTHER_NAMESPACE,))
    assert [each.level for each in limited] == [Level.OK]


async def test_every_namespace_that_has_tasks_is_looked_at(
    world: World, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_diagnosis, "PAGE_SIZE_MAX", 1)
    worker = await world.worker(engine)
    run_id = await park(world, engine, worker)
    await world.database.execute(
        f"UPDATE tasks SET namespace = '{OTHER_NAMESPACE}' WHERE id = '{run_id}'"
    )
    # Its namespace comes first.
    await world.add(engine)
    assert (await one(engine, "parked_runs")).evidence["namespace"] == OTHER_NAMESPACE
    monkeypatch.setattr(run_diagnosis, "_NAMESPACES_MAX", 1)
    assert (await one(engine, "parked_runs")).level is Level.OK


async def test_no_more_runs_are_looked_at_than_a_number(
    world: World, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_diagnosis, "RUNS_COUNTED_MAX", 2)
    worker = await world.worker(engine)
    for _ in range(3):
        await park(world, engine, worker)
    assert (await one(engine, "parked_runs")).evidence["count"] == "2"
