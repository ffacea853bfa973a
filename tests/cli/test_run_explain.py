"""``tenure runs explain``."""

from __future__ import annotations

import json

from tests.cli.conftest import Run, read
from tests.cli.server import ServerProcess
from tests.cli.test_run import start, until_status
from tests.cli.worker import SmallWorker

NOBODY = "00000000-0000-7000-8000-000000000000"


def test_a_run_is_explained_with_what_to_do(run: Run, queue: str) -> None:
    run_id = start(run, "order", "--queue", queue, "--id", f"{queue}-order")
    result = run("runs", "explain", f"external:{queue}-order")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == f"Run {run_id} is PENDING."
    assert lines[2] == f"1. no_worker: No worker serves queue {queue}."
    found = read(run("runs", "explain", run_id, "-o", "json"))
    assert (found["runId"], found["status"]) == (run_id, "PENDING")
    (line,) = run("runs", "explain", run_id, "-o", "jsonl").stdout.splitlines()
    assert [json.loads(line)] == found["reasons"]


def test_the_line_of_the_code_is_named(run: Run, server: ServerProcess, queue: str) -> None:
    with SmallWorker(server.grpc, queue):
        run_id = start(run, "approval", "--queue", queue)
        until_status(run, run_id, "WAITING")
        result = run("runs", "explain", run_id)
        shown = run("runs", "show", run_id)
    assert "1. waiting: It waits for the signal approve since 1970-01-01T00:00:00" in result.stdout
    assert ", at expense.py:9." in result.stdout
    assert " at expense.py:9" in shown.stdout


def test_what_a_run_waits_for_is_set_in(run: Run, server: ServerProcess, queue: str) -> None:
    with SmallWorker(server.grpc, queue):
        run_id = start(run, "parent", "--queue", queue)
        until_status(run, run_id, "WAITING")
        result = run("runs", "explain", run_id)
        found = read(run("runs", "explain", run_id, "-o", "json"))
    (reason,) = found["reasons"]
    (task, *_) = reason["tasks"]
    lines = result.stdout.splitlines()
    head = lines.index(f"   Task {task['taskId']} ({task['type']}) is PENDING.")
    assert lines[head + 2].startswith(f"   1. {task['reasons'][0]['code']}: ")


def test_what_is_no_run_is_not_found(run: Run, queue: str) -> None:
    task_id = run("tasks", "enqueue", "resize", "--queue", queue).stdout.strip()
    for wanted in (NOBODY, task_id):
        result = run("runs", "explain", wanted)
        assert result.exit_code == 3
        assert "tenure runs ls" in result.stderr
