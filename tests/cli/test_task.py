"""``tenure tasks`` against a real server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tenure.api.http.route.task.view import AttemptItem
from tenure.api.http.route.task.view import TaskView as HttpTaskView
from tenure.cli.show.view import ShownAttempt, ShownTask
from tests.cli.conftest import Run, read
from tests.cli.server import ServerProcess
from tests.cli.worker import SmallWorker
from tests.polling import eventually_sync

NOBODY = "00000000-0000-7000-8000-000000000000"


def enqueue(run: Run, *arguments: str) -> str:
    """Enqueue a task and return its id."""
    result = run("tasks", "enqueue", *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout.strip()


def test_an_enqueued_task_prints_nothing_but_its_id_to_stdout(run: Run, queue: str) -> None:
    result = run("tasks", "enqueue", "mail", "--queue", queue)
    task_id = result.stdout.removesuffix("\n")
    assert result.exit_code == 0
    assert len(task_id) == 36
    assert result.stderr == f"Wait for it: tenure tasks wait {task_id}\n"
    assert read(run("tasks", "show", task_id, "-o", "json"))["taskId"] == task_id


def test_every_option_reaches_the_task(run: Run, queue: str, tmp_path: Path) -> None:
    file = tmp_path / "input.json"
    file.write_text('{"width": 80, "big": 12345678901234567890.10}')
    options = "--priority 2 --at 2100-01-31T09:00:00+01:00 --max-attempts 3 --key once"
    timeouts = "--start-to-close 30s --schedule-to-close 1h --schedule-to-start 5m"
    task_id = enqueue(
        run,
        *("resize", "--queue", queue, "--input", f"@{file}", *options.split(), *timeouts.split()),
        *("--heartbeat-timeout", "1m", "--label", "zone=a", "--label", "empty="),
    )
    task = read(run("tasks", "show", task_id, "-o", "jsonl"))
    assert task["type"] == "resize"
    assert task["queue"] == queue
    assert task["priority"] == 2
    assert task["runAt"] == "2100-01-31T08:00:00.000Z"
    assert task["retry"]["maximumAttempts"] == 3
    assert task["idempotencyKey"] == "once"
    assert task["startToCloseMs"] == 30_000
    assert task["scheduleToCloseMs"] == 3_600_000
    assert task["scheduleToStartMs"] == 300_000
    assert task["heartbeatTimeoutMs"] == 60_000
    assert task["labels"] == {"zone": "a", "empty": ""}
    assert task["attempts"] == []
    # Numbers are shown as they were sent, not as a float would have them.
    assert "12345678901234567890.10" in run("tasks", "show", task_id, "-o", "json").stdout


def test_a_task_without_timeouts_gets_five_minutes_for_an_attempt(run: Run, queue: str) -> None:
    task_id = enqueue(run, "mail", "--queue", queue)
    assert read(run("tasks", "show", task_id, "-o", "json"))["startToCloseMs"] == 300_000


def test_the_input_may_come_from_stdin(run: Run, queue: str) -> None:
    result = run("tasks", "enqueue", "mail", "--queue", queue, "--input", "-", input="[1, 2]")
    task = read(run("tasks", "show", result.stdout.strip(), "-o", "json"))
    assert task["input"] == [1, 2]


def test_a_delay_of_nothing_starts_at_once(run: Run, queue: str) -> None:
    task_id = enqueue(run, "mail", "--queue", queue, "--delay", "0s")
    task = read(run("tasks", "show", task_id, "-o", "json"))
    assert task["runAt"] == task["createdAt"]


def test_a_delayed_task_says_when_it_starts(run: Run, queue: str) -> None:
    enqueue(run, "mail", "--queue", queue, "--delay", "10m")
    assert "starts in 9m" in run("tasks", "ls", "--queue", queue).stdout


def test_the_same_key_again_is_the_same_task(run: Run, queue: str) -> None:
    first = enqueue(run, "mail", "--queue", queue, "--key", f"{queue}-key")
    again = run("tasks", "enqueue", "mail", "--queue", queue, "--key", f"{queue}-key")
    assert again.stdout.strip() == first
    assert "exists already" in again.stderr
    other = run("tasks", "enqueue", "post", "--queue", queue, "--key", f"{queue}-key", "-o", "json")
    assert other.exit_code == 4
    assert json.loads(other.stderr)["taskId"] == first


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("mail", "--input", "{bad"), "is not JSON"),
        (("mail", "--input", "NaN"), "NaN is not a JSON number"),
        (("mail", "--input", "[" * 100_000), "nested too deep"),
        (("mail", "--input", "@/does/not/exist"), "cannot read /does/not/exist"),
        (("mail", "--delay", "5"), "must be a duration"),
        (("mail", "--at", "noon"), "must be an instant"),
        (("mail", "--delay", "5s", "--at", "2100-01-01T00:00:00Z"), "not both"),
        (("mail", "--label", "zone"), "must be key=value"),
        (("mail", "--timeout", "5s"), "--timeout needs --wait"),
        (("mail", "--priority", "10"), "not in the range"),
        (("two words",), "type must have 1 to 255 characters"),
    ],
)
def test_bad_input_is_refused_as_a_mistake_of_usage(
    run: Run, queue: str, arguments: tuple[str, ...], message: str
) -> None:
    result = run("tasks", "enqueue", "--queue", queue, *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert read(run("tasks", "ls", "--queue", queue, "-o", "json"))["tasks"] == []


def test_an_input_that_is_too_large_is_refused_before_it_is_sent(
    run: Run, queue: str, tmp_path: Path
) -> None:
    file = tmp_path / "large.json"
    file.write_text('"' + "x" * 2 * 1024 * 1024 + '"')
    result = run("tasks", "enqueue", "mail", "--queue", queue, "--input", f"@{file}")
    assert result.exit_code == 2
    assert "the limit is 2,097,152" in result.stderr


def test_a_list_is_filtered_and_paged(run: Run, queue: str) -> None:
    ids = [enqueue(run, kind, "--queue", queue) for kind in ("a", "b", "a", "a")]
    run("tasks", "cancel", ids[0])

    def listed(*arguments: str) -> list[str]:
        answer = read(run("tasks", "ls", "--queue", queue, "-o", "json", *arguments))
        return [task["taskId"] for task in answer["tasks"]]

    assert listed() == ids[::-1]
    assert listed("--type", "b") == [ids[1]]
    assert listed("--state", "cancelled") == [ids[0]]
    first = read(run("tasks", "ls", "--queue", queue, "--limit", "2", "-o", "json"))
    assert [task["taskId"] for task in first["tasks"]] == [ids[3], ids[2]]
    assert listed("--page-token", first["nextPageToken"]) == [ids[1], ids[0]]
    lines = run("tasks", "ls", "--queue", queue, "--all", "-o", "jsonl").stdout.splitlines()
    assert [json.loads(line)["taskId"] for line in lines] == ids[::-1]


def test_a_table_that_is_not_complete_says_how_to_go_on(run: Run, queue: str) -> None:
    for _ in range(3):
        enqueue(run, "a", "--queue", queue)
    result = run("tasks", "ls", "--queue", queue, "--limit", "2")
    assert len(result.stdout.splitlines()) == 3
    assert result.stdout.startswith("TASK ")
    assert "\x1b" not in result.stdout
    assert "--page-token" in result.stderr


def test_an_empty_list_is_told(run: Run, queue: str) -> None:
    result = run("tasks", "ls", "--queue", queue)
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "No tasks found.\n"


def test_a_task_is_shown_with_its_attempts_and_nothing_can_disturb_the_terminal(
    run: Run, server: ServerProcess, queue: str
) -> None:
    with SmallWorker(server.grpc, queue) as worker:
        task_id = enqueue(run, "fail", "--queue", queue, "--max-attempts", "1", "--input", '"x"')
        assert run("tasks", "wait", task_id).exit_code == 1
        shown = run("tasks", "show", task_id)
        listed = run("tasks", "attempts", task_id)
        (attempt,) = read(run("tasks", "attempts", task_id, "-o", "json"))["attempts"]
        line = read(run("tasks", "attempts", task_id, "-o", "jsonl"))
    assert "reason:    RETRIES_EXHAUSTED" in shown.stdout
    error = r"ValueError: it \x1b[31mbroke\n  Why: forged\u202e (USER_CODE)"
    assert f"error:     {error}" in shown.stdout.splitlines()
    assert 'input:     "x"' in shown.stdout
    assert worker.worker_id in listed.stdout
    assert "  ValueError: it " in listed.stdout
    assert "  ValueError: it " in shown.stdout.rpartition("OUTCOME")[2]
    assert "\x1b" not in shown.stdout + listed.stdout
    assert attempt["outcome"] == "FAILED"
    assert attempt == line


def test_a_failed_task_is_listed_with_the_type_of_its_failure(
    run: Run, server: ServerProcess, queue: str
) -> None:
    with SmallWorker(server.grpc, queue):
        task_id = enqueue(run, "fail", "--queue", queue, "--max-attempts", "1")
        assert run("tasks", "wait", task_id).exit_code == 1
    (_, row) = run("tasks", "ls", "--queue", queue).stdout.splitlines()
    assert "  ValueError: it " in row
    waiting = enqueue(run, "fail", "--queue", queue)
    run("tasks", "terminate", waiting)
    (_, row, _) = run("tasks", "ls", "--queue", queue).stdout.splitlines()
    assert row.endswith(" (TERMINATED)")


@pytest.mark.parametrize(
    "command", ["show", "cancel", "pause", "resume", "terminate", "retry", "attempts", "wait"]
)
def test_a_task_that_does_not_exist_is_not_found(run: Run, command: str) -> None:
    result = run("tasks", command, NOBODY)
    assert result.exit_code == 3
    assert f"Task {NOBODY} was not found" in result.stderr


def test_a_task_is_held_and_goes_on(run: Run, queue: str) -> None:
    task_id = enqueue(run, "mail", "--queue", queue)
    assert run("tasks", "pause", task_id).stdout == f"Task {task_id} is paused.\n"
    answer = read(run("tasks", "resume", task_id, "-o", "json"))
    assert answer == {"taskId": task_id, "state": "PENDING"}
    again = run("tasks", "resume", task_id)
    assert again.exit_code == 4
    assert "Next:" in again.stderr


def test_a_requested_pause_of_a_held_task_is_shown(
    run: Run, server: ServerProcess, queue: str
) -> None:
    with SmallWorker(server.grpc, queue) as worker:
        task_id = enqueue(run, "gate", "--queue", queue)
        eventually_sync(
            lambda: read(run("tasks", "show", task_id, "-o", "json"))["state"] == "RUNNING",
            "the worker runs it",
        )
        assert "\npause: " not in run("tasks", "show", task_id).stdout
        assert run("tasks", "pause", task_id).exit_code == 0
        assert "\npause:     requested: " in run("tasks", "show", task_id).stdout
        assert read(run("tasks", "show", task_id, "-o", "json"))["isPauseRequested"] is True
        worker.gate.set()


def test_a_terminated_task_has_failed_and_is_retried_as_a_new_one(run: Run, queue: str) -> None:
    task_id = enqueue(run, "mail", "--queue", queue)
    assert "has failed" in run("tasks", "terminate", task_id).stdout
    new_id = run("tasks", "retry", task_id).stdout.strip()
    task = read(run("tasks", "show", new_id, "-o", "json"))
    assert task["retryOf"] == task_id
    assert task["state"] == "PENDING"
    assert read(run("tasks", "retry", task_id, "-o", "json"))["retryOf"] == task_id


def test_a_task_is_completed_from_outside(run: Run, server: ServerProcess, queue: str) -> None:
    with SmallWorker(server.grpc, queue):
        good = enqueue(run, "defer", "--queue", queue)
        bad = enqueue(run, "defer", "--queue", queue, "--max-attempts", "5")
        for task_id in (good, bad):
            eventually_sync(
                lambda task_id=task_id: (  # type: ignore[misc]
                    read(run("tasks", "show", task_id, "-o", "json"))["state"] == "WAITING"
                ),
                "the worker leaves the end to others",
            )
    assert run("tasks", "complete", good, "--output", '{"approved": true}').exit_code == 0
    failed = run("tasks", "complete", bad, "--error", "no", "--error-type", "Refused", "--final")
    assert "has failed" in failed.stdout
    task = read(run("tasks", "show", good, "-o", "json"))
    assert (task["state"], task["output"]) == ("SUCCEEDED", {"approved": True})
    error = read(run("tasks", "show", bad, "-o", "json"))["error"]
    assert (error["type"], error["message"]) == ("Refused", "no")
    assert run("tasks", "complete", good, "--output", "1", "--attempt", "7").exit_code == 4


@pytest.mark.parametrize(
    "arguments", [(), ("--output", "1", "--error", "no"), ("--output", "1", "--final")]
)
def test_a_completion_is_either_good_or_bad(run: Run, arguments: tuple[str, ...]) -> None:
    assert run("tasks", "complete", NOBODY, *arguments).exit_code == 2


def test_the_names_in_json_are_those_of_http() -> None:
    assert set(ShownTask.__struct_encode_fields__) <= set(HttpTaskView.__struct_encode_fields__)
    assert set(ShownAttempt.__struct_encode_fields__) <= set(AttemptItem.__struct_encode_fields__)


def test_another_namespace_sees_nothing(run: Run, queue: str) -> None:
    task_id = enqueue(run, "mail", "--queue", queue)
    name = f"other-{queue}"
    created = run("namespaces", "create", name)
    assert created.stdout == f"Namespace {name}/default is ready.\n"
    assert run("tasks", "show", task_id, "--namespace", name).exit_code == 3
    assert run("namespaces", "create", name).exit_code == 4
    assert f"{name}/default" in run("namespaces", "ls").stdout.split()
    listed = read(run("namespaces", "ls", "-o", "json"))["namespaces"]
    assert f"{name}/default" in {each["name"] for each in listed}
    lines = run("namespaces", "ls", "-o", "jsonl").stdout.splitlines()
    assert [json.loads(line) for line in lines] == listed
