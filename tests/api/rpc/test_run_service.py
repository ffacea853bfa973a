"""Runs over gRPC: start, show, list, signal, change, and their journals."""

from __future__ import annotations

from typing import Any, Final, cast

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from tenure.core.limits import SIGNAL_BYTES_MAX
from tenure.core.run.record import Wait
from tenure.engine.engine import Engine
from tenure.engine.task.command import FinishKind, HeartbeatTasks, PauseTask, TaskBeat
from tenure.v1 import task_pb2
from tenure.v1 import task_service_pb2 as task_pb
from tenure.v1 import workflow_service_pb2 as pb
from tests.api.rpc.wire import Wire, open_wire, refused
from tests.engine.run.children import items, new_run, parent_of, spawn, spawn_children, spawn_report
from tests.engine.run.runs import give_up_slot, positions, report, running_run, step
from tests.engine.world import FATAL, NAMESPACE, OTHER_NAMESPACE, QUEUE, World

UNKNOWN: Final = "019b0000-0000-7000-8000-00000000dead"


async def start(wire: Wire, **fields: Any) -> pb.StartWorkflowResponse:
    made = pb.StartWorkflowRequest(
        **{"namespace_id": NAMESPACE, "workflow_type": "order", "task_queue": QUEUE, **fields}
    )
    return cast("pb.StartWorkflowResponse", await wire.workflows.StartWorkflow(made))


async def get(wire: Wire, run_id: str) -> pb.WorkflowRun:
    request = pb.GetWorkflowRunRequest(namespace_id=NAMESPACE, run_id=run_id)
    return cast("pb.WorkflowRun", (await wire.workflows.GetWorkflowRun(request)).run)


async def listed(wire: Wire, **fields: Any) -> pb.ListWorkflowRunsResponse:
    request = pb.ListWorkflowRunsRequest(**{"namespace_id": NAMESPACE, **fields})
    return cast("pb.ListWorkflowRunsResponse", await wire.workflows.ListWorkflowRuns(request))


async def signal(wire: Wire, run_id: str, name: str = "approve", **fields: Any) -> bool:
    made = pb.NewSignal(name=name, **fields)
    request = pb.SignalWorkflowRunRequest(namespace_id=NAMESPACE, run_id=run_id, signal=made)
    return bool((await wire.workflows.SignalWorkflowRun(request)).is_new)


async def journal(wire: Wire, run_id: str, after: int = 0) -> task_pb2.JournalPage:
    request = pb.GetJournalRequest(namespace_id=NAMESPACE, run_id=run_id, after=after)
    return cast("task_pb2.JournalPage", (await wire.workflows.GetJournal(request)).page)


def name_of(status: pb.WorkflowStatus.ValueType) -> str:
    return pb.WorkflowStatus.Name(status).removeprefix("WORKFLOW_STATUS_")


def instant(ms: int) -> Timestamp:
    return Timestamp(seconds=ms // 1_000, nanos=ms % 1_000 * 1_000_000)


async def test_a_started_run_is_shown_with_everything_that_was_asked_for(
    wire: Wire, world: World
) -> None:
    run_at_ms = world.clock.now_ms() + 5_000
    answer = await start(
        wire,
        run_id=world.clock.new_id(),
        input=b"[1]",
        idempotency_key="k",
        options=task_pb2.TaskOptions(schedule_to_close_ms=60_000, encoding="json"),
        labels={"team": "a"},
        priority=2,
        run_at=instant(run_at_ms),
        signals=[pb.NewSignal(name="go", payload=b"1", encoding="json", sender="me")],
    )
    assert (answer.already_exists, name_of(answer.status)) == (False, "PENDING")
    run = await get(wire, answer.run_id)
    assert (run.workflow_type, run.task_queue, run.input) == ("order", QUEUE, b"[1]")
    assert (dict(run.labels), run.priority, run.idempotency_key) == ({"team": "a"}, 2, "k")
    assert run.run_at.ToMilliseconds() == run_at_ms
    assert run.created_at.ToMilliseconds() == world.clock.now_ms()
    assert run.options.kind == task_pb2.TASK_KIND_WORKFLOW
    assert (run.options.schedule_to_close_ms, run.options.retry.maximum_attempts) == (60_000, 1)
    assert (run.entry_count, run.journal_bytes > 0) == (1, True)
    (entry,) = (await journal(wire, answer.run_id)).entries
    assert (entry.pos, entry.content.kind) == (1, task_pb2.ENTRY_KIND_SIGNAL)
    assert (entry.content.key, entry.content.output, entry.sender) == ("go", b"1", "me")


async def test_the_same_idempotency_key_returns_the_same_run(wire: Wire, world: World) -> None:
    first = await start(wire, idempotency_key="k", input=b"1")
    again = await start(wire, idempotency_key="k", input=b"1")
    assert (again.run_id, again.already_exists) == (first.run_id, True)
    before = await world.dump()
    status, refusal = await refused(start(wire, idempotency_key="k", input=b"2"))
    assert (status, refusal.code) == ("ALREADY_EXISTS", "idempotency_conflict")
    assert refusal.task_id == first.run_id
    assert await world.dump() == before


async def test_a_start_that_is_repeated_tells_the_status_of_the_run(
    wire: Wire, world: World, engine: Engine
) -> None:
    fields = {"workflow_type": "mail", "idempotency_key": "k"}
    first = await start(wire, **fields)
    worker = await world.worker(engine)
    (task,) = await world.claim(engine, worker)
    assert name_of((await start(wire, **fields)).status) == "RUNNING"
    await world.finish(engine, worker, task, FinishKind.PARKED, error=FATAL)
    again = await start(wire, **fields)
    assert (again.run_id, name_of(again.status)) == (first.run_id, "PARKED")


async def test_a_run_begins_anew_only_if_its_client_wants_that(wire: Wire) -> None:
    plain = await get(wire, (await start(wire)).run_id)
    retry = task_pb2.RetryPolicy(maximum_attempts=3, initial_interval_ms=200)
    wanted = await start(wire, options=task_pb2.TaskOptions(retry=retry))
    assert plain.options.retry.maximum_attempts == 1
    run = await get(wire, wanted.run_id)
    assert (run.options.retry.maximum_attempts, run.options.retry.initial_interval_ms) == (3, 200)


@pytest.mark.parametrize(
    ("fields", "code", "field"),
    [
        ({"workflow_type": "bad type"}, "invalid_argument", "workflow_type"),
        ({"task_queue": ""}, "invalid_argument", "task_queue"),
        ({"run_id": "x"}, "invalid_argument", "run_id"),
        ({"priority": 10}, "invalid_argument", "priority"),
        ({"run_at": Timestamp(seconds=-1)}, "invalid_argument", "run_at"),
        ({"labels": {"a b": ""}}, "invalid_argument", "labels"),
        ({"options": {"kind": 1}}, "invalid_argument", "kind"),
        ({"options": {"kind": 99}}, "invalid_argument", "options.kind"),
        ({"options": {"start_to_close_ms": 1}}, "invalid_argument", "start_to_close_ms"),
        ({"options": {"heartbeat_timeout_ms": 9}}, "invalid_argument", "heartbeat_timeout_ms"),
        ({"options": {"schedule_to_close_ms": -1}}, "invalid_argument", "schedule_to_close_ms"),
        ({"signals": [{"name": ""}]}, "invalid_argument", "signal"),
        ({"signals": [{"name": "a"}] * 101}, "payload_too_large", ""),
        ({"signals": [{"name": "a", "payload": bytes(2**18 + 1)}]}, "payload_too_large", ""),
        ({"input": bytes(2 * 2**20 + 1)}, "payload_too_large", ""),
    ],
)
async def test_a_wrong_start_names_its_field_and_changes_nothing(
    wire: Wire, world: World, fields: dict[str, Any], code: str, field: str
) -> None:
    before = await world.dump()
    _, refusal = await refused(start(wire, **fields))
    assert (refusal.code, refusal.field) == (code, field)
    assert await world.dump() == before


async def test_a_waiting_run_shows_what_it_waits_for_and_its_state(
    wire: Wire, world: World, engine: Engine
) -> None:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    beat = TaskBeat(task_id=run.id, attempt=1, details=b'"packing"', percent=30, message="packing")
    await engine.submit(HeartbeatTasks(namespace=NAMESPACE, worker_id=worker, items=(beat,)))
    await positions(engine, worker, report(run, step("charge", took_ms=7)))
    wake_at_ms = world.clock.now_ms() + 60_000
    since_ms = world.clock.now_ms()
    wait = Wait("signal", "approve", since_ms, "for ann", "orders.py:12")
    await give_up_slot(
        world, engine, worker, run, seen=1, wake_at_ms=wake_at_ms, waits=(wait,), wait_count=3
    )
    shown = await get(wire, run.id)
    assert name_of(shown.status) == "WAITING"
    assert shown.wake_up_at.ToMilliseconds() == wake_at_ms
    assert [(each.key, each.since_ms, each.detail, each.site) for each in shown.waits] == [
        ("approve", since_ms, "for ann", "orders.py:12")
    ]
    assert shown.waits[0].kind == "signal"
    assert (shown.wait_count, shown.state_value, shown.progress_percent) == (3, b'"packing"', 30)
    assert (shown.entry_count, shown.progress_message, shown.attempts) == (1, "packing", 1)
    (entry,) = (await journal(wire, run.id)).entries
    assert (entry.content.key, entry.content.took_ms, entry.attempt, entry.no) == (
        "charge",
        7,
        1,
        1,
    )
    listed_run = (await listed(wire)).runs[0]
    assert not listed_run.HasField("state_value")
    assert not listed_run.HasField("entry_count")


async def test_a_parked_run_shows_why_and_is_resumed(
    wire: Wire, world: World, engine: Engine
) -> None:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    await world.finish(engine, worker, run, FinishKind.PARKED, error=FATAL)
    shown = await get(wire, run.id)
    assert (name_of(shown.status), shown.park_error.message) == ("PARKED", FATAL.message)
    assert shown.park_count == 1
    request = pb.ResumeWorkflowRunRequest(namespace_id=NAMESPACE, run_id=run.id)
    assert name_of((await wire.workflows.ResumeWorkflowRun(request)).status) == "PENDING"
    assert not (await get(wire, run.id)).HasField("park_error")
    status, refusal = await refused(wire.workflows.ResumeWorkflowRun(request))
    assert (status, refusal.code, refusal.state) == (
        "FAILED_PRECONDITION",
        "wrong_state",
        "PENDING",
    )


async def test_runs_are_listed_by_filters_and_pages_with_their_number(
    wire: Wire, world: World
) -> None:
    first = (await start(wire, labels={"team": "a"})).run_id
    await world.advance(1_000)
    second = (await start(wire, workflow_type="refund", task_queue="other")).run_id
    await wire.enqueue()
    found = await listed(wire)
    assert [each.run_id for each in found.runs] == [second, first]
    assert (found.total_count, found.is_total_exact, found.next_page_token) == (2, True, "")
    now = instant(world.clock.now_ms())
    for fields, expected in (
        ({"workflow_type": "refund"}, [second]),
        ({"task_queue": QUEUE}, [first]),
        ({"labels": {"team": "a"}}, [first]),
        ({"filter_status": "PENDING"}, [second, first]),
        ({"filter_status": "COMPLETED"}, []),
        ({"created_from": now}, [second]),
        ({"created_to": now}, [first]),
    ):
        answer = await listed(wire, **fields)
        assert [each.run_id for each in answer.runs] == expected, fields
        assert answer.total_count == len(expected)
    page = await listed(wire, page_size=1)
    assert [each.run_id for each in page.runs] == [second]
    rest = await listed(wire, page_size=1, page_token=page.next_page_token)
    assert [each.run_id for each in rest.runs] == [first]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"filter_status": "ASLEEP"}, "filter_status"),
        ({"workflow_type": "a b"}, "workflow_type"),
        ({"task_queue": "a b"}, "task_queue"),
        ({"labels": {"": ""}}, "labels"),
        ({"created_from": Timestamp(seconds=-1)}, "created_from"),
        ({"created_to": Timestamp(seconds=2**60)}, "created_to"),
        ({"page_size": -1}, "page_size"),
        ({"page_token": "x"}, "page_token"),
    ],
)
async def test_a_wrong_filter_names_its_field(
    wire: Wire, fields: dict[str, Any], field: str
) -> None:
    status, refusal = await refused(listed(wire, **fields))
    assert (status, refusal.code, refusal.field) == ("INVALID_ARGUMENT", "invalid_argument", field)


async def test_a_token_of_another_filter_is_refused(wire: Wire) -> None:
    for _ in range(2):
        await start(wire)
    token = (await listed(wire, page_size=1)).next_page_token
    _, refusal = await refused(listed(wire, page_size=1, page_token=token, workflow_type="order"))
    assert (refusal.code, refusal.field) == ("invalid_argument", "page_token")


async def test_a_signal_with_an_id_is_recorded_once(wire: Wire, world: World) -> None:
    run_id = (await start(wire)).run_id
    assert await signal(wire, run_id, payload=b"1", signal_id="s")
    assert not await signal(wire, run_id, payload=b"1", signal_id="s")
    assert await signal(wire, run_id, payload=b"1")
    page = await journal(wire, run_id)
    assert [each.signal_id for each in page.entries] == ["s", ""]
    assert [each.signal_id for each in (await journal(wire, run_id, after=1)).entries] == [""]
    before = await world.dump()
    status, refusal = await refused(signal(wire, run_id, payload=b"2", signal_id="s"))
    assert (status, refusal.code) == ("ALREADY_EXISTS", "idempotency_conflict")
    assert await world.dump() == before


async def test_wrong_signals_are_refused_and_change_nothing(wire: Wire, world: World) -> None:
    run_id = (await start(wire)).run_id
    before = await world.dump()
    for fields, code in (
        ({"name": ""}, "invalid_argument"),
        ({"name": "a b"}, "invalid_argument"),
        ({"signal_id": "a b"}, "invalid_argument"),
        ({"encoding": "a b"}, "invalid_argument"),
        ({"sender": "\0"}, "invalid_argument"),
        ({"payload": bytes(SIGNAL_BYTES_MAX + 1)}, "payload_too_large"),
    ):
        _, refusal = await refused(signal(wire, run_id, **fields))
        assert refusal.code == code, fields
        assert refusal.limit == (SIGNAL_BYTES_MAX if code == "payload_too_large" else 0)
    assert await world.dump() == before


async def test_a_run_is_cancelled_and_a_finished_one_says_so(wire: Wire, world: World) -> None:
    run_id = (await start(wire)).run_id
    request = pb.CancelWorkflowRunRequest(namespace_id=NAMESPACE, run_id=run_id, reason="enough")
    await wire.workflows.CancelWorkflowRun(request)
    run = await get(wire, run_id)
    assert (name_of(run.status), run.cancel_reason) == ("CANCELLED", "enough")
    assert run.finished_at.ToMilliseconds() == world.clock.now_ms()
    before = await world.dump()
    terminate = pb.TerminateWorkflowRunRequest(namespace_id=NAMESPACE, run_id=run_id)
    for call in (
        wire.workflows.CancelWorkflowRun(request),
        wire.workflows.TerminateWorkflowRun(terminate),
        signal(wire, run_id),
    ):
        status, refusal = await refused(call)
        assert (status, refusal.code) == ("FAILED_PRECONDITION", "task_already_terminal")
        assert refusal.state == "CANCELLED"
    assert await world.dump() == before


async def test_a_run_is_terminated_without_its_code(
    wire: Wire, world: World, engine: Engine
) -> None:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    request = pb.TerminateWorkflowRunRequest(namespace_id=NAMESPACE, run_id=run.id)
    answer = await wire.workflows.TerminateWorkflowRun(request)
    assert name_of(answer.status) == "FAILED"
    assert (await get(wire, run.id)).failure_reason == "TERMINATED"


async def test_a_paused_run_is_shown_and_goes_on(wire: Wire, engine: Engine) -> None:
    run_id = (await start(wire)).run_id
    await engine.submit(PauseTask(namespace=NAMESPACE, task_id=run_id))
    assert name_of((await get(wire, run_id)).status) == "PAUSED"
    request = pb.ResumeWorkflowRunRequest(namespace_id=NAMESPACE, run_id=run_id)
    assert name_of((await wire.workflows.ResumeWorkflowRun(request)).status) == "PENDING"


@pytest.mark.parametrize(
    "name",
    [
        "GetWorkflowRun",
        "CancelWorkflowRun",
        "SignalWorkflowRun",
        "ResumeWorkflowRun",
        "TerminateWorkflowRun",
        "GetJournal",
    ],
)
async def test_what_is_no_run_of_this_namespace_is_not_found(
    wire: Wire, world: World, name: str
) -> None:
    run_id = (await start(wire)).run_id
    (task_id,) = await wire.enqueue()
    before = await world.dump()
    messages = set()
    for namespace, wanted in (
        (OTHER_NAMESPACE, run_id),
        (NAMESPACE, UNKNOWN),
        (NAMESPACE, task_id),
    ):
        request = getattr(pb, f"{name}Request")(namespace_id=namespace, run_id=wanted)
        if name == "SignalWorkflowRun":
            request.signal.name = "go"
        status, refusal = await refused(getattr(wire.workflows, name)(request))
        assert (status, refusal.code) == ("NOT_FOUND", "not_found")
        messages.add(refusal.message.replace(wanted, ""))
    assert messages == {"Run  was not found."}
    malformed = getattr(pb, f"{name}Request")(namespace_id=NAMESPACE, run_id="x")
    status, refusal = await refused(getattr(wire.workflows, name)(malformed))
    assert (refusal.code, refusal.field) == ("invalid_argument", "run_id")
    assert await world.dump() == before


async def test_a_journal_is_read_behind_a_position_that_is_no_negative_number(wire: Wire) -> None:
    run_id = (await start(wire)).run_id
    page = await journal(wire, run_id, after=5)
    assert (list(page.entries), page.end) == ([], 0)
    _, refusal = await refused(journal(wire, run_id, after=-1))
    assert (refusal.code, refusal.field) == ("invalid_argument", "after")


async def test_starts_signals_and_reads_have_the_rates_of_tasks(engine: Engine) -> None:
    async with open_wire(engine, enqueues_per_s=1, lists_per_s=1) as wire:
        run_id = (await start(wire)).run_id
        for call in (start(wire), signal(wire, run_id)):
            status, refusal = await refused(call)
            assert (status, refusal.code) == ("RESOURCE_EXHAUSTED", "rate_limited")
        await listed(wire)
        for read in (listed(wire), journal(wire, run_id)):
            assert (await refused(read))[1].code == "rate_limited"


async def test_a_run_is_retried_as_a_new_run_with_an_empty_journal(
    wire: Wire, world: World, engine: Engine
) -> None:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker, input=b"1")
    await positions(engine, worker, report(run))
    await world.finish(engine, worker, run, FinishKind.FAILED, error=FATAL)
    request = task_pb.RetryTaskRequest(namespace_id=NAMESPACE, task_id=run.id)
    made = await get(wire, (await wire.tasks.RetryTask(request)).task_id)
    assert (name_of(made.status), made.input, made.entry_count) == ("PENDING", b"1", 0)
    assert await signal(wire, made.run_id)


async def test_a_run_shows_its_place_its_open_children_and_its_groups(
    wire: Wire, world: World, engine: Engine
) -> None:
    worker = await world.worker(engine)
    root, (child_id,) = await parent_of(world, engine, worker)
    (run_id,) = await spawn_children(engine, worker, root, new_run(world))
    group = {"group_key": "map:resize", "group_index": 3, "group_total": 5}
    await spawn(engine, worker, spawn_report(root, *items(world, 0, 2), **group))
    run = await get(wire, run_id)
    assert (run.parent_id, run.root_run_id, run.step_key) == (root.id, root.id, "child:ship")
    assert (run.open_child_count, len(run.groups)) == (0, 0)
    shown = await get(wire, root.id)
    assert (shown.parent_id, shown.root_run_id, shown.step_key) == ("", "", "")
    assert shown.open_child_count == 2
    (progress,) = shown.groups
    assert (progress.key, progress.index, progress.type) == ("map:resize", 3, "resize")
    assert (progress.total, progress.spawned, progress.open_count) == (5, 2, 2)
    task = await wire.get(child_id)
    assert (task.run_id, task.parent_id, task.root_run_id) == (root.id, root.id, root.id)
    assert task.step_key == "resize#0"
    # Lists do not count.
    for each in (await listed(wire)).runs:
        assert not each.HasField("open_child_count")
        assert not each.groups
    page = await journal(wire, root.id)
    assert sorted(each.task_id for each in page.open) == sorted([child_id, run_id])
    assert list(page.groups) == [progress]


async def test_clients_read_the_results_of_groups_and_what_is_open_by_pages(
    wire: Wire, world: World, engine: Engine
) -> None:
    worker = await world.worker(engine)
    run, (first_id, second_id) = await parent_of(world, engine, worker, count=2)
    made = items(world, 0, 2)
    group = {"group_key": "map:resize", "group_total": 2}
    await spawn(engine, worker, spawn_report(run, *made, **group))
    request = task_pb.CancelTaskRequest(namespace_id=NAMESPACE, task_id=made[1].new.id)
    await wire.tasks.CancelTask(request)

    async def read(**fields: Any) -> task_pb2.JournalPage:
        asked = pb.GetJournalRequest(**{"namespace_id": NAMESPACE, "run_id": run.id, **fields})
        return cast("task_pb2.JournalPage", (await wire.workflows.GetJournal(asked)).page)

    results = await read(group_key="map:resize")
    assert (results.group_key, results.end) == ("map:resize", 2)
    (end,) = results.entries
    assert (end.pos, end.child.task_id) == (2, made[1].new.id)
    assert not (await read(group_key="map:resize", after=2)).entries
    behind = await read(open_after=min(first_id, second_id))
    assert [each.task_id for each in behind.open] == [max(first_id, second_id)]
    for fields, code, field in (
        ({"group_key": "map:nothing"}, "not_found", ""),
        ({"group_key": "k" * 513}, "invalid_argument", "group_key"),
        ({"open_after": "x"}, "invalid_argument", "open_after"),
        ({"namespace_id": OTHER_NAMESPACE, "group_key": "map:resize"}, "not_found", ""),
    ):
        _, refusal = await refused(read(**fields))
        assert (refusal.code, refusal.field) == (code, field)


async def test_an_id_of_the_user_stands_for_its_run(wire: Wire, engine: Engine) -> None:
    first = await start(wire, external_id="order-42", input=b"1")
    again = await start(wire, external_id="order-42", input=b"2")
    assert (again.run_id, again.already_exists, again.content_differs) == (first.run_id, True, True)
    name = "external:order-42"
    run = await get(wire, name)
    assert (run.run_id, run.external_id) == (first.run_id, "order-42")
    assert await signal(wire, name)
    assert (await journal(wire, name)).end == 1
    assert [each.run_id for each in (await listed(wire, external_id_prefix="order")).runs] == [
        first.run_id
    ]
    assert not (await listed(wire, external_id_prefix="rder")).runs
    paused = PauseTask(namespace=NAMESPACE, task_id=first.run_id)
    await engine.submit(paused)
    resume = pb.ResumeWorkflowRunRequest(namespace_id=NAMESPACE, run_id=name)
    await wire.workflows.ResumeWorkflowRun(resume)
    end = pb.TerminateWorkflowRunRequest(namespace_id=NAMESPACE, run_id=name)
    await wire.workflows.TerminateWorkflowRun(end)
    cancel = pb.CancelWorkflowRunRequest(namespace_id=NAMESPACE, run_id=name)
    known = await start(wire, external_id="order-42", input=b"1", on_finished="RETURN")
    assert (known.run_id, name_of(known.status)) == (first.run_id, "FAILED")
    for call, code in (
        (wire.workflows.CancelWorkflowRun(cancel), "task_already_terminal"),
        (start(wire, external_id="order-42", on_finished="REJECT"), "already_exists"),
        (start(wire, external_id="a", on_live="ALLOW"), "invalid_argument"),
        (get(wire, "external:nobody"), "not_found"),
        (get(wire, "external:"), "invalid_argument"),
    ):
        _, refusal = await refused(call)
        assert refusal.code == code


async def test_a_run_begins_anew_and_is_retried_when_it_has_ended(
    wire: Wire, world: World, engine: Engine
) -> None:
    worker = await world.worker(engine)
    run = await running_run(world, engine, worker)
    await signal(wire, run.id, "kept")
    finish = task_pb2.TaskFinish(
        task_id=run.id,
        attempt=1,
        kind=task_pb2.FINISH_KIND_CONTINUED,
        seen=1,
        keep=[1],
        next_input=b"2",
        next_encoding="json",
    )
    ended = task_pb.FinishTasksRequest(namespace_id=NAMESPACE, worker_id=worker, items=[finish])
    answer = await wire.tasks.FinishTasks(ended)
    assert not answer.results[0].HasField("error")
    (again,) = await world.claim(engine, worker)
    await world.confirm(engine, worker, again)
    shown = await get(wire, run.id)
    assert (shown.generation, shown.input, shown.options.encoding) == (1, b"2", "json")
    assert [each.content.key for each in (await journal(wire, run.id)).entries] == ["kept"]
    await positions(engine, worker, report(again, step("a"), step("b", error=FATAL)))
    await world.finish(engine, worker, again, FinishKind.FAILED, error=FATAL)
    retry = pb.RetryWorkflowRunRequest(namespace_id=NAMESPACE, run_id=run.id, from_step="last")
    made = await wire.workflows.RetryWorkflowRun(retry)
    assert made.kept_entries == 2
    new = await get(wire, made.run_id)
    assert (new.retry_of, new.generation, new.entry_count) == (run.id, 1, 2)
