"""``tenure run`` and ``tenure runs`` against a real server."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tenure.api.http.route.run.view import EntryItem, RunItem
from tenure.cli.client import wait
from tenure.cli.parameter import RUN_STATUSES
from tenure.cli.show.run_table import entry_columns, tree
from tenure.cli.show.run_view import ShownChildEnd, ShownEntry, ShownGroupEnd, ShownRun
from tenure.cli.show.table import lines
from tenure.core.limits import SIGNAL_BYTES_MAX
from tenure.core.run.status import RunStatus
from tests.cli.conftest import Run, read
from tests.cli.server import ServerProcess
from tests.cli.worker import SmallWorker
from tests.polling import eventually_sync

NOBODY = "00000000-0000-7000-8000-000000000000"


def start(run: Run, *arguments: str) -> str:
    """Start a run and return its id."""
    result = run("run", *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout.strip()


def shown(run: Run, run_id: str) -> Any:
    return read(run("runs", "show", run_id, "-o", "json"))


def until_status(run: Run, run_id: str, status: str) -> None:
    eventually_sync(lambda: shown(run, run_id)["status"] == status)


def test_a_started_run_prints_nothing_but_its_id_to_stdout(run: Run, queue: str) -> None:
    result = run("run", "order", "--queue", queue)
    run_id = result.stdout.removesuffix("\n")
    assert (result.exit_code, len(run_id)) == (0, 36)
    assert result.stderr == f"Look at it: tenure runs show {run_id}\n"
    found = shown(run, run_id)
    assert (found["runId"], found["status"], found["entries"]) == (run_id, "PENDING", [])
    assert found["retry"]["maximumAttempts"] == 1
    answer = read(run("run", "order", "--queue", queue, "-o", "json"))
    assert (answer["status"], answer["isNew"]) == ("PENDING", True)


def test_every_option_reaches_the_run(run: Run, queue: str) -> None:
    options = "--priority 2 --at 2100-01-31T09:00:00+01:00 --max-attempts 3 --schedule-to-close 1h"
    run_id = start(
        run,
        *("order", '{"id": 42}', "--queue", queue, *options.split()),
        *("--key", f"{queue}-key", "--label", "zone=a"),
    )
    found = shown(run, run_id)
    assert (found["type"], found["queue"], found["input"]) == ("order", queue, {"id": 42})
    assert (found["priority"], found["runAt"]) == (2, "2100-01-31T08:00:00.000Z")
    assert (found["retry"]["maximumAttempts"], found["timeoutMs"]) == (3, 3_600_000)
    assert (found["labels"], found["idempotencyKey"]) == ({"zone": "a"}, f"{queue}-key")
    again = run("run", "order", '{"id": 42}', "--queue", queue, "--key", f"{queue}-key")
    assert (again.exit_code, "Error" in again.stderr) == (4, True)
    assert "Use another --key or --id" in again.stderr


def test_the_same_key_again_is_the_same_run(run: Run, queue: str) -> None:
    first = start(run, "order", "--queue", queue, "--key", f"{queue}-key")
    again = run("run", "order", "--queue", queue, "--key", f"{queue}-key")
    assert again.stdout.strip() == first
    assert "A run with this key exists already" in again.stderr


def test_a_run_is_waited_for(run: Run, server: ServerProcess, queue: str) -> None:
    with SmallWorker(server.grpc, queue):
        done = run("run", "echo", '{"a": 1}', "--queue", queue, "--wait")
        assert (done.exit_code, json.loads(done.stdout)) == (0, {"a": 1})
        assert "Run " in done.stderr
        assert "succeeded" in done.stderr
        whole = read(run("run", "echo", "7", "--queue", queue, "--wait", "-o", "json"))
        assert (whole["status"], whole["output"]) == ("COMPLETED", 7)
        failed = run("run", "fail", "--queue", queue, "--wait")
        assert failed.exit_code == 1
        assert "Next: tenure runs show" in failed.stderr
    late = run("run", "echo", "--queue", queue, "--wait", "--timeout", "10ms")
    assert late.exit_code == 124


def test_a_wait_for_a_parked_run_says_once_why_and_what_to_do(
    run: Run, server: ServerProcess, queue: str
) -> None:
    with SmallWorker(server.grpc, queue):
        result = run("run", "park", "--queue", queue, "--wait", "--timeout", "3s")
    assert result.exit_code == 124
    told, *_ = [line for line in result.stderr.splitlines() if ": parked: " in line]
    run_id = told.split(":")[0]
    why = "journal_mismatch: at 3 the journal has charge, the code calls check"
    resume, terminate = (f"tenure runs {verb} {run_id}" for verb in ("resume", "terminate"))
    assert told == f"{run_id}: parked: {why}. Try it again: {resume}. End it: {terminate}"
    assert result.stderr.splitlines().count(told) == 1
    assert result.stderr.count(told) == 2, "it is also why the wait timed out"
    assert f"Look at it: tenure runs show {run_id}" in result.stderr
    assert "tenure tasks" not in result.stderr


def test_a_wait_for_a_run_that_no_worker_takes_names_the_commands_of_runs(
    run: Run, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wait, "STALLED_MS", 10)
    result = run("run", "echo", "--queue", queue, "--wait", "--timeout", "2s")
    assert result.exit_code == 124
    assert "no_worker: No worker serves queue" in result.stderr
    assert "What to do: tenure runs show " in result.stderr
    assert "Look at it: tenure runs show " in result.stderr
    assert "tenure tasks" not in result.stderr


def test_a_run_that_waits_shows_for_what_and_a_signal_wakes_it(
    run: Run, server: ServerProcess, queue: str
) -> None:
    with SmallWorker(server.grpc, queue):
        run_id = start(run, "approval", "[1]", "--queue", queue)
        until_status(run, run_id, "WAITING")
        text = run("runs", "show", run_id).stdout
        assert "signal approve since 1970-01-01T00:00:00.001Z at expense.py:9" in text
        assert "timer timeout (until 1970-01-01T00:00:01.000Z)" in text
        assert "and 1 more" in text
        assert '"asked": "ann"' in text
        assert "signal approve, timer timeout, …" in run("runs", "ls", "--queue", queue).stdout
        signal = ("runs", "signal", run_id, "approve", '{"ok": true}', "--id", "s1")
        assert run(*signal).stdout == f"Run {run_id} has the signal approve.\n"
        until_status(run, run_id, "COMPLETED")
        found = shown(run, run_id)
        assert (found["output"], found["state"]) == ([1], {"asked": "ann"})
        (entry,) = found["entries"]
        assert (entry["kind"], entry["key"], entry["output"]) == ("SIGNAL", "approve", {"ok": True})
        assert "approve  SIGNAL  -     " in run("runs", "show", run_id).stdout
        # It is known by its id, also after the end.
        assert read(run(*signal, "-o", "json")) == {"runId": run_id, "isNew": False}
        ended = run("runs", "signal", run_id, "approve")
        assert ended.exit_code == 4
        assert "Next: See how it ended: tenure runs show ID" in ended.stderr


def test_a_run_shows_its_children_and_a_child_its_run(
    run: Run, server: ServerProcess, queue: str
) -> None:
    with SmallWorker(server.grpc, queue):
        run_id = start(run, "parent", "--queue", queue)
        done = "map:echo 2 of 5 done, 1 failed"
        eventually_sync(lambda: done in run("runs", "show", run_id).stdout)
    text = run("runs", "show", run_id).stdout
    assert "1 child" in text
    found = shown(run, run_id)
    assert found["openChildCount"] == 1
    (group,) = found["groups"]
    assert (group["key"], group["total"], group["spawned"]) == ("map:echo", 5, 3)
    assert (group["openCount"], group["failed"]) == (1, 1)
    listed = read(run("tasks", "ls", "--queue", queue, "--type", "nobody", "-o", "json"))
    children = [
        read(run("tasks", "show", each["taskId"], "-o", "json")) for each in listed["tasks"]
    ]
    assert {each["stepKey"] for each in children} == {"1/pack", "map:echo"}
    assert {each["parentId"] for each in children} == {run_id}
    (own,) = [each for each in children if each["stepKey"] == "1/pack"]
    assert f"1/pack of run {run_id}" in run("tasks", "show", own["taskId"]).stdout
    assert run("tasks", "cancel", own["taskId"]).exit_code == 0
    entries = shown(run, run_id)["entries"]
    (end,) = [each for each in entries if each["kind"] == "CHILD"]
    assert end["child"] == {"taskId": own["taskId"], "type": "nobody", "state": "CANCELLED"}
    assert own["taskId"] in run("runs", "show", run_id).stdout


def test_the_end_of_a_group_is_one_line_of_the_journal() -> None:
    group = ShownGroupEnd("id", total=5, succeeded=3, failed=1, cancelled=1)
    child = ShownChildEnd("task", "pack", "SUCCEEDED")
    found = tree(
        [
            entry(1, "map:echo", "GROUP", group=group),
            entry(2, "1/pack", "CHILD", child=child, took_ms=7),
        ]
    )
    text = [str(line) for line in lines(entry_columns(), found, 200)]
    assert text[1].endswith("3 of 5 succeeded, 1 failed, 1 cancelled")
    assert text[3].split()[3:5] == ["CHILD", "7ms"]
    assert text[3].endswith("task")


def test_a_parked_run_says_why_and_is_tried_again(
    run: Run, server: ServerProcess, queue: str
) -> None:
    with SmallWorker(server.grpc, queue):
        run_id = start(run, "park", "--queue", queue)
        until_status(run, run_id, "PARKED")
        text = run("runs", "show", run_id).stdout
        assert "journal_mismatch: at 3 the journal has charge, the code calls check" in text
        assert "wakes in" in text
        listed = read(run("runs", "ls", "--queue", queue, "--status", "parked", "-o", "json"))
        assert [each["runId"] for each in listed["runs"]] == [run_id]
        assert run("runs", "resume", run_id).stdout == f"Run {run_id} is pending.\n"
        eventually_sync(lambda: shown(run, run_id).get("parkCount") == 2)
        assert "2 times in a row" in run("runs", "show", run_id).stdout


def test_a_run_is_cancelled_and_terminated(run: Run, queue: str) -> None:
    first, second = (start(run, "order", "--queue", queue) for _ in range(2))
    cancelled = run("runs", "cancel", first, "--reason", "enough")
    assert cancelled.stdout == f"Run {first} is cancelled.\n"
    assert read(run("runs", "terminate", second, "-o", "json")) == {
        "runId": second,
        "status": "FAILED",
    }
    text = run("runs", "ls", "--queue", queue).stdout
    assert "enough" in text
    assert "TERMINATED" in text
    again = run("runs", "cancel", first)
    assert again.exit_code == 4
    assert "Next: See how it ended: tenure runs show ID" in again.stderr
    resumed = run("runs", "resume", first)
    assert resumed.exit_code == 4
    assert "Only a paused or a parked run is resumed" in resumed.stderr


def test_a_cancel_may_be_waited_for(run: Run, server: ServerProcess, queue: str) -> None:
    with SmallWorker(server.grpc, queue):
        run_id = start(run, "gate", "--queue", queue)
        until_status(run, run_id, "RUNNING")
        result = run("runs", "cancel", run_id, "--wait")
        assert (result.exit_code, "was cancelled" in result.stderr) == (0, True)


def test_a_pending_run_says_why(run: Run, queue: str) -> None:
    run_id = start(run, "order", "--queue", queue)
    result = run("runs", "show", run_id)
    assert "no_worker" in result.stdout
    assert result.stderr == f"What to do: tenure tasks explain {run_id}\n"
    run("tasks", "pause", run_id)
    assert f"tenure runs resume {run_id}" in run("tasks", "explain", run_id).stdout
    assert run("runs", "resume", run_id).stdout == f"Run {run_id} is pending.\n"


def test_runs_are_listed_by_filters_and_pages(run: Run, queue: str) -> None:
    first = start(run, "order", "--queue", queue, "--label", "zone=a")
    second = start(run, "refund", "--queue", queue, "--delay", "10m")

    def listed(*arguments: str) -> list[str]:
        found = read(run("runs", "ls", "--queue", queue, "-o", "json", *arguments))
        return [each["runId"] for each in found["runs"]]

    assert listed() == [second, first]
    assert listed("--type", "refund") == [second]
    assert listed("--label", "zone=a") == [first]
    assert listed("--status", "completed") == []
    assert listed("--created-from", "2000-01-01T00:00:00Z") == [second, first]
    assert listed("--created-to", "2000-01-01T00:00:00Z") == []
    page = read(run("runs", "ls", "--queue", queue, "--limit", "1", "-o", "json"))
    assert listed("--page-token", page["nextPageToken"]) == [first]
    assert "starts in 9m" in run("runs", "ls", "--queue", queue).stdout
    assert run("runs", "ls", "--type", "nothing").stderr == "No runs found.\n"
    all_lines = run("runs", "ls", "--queue", queue, "--all", "-o", "jsonl").stdout.splitlines()
    assert [json.loads(line)["runId"] for line in all_lines] == [second, first]


def test_a_run_among_tasks_is_told_apart(run: Run, queue: str) -> None:
    start(run, "order", "--queue", queue)
    assert "order (run)" in run("tasks", "ls", "--queue", queue).stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("run", "two words"), 2, "workflow_type must have 1 to 255 characters"),
        (("run", "order", "{bad"), 2, "is not JSON"),
        (("run", "order", "--delay", "5s", "--at", "2100-01-01T00:00:00Z"), 2, "not both"),
        (("run", "order", "--timeout", "5s"), 2, "--timeout needs --wait"),
        (("run", "order", "--schedule-to-close", "-5s"), 2, "must be a duration"),
        (("runs", "ls", "--status", "asleep"), 2, "is not one of"),
        (("runs", "ls", "--created-from", "noon"), 2, "must be an instant"),
        (("runs", "show", "x"), 2, "run_id must be a UUID"),
        (("runs", "show", NOBODY), 3, "List the runs: tenure runs ls"),
        (("runs", "signal", NOBODY, "go"), 3, "List the runs: tenure runs ls"),
        (("runs", "cancel", NOBODY), 3, f"Run {NOBODY} was not found."),
        (("runs", "terminate", NOBODY), 3, f"Run {NOBODY} was not found."),
        (("runs", "resume", NOBODY), 3, f"Run {NOBODY} was not found."),
    ],
)
def test_bad_input_is_refused_with_what_to_do(
    run: Run, arguments: tuple[str, ...], code: int, message: str
) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in result.stderr


def test_a_run_of_another_namespace_and_a_task_are_not_found(run: Run, queue: str) -> None:
    run_id = start(run, "order", "--queue", queue)
    assert run("runs", "show", run_id, "--namespace", "other").exit_code == 3
    task_id = run("tasks", "enqueue", "mail", "--queue", queue).stdout.strip()
    assert run("runs", "show", task_id).exit_code == 3


def test_a_signal_that_is_too_large_is_refused_with_the_limit(run: Run, queue: str) -> None:
    run_id = start(run, "order", "--queue", queue)
    large = json.dumps("x" * SIGNAL_BYTES_MAX)
    result = run("runs", "signal", run_id, "go", "-", input=large)
    assert result.exit_code == 2
    assert "a signal has at most 256 KiB" in result.stderr
    assert shown(run, run_id)["entries"] == []


def test_a_long_journal_is_shown_in_part_and_read_in_pages(run: Run, queue: str) -> None:
    run_id = start(run, "order", "--queue", queue)
    for number in range(3):
        run("runs", "signal", run_id, f"s{number}")
    result = run("runs", "show", run_id, "--limit", "2")
    assert "s1" in result.stdout
    assert "s2" not in result.stdout
    assert "There are 1 more entries. All: --all." in result.stderr
    whole = run("runs", "show", run_id, "--all")
    assert "s2" in whole.stdout


def entry(pos: int, key: str, kind: str = "STEP", **fields: Any) -> ShownEntry:
    at = f"2030-01-01T00:00:{pos:02}.000Z"
    return ShownEntry(pos=pos, at=at, kind=kind, key=key, **fields)


def test_a_journal_is_a_tree_of_branches_with_their_durations() -> None:
    found = tree(
        [
            entry(1, "load", took_ms=12),
            entry(2, "1/pack", took_ms=300, attempts=2, started_at="2030-01-01T00:00:01.500Z"),
            entry(3, "2/pay", "BEGUN"),
            entry(4, "order-7/1/ship#2", took_ms=5),
            entry(5, "1/label", took_ms=40, site="orders.py:12"),
            entry(6, "2/pay", took_ms=2_000, started_at="2030-01-01T00:00:03.000Z"),
            entry(7, "approve", "SIGNAL", sender="ann", output=msgspec.Raw(b'{"ok": true}')),
            entry(8, "2/refund", "BEGUN"),
            entry(9, "@log", "NOTE", output_base64="c2hpcHBlZA==", encoding="info"),
        ]
    )
    assert [(each.depth, each.name, each.took_ms) for each in found] == [
        (0, "load", 12),
        (0, "1/", 3_500),
        (1, "pack", 300),
        (1, "label", 40),
        (0, "order-7/", 0),
        (1, "1/", 0),
        (2, "ship#2", 5),
        (0, "2/", 5_000),
        (1, "pay", 2_000),
        (1, "refund", None),
        (0, "approve", None),
        (0, "@log", None),
    ]
    text = [str(line) for line in lines(entry_columns(), found, 200)]
    assert text[0].split() == ["POS", "CALL", "KIND", "TOOK", "AT", "NOTE"]
    assert text[2].split() == ["-", "1/", "branch", "3.5s", "-", "-"]
    assert text[3].startswith("2    │ pack")
    assert text[3].endswith("2 attempts")
    assert text[7].startswith("4    │ │ ship#2")
    assert text[11].endswith('from ann, {"ok": true}')
    assert text[12].endswith("info: shipped")


def test_the_names_are_those_of_http_and_the_statuses_those_of_the_server() -> None:
    for kind, http in ((ShownRun, RunItem), (ShownEntry, EntryItem)):
        ours = {each.encode_name for each in msgspec.structs.fields(kind)}
        theirs = {each.encode_name for each in msgspec.structs.fields(http)}
        assert ours <= theirs
    assert set(RUN_STATUSES) == {each.upper() for each in RunStatus}


def test_a_run_is_found_by_the_id_that_its_user_chose(run: Run, queue: str) -> None:
    name = f"{queue}-order-42"
    order = ("run", "order", "--queue", queue, "--id", name)
    run_id = start(run, *order[1:])
    again = run(*order, '{"a": 1}', "-o", "json")
    answer = read(again)
    assert (answer["runId"], answer["isNew"], answer["contentDiffers"]) == (run_id, False, True)
    told = run(*order).stderr
    assert "A run with this id exists already" in told
    listed = read(run("runs", "ls", "--id", f"{queue}-o", "-o", "json"))
    assert [each["externalId"] for each in listed["runs"]] == [name]
    assert name in run("runs", "show", f"external:{name}").stdout
    refused = run(*order, "--on-live", "reject")
    assert refused.exit_code == 4
    assert "tenure runs show external:ID" in refused.stderr
    assert run("runs", "cancel", f"external:{name}", "--wait").exit_code == 0
    assert run(*order, "--on-finished", "reject").exit_code == 4
    assert start(run, *order[1:]) != run_id


def test_a_finished_run_is_retried(run: Run, server: ServerProcess, queue: str) -> None:
    run_id = start(run, "order", "--queue", queue)
    live = run("runs", "retry", run_id)
    assert (live.exit_code, "only a finished one" in live.stderr) == (4, True)
    run("runs", "terminate", run_id)
    made = run("runs", "retry", run_id)
    assert made.exit_code == 0
    assert f"It keeps 0 entries of run {run_id}." in made.stderr
    new_id = made.stdout.strip()
    assert shown(run, new_id)["retryOf"] == run_id
    assert run_id in run("runs", "show", new_id).stdout
    missing = run("runs", "retry", run_id, "--from-step", "last")
    assert "Retry it without a step" in missing.stderr
    both = run("runs", "retry", run_id, "--from-step", "a", "--from-position", "1")
    assert both.exit_code == 2
    run("runs", "terminate", new_id)
    told = read(run("runs", "retry", new_id, "-o", "json"))
    assert (told["retryOf"], told["keptEntries"]) == (new_id, 0)
    with SmallWorker(server.grpc, queue):
        echo = start(run, "echo", "7", "--queue", queue, "--wait", "-o", "json")
        waited = run("runs", "retry", json.loads(echo)["runId"], "--wait")
        assert (waited.exit_code, json.loads(waited.stdout)) == (0, 7)


def test_all_parked_runs_are_tried_again_by_type(
    run: Run, server: ServerProcess, queue: str
) -> None:
    with SmallWorker(server.grpc, queue):
        ids = [start(run, "park", "--queue", queue) for _ in range(3)]
        for run_id in ids:
            until_status(run, run_id, "PARKED")
        listed = read(run("runs", "ls", "--parked", "--queue", queue, "-o", "json"))
        assert {each["runId"] for each in listed["runs"]} == {*ids}
        assert run("runs", "resume", "--parked", "--type", "nobody").stdout == (
            "0 parked runs are tried again.\n"
        )
        tried = read(run("runs", "resume", "--parked", "--type", "park", "-o", "json"))
        assert tried["resumed"] >= len(ids)
        eventually_sync(lambda: all(shown(run, each)["parkCount"] >= 2 for each in ids))


@pytest.mark.parametrize(
    "arguments",
    [
        ("resume",),
        ("resume", NOBODY, "--parked"),
        ("resume", NOBODY, "--type", "park"),
        ("ls", "--parked", "--status", "PENDING"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    run: Run, arguments: tuple[str, ...]
) -> None:
    assert run("runs", *arguments).exit_code == 2
