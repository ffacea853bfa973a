"""Children of runs over a session: they are made, they end, and their run hears of it."""

from __future__ import annotations

from tenure.core.limits import (
    FRAME_BYTES,
    JOURNAL_PAGE_BYTES_MAX,
    OPEN_PAGE_MAX,
    STEP_KEY_BYTES_MAX,
)
from tenure.engine.engine import Engine
from tenure.v1 import journal_pb2, task_pb2, task_service_pb2, worker_pb2
from tests.api.rpc.child_wire import cancel, cancelled, items, made, new_child, new_run, spawn
from tests.api.rpc.run_wire import (
    Given,
    entry,
    finished,
    heard,
    held_run,
    page,
    record,
    report,
    signal,
    wanted,
    yielded,
)
from tests.api.rpc.wire import Stream, Wire, ref, succeeded
from tests.engine.world import NAMESPACE

NOBODY = "00000000-0000-0000-0000-000000000000"


async def resizer(wire: Wire, count: int) -> tuple[Stream, list[Given]]:
    """Open the session of a worker that gets so many children."""
    session = worker_pb2.WORKER_MODE_SESSION
    worker = await wire.register("resize", "ship", mode=session, max_concurrent=100)
    stream = await wire.open_session(worker.worker_id, session_no=1, window=100)
    return stream, list((await heard(stream, tasks=count)).tasks)


async def test_children_are_made_and_their_ends_come_to_their_run(
    wire: Wire, engine: Engine
) -> None:
    _, stream, task = await held_run(wire, engine)
    activity, run = (
        new_child(engine, "1/resize", index=3),
        new_run(engine, index=4, external_id="s-1"),
    )
    (ack,) = await made(stream, spawn(task, activity, run, number=9))
    assert (ack.task_id, ack.attempt, ack.number) == (task.task_id, 1, 9)
    assert not ack.HasField("error")
    other, children = await resizer(wire, 2)
    by_type = {each.type: each for each in children}
    resize, ship = by_type["resize"], by_type["ship"]
    assert (resize.run_id, resize.parent_id) == (task.task_id, task.task_id)
    assert resize.step_key == f"{task.task_id}:0:1/resize"
    assert (ship.external_id, ship.first_run_id, resize.external_id) == ("s-1", "", "")
    assert (ship.run_id, ship.step_key, ship.kind) == (
        task.task_id,
        "",
        task_pb2.TASK_KIND_WORKFLOW,
    )
    await other.send(finished=[succeeded(resize, output=b"[1]")])
    (told,) = (await heard(stream, pages=1)).pages
    (end,) = told.entries
    assert (end.pos, end.content.kind, end.content.key) == (
        1,
        task_pb2.ENTRY_KIND_CHILD,
        "1/resize",
    )
    assert (end.content.index, end.content.output) == (3, b"[1]")
    assert end.child == task_pb2.ChildEnd(
        task_id=activity.task.task_id, type="resize", state=task_pb2.TASK_STATE_SUCCEEDED
    )
    fault = task_pb2.TaskError(message="no ship", type="ShipError")
    failed = task_pb2.TaskFinish(
        task_id=ship.task_id, attempt=1, kind=task_pb2.FINISH_KIND_FAILED, error=fault
    )
    await other.send(finished=[failed])
    (told,) = (await heard(stream, pages=1)).pages
    (end,) = told.entries
    assert (end.pos, end.content.key, end.content.error.type) == (2, "child:ship", "ShipError")
    assert (end.child.state, end.child.task_id) == (task_pb2.TASK_STATE_FAILED, run.task.task_id)


async def test_a_frame_is_handled_in_its_order(wire: Wire, engine: Engine) -> None:
    _, stream, task = await held_run(wire, engine)
    child = new_child(engine)
    await stream.send(
        finished=[yielded(task, seen=1)],
        child_cancels=[cancel(task, child.task.task_id)],
        spawns=[spawn(task, child)],
        steps=[report(task)],
    )
    told = await heard(stream, acks=1, step_acks=1, child_acks=2)
    assert [each.number for each in told.child_acks] == [1, 2]
    assert not any(each.HasField("error") for each in told.child_acks)
    assert told.step_acks[0].pos == 1
    # The end of the child woke it.
    (again,) = (await heard(stream, tasks=1)).tasks if not told.tasks else told.tasks
    assert (again.attempt, again.journal.after) == (2, 1)
    assert again.journal.entries[0].child.state == task_pb2.TASK_STATE_CANCELLED


async def test_the_same_report_on_a_new_session_makes_nothing_new(
    wire: Wire, engine: Engine
) -> None:
    worker_id, stream, task = await held_run(wire, engine)
    spawned = spawn(task, new_child(engine), new_run(engine))
    await stream.send(spawns=[spawned])
    stream.call.cancel()
    again = await wire.open_session(worker_id, session_no=2, held=[ref(task)])
    (ack,) = await made(again, spawned)
    assert (ack.number, ack.HasField("error")) == (1, False)
    found = await page(again, wanted(task))
    assert {each.task_id for each in found.open} == {each.task.task_id for each in spawned.children}


async def test_a_run_that_comes_back_cold_gets_what_is_open_and_a_warm_one_does_not(
    wire: Wire, engine: Engine
) -> None:
    worker_id, stream, task = await held_run(wire, engine)
    assert not task.journal.open
    child = new_child(engine, index=1)
    await made(stream, spawn(task, child), items(engine, task, 3, group_total=5, number=2))
    await record(stream, report(task))
    await finished(stream, yielded(task, seen=1))
    await signal(engine, task.task_id)
    (warm,) = await stream.tasks()
    assert (warm.journal.after, len(warm.journal.open), len(warm.journal.groups)) == (1, 0, 0)
    kind = task_pb2.FINISH_KIND_RELEASED
    released = task_pb2.TaskFinish(task_id=task.task_id, attempt=2, kind=kind)
    # Without a window, so that it is not the one that gets the run again.
    await stream.send(finished=[released], window=0)
    stream.call.cancel()
    _, other = await wire.session_worker()
    (cold,) = await other.tasks()
    del worker_id
    assert cold.journal.after == 0
    assert [(each.task_id, each.key, each.index, each.type) for each in cold.journal.open] == [
        (child.task.task_id, "resize", 1, "resize")
    ]
    (group,) = cold.journal.groups
    assert (group.key, group.index, group.type) == ("map:resize", 2, "resize")
    assert (group.total, group.spawned, group.open_count, group.failed) == (5, 3, 3, 0)
    assert not cold.journal.open_next


async def test_results_of_a_group_come_in_pages(wire: Wire, engine: Engine) -> None:
    _, stream, task = await held_run(wire, engine)
    await made(stream, items(engine, task, 3))
    other, children = await resizer(wire, 3)
    keys = {each.step_key: each for each in children}
    of_item = [keys[f"{task.task_id}:0:map:resize:{item}"] for item in range(3)]
    await other.send(finished=[succeeded(of_item[2], output=b"2")])
    await other.send(finished=[succeeded(of_item[0], output=b"0")])
    await heard(other, acks=2)
    some = await page(stream, wanted(task, group_key="map:resize"))
    assert (some.group_key, some.end, some.after) == ("map:resize", 3, 0)
    assert [(each.pos, each.content.key, each.content.output) for each in some.entries] == [
        (1, "0", b"0"),
        (3, "2", b"2"),
    ]
    await other.send(finished=[succeeded(of_item[1], output=b"1")])
    (told,) = (await heard(stream, pages=1)).pages
    (end,) = told.entries
    assert (end.content.kind, end.content.key) == (task_pb2.ENTRY_KIND_GROUP, "map:resize")
    assert (end.group.total, end.group.succeeded, end.group.failed) == (3, 3, 0)
    rest = await page(stream, wanted(task, after=1, group_key="map:resize"))
    assert [each.pos for each in rest.entries] == [2, 3]


async def test_large_results_of_a_group_stay_below_the_limit_of_a_frame(
    wire: Wire, engine: Engine
) -> None:
    _, stream, task = await held_run(wire, engine)
    await made(stream, items(engine, task, 6))
    other, children = await resizer(wire, 6)
    for each in children:
        await other.send(finished=[succeeded(each, output=bytes(200_000))])
    await heard(other, acks=6)
    got: list[int] = []
    while len(got) < 6:
        after = got[-1] if got else 0
        # The pages that are told unasked have no group.
        answers = [wanted(task, after=after, group_key="map:resize")] * 3
        await stream.send(journal=answers)
        pages: list[task_pb2.JournalPage] = []
        while len(pages) < 3:
            frame = await stream.read()
            assert frame.ByteSize() < 2 * FRAME_BYTES
            pages += [each for each in frame.pages if each.group_key]
        assert len({each.SerializeToString() for each in pages}) == 1
        got += [each.pos for each in pages[0].entries]
    assert got == [1, 2, 3, 4, 5, 6]


async def test_many_open_children_come_in_pages(wire: Wire, engine: Engine) -> None:
    _, stream, task = await held_run(wire, engine)
    count = OPEN_PAGE_MAX + 5
    children = [new_child(engine, f"resize#{number}") for number in range(count)]
    await made(
        stream,
        spawn(task, *children[:1_000]),
        spawn(task, *children[1_000:], number=2),
        items(engine, task, 2, number=3),
    )
    first = await page(stream, wanted(task))
    ids = sorted(each.task.task_id for each in children)
    assert (first.after, first.end, first.open_next) == (0, 0, ids[OPEN_PAGE_MAX - 1])
    assert [each.key for each in first.groups] == ["map:resize"]
    rest = await page(stream, wanted(task, open_after=first.open_next))
    assert [each.task_id for each in (*first.open, *rest.open)] == ids
    assert (rest.open_next, len(rest.groups), len(rest.entries)) == ("", 0, 0)


async def test_open_children_with_long_keys_stay_below_the_size_of_a_page(
    wire: Wire, engine: Engine
) -> None:
    _, stream, task = await held_run(wire, engine)
    children = [
        new_child(engine, f"{number:04}".ljust(STEP_KEY_BYTES_MAX, "k")) for number in range(1_000)
    ]
    await made(stream, spawn(task, *children))
    await record(stream, report(task, entry(output=bytes(900_000))))
    found: list[str] = []
    behind = NOBODY
    while behind:
        told = await page(stream, wanted(task, open_after=behind))
        assert told.ByteSize() < FRAME_BYTES
        found += [each.task_id for each in told.open]
        behind = told.open_next
    assert found == sorted(each.task.task_id for each in children)


async def test_a_page_is_refused_whoever_asks_wrongly(wire: Wire, engine: Engine) -> None:
    _, stream, task = await held_run(wire, engine)
    await made(stream, items(engine, task, 1))
    bad = [
        wanted(task, group_key="map:nothing"),
        wanted(task, group_key="k" * (STEP_KEY_BYTES_MAX + 1)),
        wanted(task, open_after="x"),
        wanted(task, group_key="map:resize", attempt=2),
    ]
    await stream.send(journal=[*bad, wanted(task, group_key="map:resize")])
    *refused, good = (await heard(stream, pages=5)).pages
    assert [(each.error.code, each.error.field) for each in refused] == [
        ("not_found", ""),
        ("invalid_argument", "group_key"),
        ("invalid_argument", "open_after"),
        ("attempt_mismatch", ""),
    ]
    assert [each.group_key for each in refused[:2]] == [each.group_key for each in bad[:2]]
    assert (good.group_key, good.end, good.HasField("error")) == ("map:resize", 1, False)


async def test_children_and_groups_are_cancelled(wire: Wire, engine: Engine) -> None:
    _, stream, task = await held_run(wire, engine)
    child = new_child(engine)
    await made(stream, spawn(task, child), items(engine, task, 2, number=2))
    asked = cancel(task, child.task.task_id, number=3, reason="enough")
    await stream.send(child_cancels=[asked])
    told = await heard(stream, child_acks=1, pages=1)
    assert [each.number for each in told.child_acks] == [3]
    (end,) = told.pages[0].entries
    assert end.child.state == task_pb2.TASK_STATE_CANCELLED
    assert end.content.error.category == task_pb2.ERROR_CATEGORY_CANCELLED
    # Again, and of a child that has ended: it is done.
    (again,) = await cancelled(stream, cancel(task, child.task.task_id, number=4))
    assert not again.HasField("error")
    (ack,) = await cancelled(stream, cancel(task, group_key="map:resize", number=5))
    assert not ack.HasField("error")


async def test_a_child_run_whose_external_id_is_taken_fails_at_once(
    wire: Wire, engine: Engine
) -> None:
    _, stream, task = await held_run(wire, engine)
    first, second = (new_run(engine, key, external_id="ship-7") for key in ("a", "b"))
    acks = await made(stream, spawn(task, first), spawn(task, second, number=2))
    assert not any(each.HasField("error") for each in acks)
    told = await page(stream, wanted(task))
    (end,) = told.entries
    assert (end.content.key, end.child.state) == ("b", task_pb2.TASK_STATE_FAILED)
    assert (end.child.failure_reason, end.child.task_id) == ("already_exists", second.task.task_id)
    assert "ship-7" in end.content.error.message
    assert [each.task_id for each in told.open] == [first.task.task_id]


async def test_answers_about_children_never_wait_for_other_answers(
    wire: Wire, engine: Engine
) -> None:
    _, stream, task = await held_run(wire, engine)
    await stream.send(spawns=[spawn(task, new_child(engine))])
    frame = await stream.read()
    assert frame.child_acks == [
        journal_pb2.ChildAck(task_id=task.task_id, attempt=task.attempt, number=1)
    ]


async def test_what_is_open_with_long_keys_does_not_come_with_the_task_but_on_request(
    wire: Wire, engine: Engine
) -> None:
    _, stream, task = await held_run(wire, engine)
    children = [
        new_child(engine, f"{number:04}".ljust(STEP_KEY_BYTES_MAX, "k")) for number in range(600)
    ]
    await made(stream, spawn(task, *children))
    kind = task_pb2.FINISH_KIND_RELEASED
    released = task_pb2.TaskFinish(task_id=task.task_id, attempt=1, kind=kind)
    await stream.send(finished=[released], window=0)
    await heard(stream, acks=1)
    poller = (await wire.register()).worker_id
    (again,) = await wire.poll(poller)
    assert again.ByteSize() < JOURNAL_PAGE_BYTES_MAX * 1.2
    found = [each.task_id for each in again.journal.open]
    behind = again.journal.open_next
    assert behind == found[-1]
    while behind:
        request = task_service_pb2.ReportRunsRequest(
            namespace_id=NAMESPACE, worker_id=poller, journal=[wanted(again, open_after=behind)]
        )
        (rest,) = (await wire.tasks.ReportRuns(request)).pages
        found += [each.task_id for each in rest.open]
        behind = rest.open_next
    assert found == sorted(each.task.task_id for each in children)
