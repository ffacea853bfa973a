"""Stored bytes that have changed are never served: their task fails, its neighbours go on."""

from __future__ import annotations

from typing import Any, Final

import pytest
from structlog.testing import capture_logs

from tenure.core.limits import CLAIM_INPUT_BYTES_MAX
from tenure.core.task.record import Reason, Spec, Task, TaskState
from tenure.core.task.retry import ErrorCategory
from tenure.engine.engine import Engine
from tenure.engine.read import query
from tenure.engine.replica.result_watch import Result
from tenure.engine.services.due_tasks import DueTasks
from tenure.engine.task import command as c
from tenure.errors import DataDamaged, Rejection
from tests.engine.damage import flips, stored, write
from tests.engine.world import CURSOR_KEY, NAMESPACE, SPEC, World
from tests.polling import eventually

INPUT: Final = b'{"amount": 1000000001, "to": "acme"}'
OUTPUT: Final = b'{"receipt": 4711}'


def events(logs: list[Any], name: str) -> list[Any]:
    return [each for each in logs if each["event"] == name]


def check_failed(task: Task, *parts: str) -> None:
    assert (task.state, task.progress.reason) == (TaskState.FAILED, Reason.NON_RETRYABLE)
    error = task.progress.error
    assert error is not None
    assert (error.category, error.type) == (ErrorCategory.DATA_QUALITY, "DataDamaged")
    assert error.message == f"Stored data is damaged and was not used: {', '.join(parts)}."
    assert not error.details
    assert not error.stack_trace


@pytest.mark.parametrize("is_alone", [False, True])
async def test_no_flipped_input_is_handed_out(world: World, *, is_alone: bool) -> None:
    engine = await world.start()
    worker = await world.worker(engine)
    for flipped in flips(INPUT):
        ids = await world.add(engine, 1 if is_alone else 3, input=INPUT)
        bad = ids[len(ids) // 2]
        await write(world, "tasks", bad, "input", flipped)
        # What this server remembers was never on disk: another one has to read it.
        reader = await world.start()
        with capture_logs() as logs:
            given = await world.claim(reader, worker)
            await world.settle(reader)
        assert [task.id for task in given] == [each for each in ids if each != bad]
        assert all(task.input == INPUT for task in given)
        task = await world.task(bad)
        check_failed(task, "input")
        assert (task.input, task.damaged) == (None, ("input",))
        (event,) = events(logs, "task.damaged")
        assert (event["task_id"], event["namespace"]) == (bad, NAMESPACE)
        assert event["parts"] == "input"
        assert "1000000001" not in str(logs)
        for each in given:
            await world.finish(reader, worker, each)
        await world.stop(reader)


async def test_whoever_waits_gets_the_next_task_at_once(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    bad, good = await world.add(engine, 2, input=INPUT)
    await write(world, "tasks", bad, "input", b"{" * len(INPUT))
    (task,) = await world.poll(engine, worker, max_tasks=1, wait_ms=60_000)
    assert (task.id, task.input) == (good, INPUT)


async def test_flipped_options_and_progress_fail_their_own_task(
    world: World, engine: Engine
) -> None:
    worker = await world.worker(engine)
    spec = Spec(start_to_close_ms=600_000, encoding="json", resources={"gpu": "1"})
    for column in ("spec", "progress"):
        held = await world.running(engine, worker, spec=spec, input=INPUT)
        beat = c.TaskBeat(task_id=held.id, attempt=1, details=b"row 17 of 20")
        command = c.HeartbeatTasks(namespace=NAMESPACE, worker_id=worker, items=(beat,))
        await engine.submit(command)
        await world.finish(engine, worker, held, c.FinishKind.RELEASED)
        row = await stored(world, "tasks", held.id)
        await engine.submit(c.PauseTask(namespace=NAMESPACE, task_id=held.id))
        for flipped in flips(bytes(row[column])):
            bad, good = await _copies(world, row, column, flipped)
            given = await world.claim(engine, worker, max_tasks=100)
            assert good in [task.id for task in given]
            assert bad not in [task.id for task in given]
            for task in given:
                assert (task.input, task.progress.details) == (INPUT, b"row 17 of 20")
                assert task.spec == spec
                await world.finish(engine, worker, task)
            failed = await world.task(bad)
            assert failed.state is TaskState.FAILED
            assert failed.progress.error is not None
            assert failed.progress.error.category is ErrorCategory.DATA_QUALITY


async def _copies(
    world: World, row: dict[str, Any], column: str, flipped: bytes
) -> tuple[str, str]:
    """Store a damaged copy of a row and a sound one behind it."""
    bad, good = world.clock.new_id(), world.clock.new_id()
    columns = ", ".join(row.keys() - {"id", "state", "line", "version"})
    for id_ in (bad, good):
        await world.database.execute(
            f"INSERT INTO tasks (id, state, line, version, {columns})"
            f" SELECT '{id_}', 'pending', 2, version, {columns} FROM tasks WHERE id = '{row['id']}'"
        )
    await write(world, "tasks", bad, column, flipped)
    return bad, good


async def test_no_flipped_input_is_handed_out_that_the_claim_left_in_the_store(
    world: World, engine: Engine
) -> None:
    worker = await world.worker(engine)
    large = bytes(CLAIM_INPUT_BYTES_MAX + 1)
    bad, good = await world.add(engine, 2, input=large)
    await write(world, "tasks", bad, "input", large[:-1] + b"\x01")
    with capture_logs() as logs:
        (task,) = await world.claim(engine, worker)
    assert (task.id, task.input) == (good, large)
    check_failed(await world.task(bad), "input")
    assert [each["parts"] for each in events(logs, "task.damaged")][:1] == ["input"]


async def test_damage_in_one_row_leaves_the_others_of_a_batch_alone(
    world: World, engine: Engine
) -> None:
    """A timer, a report and a claim that meet a row which cannot be read end that task only."""
    worker = await world.worker(engine)
    bad, good = await world.add(engine, 2, run_at_ms=world.clock.now_ms() + 1_000, input=INPUT)
    await write(world, "tasks", bad, "spec", b"\xc1 nobody has written this")
    await world.advance(2_000)
    await world.round(DueTasks(), engine)
    (task,) = await world.claim(engine, worker)
    assert task.id == good
    # A timer reads no input.
    check_failed(await world.task(bad), "options")


async def test_a_report_on_a_damaged_row_is_answered_and_its_neighbours_too(world: World) -> None:
    engine = await world.start(cached_rows=False)
    worker = await world.worker(engine)
    first, second = [await world.running(engine, worker, input=INPUT) for _ in range(2)]
    await write(world, "tasks", first.id, "progress", b"\xc1")
    beats = tuple(c.TaskBeat(task_id=each.id, attempt=1) for each in (first, second))
    answers = await engine.submit(
        c.HeartbeatTasks(namespace=NAMESPACE, worker_id=worker, items=beats)
    )
    assert answers == (c.Reported(TaskState.FAILED), c.Reported(TaskState.RUNNING))
    check_failed(await world.task(first.id), "progress")


async def test_a_result_counts_although_the_input_was_damaged_meanwhile(world: World) -> None:
    engine = await world.start(cached_rows=False)
    worker = await world.worker(engine)
    task = await world.running(engine, worker, input=INPUT)
    await write(world, "tasks", task.id, "input", b"?")
    beat = c.TaskBeat(task_id=task.id, attempt=1, details=b"half")
    await engine.submit(c.HeartbeatTasks(namespace=NAMESPACE, worker_id=worker, items=(beat,)))
    answer = await world.finish(engine, worker, task, output=OUTPUT)
    assert isinstance(answer, c.Reported)
    found = await world.task(task.id)
    assert (found.state, found.output) == (TaskState.SUCCEEDED, OUTPUT)
    assert (found.input, found.damaged) == (None, ("input",))


async def heard(engine: Engine, task_id: str) -> Result:
    told: list[Result] = []
    engine.results.watch((NAMESPACE, task_id), told.append)
    await eventually(lambda: told)
    return told[0]


async def test_no_flipped_output_is_read(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    for flipped in flips(OUTPUT):
        done = await world.held(engine, worker, input=INPUT)
        await world.finish(engine, worker, done, output=OUTPUT)
        await write(world, "history", done.id, "output", flipped)
        with capture_logs() as logs:
            task = await world.task(done.id)
            page = await query.list_tasks(
                engine.store, namespace=NAMESPACE, page=query.PageRequest(cursor_key=CURSOR_KEY)
            )
            result = await heard(engine, done.id)
        assert (task.state, task.output, task.damaged) == (TaskState.SUCCEEDED, None, ("output",))
        assert task.input == INPUT
        assert result == task
        # A list shows no payloads, so it reads none.
        assert (page.items[0].id, page.items[0].output) == (task.id, None)
        assert [each["parts"] for each in events(logs, "task.damaged")] == ["output"] * 2
        assert "4711" not in str(logs)
        await world.database.execute(f"DELETE FROM history WHERE id = '{done.id}'")


async def test_a_task_whose_input_is_damaged_cannot_be_retried(
    world: World, engine: Engine
) -> None:
    worker = await world.worker(engine)
    for flipped in flips(INPUT):
        done = await world.held(engine, worker, input=INPUT)
        await world.finish(engine, worker, done, output=OUTPUT)
        await write(world, "history", done.id, "input", flipped)
        command = c.RetryTask(
            namespace=NAMESPACE, task_id=done.id, new_task_id=world.clock.new_id()
        )
        with pytest.raises(DataDamaged, match="input") as refused:
            await engine.submit(command)
        assert refused.value.fields == {"reason": "input"}
    assert await world.dump("tasks") == {"tasks": []}


async def test_no_flipped_error_of_an_attempt_is_shown(world: World, engine: Engine) -> None:
    worker = await world.worker(engine)
    task = await world.held(engine, worker)
    await world.finish(engine, worker, task, c.FinishKind.FAILED)
    error = bytes((await stored(world, "attempts", task.id))["error"])
    for flipped in flips(error):
        await write(world, "attempts", task.id, "error", flipped)
        views = await query.list_attempts(engine.store, namespace=NAMESPACE, task_id=task.id)
        shown = views[0].error
        assert shown is not None
        assert (shown.category, shown.message) == (
            ErrorCategory.DATA_QUALITY,
            "The stored error is damaged.",
        )


async def test_rows_without_checksums_are_served_as_they_are(world: World, engine: Engine) -> None:
    """So an earlier version has written them, perhaps a moment ago."""
    worker = await world.worker(engine)
    (task_id,) = await world.add(engine, input=INPUT, spec=SPEC)
    await world.database.execute("UPDATE tasks SET input_checksum = NULL")
    (task,) = await world.claim(engine, worker)
    await world.finish(engine, worker, task, output=OUTPUT)
    await world.database.execute(
        "UPDATE history SET output_checksum = NULL, progress_checksum = NULL"
    )
    found = await world.task(task_id)
    assert (found.input, found.output, found.damaged) == (INPUT, OUTPUT, ())


async def test_a_progress_that_an_earlier_version_has_written_is_believed(world: World) -> None:
    """It raises the version of the row and leaves our checksum as it was."""
    engine = await world.start(cached_rows=False)
    worker = await world.worker(engine)
    task, other = [await world.running(engine, worker, input=INPUT) for _ in range(2)]
    for each, details in ((task, b"ours"), (other, b"theirs")):
        beat = c.TaskBeat(task_id=each.id, attempt=1, details=details)
        await engine.submit(c.HeartbeatTasks(namespace=NAMESPACE, worker_id=worker, items=(beat,)))
    theirs = bytes((await stored(world, "tasks", other.id))["progress"])
    await write(world, "tasks", task.id, "progress", theirs)
    await world.database.execute(f"UPDATE tasks SET version = version + 1 WHERE id = '{task.id}'")
    found = await world.task(task.id)
    assert (found.progress.details, found.damaged) == (b"theirs", ())


async def test_a_finished_task_of_which_nothing_can_be_read_is_still_found(
    world: World, engine: Engine
) -> None:
    worker = await world.worker(engine)
    done = await world.held(engine, worker, input=INPUT)
    await world.finish(engine, worker, done, output=OUTPUT)
    for column in ("spec", "progress"):
        await write(world, "history", done.id, column, b"\xc1")
    found = await world.task(done.id)
    assert found.damaged == ("input", "options", "progress")
    assert (found.output, found.input) == (OUTPUT, None)
    assert not isinstance(await heard(engine, done.id), Rejection)
