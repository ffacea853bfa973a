"""``tenure tasks explain``."""

from __future__ import annotations

import json
import re

from tests.cli.conftest import Run, read

UNKNOWN = "019b0000-0000-7000-8000-ffffffffffff"


def test_the_reasons_are_shown_in_their_order_with_what_to_do(run: Run, queue: str) -> None:
    run("queues", "pause", queue)
    task_id = run("tasks", "enqueue", "resize", "--queue", queue).stdout.strip()
    shown = run("tasks", "explain", task_id)
    assert shown.exit_code == 0
    lines = shown.stdout.splitlines()
    assert lines[0] == f"Task {task_id} is PENDING."
    assert lines[2] == f"1. queue_paused: Queue {queue} is paused: nothing is handed out from it."
    assert lines[3].strip() == f"Resume it: tenure queues resume {queue}"
    assert f"   queue: {queue}" in lines
    assert any(line.startswith("2. no_worker: ") for line in lines)


def test_a_task_that_is_shown_names_the_first_reason_why_it_waits_and_how_to_ask_for_more(
    run: Run, queue: str
) -> None:
    run("queues", "pause", queue)
    task_id = run("tasks", "enqueue", "resize", "--queue", queue).stdout.strip()
    shown = run("tasks", "show", task_id)
    why = f"queue_paused: Queue {queue} is paused: nothing is handed out from it."
    assert re.search(rf"^waits: +{re.escape(why)}$", shown.stdout, re.MULTILINE)
    assert shown.stderr == f"What to do: tenure tasks explain {task_id}\n"
    run("tasks", "cancel", task_id)
    ended = run("tasks", "show", task_id)
    assert "waits:" not in ended.stdout
    assert ended.stderr == ""


def test_the_advice_is_a_command_that_works(run: Run, queue: str) -> None:
    run("queues", "pause", queue)
    task_id = run("tasks", "enqueue", "resize", "--queue", queue).stdout.strip()
    found = read(run("tasks", "explain", task_id, "-o", "json"))
    command = found["reasons"][0]["advice"].partition("tenure ")[2]
    assert run(*command.split()).exit_code == 0
    after = read(run("tasks", "explain", task_id, "-o", "json"))
    assert [each["code"] for each in after["reasons"]] == ["no_worker"]


def test_as_json_it_has_the_names_of_the_http_api(run: Run, queue: str) -> None:
    task_id = run("tasks", "enqueue", "resize", "--queue", queue).stdout.strip()
    found = read(run("tasks", "explain", task_id, "-o", "json"))
    assert (found["taskId"], found["state"]) == (task_id, "PENDING")
    (reason,) = found["reasons"]
    assert reason.keys() == {"code", "message", "advice", "evidence"}
    (line,) = run("tasks", "explain", task_id, "-o", "jsonl").stdout.splitlines()
    assert json.loads(line) == reason


def test_a_task_that_is_not_there_is_exit_code_three(run: Run) -> None:
    missing = run("tasks", "explain", UNKNOWN)
    assert missing.exit_code == 3
    assert UNKNOWN in missing.stderr
    assert run("tasks", "explain", "no-id").exit_code == 2
