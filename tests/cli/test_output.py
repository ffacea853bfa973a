"""What is written, and what happens when nobody reads it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import msgspec

from tenure.cli.show.output import encoded
from tests.cli.conftest import Run
from tests.cli.server import CLI, ServerProcess


def test_a_payload_over_several_lines_is_written_on_one_in_jsonl(run: Run, queue: str) -> None:
    payload = '{\n  "a": [1,\n 2]\n}'
    task_id = run("tasks", "enqueue", "x", "--queue", queue, "--input", payload).stdout.strip()
    (line,) = run("tasks", "show", task_id, "-o", "jsonl").stdout.splitlines()
    assert json.loads(line)["input"] == {"a": [1, 2]}


def test_numbers_are_written_as_they_were_sent() -> None:
    raw = msgspec.Raw(b'{"a": 1e400, "b": 10000000000000000000000000000000000000001}')
    assert encoded({"x": raw}, indent=-1) == (
        b'{"x":{"a":1e400,"b":10000000000000000000000000000000000000001}}'
    )


def test_a_closed_pipe_is_quiet(run: Run, server: ServerProcess, queue: str) -> None:
    big = json.dumps("x" * 100_000)
    for _ in range(3):
        run("tasks", "enqueue", "x", "--queue", queue, "--label", "note=" + "y" * 200, input=big)
    arguments = ["tasks", "ls", "--queue", queue, "--all", "-o", "jsonl"]
    with subprocess.Popen(
        [*CLI, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "TENURE_TARGET": server.grpc},
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_a_terminal_gets_colour_and_a_file_does_not(
    run: Run, server: ServerProcess, queue: str, tmp_path: Path
) -> None:
    run("tasks", "enqueue", "x", "--queue", queue)
    ours, theirs = os.openpty()
    environment = {**os.environ, "TENURE_TARGET": server.grpc, "TERM": "xterm", "COLUMNS": "200"}
    environment.pop("NO_COLOR", None)
    command = [*CLI, "tasks", "ls", "--queue", queue]
    subprocess.run(command, check=True, stdout=theirs, env=environment)
    os.close(theirs)
    with (tmp_path / "file").open("wb") as file:
        subprocess.run(command, check=True, stdout=file, env=environment)
    assert b"\x1b[" in os.read(ours, 100_000)
    os.close(ours)
    assert b"\x1b" not in (tmp_path / "file").read_bytes()
