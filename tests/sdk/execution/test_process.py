"""Activities in child processes: fresh, reused, interrupted, and really killed."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from tenure import Payload, StopReason, activity
from tenure.sdk.worker.execution.settings import ExecutionSettings
from tenure.v1 import task_pb2
from tests.polling import eventually
from tests.sdk.execution import process_activities as on
from tests.sdk.execution.rig import Rig

ONE = ExecutionSettings(namespace="shop", max_concurrent=20, max_processes=1)


class Scrambled:
    """A codec, so that plain payloads can be told from those that travel."""

    def encode(self, payload: Payload) -> Payload:
        return Payload(f"b64+{payload.encoding}", base64.b64encode(payload.data))

    def decode(self, payload: Payload) -> Payload:
        scheme, _, encoding = payload.encoding.partition("+")
        return Payload(encoding, base64.b64decode(payload.data)) if scheme == "b64" else payload


def output_of(finish: task_pb2.TaskFinish) -> Any:
    assert finish.kind == task_pb2.FINISH_KIND_SUCCEEDED, finish
    return json.loads(finish.output)


def text_of(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state != "Z"


async def test_a_child_is_another_process_and_is_used_again() -> None:
    async with Rig(*on.ALL, settings=ONE) as rig:
        first = output_of(await rig.run(on.pid_of))
        assert first != os.getpid()
        assert output_of(await rig.run(on.pid_of)) == first
    assert not is_running(first)


async def test_a_child_has_neither_grpc_nor_anything_of_the_server() -> None:
    async with Rig(*on.ALL, settings=ONE) as rig:
        found = output_of(await rig.run(on.modules))
    tops = {each.split(".")[0] for each in found}
    assert not tops & {"grpc", "apsw", "asyncpg", "asyncio", "click", "rich", "structlog"}
    layers = {each.split(".")[1] for each in found if each.startswith("tenure.")}
    assert layers == {"core", "errors", "sdk", "v1"}


async def test_a_child_finds_the_same_modules_and_keeps_the_environment() -> None:
    async with Rig(*on.ALL, settings=ONE) as rig:
        assert output_of(await rig.run(on.path)) == sys.path
        files, python_path, stdin = output_of(await rig.run(on.environment))
        # Only its standard files, and the one that lists them.
        assert len(json.loads(files)) == 4
        assert python_path == os.environ.get("PYTHONPATH", "unset")
        assert stdin == ""


async def test_more_tasks_than_children_wait_in_line_and_count_as_active() -> None:
    async with Rig(*on.ALL, settings=ONE) as rig:
        tasks = [await rig.start(on.pid_of, 0.05) for _ in range(4)]
        assert rig.executor.active_count >= 3
        assert len({output_of(await rig.finish_of(each)) for each in tasks}) == 1


async def test_several_children_work_beside_each_other() -> None:
    settings = ExecutionSettings(max_concurrent=20, max_processes=3)
    async with Rig(*on.ALL, settings=settings) as rig:
        tasks = [await rig.start(on.pid_of, 0.5) for _ in range(3)]
        assert len({output_of(await rig.finish_of(each)) for each in tasks}) == 3


async def test_the_activity_is_found_by_its_registered_name() -> None:
    async with Rig(*on.ALL, settings=ONE) as rig:
        assert output_of(await rig.run(on.double, 21)) == 42


async def test_large_payloads_pass() -> None:
    async with Rig(*on.ALL, settings=ONE) as rig:
        assert output_of(await rig.run(on.size, bytes(2 * 1024 * 1024))) == 2 * 1024 * 1024


async def test_input_that_does_not_fit_fails_for_good() -> None:
    async with Rig(*on.ALL, settings=ONE) as rig:
        finish = await rig.run(on.double, 1, input=b'{"number": null}')
        assert finish.error.category == task_pb2.ERROR_CATEGORY_DATA_QUALITY
        assert not finish.error.retryable


@pytest.mark.parametrize(
    ("how", "type_name", "says"),
    [
        ("SIGKILL", "ProcessKilled", "was killed by SIGKILL"),
        ("SIGSEGV", "ProcessKilled", "was killed by SIGSEGV"),
        ("_exit", "ProcessExited", "ended with exit code 7"),
        ("with a grandchild", "ProcessKilled", "was killed by SIGKILL"),
    ],
)
async def test_the_death_of_a_child_fails_only_its_attempt(
    how: str, type_name: str, says: str
) -> None:
    async with Rig(*on.ALL, settings=ONE) as rig:
        task = await rig.start(on.die, how)
        finish = await rig.finish_of(task)
        assert finish.kind == task_pb2.FINISH_KIND_FAILED
        assert finish.error.category == task_pb2.ERROR_CATEGORY_INFRASTRUCTURE
        assert not finish.error.HasField("retryable")
        assert finish.error.type == type_name
        assert says in finish.error.message
        assert rig.reporter.beats(task.task_id)[0].details == json.dumps([how]).encode()
        # The next one gets a fresh child.
        assert output_of(await rig.run(on.double, 4)) == 8


async def test_an_idle_child_that_was_killed_is_replaced() -> None:
    async with Rig(*on.ALL, settings=ONE) as rig:
        first = output_of(await rig.run(on.pid_of))
        os.kill(first, signal.SIGKILL)
        await eventually(lambda: not is_running(first))
        assert output_of(await rig.run(on.pid_of)) != first


@pytest.mark.parametrize(("how", "type_name"), [("exit", "SystemExit"), ("error", "ValueError")])
async def test_an_exception_in_a_child_is_a_failure_as_anywhere(how: str, type_name: str) -> None:
    async with Rig(*on.ALL, settings=ONE) as rig:
        child = output_of(await rig.run(on.pid_of))
        finish = await rig.run(on.die, how)
        assert finish.kind == task_pb2.FINISH_KIND_FAILED
        assert finish.error.type == type_name
        assert finish.error.category == task_pb2.ERROR_CATEGORY_USER_CODE
        assert "in die" in finish.error.stack_trace
        assert output_of(await rig.run(on.pid_of)) == child


async def test_a_stop_ends_even_a_system_call_that_waits(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    async with Rig(*on.ALL, settings=ONE) as rig:
        task = await rig.start(on.wait, str(mark))
        child = int(await eventually(lambda: text_of(mark)))
        await rig.stop(task)
        assert (await rig.finish_of(task)).kind == task_pb2.FINISH_KIND_CANCELLED
        assert text_of(mark) == "cancelled"
        # It gave way, so it is still there for the next one.
        assert output_of(await rig.run(on.pid_of)) == child


async def test_a_result_after_a_stop_counts(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    async with Rig(*on.ALL, settings=ONE) as rig:
        task = await rig.start(on.wait, str(mark), "return")
        await eventually(lambda: text_of(mark))
        await rig.stop(task)
        assert output_of(await rig.finish_of(task)) == "done all the same"


async def test_a_child_that_does_not_give_way_is_killed_after_the_grace(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    async with Rig(*on.ALL, settings=ONE) as rig:
        task = await rig.start(on.wait, str(mark), "stay", cancel_grace_period_ms=400)
        child = int(await eventually(lambda: text_of(mark)))
        await rig.stop(task)
        # It was stopped for sure, so the cancellation is true.
        assert (await rig.finish_of(task)).kind == task_pb2.FINISH_KIND_CANCELLED
        assert not is_running(child)
        assert rig.reporter.stuck_counts == []
        assert rig.executor.active_count == 0
        assert output_of(await rig.run(on.double, 4)) == 8


async def test_a_child_that_takes_too_long_is_stopped_and_then_killed(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    async with Rig(*on.ALL, settings=ONE) as rig:
        task = await rig.start(
            on.wait, str(mark), "stay", start_to_close_ms=500, cancel_grace_period_ms=200
        )
        finish = await rig.finish_of(task)
        assert finish.error.category == task_pb2.ERROR_CATEGORY_TIMEOUT


async def test_a_hand_back_releases_a_child_with_its_last_details(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    async with Rig(*on.ALL, settings=ONE) as rig:
        task = await rig.start(on.wait, str(mark))
        await eventually(lambda: text_of(mark))
        waiting = await rig.start(on.pid_of)
        await rig.call(rig.executor.hand_back)
        assert (await rig.finish_of(task)).kind == task_pb2.FINISH_KIND_RELEASED
        assert (await rig.finish_of(waiting)).kind == task_pb2.FINISH_KIND_RELEASED
        assert text_of(mark) == StopReason.WORKER_SHUTDOWN
        assert rig.reporter.beats(task.task_id)[-1].details == b'["last"]'


async def test_a_shield_in_a_child_postpones_the_stop(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    async with Rig(*on.ALL, settings=ONE) as rig:
        task = await rig.start(on.shielded, str(mark))
        await eventually(lambda: text_of(mark) == "entered")
        await rig.stop(task)
        assert (await rig.finish_of(task)).kind == task_pb2.FINISH_KIND_CANCELLED
        assert text_of(mark) == "saved"


async def test_what_waits_for_a_child_and_is_stopped_never_runs(tmp_path: Path) -> None:
    mark, other = tmp_path / "mark", tmp_path / "other"
    async with Rig(*on.ALL, settings=ONE) as rig:
        first = await rig.start(on.wait, str(mark))
        await eventually(lambda: text_of(mark))
        second = await rig.start(on.wait, str(other))
        await rig.stop(second)
        assert (await rig.finish_of(second)).kind == task_pb2.FINISH_KIND_CANCELLED
        await rig.stop(first)
        await rig.finish_of(first)
        assert output_of(await rig.run(on.double, 4)) == 8
        assert not other.exists()


async def test_stops_that_cross_the_end_never_hit_the_next_run() -> None:
    async with Rig(*on.ALL, settings=ONE) as rig:
        for number in range(100):
            task = await rig.start(on.double, number)
            await rig.stop(task)
            follower = await rig.start(on.double, number)
            assert output_of(await rig.finish_of(follower)) == 2 * number
            finish = await rig.finish_of(task)
            assert finish.kind in {task_pb2.FINISH_KIND_SUCCEEDED, task_pb2.FINISH_KIND_CANCELLED}


async def test_a_signal_that_is_no_stop_is_ignored() -> None:
    async with Rig(*on.ALL, settings=ONE) as rig:
        assert output_of(await rig.run(on.signal_myself)) == "still here"


async def test_details_and_progress_go_both_ways() -> None:
    async with Rig(*on.ALL, settings=ONE) as rig:
        task = await rig.start(on.resume, attempt=2, heartbeat_details=b"[[1]]")
        assert output_of(await rig.finish_of(task)) == [1, 2]
        first = rig.reporter.beats(task.task_id)[0]
        assert (first.progress_percent, first.message) == (50, "half")


async def test_the_last_of_many_heartbeats_arrives_before_the_failure() -> None:
    async with Rig(*on.ALL, settings=ONE) as rig:
        task = await rig.start(on.many_beats, 10_000)
        finish = await rig.finish_of(task)
        assert finish.kind == task_pb2.FINISH_KIND_FAILED
        assert rig.reporter.beats(task.task_id)[-1].details == b"[9999]"
        assert rig.reporter.heard[-1] is finish
        # Few of them were sent on.
        assert len(rig.reporter.beats()) < 10


async def test_a_child_can_complete_later() -> None:
    async with Rig(*on.ALL, settings=ONE) as rig:
        finish = await rig.run(on.later, task_token="t0ken")
        assert finish.kind == task_pb2.FINISH_KIND_DEFERRED


async def test_info_in_a_child_shows_the_attempt() -> None:
    async with Rig(*on.ALL, settings=ONE) as rig:
        task = await rig.start(on.look)
        expected = ["shop", "worker-1", "default", task.task_id, f"{task.task_id}:1"]
        assert output_of(await rig.finish_of(task)) == expected


async def test_context_variables_in_a_child_do_not_leak() -> None:
    async with Rig(*on.ALL, settings=ONE) as rig:
        assert output_of(await rig.run(on.tinted, "red")) == "none"
        assert output_of(await rig.run(on.tinted, "blue")) == "none"


async def test_payloads_of_a_child_travel_behind_the_codec() -> None:
    async with Rig(*on.ALL, settings=ONE, codec=Scrambled()) as rig:
        finish = await rig.run(on.double, 21)
        assert (finish.output, finish.output_encoding) == (base64.b64encode(b"42"), "")
        as_bytes = await rig.run(on.size, b"123")
        assert (as_bytes.output, as_bytes.output_encoding) == (base64.b64encode(b"3"), "b64+json")
        details = rig.converter.encode_details(([1],))
        resumed = await rig.run(on.resume, attempt=2, heartbeat_details=details)
        assert base64.b64decode(resumed.output) == b"[1,2]"
        task = await rig.start(on.many_beats, 1)
        await rig.finish_of(task)
        sent = rig.reporter.beats(task.task_id)[-1].details
        assert sent == b"b64+json\0" + base64.b64encode(b"[0]")
        wrong = await rig.run(on.double, 1, encoding="aes+json")
        assert wrong.error.category == task_pb2.ERROR_CATEGORY_DATA_QUALITY


async def test_an_activity_that_a_fresh_process_cannot_find_is_a_matter_of_configuration() -> None:
    module = types.ModuleType("only_in_this_process")
    sys.modules["only_in_this_process"] = module

    def lost() -> None: ...

    lost.__module__, lost.__qualname__ = "only_in_this_process", "lost"
    made = activity(start_to_close="1s", executor="process")(lost)
    async with Rig(made, settings=ONE) as rig:
        finish = await rig.run(made)
        assert finish.error.category == task_pb2.ERROR_CATEGORY_CONFIGURATION
        assert not finish.error.retryable
        assert "only_in_this_process cannot be imported" in finish.error.message
    del sys.modules["only_in_this_process"]


async def test_a_child_that_cannot_be_started_is_a_matter_of_infrastructure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Rig(*on.ALL, settings=ONE) as rig:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "executable", "/nonexistent/python")
            finish = await rig.run(on.pid_of)
        assert finish.error.category == task_pb2.ERROR_CATEGORY_INFRASTRUCTURE
        assert finish.error.type == "ProcessNotStarted"
        assert output_of(await rig.run(on.double, 2)) == 4


async def test_a_child_dies_with_its_worker(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.sdk.execution", str(mark)
    )
    try:
        child = int(await eventually(lambda: text_of(mark)))
        assert is_running(child)
    finally:
        worker.kill()
        await worker.wait()
    await eventually(lambda: not is_running(child))
