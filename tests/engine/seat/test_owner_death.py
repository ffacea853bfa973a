"""The owner of a seat dies at each point of a call: the next owner goes on as if nothing was."""

from __future__ import annotations

import pytest

from tenure.core.task.record import TaskState
from tenure.engine.engine import Engine
from tenure.engine.services.server_row import ServerTouch
from tenure.engine.task.command import FinishKind
from tests.engine.seat.served import ServedInMemory, ServedWorld
from tests.engine.world import NEVER_MS

POINTS = [
    "before send",
    "after send",
    "after the answer",
    *(f"{when} COMMIT {number}" for number in range(1, 6) for when in ("before", "after")),
]


class Death(Exception):
    """The process ends here."""


async def _die_in_call(served: ServedWorld, worker: ServedInMemory, point: str) -> None:
    """Make a call, and let its server die at a point of it."""
    engine = served.engine
    is_over = False

    def die() -> None:
        # What the next owner commits is not meant.
        if not is_over:
            raise Death

    if point == "before send":
        worker.failure = Death()
    elif point == "after send":
        worker.loses_answer = True
    elif point != "after the answer":
        when, _, number = point.split()
        name = f"{when} COMMIT"
        for _ in range(int(number) - 1):
            served.world.faults.call_at(name, lambda: None)
        served.world.faults.call_at(name, die)
    if point == "after the answer":
        engine.seats.submit = lambda _command: die()  # type: ignore[assignment,return-value]  # it dies
    driver = served.driver(worker)
    await driver.call()
    is_over = True
    await served.world.kill(engine)
    worker.failure, worker.loses_answer = None, False


async def _next_owner(served: ServedWorld) -> Engine:
    await served.world.advance(served.engine.settings.seat_stale_ms + 1)
    engine = await served.world.start(served_call_gap_ms=NEVER_MS, served_tick_ms=NEVER_MS)
    await ServerTouch().run_once(engine)
    engine.seats.open(served.caller)
    await served.round(engine)
    return engine


@pytest.mark.parametrize("point", POINTS)
async def test_a_death_of_the_owner_loses_nothing_kills_nothing_and_runs_nothing_twice(
    served: ServedWorld, point: str
) -> None:
    worker = await served.worker("mail")
    await served.round()
    await served.call(worker)
    running, finished = await served.world.add(served.engine, 2)
    await served.call(worker)
    await served.call(worker)
    refs = {ref.task_id: ref for ref in worker.begun}
    worker.finish(refs[finished])
    (fresh,) = await served.world.add(served.engine)
    await _die_in_call(served, worker, point)
    engine = await _next_owner(served)
    for _ in range(3):
        await served.call(worker, engine)
    states = {name: await served.world.task(name, engine) for name in (running, finished, fresh)}
    assert states[running].state is TaskState.RUNNING
    assert states[finished].state is TaskState.SUCCEEDED
    assert states[fresh].state is TaskState.RUNNING
    assert {task.attempt for task in states.values()} == {1}
    assert [ref.task_id for ref in worker.begun].count(fresh) == 1
    assert worker.kills == []
    for ref in list(worker.running):
        worker.finish(ref, FinishKind.SUCCEEDED)
    for _ in range(2):
        await served.call(worker, engine)
    assert worker.completed == {}
