"""Bad reports on children over a session: each gets its error, and its neighbours nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tenure.core.limits import (
    EXTERNAL_ID_BYTES_MAX,
    GROUP_ITEMS_MAX,
    PAYLOAD_BYTES_MAX,
    SPAWN_CHILDREN_MAX,
    STEP_KEY_BYTES_MAX,
    TEXT_BYTES_MAX,
)
from tenure.engine.engine import Engine
from tenure.v1 import journal_pb2, task_pb2, task_service_pb2
from tests.api.rpc.child_wire import cancel, cancelled, items, made, new_child, new_run, spawn
from tests.api.rpc.run_wire import Given, finished, heard, held_run, start, yielded
from tests.api.rpc.test_bad_run_report import UNKNOWN, fields_of
from tests.api.rpc.wire import Stream, Wire, succeeded
from tests.engine.world import OTHER_NAMESPACE, World

Bad = Callable[[Engine, Given], journal_pb2.SpawnReport]
Refused = tuple[str, Bad, str, dict[str, Any]]
RUN = task_pb2.TASK_KIND_WORKFLOW


def with_fields(**fields: Any) -> Bad:
    return lambda engine, task: spawn(task, new_child(engine), **fields)


def with_child(**fields: Any) -> Bad:
    return lambda engine, task: spawn(task, new_child(engine, **fields))


def with_task(**fields: Any) -> Bad:
    return lambda engine, task: spawn(task, new_child(engine, task=fields))


def with_options(**fields: Any) -> Bad:
    return with_task(options=task_pb2.TaskOptions(**{"start_to_close_ms": 1_000, **fields}))


def with_run_options(**fields: Any) -> Bad:
    options = task_pb2.TaskOptions(kind=RUN, **fields)
    return lambda engine, task: spawn(task, new_run(engine, task={"options": options}))


def invalid(name: str, bad: Bad, field: str) -> Refused:
    return name, bad, "invalid_argument", {"field": field}


BAD: list[Refused] = [
    ("an unknown run", with_fields(task_id=UNKNOWN), "not_found", {}),
    invalid("no run", with_fields(task_id=""), "task_id"),
    invalid("nonsense for a run", with_fields(task_id="run"), "task_id"),
    (
        "a later attempt",
        with_fields(attempt=2),
        "attempt_mismatch",
        {"expected_attempt": 1, "received_attempt": 2},
    ),
    invalid("no attempt", with_fields(attempt=0), "attempt"),
    invalid("a number below zero", with_fields(number=-1), "number"),
    invalid("no children", lambda _, task: spawn(task), "children"),
    (
        "too many children",
        lambda engine, task: spawn(task, *[new_child(engine)] * (SPAWN_CHILDREN_MAX + 1)),
        "payload_too_large",
        {"limit": SPAWN_CHILDREN_MAX},
    ),
    invalid("an id twice", lambda engine, task: spawn(task, *[new_child(engine)] * 2), "task_id"),
    invalid("no id", with_task(task_id=""), "task_id"),
    invalid("nonsense for an id", with_task(task_id="child"), "task_id"),
    invalid("no type", with_task(type=""), "type"),
    invalid("no queue", with_task(task_queue=""), "task_queue"),
    invalid("a priority that there is not", with_task(priority=10), "priority"),
    invalid("a start before time", with_task(run_at_ms=-1), "run_at_ms"),
    invalid("a label of bad form", with_task(labels={"a b": ""}), "labels"),
    invalid("an idempotency key", with_task(idempotency_key="k"), "idempotency_key"),
    (
        "an input too large",
        with_task(input=bytes(PAYLOAD_BYTES_MAX + 1)),
        "payload_too_large",
        {"limit": PAYLOAD_BYTES_MAX},
    ),
    invalid(
        "an activity without a limit",
        with_task(options=task_pb2.TaskOptions()),
        "start_to_close_ms",
    ),
    invalid("a kind that there is not", with_options(kind=99), "options.kind"),
    invalid(
        "a run with start_to_close", with_run_options(start_to_close_ms=1), "start_to_close_ms"
    ),
    invalid(
        "a run with a heartbeat", with_run_options(heartbeat_timeout_ms=9), "heartbeat_timeout_ms"
    ),
    invalid("a key too long", with_child(key="k" * (STEP_KEY_BYTES_MAX + 1)), "key"),
    invalid("an index below zero", with_child(index=-1), "index"),
    invalid("an item below zero", with_child(item=-1), "item"),
    invalid("a close policy that there is not", with_child(close_policy=9), "close_policy"),
    invalid("an activity with an external id", with_child(external_id="order-1"), "external_id"),
    invalid(
        "an external id too long",
        lambda engine, task: spawn(
            task, new_run(engine, external_id="x" * (EXTERNAL_ID_BYTES_MAX + 1))
        ),
        "external_id",
    ),
    invalid(
        "a group key too long",
        lambda engine, task: items(engine, task, 1, group_key="k" * (STEP_KEY_BYTES_MAX + 1)),
        "group_key",
    ),
    invalid(
        "a group of fewer than no items",
        lambda engine, task: items(engine, task, 1, group_total=-1),
        "group_total",
    ),
    invalid(
        "a group too large",
        lambda engine, task: items(engine, task, 1, group_total=GROUP_ITEMS_MAX + 1),
        "group_total",
    ),
    invalid(
        "a group whose items are missing",
        lambda _, task: spawn(task, group_key="map:resize", group_total=5),
        "children",
    ),
    invalid(
        "an item of a group that has none",
        lambda engine, task: items(engine, task, 1, group_total=0),
        "item",
    ),
    invalid(
        "an item beyond the total",
        lambda engine, task: items(engine, task, 3, group_total=2),
        "item",
    ),
    (
        "items behind a gap",
        lambda engine, task: items(engine, task, 2, first=1, group_total=3),
        "out_of_order",
        # From item 0 on, which is what the field has when it is not set.
        {},
    ),
    invalid(
        "an item with a close policy",
        lambda engine, task: spawn(
            task,
            new_child(engine, "", close_policy=journal_pb2.CLOSE_POLICY_ABANDON),
            group_key="map:resize",
            group_total=1,
        ),
        "close_policy",
    ),
]


async def stored(world: World) -> dict[str, list[tuple[Any, ...]]]:
    return await world.dump("tasks", "history", "groups", "journal", "closings")


async def two_runs(wire: Wire, engine: Engine) -> tuple[Stream, Given, Given]:
    """Return a session with two runs."""
    _, stream, task = await held_run(wire, engine)
    await start(engine)
    (other,) = await stream.tasks()
    return stream, task, other


@pytest.mark.parametrize(
    ("bad", "code", "fields"), [case[1:] for case in BAD], ids=[c[0] for c in BAD]
)
async def test_a_bad_report_is_refused_alone(
    wire: Wire, world: World, engine: Engine, bad: Bad, code: str, fields: dict[str, Any]
) -> None:
    stream, task, other = await two_runs(wire, engine)
    refused, good = bad(engine, task), new_child(engine)
    await stream.send(spawns=[refused, spawn(other, good, number=7)])
    acks = (await heard(stream, child_acks=2)).child_acks
    told = {(each.task_id, each.number): each for each in acks}
    assert not told[other.task_id, 7].HasField("error")
    ack = told[refused.task_id, refused.number]
    assert (ack.error.code, fields_of(ack.error)) == (code, fields)
    assert ack.attempt == refused.attempt
    kept = await stored(world)
    assert len(kept["tasks"]) == 3
    assert not kept["groups"]
    assert await wire.state(good.task.task_id) == "PENDING"
    (again,) = await made(stream, spawn(task, new_child(engine)))
    assert not again.HasField("error")


BAD_CANCELS: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    ("an unknown run", {"task_id": UNKNOWN}, "not_found", {}),
    ("nonsense for a run", {"task_id": "run"}, "invalid_argument", {"field": "task_id"}),
    (
        "a later attempt",
        {"attempt": 3},
        "attempt_mismatch",
        {"expected_attempt": 1, "received_attempt": 3},
    ),
    ("a number below zero", {"number": -1}, "invalid_argument", {"field": "number"}),
    ("nobody", {"child_ids": []}, "invalid_argument", {"field": "child_ids"}),
    (
        "a child and a group",
        {"group_key": "map:resize"},
        "invalid_argument",
        {"field": "child_ids"},
    ),
    ("nonsense for a child", {"child_ids": ["x"]}, "invalid_argument", {"field": "child_ids"}),
    (
        "too many children",
        {"child_ids": [UNKNOWN] * (SPAWN_CHILDREN_MAX + 1)},
        "payload_too_large",
        {"limit": SPAWN_CHILDREN_MAX},
    ),
    (
        "a reason too long",
        {"reason": "r" * (TEXT_BYTES_MAX + 1)},
        "invalid_argument",
        {"field": "reason"},
    ),
    (
        "a group key too long",
        {"child_ids": [], "group_key": "k" * (STEP_KEY_BYTES_MAX + 1)},
        "invalid_argument",
        {"field": "group_key"},
    ),
]


@pytest.mark.parametrize(
    ("fields", "code", "told"), [case[1:] for case in BAD_CANCELS], ids=[c[0] for c in BAD_CANCELS]
)
async def test_a_bad_cancel_is_refused_alone(
    wire: Wire,
    world: World,
    engine: Engine,
    fields: dict[str, Any],
    code: str,
    told: dict[str, Any],
) -> None:
    stream, task, other = await two_runs(wire, engine)
    mine, others = new_child(engine), new_child(engine)
    await made(stream, spawn(task, mine), spawn(other, others))
    before = await stored(world)
    bad = journal_pb2.ChildCancel(
        **{
            "task_id": task.task_id,
            "attempt": 1,
            "number": 5,
            "child_ids": [mine.task.task_id],
            **fields,
        }
    )
    await stream.send(child_cancels=[bad, cancel(other, others.task.task_id, number=6)])
    acks = (await heard(stream, child_acks=2)).child_acks
    found = {each.number: each for each in acks}
    assert not found[6].HasField("error")
    assert (found[bad.number].error.code, fields_of(found[bad.number].error)) == (code, told)
    assert await wire.state(mine.task.task_id) == "PENDING"
    assert await wire.state(others.task.task_id) == "CANCELLED"
    assert len((await stored(world))["tasks"]) == len(before["tasks"]) - 1


async def test_children_that_are_not_the_runs_are_passed_over(
    wire: Wire, world: World, engine: Engine
) -> None:
    stream, task, other = await two_runs(wire, engine)
    foreign = new_child(engine)
    await made(stream, spawn(other, foreign))
    (alone,) = await wire.enqueue()
    before = await stored(world)
    acks = await cancelled(
        stream,
        cancel(task, UNKNOWN, foreign.task.task_id, alone, task.task_id),
        cancel(task, group_key="map:nothing", number=3),
    )
    assert [each.HasField("error") for each in acks] == [False, False]
    assert await stored(world) == before


async def test_an_id_of_a_task_that_is_not_the_runs_is_taken(
    wire: Wire, world: World, engine: Engine
) -> None:
    stream, task, other = await two_runs(wire, engine)
    child = new_child(engine)
    await made(stream, spawn(other, child))
    (alone,) = await wire.enqueue()
    before = await stored(world)
    for task_id in (child.task.task_id, alone, task.task_id):
        (ack,) = await made(
            stream, spawn(task, new_child(engine), new_child(engine, task={"task_id": task_id}))
        )
        assert ack.error.code == "already_exists"
        (ack,) = await made(
            stream,
            spawn(
                task,
                new_child(engine, "", task={"task_id": task_id}),
                group_key="map:resize",
                group_total=1,
            ),
        )
        assert ack.error.code == "already_exists"
    assert await stored(world) == before


async def test_a_group_that_is_asked_for_with_another_total_is_another_one(
    wire: Wire, world: World, engine: Engine
) -> None:
    stream, task, _ = await two_runs(wire, engine)
    await made(stream, items(engine, task, 2))
    before = await stored(world)
    (ack,) = await made(stream, items(engine, task, 3))
    assert ack.error.code == "already_exists"
    assert await stored(world) == before


async def test_a_run_of_another_namespace_does_not_exist(
    wire: Wire, world: World, engine: Engine
) -> None:
    _, stream, task = await held_run(wire, engine)
    child = new_child(engine)
    await made(stream, spawn(task, child))
    before = await stored(world)
    worker = await wire.register(namespace_id=OTHER_NAMESPACE)
    answer = await wire.tasks.ReportRuns(
        task_service_pb2.ReportRunsRequest(
            namespace_id=OTHER_NAMESPACE,
            worker_id=worker.worker_id,
            spawns=[spawn(task, new_child(engine))],
            child_cancels=[cancel(task, child.task.task_id)],
        )
    )
    assert [each.error.code for each in answer.child_acks] == ["not_found", "not_found"]
    assert await stored(world) == before


async def test_the_report_of_an_attempt_that_is_over_changes_nothing(
    wire: Wire, world: World, engine: Engine
) -> None:
    stream, task, other = await two_runs(wire, engine)
    child = new_child(engine)
    await made(stream, spawn(task, child))
    await finished(stream, yielded(task))
    await finished(stream, succeeded(other))
    before = await stored(world)
    await stream.send(
        spawns=[spawn(task, new_child(engine)), spawn(other, new_child(engine), number=2)],
        child_cancels=[cancel(task, child.task.task_id, number=3)],
    )
    acks = (await heard(stream, child_acks=3)).child_acks
    told = {each.number: each.error.code for each in acks}
    assert told == {1: "attempt_mismatch", 2: "task_already_terminal", 3: "attempt_mismatch"}
    assert await stored(world) == before


async def test_another_worker_can_neither_make_nor_end_children(
    wire: Wire, world: World, engine: Engine
) -> None:
    _, stream, task = await held_run(wire, engine)
    child = new_child(engine)
    await made(stream, spawn(task, child))
    _, intruder = await wire.session_worker()
    before = await stored(world)
    await intruder.send(
        spawns=[spawn(task, new_child(engine))], child_cancels=[cancel(task, child.task.task_id)]
    )
    acks = (await heard(intruder, child_acks=2)).child_acks
    assert [each.error.code for each in acks] == ["attempt_mismatch"] * 2
    assert await stored(world) == before


async def test_an_activity_makes_no_children(wire: Wire, world: World, engine: Engine) -> None:
    _, stream = await wire.session_worker()
    await wire.enqueue()
    (task,) = await stream.tasks()
    before = await stored(world)
    await stream.send(
        spawns=[spawn(task, new_child(engine))], child_cancels=[cancel(task, UNKNOWN)]
    )
    acks = (await heard(stream, child_acks=2)).child_acks
    assert {each.error.code for each in acks} == {"wrong_state"}
    assert await stored(world) == before
