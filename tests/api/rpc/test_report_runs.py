"""Runs of workers that poll: a page with the task, steps and further pages by one call."""

from __future__ import annotations

from typing import Any, cast

from tenure.core.limits import FRAME_BYTES, JOURNAL_REQUESTS_MAX, POLL_PAGE_BYTES_MAX
from tenure.engine.engine import Engine
from tenure.v1 import task_pb2
from tenure.v1 import task_service_pb2 as pb
from tests.api.rpc.child_wire import cancel, items, new_child, new_run, spawn
from tests.api.rpc.run_wire import entry, keys, report, start, wanted, yielded
from tests.api.rpc.wire import Wire, refused, succeeded
from tests.engine.world import NAMESPACE

UNKNOWN = "019b0000-0000-7000-8000-00000000dead"


async def polled_runs(
    wire: Wire, engine: Engine, *signals: str, count: int = 1
) -> tuple[str, list[task_pb2.AssignedTask]]:
    """Start runs that a worker has polled."""
    worker_id = (await wire.register(max_concurrent=10)).worker_id
    for _ in range(count):
        await start(engine, *signals)
    return worker_id, await wire.poll(worker_id)


async def report_runs(wire: Wire, worker_id: str, **fields: Any) -> pb.ReportRunsResponse:
    request = pb.ReportRunsRequest(namespace_id=NAMESPACE, worker_id=worker_id, **fields)
    return cast("pb.ReportRunsResponse", await wire.tasks.ReportRuns(request))


async def test_a_run_is_polled_with_its_journal(wire: Wire, engine: Engine) -> None:
    _, (task,) = await polled_runs(wire, engine, "approve")
    assert keys(task.journal) == [(1, "approve")]
    assert (task.journal.end, task.begun_at_ms) == (1, engine.clock.now_ms())


async def test_one_call_records_steps_and_reads_what_follows(wire: Wire, engine: Engine) -> None:
    worker_id, (task,) = await polled_runs(wire, engine)
    answer = await report_runs(
        wire, worker_id, steps=[report(task, entry("a"), entry("b"))], journal=[wanted(task, 1)]
    )
    (ack,), (page,) = answer.step_acks, answer.pages
    assert (ack.no, ack.pos, ack.HasField("error")) == (2, 2, False)
    assert (keys(page), page.after, page.end) == ([(2, "b")], 1, 2)


async def test_each_item_is_answered_in_its_order_and_a_bad_one_alone(
    wire: Wire, engine: Engine
) -> None:
    worker_id, (first, second) = await polled_runs(wire, engine, count=2)
    bad = [
        report(first, task_id=UNKNOWN),
        report(first, attempt=7),
        report(first, first_no=0),
        report(first, entry(kind=task_pb2.ENTRY_KIND_SIGNAL), task_id=UNKNOWN, attempt=2),
    ]
    answer = await report_runs(
        wire,
        worker_id,
        steps=[bad[0], report(second), *bad[1:]],
        journal=[wanted(first, task_id="nonsense"), wanted(second), wanted(first, attempt=7)],
    )
    assert [(each.task_id, each.error.code) for each in answer.step_acks] == [
        (UNKNOWN, "not_found"),
        (second.task_id, ""),
        (first.task_id, "attempt_mismatch"),
        (first.task_id, "invalid_argument"),
        (UNKNOWN, "invalid_argument"),
    ]
    assert [each.error.code for each in answer.pages] == [
        "invalid_argument",
        "",
        "attempt_mismatch",
    ]
    assert answer.pages[1].end == 1


async def test_a_run_goes_on_by_polls_alone(wire: Wire, engine: Engine) -> None:
    worker_id, (task,) = await polled_runs(wire, engine)
    await report_runs(wire, worker_id, steps=[report(task)])
    (ended,) = await wire.finish(worker_id, yielded(task, seen=0))
    assert ended.state == task_pb2.TASK_STATE_PENDING
    (again,) = await wire.poll(worker_id)
    assert (again.attempt, keys(again.journal)) == (2, [(1, "charge")])


async def test_a_poll_stays_below_the_limit_of_a_message(wire: Wire, engine: Engine) -> None:
    worker_id, tasks = await polled_runs(wire, engine, count=4)
    large = entry(output=bytes(200_000))
    await report_runs(wire, worker_id, steps=[report(task, large) for task in tasks])
    await wire.finish(worker_id, *(yielded(task, seen=0) for task in tasks))
    again = await wire.poll(worker_id)
    sizes = [sum(len(each.content.output) for each in task.journal.entries) for task in again]
    assert 0 < sum(sizes) <= POLL_PAGE_BYTES_MAX
    assert [task.journal.end for task in again] == [1, 1, 1, 1]
    (without, *_) = [task for task, size in zip(again, sizes, strict=True) if not size]
    (page,) = (await report_runs(wire, worker_id, journal=[wanted(without)])).pages
    assert keys(page) == [(1, "charge")]


async def test_a_call_without_a_worker_or_without_content_is_refused(
    wire: Wire, engine: Engine
) -> None:
    worker_id, (task,) = await polled_runs(wire, engine)
    nobody = pb.ReportRunsRequest(namespace_id=NAMESPACE, steps=[report(task)])
    assert (await refused(wire.tasks.ReportRuns(nobody)))[1].field == "worker_id"
    nothing = pb.ReportRunsRequest(namespace_id=NAMESPACE, worker_id=worker_id)
    assert (await refused(wire.tasks.ReportRuns(nothing)))[1].field == "steps"
    many = [wanted(task)] * (JOURNAL_REQUESTS_MAX + 1)
    much = pb.ReportRunsRequest(namespace_id=NAMESPACE, worker_id=worker_id, journal=many)
    told = (await refused(wire.tasks.ReportRuns(much)))[1]
    assert (told.code, told.limit) == ("payload_too_large", JOURNAL_REQUESTS_MAX)


async def test_a_worker_that_does_not_hold_the_run_gets_nothing(wire: Wire, engine: Engine) -> None:
    _, (task,) = await polled_runs(wire, engine, "secret")
    other = (await wire.register()).worker_id
    answer = await report_runs(wire, other, steps=[report(task)], journal=[wanted(task)])
    assert answer.step_acks[0].error.code == "attempt_mismatch"
    assert answer.pages[0].error.code == "attempt_mismatch"
    assert not answer.pages[0].entries


async def test_children_are_made_and_ended_by_the_same_call(wire: Wire, engine: Engine) -> None:
    worker_id, (task, other) = await polled_runs(wire, engine, count=2)
    first, second = new_child(engine), new_run(engine)
    answer = await report_runs(
        wire,
        worker_id,
        steps=[report(task)],
        spawns=[
            spawn(task, first, number=1),
            spawn(other, number=1),
            items(engine, task, 2, number=2),
            spawn(other, second, number=2),
        ],
        child_cancels=[cancel(task, first.task.task_id, number=3), cancel(other, number=3)],
        journal=[wanted(task), wanted(task, group_key="map:resize"), wanted(other)],
    )
    assert [(each.task_id, each.number, each.error.code) for each in answer.child_acks] == [
        (task.task_id, 1, ""),
        (other.task_id, 1, "invalid_argument"),
        (task.task_id, 2, ""),
        (other.task_id, 2, ""),
        (task.task_id, 3, ""),
        (other.task_id, 3, "invalid_argument"),
    ]
    mine, results, others = answer.pages
    assert [each.content.key for each in mine.entries] == ["charge", "resize"]
    assert mine.entries[1].child.state == task_pb2.TASK_STATE_CANCELLED
    assert [each.key for each in mine.groups] == ["map:resize"]
    assert (results.group_key, results.end, len(results.entries)) == ("map:resize", 2, 0)
    assert [each.task_id for each in others.open] == [second.task.task_id]


async def test_results_of_a_group_for_which_an_answer_has_no_room_are_asked_for_again(
    wire: Wire, engine: Engine
) -> None:
    worker_id, (task,) = await polled_runs(wire, engine)
    await report_runs(wire, worker_id, spawns=[items(engine, task, 1)])
    resizer = (await wire.register("resize")).worker_id
    (child,) = await wire.poll(resizer, supported_workflow_types=["resize"])
    await wire.finish(resizer, succeeded(child, output=bytes(FRAME_BYTES)))
    asked = [wanted(task, group_key="map:resize")] * 2
    first, second = (await report_runs(wire, worker_id, journal=asked)).pages
    # A page without results would say that there are none.
    assert (len(first.entries), first.error.code) == (1, "")
    assert (len(second.entries), second.error.code) == (0, "unavailable")
    assert (second.group_key, second.after) == ("map:resize", 0)


async def test_a_run_hears_of_its_children_by_polls_alone(wire: Wire, engine: Engine) -> None:
    worker_id, (task,) = await polled_runs(wire, engine)
    spawned = spawn(task, new_child(engine))
    await report_runs(wire, worker_id, spawns=[spawned])
    # Its answer was lost: nothing new is made.
    await report_runs(wire, worker_id, spawns=[spawned])
    await wire.finish(worker_id, yielded(task, seen=0))
    resizer = (await wire.register("resize")).worker_id
    (child,) = await wire.poll(resizer, supported_workflow_types=["resize"])
    assert (child.parent_id, child.step_key) == (task.task_id, f"{task.task_id}:0:resize")
    await wire.finish(resizer, succeeded(child, output=b"5"))
    (again,) = await wire.poll(worker_id)
    (end,) = again.journal.entries
    assert (end.child.task_id, end.content.output) == (child.task_id, b"5")
    assert not again.journal.open
