"""Bad reports on runs, over a session: each gets its typed error, and its neighbours nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tenure.core.limits import (
    PAYLOAD_BYTES_MAX,
    STEP_ENTRIES_MAX,
    STEP_KEY_BYTES_MAX,
    STEP_SITE_BYTES_MAX,
    WAKE_KEY_BYTES_MAX,
)
from tenure.engine.engine import Engine
from tenure.v1 import error_pb2, journal_pb2, task_pb2, task_service_pb2
from tests.api.rpc.run_wire import (
    Given,
    entry,
    finished,
    heard,
    held_run,
    record,
    report,
    start,
    wanted,
    yielded,
)
from tests.api.rpc.wire import Stream, Wire, succeeded
from tests.engine.world import OTHER_NAMESPACE, World

UNKNOWN = "019b0000-0000-7000-8000-00000000dead"
Bad = Callable[[Given], journal_pb2.StepReport]


def with_entry(**fields: Any) -> Bad:
    return lambda task: report(task, entry(**fields))


def with_fields(**fields: Any) -> Bad:
    return lambda task: report(task, **fields)


BAD: list[tuple[str, Bad, str, dict[str, Any]]] = [
    ("an unknown run", with_fields(task_id=UNKNOWN), "not_found", {}),
    ("no id", with_fields(task_id=""), "invalid_argument", {"field": "task_id"}),
    ("nonsense for an id", with_fields(task_id="run"), "invalid_argument", {"field": "task_id"}),
    (
        "a later attempt",
        with_fields(attempt=2),
        "attempt_mismatch",
        {"expected_attempt": 1, "received_attempt": 2},
    ),
    ("no attempt", with_fields(attempt=0), "invalid_argument", {"field": "attempt"}),
    ("a number too high", with_fields(first_no=3), "out_of_order", {"expected_no": 2}),
    ("no number", with_fields(first_no=0), "invalid_argument", {"field": "first_no"}),
    ("a number below zero", with_fields(first_no=-5), "invalid_argument", {"field": "first_no"}),
    (
        "no entry",
        lambda task: journal_pb2.StepReport(task_id=task.task_id, attempt=1, first_no=2),
        "invalid_argument",
        {"field": "entries"},
    ),
    (
        "too many entries",
        lambda task: report(task, *[entry()] * (STEP_ENTRIES_MAX + 1)),
        "invalid_argument",
        {"field": "entries"},
    ),
    *(
        (f"an entry of kind {kind}", with_entry(kind=kind), "invalid_argument", {"field": "kind"})
        for kind in (
            task_pb2.ENTRY_KIND_UNSPECIFIED,
            task_pb2.ENTRY_KIND_CHILD,
            task_pb2.ENTRY_KIND_SIGNAL,
            task_pb2.ENTRY_KIND_CANCEL,
            task_pb2.ENTRY_KIND_GROUP,
            99,
        )
    ),
    (
        "a key too long",
        with_entry(key="k" * (STEP_KEY_BYTES_MAX + 1)),
        "invalid_argument",
        {"field": "key"},
    ),
    (
        "a place too long",
        with_entry(site="s" * (STEP_SITE_BYTES_MAX + 1)),
        "invalid_argument",
        {"field": "site"},
    ),
    (
        "an output too large",
        with_entry(output=bytes(PAYLOAD_BYTES_MAX + 1)),
        "payload_too_large",
        {"limit": PAYLOAD_BYTES_MAX},
    ),
    (
        "an output and details too large together",
        with_entry(
            output=bytes(PAYLOAD_BYTES_MAX // 2 + 1),
            error=task_pb2.TaskError(details=bytes(PAYLOAD_BYTES_MAX // 2)),
        ),
        "payload_too_large",
        {"limit": PAYLOAD_BYTES_MAX},
    ),
    ("a strange encoding", with_entry(encoding="a b"), "invalid_argument", {"field": "encoding"}),
    ("an index below zero", with_entry(index=-1), "invalid_argument", {"field": "index"}),
    ("attempts below zero", with_entry(attempts=-1), "invalid_argument", {"field": "attempts"}),
    (
        "a start before time",
        with_entry(started_at_ms=-1),
        "invalid_argument",
        {"field": "started_at_ms"},
    ),
    ("a negative span", with_entry(took_ms=-1), "invalid_argument", {"field": "took_ms"}),
    (
        "an error of no category",
        with_entry(error=task_pb2.TaskError(category=99)),  # type: ignore[arg-type]  # a number that nobody knows
        "invalid_argument",
        {"field": "error.category"},
    ),
]


def fields_of(error: error_pb2.ErrorDetail) -> dict[str, Any]:
    """Return what an error carries besides code and message."""
    found = {field.name: value for field, value in error.ListFields()}
    assert found.pop("message")
    found.pop("code")
    return found


async def journals(world: World) -> list[tuple[Any, ...]]:
    return (await world.dump("journal"))["journal"]


async def two_runs(wire: Wire, engine: Engine) -> tuple[Stream, Given, Given]:
    """Return a session with two runs, each with one step."""
    _, stream, task = await held_run(wire, engine)
    await start(engine)
    (other,) = await stream.tasks()
    await record(stream, report(task), report(other))
    return stream, task, other


@pytest.mark.parametrize(
    ("bad", "code", "fields"), [case[1:] for case in BAD], ids=[c[0] for c in BAD]
)
async def test_a_bad_report_is_refused_alone(
    wire: Wire, world: World, engine: Engine, bad: Bad, code: str, fields: dict[str, Any]
) -> None:
    stream, task, other = await two_runs(wire, engine)
    before = await journals(world)
    refused = bad(task)
    if refused.first_no == 1:
        refused.first_no = 2
    await stream.send(steps=[refused, report(other, first_no=2)])
    told = {ack.task_id: ack for ack in (await heard(stream, step_acks=2)).step_acks}
    assert (told[other.task_id].no, told[other.task_id].pos) == (2, 2)
    ack = told[refused.task_id]
    assert (ack.error.code, fields_of(ack.error)) == (code, fields)
    assert (ack.attempt, ack.no, ack.pos) == (refused.attempt, refused.first_no, 0)
    assert len(await journals(world)) == len(before) + 1
    (good,) = await record(stream, report(task, first_no=2))
    assert good.pos == 2


async def test_a_timer_that_has_not_fired_is_too_early(wire: Wire, engine: Engine) -> None:
    stream, task, _ = await two_runs(wire, engine)
    early = entry("sleep", kind=task_pb2.ENTRY_KIND_TIMER, output=None)
    early.fire_at_ms = engine.clock.now_ms() + 700
    (ack,) = await record(stream, report(task, early, first_no=2))
    assert (ack.error.code, ack.error.retry_after_ms) == ("too_early", 700)


async def test_a_run_of_another_namespace_does_not_exist(
    wire: Wire, world: World, engine: Engine
) -> None:
    _, stream, task = await held_run(wire, engine)
    made = await wire.register(namespace_id=OTHER_NAMESPACE)
    request = task_service_pb2.ReportRunsRequest(
        namespace_id=OTHER_NAMESPACE,
        worker_id=made.worker_id,
        steps=[report(task)],
        journal=[wanted(task)],
    )
    answer = await wire.tasks.ReportRuns(request)
    assert answer.step_acks[0].error.code == answer.pages[0].error.code == "not_found"
    assert await journals(world) == []
    (ack,) = await record(stream, report(task))
    assert ack.pos == 1


async def test_the_report_of_an_attempt_that_is_over_changes_nothing(
    wire: Wire, world: World, engine: Engine
) -> None:
    stream, task, other = await two_runs(wire, engine)
    await finished(stream, yielded(task, seen=1))
    await finished(stream, succeeded(other))
    before = await journals(world)
    await stream.send(
        steps=[report(task, first_no=2), report(other, first_no=2)],
        journal=[wanted(task), wanted(other)],
    )
    told = await heard(stream, step_acks=2, pages=2)
    codes = ["attempt_mismatch", "task_already_terminal"]
    assert [each.error.code for each in told.step_acks] == codes
    assert [each.error.code for each in told.pages] == codes
    assert await journals(world) == before


async def test_another_worker_can_neither_write_nor_read(
    wire: Wire, world: World, engine: Engine
) -> None:
    _, _, task = await held_run(wire, engine, "secret")
    before = await journals(world)
    _, intruder = await wire.session_worker()
    await intruder.send(steps=[report(task)], journal=[wanted(task)], finished=[yielded(task)])
    told = await heard(intruder, step_acks=1, pages=1, acks=1)
    assert told.step_acks[0].error.code == "attempt_mismatch"
    assert (told.pages[0].error.code, len(told.pages[0].entries)) == ("attempt_mismatch", 0)
    assert told.acks[0].error.code == "attempt_mismatch"
    assert await journals(world) == before


async def test_an_activity_has_no_steps_and_does_not_yield(
    wire: Wire, world: World, engine: Engine
) -> None:
    del engine
    _, stream = await wire.session_worker()
    await wire.enqueue()
    (task,) = await stream.tasks()
    await stream.send(steps=[report(task)], journal=[wanted(task)], finished=[yielded(task)])
    told = await heard(stream, step_acks=1, pages=1, acks=1)
    assert told.step_acks[0].error.code == "wrong_state"
    assert told.pages[0].error.code == "not_found"
    assert told.acks[0].error.code == "wrong_state"
    assert await journals(world) == []
    assert await wire.state(task.task_id) == "DISPATCHED"


@pytest.mark.parametrize(
    ("fields", "field"),
    [({"task_id": "run"}, "task_id"), ({"attempt": 0}, "attempt"), ({"after": -1}, "after")],
)
async def test_a_bad_request_for_a_page_is_refused_alone(
    wire: Wire, engine: Engine, fields: dict[str, Any], field: str
) -> None:
    stream, task, _ = await two_runs(wire, engine)
    await stream.send(journal=[wanted(task, **fields), wanted(task)])
    bad, good = (await heard(stream, pages=2)).pages
    assert (bad.error.code, bad.error.field) == ("invalid_argument", field)
    assert (good.HasField("error"), len(good.entries)) == (False, 1)


async def test_a_full_journal_says_so(
    wire: Wire, world: World, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, task, other = await two_runs(wire, engine)
    monkeypatch.setattr("tenure.core.journal.room.JOURNAL_ENTRIES_MAX", 2)
    await stream.send(steps=[report(task, entry(), entry(), first_no=2), report(other, first_no=2)])
    told = {each.task_id: each for each in (await heard(stream, step_acks=2)).step_acks}
    assert told[task.task_id].error.code == "journal_full"
    assert told[other.task_id].pos == 2
    assert len(await journals(world)) == 3


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"seen": -1}, "seen"),
        ({"wake_at_ms": -1}, "wake_at_ms"),
        ({"wake_key": "k" * (WAKE_KEY_BYTES_MAX + 1)}, "wake_key"),
        ({"patience_n": -1}, "patience_n"),
        ({"patience_ms": -1}, "patience_ms"),
        ({"waits": [task_pb2.Wait(kind="signal")] * 21}, "waits"),
        ({"wait_count": -1}, "wait_count"),
    ],
)
async def test_a_bad_yield_is_refused_and_the_run_stays(
    wire: Wire, engine: Engine, fields: dict[str, Any], field: str
) -> None:
    stream, task, other = await two_runs(wire, engine)
    await stream.send(finished=[yielded(task, **fields), yielded(other, seen=1)])
    told = {each.task_id: each for each in (await heard(stream, acks=2)).acks}
    assert (told[task.task_id].error.code, told[task.task_id].error.field) == (
        "invalid_argument",
        field,
    )
    assert not told[other.task_id].HasField("error")
    assert await wire.state(task.task_id) == "RUNNING"
