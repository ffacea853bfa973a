"""Waiting for tasks: live progress, results, exit codes."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
from pathlib import Path

import apsw
import pytest

from tenure.cli.client import wait
from tests.bounds import WAIT_S
from tests.cli.conftest import Run, read
from tests.cli.server import CLI, ServerProcess
from tests.cli.worker import SmallWorker
from tests.polling import eventually_sync


def start(server: ServerProcess, *arguments: str, **options: object) -> subprocess.Popen[str]:
    """Run a command in a process of its own."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    environment = {**os.environ, "TENURE_TARGET": server.grpc}
    return subprocess.Popen([*CLI, *arguments], text=True, env=environment, **streams)  # type: ignore[call-overload, no-any-return]


def test_the_output_of_a_task_is_printed_when_it_succeeds(
    run: Run, server: ServerProcess, queue: str
) -> None:
    with SmallWorker(server.grpc, queue):
        result = run("tasks", "enqueue", "echo", "--queue", queue, "--input", '{"a":1}', "--wait")
        shown = read(
            run(
                "tasks", "enqueue", "echo", "--queue", queue, "--input", "2", "--wait", "-o", "json"
            )
        )
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {"a": 1}
    assert "succeeded after" in result.stderr
    assert (shown["state"], shown["output"]) == ("SUCCEEDED", 2)


def test_an_output_means_the_same_and_disturbs_no_terminal(
    run: Run, server: ServerProcess, queue: str
) -> None:
    value = "a\x9b31m\u202e\u2028\x7f\n\té😀"
    given = ("--queue", queue, "--input", json.dumps(value, ensure_ascii=False), "--wait")
    with SmallWorker(server.grpc, queue):
        for form in ("table", "json", "jsonl"):
            shown = run("tasks", "enqueue", "echo", *given, "-o", form).stdout
            assert not re.search("[\x7f\x9b\u202e\u2028]", shown)
            assert "é😀" in shown
            found = json.loads(shown)
            assert (found if form == "table" else found["output"]) == value


def test_a_damaged_output_ends_the_wait_with_exit_code_1(
    run: Run, server: ServerProcess, queue: str
) -> None:
    arguments = ("tasks", "enqueue", "echo", "--queue", queue, "--input", "1000000001", "--wait")
    with SmallWorker(server.grpc, queue):
        task_id = read(run(*arguments, "-o", "json"))["taskId"]
    connection = apsw.Connection(server.store_url.removeprefix("sqlite:///"))
    connection.set_busy_timeout(5_000)
    connection.execute(
        "UPDATE history SET output = CAST('9000000001' AS BLOB) WHERE id = ?", (task_id,)
    )
    connection.close()
    result = run("tasks", "wait", task_id)
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"The stored output of task {task_id} is damaged" in result.stderr
    shown = run("tasks", "show", task_id)
    assert "output (left out)" in shown.stdout
    assert "9000000001" not in shown.stdout
    retried = run("tasks", "wait", task_id, "-o", "json")
    assert (retried.exit_code, json.loads(retried.stdout)["tasks"][0]["damaged"]) == (1, ["output"])


def test_an_output_of_another_encoding_is_shown_as_base64_with_its_name(
    run: Run, server: ServerProcess, queue: str
) -> None:
    arguments = ("tasks", "enqueue", "bytes", "--queue", queue, "--input", "1", "--wait")
    with SmallWorker(server.grpc, queue):
        result = run(*arguments)
        shown = read(run(*arguments, "-o", "json"))
    assert result.stdout == "MTI= (base64)\n"
    assert (shown["outputBase64"], shown["outputEncoding"]) == ("MTI=", "bytes")
    assert (shown["input"], shown["encoding"], "output" in shown) == (1, "json", False)


def test_a_failed_task_ends_the_wait_with_exit_code_1(
    run: Run, server: ServerProcess, queue: str
) -> None:
    arguments = ("tasks", "enqueue", "fail", "--queue", queue, "--max-attempts", "1", "--wait")
    with SmallWorker(server.grpc, queue):
        result = run(*arguments)
        shown = run(*arguments, "-o", "jsonl")
        retried = run("tasks", "retry", json.loads(shown.stdout)["taskId"], "--wait")
    assert (result.exit_code, shown.exit_code, retried.exit_code) == (1, 1, 1)
    why = r"  Why: ValueError: it \x1b[31mbroke\n  Why: forged\u202e (RETRIES_EXHAUSTED)"
    assert why in result.stderr.splitlines()
    assert [line for line in result.stderr.splitlines() if "forged" in line] == [why]
    assert "Next: tenure tasks show" in result.stderr
    assert json.loads(shown.stdout)["failureReason"] == "RETRIES_EXHAUSTED"
    assert shown.stderr == ""


def test_several_tasks_are_waited_for_and_one_that_failed_decides(
    run: Run, server: ServerProcess, queue: str
) -> None:
    with SmallWorker(server.grpc, queue):
        ids = [
            run("tasks", "enqueue", kind, "--queue", queue, "--max-attempts", "1").stdout.strip()
            for kind in ("echo", "fail", "echo")
        ]
        table = run("tasks", "wait", *ids)
        whole = run("tasks", "wait", *ids, "-o", "json")
        lines = run("tasks", "wait", ids[0], ids[2], "-o", "jsonl")
    assert (table.exit_code, whole.exit_code, lines.exit_code) == (1, 1, 0)
    assert [line.split()[0] for line in table.stdout.splitlines()] == ["TASK", *ids]
    assert [task["taskId"] for task in json.loads(whole.stdout)["tasks"]] == ids
    assert [json.loads(line)["state"] for line in lines.stdout.splitlines()] == ["SUCCEEDED"] * 2


def test_a_wait_that_times_out_says_where_the_task_stands_and_how_to_go_on(
    run: Run, queue: str
) -> None:
    result = run("tasks", "enqueue", "echo", "--queue", queue, "--wait", "--timeout", "50ms")
    assert result.exit_code == 124
    assert "has not ended within 50ms" in result.stderr
    assert "waiting for a worker" in result.stderr
    assert "Wait again: tenure tasks wait " in result.stderr
    assert f"no_worker: No worker serves queue {queue}" in result.stderr
    assert "See why: tenure tasks explain " in result.stderr


def test_a_wait_for_a_task_that_no_worker_takes_says_the_first_reason(
    run: Run, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert wait.STALLED_MS == 5_000
    monkeypatch.setattr(wait, "STALLED_MS", 10)
    task_id = run("tasks", "enqueue", "echo", "--queue", queue).stdout.strip()
    result = run("tasks", "wait", task_id, "--timeout", "2s")
    told = [line for line in result.stderr.splitlines() if line.startswith(f"{task_id}: no_worker")]
    assert len(told) == 1
    assert f"No worker serves queue {queue}" in told[0]
    assert told[0].endswith(f"What to do: tenure tasks explain {task_id}")


def test_on_a_terminal_the_first_reason_stands_above_the_live_lines(
    server: ServerProcess, queue: str
) -> None:
    ours, theirs = pty.openpty()
    arguments = ("tasks", "enqueue", "gate", "--queue", queue, "--wait", "--timeout", "7s")
    with start(server, *arguments, stderr=theirs) as waiting:
        os.close(theirs)
        seen = b""
        while b"tenure tasks explain" not in seen:
            seen += os.read(ours, 4096)
        waiting.terminate()
    os.close(ours)
    assert b"no_worker" in seen


def test_a_running_task_is_cancelled_and_that_is_what_was_wanted(
    run: Run, server: ServerProcess, queue: str
) -> None:
    with SmallWorker(server.grpc, queue):
        task_id = run("tasks", "enqueue", "gate", "--queue", queue).stdout.strip()
        _wait_until_half_way(run, task_id)
        result = run("tasks", "cancel", task_id, "--reason", "not needed", "--wait")
        waited = run("tasks", "wait", task_id)
    assert result.exit_code == 0
    assert "was cancelled after" in result.stderr
    assert waited.exit_code == 1
    assert read(run("tasks", "show", task_id, "-o", "json"))["cancelReason"] == "not needed"


def _wait_until_half_way(run: Run, task_id: str) -> None:
    def is_half_way() -> bool:
        task = read(run("tasks", "show", task_id, "-o", "json"))
        return bool(task.get("progressMessage") == "half-way")

    eventually_sync(is_half_way, "the worker tells its progress")


def test_progress_is_written_line_by_line_without_a_terminal(
    server: ServerProcess, queue: str
) -> None:
    with (
        SmallWorker(server.grpc, queue) as worker,
        start(server, "tasks", "enqueue", "gate", "--queue", queue, "--wait") as waiting,
    ):
        assert waiting.stderr is not None
        line = next(line for line in waiting.stderr if "half-way" in line)
        worker.gate.set()
        assert waiting.wait(WAIT_S) == 0
    assert f"running, attempt 1, 50 % half-way, worker {worker.worker_id}" in line
    assert "\x1b" not in line


def test_progress_is_live_on_a_terminal(server: ServerProcess, queue: str) -> None:
    ours, theirs = pty.openpty()
    arguments = ("tasks", "enqueue", "gate", "--queue", queue, "--wait")
    with (
        SmallWorker(server.grpc, queue) as worker,
        start(server, *arguments, stderr=theirs) as waiting,
    ):
        os.close(theirs)
        seen = b""
        while b"half-way" not in seen:
            seen += os.read(ours, 4096)
        worker.gate.set()
        assert waiting.wait(WAIT_S) == 0
    os.close(ours)
    assert b"\x1b[" in seen


def test_an_interrupted_wait_ends_with_130_and_says_how_to_go_on(
    run: Run, server: ServerProcess, queue: str
) -> None:
    task_id = run("tasks", "enqueue", "echo", "--queue", queue).stdout.strip()
    with start(server, "tasks", "wait", task_id) as waiting:
        assert waiting.stderr is not None
        assert "pending" in waiting.stderr.readline()
        waiting.send_signal(signal.SIGINT)
        said = waiting.stderr.read()
        assert waiting.wait(WAIT_S) == 130
    assert f"tenure tasks wait {task_id}" in said
    assert "Traceback" not in said
    assert read(run("tasks", "show", task_id, "-o", "json"))["state"] == "PENDING"


def test_a_wait_goes_on_over_a_restart_of_the_server(tmp_path: Path, queue: str) -> None:
    store, log = f"sqlite:///{tmp_path}/tenure.db", tmp_path / "log"
    with ServerProcess(store, log) as first:
        target = first.grpc
        arguments = ("tasks", "enqueue", "echo", "--queue", queue, "--input", "7", "--wait")
        waiting = start(first, *arguments)
        assert waiting.stderr is not None
        assert "pending" in waiting.stderr.readline()
        first.kill()
    assert "Trying again" in waiting.stderr.readline()
    with ServerProcess(store, log, grpc=target), SmallWorker(target, queue), waiting:
        assert waiting.wait(WAIT_S) == 0
        assert waiting.stdout is not None
        assert waiting.stdout.read() == "7\n"


@pytest.mark.parametrize("command", ["cancel", "retry"])
def test_a_timeout_without_a_wait_is_refused(run: Run, command: str) -> None:
    assert run("tasks", command, "x", "--timeout", "5s").exit_code == 2
