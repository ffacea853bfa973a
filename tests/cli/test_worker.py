"""``tenure workers`` against a real server with real workers."""

from __future__ import annotations

import json
import os
import re
import signal
from typing import Any

import pytest

from tenure.api.http.route.worker import WorkerItem
from tenure.api.http.route.worker_look import HeldView, StopBlockerView, StopCheckView
from tenure.cli.show.view import ShownHeld, ShownStopBlocker, ShownStopCheck, ShownWorker
from tests.bounds import WAIT_S
from tests.cli.conftest import Run, read
from tests.cli.server import ServerProcess
from tests.cli.terminal import Terminal
from tests.cli.test_wait import start
from tests.cli.worker import SmallWorker
from tests.polling import eventually_sync

NOBODY = "00000000-0000-7000-8000-000000000000"


def show(run: Run, worker_id: str) -> Any:
    """Return a worker as JSON."""
    return read(run("workers", "show", worker_id, "-o", "json"))


def hold(run: Run, worker: SmallWorker, queue: str) -> str:
    """Let the worker hold a task until its gate opens."""
    task_id = run("tasks", "enqueue", "gate", "--queue", queue).stdout.strip()
    eventually_sync(
        lambda: show(run, worker.worker_id)["heldCount"] == 1, "the worker holds a task"
    )
    return task_id


def test_a_list_says_who_is_there_and_whether_it_may_be_stopped(
    run: Run, server: ServerProcess, queue: str
) -> None:
    with SmallWorker(server.grpc, queue, zone="a") as worker:
        listed = run("workers", "ls", "--queue", queue)
        item = read(run("workers", "ls", "--queue", queue, "-o", "jsonl"))
    header, row = listed.stdout.splitlines()
    columns = "WORKER NAME QUEUE STATUS HEALTH RUNNING LEASE STOP VERSION AGE ADDRESS"
    assert " ".join(header.split()) == columns
    assert row.split()[:6] == [worker.worker_id, "host:7", queue, "ONLINE", "HEALTHY", "0/2"]
    assert "drain first" in row
    assert item["mayStop"] is False
    assert 0 < item["leaseLeftMs"] <= item["lease"]["durationMs"]
    assert item["labels"] == {"zone": "a"}
    assert "instanceKey" not in item


def test_80_columns_show_short_ids_and_leave_out_what_matters_least(
    run: Run, server: ServerProcess, queue: str
) -> None:
    task_id = run("tasks", "enqueue", "nobody", "--queue", queue).stdout.strip()
    environment = {"TENURE_TARGET": server.grpc}
    with SmallWorker(server.grpc, queue) as worker:
        arguments = ("workers", "ls", "--queue", queue)
        with Terminal(*arguments, env=environment, columns=80) as terminal:
            assert terminal.exit_code() == 0
        said = [line.rstrip() for line in terminal.said.splitlines()]
    header, row, hidden = said
    assert header.split()[:6] == ["WORKER", "NAME", "QUEUE", "STATUS", "HEALTH", "RUNNING"]
    assert "STOP" in header
    assert row.startswith(f"{worker.worker_id[-8:]}  host:7  {queue}  ONLINE  HEALTHY  0/2")
    assert re.fullmatch(
        r"Hidden columns: .*VERSION, ADDRESS\. Use a wider terminal, or -o json\.", hidden
    )
    with Terminal("tasks", "ls", "--queue", queue, env=environment, columns=80) as terminal:
        assert terminal.exit_code() == 0
    assert task_id in terminal.said
    assert max(map(len, terminal.said.splitlines())) <= 80


def test_a_worker_is_found_by_a_part_of_its_id(run: Run, server: ServerProcess, queue: str) -> None:
    # Registered, but without a life of its own: it is evicted.
    second = SmallWorker(server.grpc, queue)
    with SmallWorker(server.grpc, queue) as first:
        assert show(run, first.worker_id[-8:])["workerId"] == first.worker_id
        # Ids begin with the time: both were made in the same minute, or in two.
        shared = run("workers", "show", second.worker_id[:4])
        assert shared.exit_code == 2
        assert second.worker_id in shared.stderr or " …" in shared.stderr
        missing = run("workers", "show", "ffff-ffff")
        assert missing.exit_code == 3
        assert "There is no worker with 'ffff-ffff' in its id." in missing.stderr
        drained = run("workers", "drain", first.worker_id[-8:])
        assert drained.stdout.strip() == first.worker_id
        evicted = run("workers", "evict", second.worker_id[-8:], "--yes", "-o", "json")
        assert read(evicted)["workerId"] == second.worker_id


def test_a_list_is_filtered(run: Run, server: ServerProcess, queue: str) -> None:
    def listed(*arguments: str) -> list[str]:
        answer = read(run("workers", "ls", "--queue", queue, "-o", "json", *arguments))
        return [worker["workerId"] for worker in answer["workers"]]

    with (
        SmallWorker(server.grpc, queue, zone="a") as first,
        SmallWorker(server.grpc, queue, zone="b") as second,
    ):
        assert set(listed()) == {first.worker_id, second.worker_id}
        assert listed("--label", "zone=a") == [first.worker_id]
        assert listed("--label", "zone=a", "--label", "zone=b") == [second.worker_id]
        assert set(listed("--version", f"{queue}-v1")) == {first.worker_id, second.worker_id}
        assert listed("--version", "other") == []
        assert listed("--status", "offline") == []
        assert len(listed("--limit", "1")) == 1


def test_a_worker_is_shown_with_what_it_holds(run: Run, server: ServerProcess, queue: str) -> None:
    with SmallWorker(server.grpc, queue) as worker:
        hold(run, worker, queue)
        shown = run("workers", "show", worker.worker_id)
    assert "status:     ONLINE" in shown.stdout
    assert "running:    1 of at most 2 tasks" in shown.stdout
    assert "types:      " in shown.stdout
    assert run("workers", "show", NOBODY).exit_code == 3


def test_a_drained_worker_may_be_stopped_as_soon_as_it_holds_nothing(
    run: Run, server: ServerProcess, queue: str
) -> None:
    with SmallWorker(server.grpc, queue) as worker:
        task_id = hold(run, worker, queue)
        result = run("workers", "drain", worker.worker_id, "--deadline", "1m")
        assert (result.exit_code, result.stdout) == (0, f"{worker.worker_id}\n")
        assert show(run, worker.worker_id)["mayStop"] is False
        assert "drain deadline: " in run("workers", "show", worker.worker_id).stdout
        worker.gate.set()
        assert run("tasks", "wait", task_id).exit_code == 0
        eventually_sync(lambda: show(run, worker.worker_id)["mayStop"], "the worker may be stopped")
        eventually_sync(lambda: show(run, worker.worker_id)["status"] == "OFFLINE", "it has left")
    again = run("workers", "drain", worker.worker_id)
    assert again.exit_code == 4
    (row,) = run("workers", "ls", "--queue", queue).stdout.splitlines()[1:]
    assert " deregistered " in row


def test_draining_by_label_waits_until_all_have_left(
    run: Run, server: ServerProcess, queue: str
) -> None:
    with (
        SmallWorker(server.grpc, queue, group=queue) as first,
        SmallWorker(server.grpc, queue, group=queue) as second,
    ):
        run("tasks", "enqueue", "gate", "--queue", queue)
        eventually_sync(
            lambda: any(show(run, each.worker_id)["heldCount"] for each in (first, second)),
            "one of them holds a task",
        )
        late = run("workers", "drain", "--label", f"group={queue}", "--wait", "--timeout", "50ms")
        assert late.exit_code == 124
        assert "running 1 tasks" in late.stderr
        arguments = ("workers", "drain", "--version", f"{queue}-v1", "--wait", "-o", "json")
        with start(server, *arguments) as draining:
            first.gate.set()
            second.gate.set()
            assert draining.wait(WAIT_S) == 0
            assert draining.stdout is not None
            drained = json.loads(draining.stdout.read())["workerIds"]
    assert set(drained) <= {first.worker_id, second.worker_id}
    for worker in (first, second):
        assert show(run, worker.worker_id)["status"] == "OFFLINE"


def test_draining_what_nobody_matches_changes_nothing(run: Run, queue: str) -> None:
    result = run("workers", "drain", "--label", f"group={queue}")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "No active worker matches" in result.stderr


@pytest.mark.parametrize("arguments", [(), (NOBODY, "--version", "1")])
def test_a_drain_names_one_worker_or_a_group(run: Run, arguments: tuple[str, ...]) -> None:
    assert run("workers", "drain", *arguments).exit_code == 2


def test_an_eviction_wants_a_yes(run: Run, server: ServerProcess, queue: str) -> None:
    worker = SmallWorker(server.grpc, queue)
    refused = run("workers", "evict", worker.worker_id)
    assert refused.exit_code == 2
    assert "--yes" in refused.stderr
    assert show(run, worker.worker_id)["status"] == "ONLINE"
    assert run("workers", "evict", worker.worker_id, "--yes").exit_code == 0
    assert show(run, worker.worker_id)["endReason"] == "evicted"


def test_a_person_is_asked_before_an_eviction(run: Run, server: ServerProcess, queue: str) -> None:
    worker = SmallWorker(server.grpc, queue)
    for answer, exit_code in ((b"n\n", 130), (b"y\n", 0)):
        ours, theirs = os.openpty()
        with start(server, "workers", "evict", worker.worker_id, stdin=theirs) as asking:
            os.write(ours, answer)
            assert asking.wait(WAIT_S) == exit_code
            assert asking.stderr is not None
            assert "Its 0 running tasks" in asking.stderr.read()
        os.close(ours)
        os.close(theirs)
    assert show(run, worker.worker_id)["endReason"] == "evicted"


def test_a_watched_list_is_redrawn_on_a_terminal(server: ServerProcess, queue: str) -> None:
    worker = SmallWorker(server.grpc, queue)
    ours, theirs = os.openpty()
    with start(server, "workers", "ls", "--queue", queue, "--watch", stdout=theirs) as watching:
        os.close(theirs)
        seen = b""
        while seen.count(worker.worker_id[-8:].encode()) < 2:
            seen += os.read(ours, 4096)
        watching.send_signal(signal.SIGINT)
        assert watching.wait(WAIT_S) == 130
    os.close(ours)


def test_a_watched_list_tells_each_change(run: Run, server: ServerProcess, queue: str) -> None:
    with (
        SmallWorker(server.grpc, queue) as worker,
        start(server, "workers", "ls", "--queue", queue, "--watch", "-o", "jsonl") as watching,
    ):
        assert watching.stdout is not None
        assert json.loads(watching.stdout.readline())["status"] == "ONLINE"
        run("workers", "drain", worker.worker_id)
        assert json.loads(watching.stdout.readline())["status"] in {"DRAINING", "OFFLINE"}
        watching.send_signal(signal.SIGINT)
        assert watching.wait(WAIT_S) == 130
    assert run("workers", "ls", "--watch", "-o", "json").exit_code == 2


def test_a_stop_is_safe_when_a_drained_worker_has_finished(
    run: Run, server: ServerProcess, queue: str
) -> None:
    version = ("--version", f"{queue}-v1")
    with SmallWorker(server.grpc, queue) as worker:
        task_id = hold(run, worker, queue)
        checked = run("workers", "stop-check", worker.worker_id)
        assert checked.exit_code == 1
        assert "Drain it first" in checked.stdout
        run("workers", "drain", worker.worker_id)
        shown = run("workers", "stop-check", *version, "-o", "json")
        reason = json.loads(shown.stdout)["reason"]
        assert (shown.exit_code, reason) == (1, "holds_attempts")
        assert task_id in run("workers", "stop-check", worker.worker_id[-8:]).stdout
        late = run("workers", "stop-check", *version, "--wait", "--timeout", "600ms")
        assert late.exit_code == 124
        worker.gate.set()
        waited = run("workers", "stop-check", *version, "--wait", "--timeout", "30s", "-o", "json")
        assert (waited.exit_code, read(waited)["isSafe"]) == (0, True)
        assert read(waited)["committedAt"]
    assert run("workers", "stop-check", "--version", "none", "--wait").exit_code == 1
    assert run("workers", "stop-check").exit_code == 2


def test_the_names_in_json_are_those_of_http() -> None:
    for ours, theirs in (
        (ShownWorker, WorkerItem),
        (ShownStopCheck, StopCheckView),
        (ShownHeld, HeldView),
        (ShownStopBlocker, StopBlockerView),
    ):
        assert set(ours.__struct_encode_fields__) <= set(theirs.__struct_encode_fields__)
