"""``tenure tasks tail`` against a real server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pytest

from tenure.cli.command import tail
from tests.bounds import WAIT_S
from tests.cli.conftest import Run, invoke
from tests.cli.server import CLI, ServerProcess
from tests.cli.worker import SmallWorker
from tests.polling import eventually_sync


class Following:
    """A tail that runs, and what it has written."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self.notes: list[str] = []
        self._threads = [
            threading.Thread(target=self._read, args=(process.stdout, self.lines)),
            threading.Thread(target=self._read, args=(process.stderr, self.notes)),
        ]
        for each in self._threads:
            each.start()

    def _read(self, stream: Any, lines: list[str]) -> None:
        lines.extend(iter(stream.readline, ""))

    def end(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.wait()

    def wait(self) -> int:
        code = self.process.wait(WAIT_S)
        for each in self._threads:
            each.join(WAIT_S)
        return code

    def changes(self, task_id: str) -> list[tuple[int, str]]:
        """Return the versions and states of a task that were shown."""
        found = [json.loads(line) for line in self.lines]
        return [(each["version"], each["state"]) for each in found if each["taskId"] == task_id]


@contextmanager
def following(server: ServerProcess, *arguments: str) -> Iterator[Following]:
    """Run a tail until it listens."""
    environment = {**os.environ, "TENURE_TARGET": server.grpc, "TENURE_HTTP": server.http}
    with subprocess.Popen(
        [*CLI, "tasks", "tail", *arguments],
        text=True,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        made = Following(process)
        try:
            yield made
        finally:
            if process.poll() is None:
                process.kill()


def enqueue(run: Run, type_name: str, queue: str, *options: str) -> str:
    return run("tasks", "enqueue", type_name, "--queue", queue, *options).stdout.strip()


def test_each_change_is_a_line(run: Run, server: ServerProcess, queue: str) -> None:
    old = enqueue(run, "nobody", queue)
    with following(server, "--queue", queue) as tail:
        eventually_sync(lambda: bool(tail.notes), "it listens")
        task_id = enqueue(run, "nobody", queue)
        enqueue(run, "nobody", f"{queue}-other")
        run("tasks", "cancel", task_id)
        eventually_sync(lambda: "CANCELLED" in "".join(tail.lines), "the cancel")
        assert tail.end() == 130
    header, *rows = tail.lines
    assert header.split() == ["TIME", "TASK", "TYPE", "QUEUE", "STATE", "WORKER", "ATTEMPT", "NOTE"]
    assert {row.split()[1] for row in rows} == {task_id}
    assert rows[-1].split()[1:7] == [task_id, "nobody", queue, "CANCELLED", "-", "-"]
    assert old not in "".join(tail.lines)


def test_progress_is_a_line_with_its_percentage(
    run: Run, server: ServerProcess, queue: str
) -> None:
    with SmallWorker(server.grpc, queue) as worker, following(server, "--queue", queue) as tail:
        eventually_sync(lambda: bool(tail.notes), "it listens")
        enqueue(run, "gate", queue)
        eventually_sync(lambda: "50 % half-way" in "".join(tail.lines), "the progress")
        worker.gate.set()
        eventually_sync(lambda: "SUCCEEDED" in "".join(tail.lines), "the end")
        assert tail.end() == 130


def test_with_a_state_there_are_no_lines_of_progress(
    run: Run, server: ServerProcess, queue: str
) -> None:
    chosen = ("--queue", queue, "--state", "running")
    with (
        SmallWorker(server.grpc, queue) as worker,
        following(server, "--queue", queue) as everything,
        following(server, *chosen) as tail,
    ):
        eventually_sync(lambda: bool(everything.notes and tail.notes), "both listen")
        enqueue(run, "gate", queue)
        eventually_sync(lambda: "".join(everything.lines).count("50 %") > 3, "some progress")
        worker.gate.set()
        eventually_sync(lambda: "SUCCEEDED" in "".join(everything.lines), "the end")
        assert (tail.end(), everything.end()) == (130, 130)
    assert len(tail.lines[1:]) == 1


def test_types_and_states_are_chosen(run: Run, server: ServerProcess, queue: str) -> None:
    arguments = ("--queue", queue, "--type", "fail", "--state", "failed", "-o", "jsonl")
    with SmallWorker(server.grpc, queue) as worker, following(server, *arguments) as tail:
        # Nothing tells when it listens, but that it shows something.
        failed: list[str] = []

        def is_shown() -> bool:
            failed.append(enqueue(run, "fail", queue, "--max-attempts", "1"))
            return bool(tail.lines)

        eventually_sync(is_shown, "a failed task")
        enqueue(run, "echo", queue, "--input", "1")
        last = enqueue(run, "fail", queue, "--max-attempts", "1")
        eventually_sync(lambda: bool(tail.changes(last)), "the last one")
        assert tail.end() == 130
    found = [json.loads(line) for line in tail.lines]
    assert {(each["type"], each["state"]) for each in found} == {("fail", "FAILED")}
    assert {each["workerId"] for each in found} == {worker.worker_id}
    assert len({each["taskId"] for each in found}) == len(found)


def test_runs_are_followed_too_also_by_their_state(
    run: Run, server: ServerProcess, queue: str
) -> None:
    chosen = ("--queue", queue, "--state", "waiting", "-o", "jsonl")
    with SmallWorker(server.grpc, queue), following(server, *chosen) as tail:

        def is_shown() -> bool:
            run("run", "park", "--queue", queue)
            return bool(tail.lines)

        # Nothing tells when it listens, but that it shows something.
        eventually_sync(is_shown, "a parked run")
        assert tail.end() == 130
    found = [json.loads(line) for line in tail.lines]
    assert {(each["type"], each["state"]) for each in found} == {("park", "WAITING")}


def test_it_goes_on_over_a_restart_and_shows_nothing_twice(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tenure.db"

    def enqueued(server: ServerProcess) -> str:
        made = invoke("tasks", "enqueue", "mail", env={"TENURE_TARGET": server.grpc})
        return made.stdout.strip()

    with ServerProcess(url, tmp_path / "log") as server, following(server) as tail:
        eventually_sync(lambda: bool(tail.notes), "it listens")
        first = enqueued(server)
        eventually_sync(lambda: first in "".join(tail.lines), "the first task")
        assert server.stop() == 0
        eventually_sync(lambda: "Trying again." in "".join(tail.notes), "it says so")
        again = ServerProcess(url, tmp_path / "log", grpc=server.grpc, http=server.http)
        with again:
            # What happens before it is back is found in the list after the reset.
            second = enqueued(again)
            eventually_sync(lambda: second in "".join(tail.lines), "the second task")
            third = enqueued(again)
            eventually_sync(lambda: third in "".join(tail.lines), "the third task")
            # From its first key on the server is not open any more: who listens is told.
            made = invoke("keys", "create", "--role", "admin", env={"TENURE_TARGET": again.grpc})
            assert made.exit_code == 0
            assert tail.wait() == 6
    shown = [row.split()[1] for row in tail.lines[1:]]
    assert shown == [first, second, third]


def test_without_a_server_it_ends_at_once(run: Run, server: ServerProcess) -> None:
    result = run("tasks", "tail", "--http", "127.0.0.1:1")
    assert result.exit_code == 5
    assert "--http" in result.stderr
    assert run("tasks", "tail", "-o", "json").exit_code == 2
    refused = run("tasks", "tail", "--namespace", "nobody", "--http", server.http)
    assert refused.exit_code == 3


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (None, ["TIME", "TASK", "TYPE", "QUEUE", "STATE", "WORKER", "ATTEMPT", "NOTE"]),
        (125, ["TIME", "TASK", "TYPE", "QUEUE", "STATE", "WORKER", "ATTEMPT", "NOTE"]),
        (90, ["TIME", "TASK", "TYPE", "STATE", "NOTE"]),
        (80, ["TIME", "TASK", "STATE", "NOTE"]),
        (60, ["TIME", "TASK", "STATE"]),
    ],
)
def test_a_narrow_terminal_leaves_columns_out(width: int | None, expected: list[str]) -> None:
    header = ("TIME", "TASK", "TYPE", "QUEUE", "STATE", "WORKER", "ATTEMPT", "NOTE")
    assert tail.line(header, width).split() == expected
    cells = ("09:00:00", "t" * 36, "type" * 9, "queue", "RUNNING", "w" * 36, "1", "n" * 99)
    assert width is None or len(click.unstyle(tail.line(cells, width))) <= width
