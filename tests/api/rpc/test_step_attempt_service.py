"""The attempts of steps over gRPC: every field, pages, and what is refused."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tenure.core.journal.entry import EntryBody, EntryKind, NewEntry
from tenure.core.task.record import Task
from tenure.engine.engine import Engine
from tenure.engine.task.command import FinishKind
from tenure.v1 import task_pb2
from tenure.v1 import workflow_service_pb2 as pb
from tests.api.rpc.wire import Wire, refused
from tests.engine.run.children import (
    claim_children,
    items,
    new_child,
    resizer,
    spawn,
    spawn_children,
    spawn_report,
)
from tests.engine.run.runs import positions, report, running_run, step
from tests.engine.world import FATAL, FAULT, NAMESPACE, OTHER_NAMESPACE, World

UNKNOWN = "019b0000-0000-7000-8000-00000000dead"


async def listed(wire: Wire, run_id: str, **fields: Any) -> pb.ListStepAttemptsResponse:
    request = pb.ListStepAttemptsRequest(namespace_id=NAMESPACE, run_id=run_id, **fields)
    return cast("pb.ListStepAttemptsResponse", await wire.workflows.ListStepAttempts(request))


async def got(wire: Wire, step_attempt_id: str, namespace: str = NAMESPACE) -> pb.StepAttempt:
    request = pb.GetStepAttemptRequest(namespace_id=namespace, step_attempt_id=step_attempt_id)
    answer = await wire.workflows.GetStepAttempt(request)
    return cast("pb.StepAttempt", answer.step_attempt)


async def stepped_run(world: World, engine: Engine) -> Task:
    """Return a run with a local step that failed first, a queued one that failed, and a map."""
    worker, other = await world.worker(engine), await resizer(world, engine)
    run = await running_run(world, engine, worker)
    now_ms = world.clock.now_ms()
    retry = EntryBody(attempts=1, error=FAULT, started_at_ms=now_ms - 90, next_at_ms=now_ms + 7)
    charged = {"attempts": 2, "started_at_ms": now_ms - 5, "site": "orders.py:3"}
    await positions(
        engine,
        worker,
        report(run, NewEntry(EntryKind.RETRY, "1/charge", retry), step("1/charge", **charged)),
    )
    child = new_child(world, "resize", new={"input": b'"cat.png"'})
    await spawn_children(engine, worker, run, child)
    (task,) = await claim_children(world, engine, other)
    await world.finish(engine, other, task, FinishKind.FAILED, error=FATAL)
    in_group: Any = {"number": 2, "group_key": "map:thumb", "group_index": 3, "group_total": 9}
    group = items(world, 0, 2, new={"type": "nobody"})
    assert await spawn(engine, worker, spawn_report(run, *group, **in_group)) == (None,)
    return run


async def test_attempts_have_every_field(wire: Wire, world: World, engine: Engine) -> None:
    run = await stepped_run(world, engine)
    now_ms = world.clock.now_ms()
    first, second, queued, mapped = (await listed(wire, run.id)).step_attempts
    assert {each.run_id for each in (first, second, queued, mapped)} == {run.id}
    assert [first.step_attempt_id, second.step_attempt_id] == [f"{run.id}.0.1", f"{run.id}.0.2"]
    assert (first.step_id, first.attempt_number, first.status) == ("1/charge", 1, "FAILED")
    assert (first.error.message, first.kind) == (FAULT.message, "LOCAL")
    assert first.started_at.ToMilliseconds() == now_ms - 90
    assert first.retry_at.ToMilliseconds() == now_ms + 7
    assert (second.attempt_number, second.status, second.output) == (2, "COMPLETED", b"12")
    assert (second.output_encoding, second.site) == ("json", "orders.py:3")
    assert second.finished_at.ToMilliseconds() == now_ms
    assert (queued.step_attempt_id, queued.kind) == (f"{run.id}.0.3.1", "CHILD")
    assert (queued.status, queued.error.type, queued.input) == ("FAILED", FATAL.type, b"")
    assert queued.started_at.ToMilliseconds() == now_ms
    assert (mapped.kind, mapped.status, mapped.items.total) == ("MAP", "RUNNING", 9)
    assert (mapped.items.succeeded, mapped.items.failed, mapped.items.cancelled) == (0, 0, 0)
    assert not mapped.HasField("started_at")
    for each in (first, second, mapped):
        assert await got(wire, each.step_attempt_id) == each
        assert not each.HasField("items") or each is mapped
    whole = await got(wire, queued.step_attempt_id)
    assert whole.input == b'"cat.png"'
    task = await wire.get(queued.task_id)
    assert (task.state, task.parent_id) == (task_pb2.TASK_STATE_FAILED, run.id)


async def test_steps_come_in_pages_and_by_key(wire: Wire, world: World, engine: Engine) -> None:
    run = await stepped_run(world, engine)
    whole = await listed(wire, run.id)
    assert (len(whole.step_attempts), whole.next_page_token) == (4, "")
    found: list[pb.StepAttempt] = []
    token = ""
    for _ in range(4):
        page = await listed(wire, run.id, page_size=1, page_token=token)
        found += page.step_attempts
        token = page.next_page_token
    assert (found, token) == (list(whole.step_attempts), "")
    charge = await listed(wire, run.id, step_id="1/charge")
    assert [each.attempt_number for each in charge.step_attempts] == [1, 2]
    external = await refused(listed(wire, "external:nobody"))
    assert (external[0], external[1].code) == ("NOT_FOUND", "not_found")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"run_id": "x"}, "run_id"),
        ({"step_id": "x" * 513}, "step_id"),
        ({"page_size": -1}, "page_size"),
        ({"page_token": "x"}, "page_token"),
        ({"namespace_id": "a b"}, "namespace_id"),
    ],
)
async def test_a_bad_request_names_its_field(
    wire: Wire, world: World, engine: Engine, fields: dict[str, Any], field: str
) -> None:
    run = await stepped_run(world, engine)
    request = pb.ListStepAttemptsRequest(**{"namespace_id": NAMESPACE, "run_id": run.id, **fields})
    status, refusal = await refused(wire.workflows.ListStepAttempts(request))
    assert (status, refusal.code, refusal.field) == ("INVALID_ARGUMENT", "invalid_argument", field)


async def test_what_is_no_attempt_is_refused(wire: Wire, world: World, engine: Engine) -> None:
    run = await stepped_run(world, engine)
    before = await world.dump()
    for bad in ("", "x", run.id, f"{run.id}.0", f"{run.id}.0.x"):
        status, refusal = await refused(got(wire, bad))
        assert (status, refusal.field) == ("INVALID_ARGUMENT", "step_attempt_id"), bad
    for absent, namespace in (
        (f"{run.id}.0.9", NAMESPACE),
        (f"{run.id}.1.1", NAMESPACE),
        (f"{UNKNOWN}.0.1", NAMESPACE),
        (f"{run.id}.0.1", OTHER_NAMESPACE),
    ):
        status, refusal = await refused(got(wire, absent, namespace))
        assert (status, refusal.code) == ("NOT_FOUND", "not_found")
        assert refusal.message == f"Step attempt {absent} was not found."
    status, refusal = await refused(listed(wire, UNKNOWN))
    assert (status, refusal.message) == ("NOT_FOUND", f"Run {UNKNOWN} was not found.")
    assert await world.dump() == before
