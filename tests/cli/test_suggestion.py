"""What the tab key offers, asked for as a shell does."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from tests.bounds import WAIT_S
from tests.cli.conftest import Run, invoke
from tests.cli.server import CLI, ServerProcess
from tests.cli.worker import SmallWorker


def completed(line: str, *, target: str = "", folder: Path | None = None) -> list[str]:
    """Return what is offered for the last word of a line; the shell sees nothing else."""
    asked = {
        "_TENURE_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split(" ")) - 1),
    }
    if target:
        asked["TENURE_TARGET"] = target
    ended = _ran(list(CLI), asked, folder)
    assert ended.stderr == ""
    return [line.partition(",")[2] for line in ended.stdout.splitlines() if line]


def _ran(
    command: list[str], environment: dict[str, str], folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        cwd=folder,
        timeout=WAIT_S,
    )


def test_commands_and_values_are_offered() -> None:
    assert completed("tenure wor") == ["worker", "workers"]
    assert completed("tenure tasks ls --state RUN") == ["running"]
    assert completed("tenure runs ls --status P") == ["pending", "parked", "paused"]


def test_ids_and_queues_of_the_server_are_offered(
    run: Run, server: ServerProcess, queue: str
) -> None:
    task_id = run("tasks", "enqueue", "nobody", "--queue", queue).stdout.strip()
    assert completed(f"tenure tasks show {task_id[:-2]}", target=server.grpc) == [task_id]
    assert task_id in completed("tenure tasks wait ", target=server.grpc)
    run_id = run("run", "nothing", "--queue", queue).stdout.strip()
    assert completed(f"tenure runs show {run_id[:-2]}", target=server.grpc) == [run_id]
    assert completed(f"tenure queues pause {queue}", target=server.grpc) == [queue]
    run("schedules", "put", f"each-{queue}", "report", "--rule", "@yearly")
    assert completed(f"tenure schedules pause each-{queue}", target=server.grpc) == [
        f"each-{queue}"
    ]
    assert completed(f"tenure tasks ls --queue {queue}", target=server.grpc) == [queue]
    with SmallWorker(server.grpc, queue) as worker:
        line = f"tenure workers drain --target {server.grpc} {worker.worker_id[:-2]}"
        assert completed(line) == [worker.worker_id]
    run("namespaces", "create", f"{queue}-acme")
    assert completed(f"tenure namespaces show {queue}-", target=server.grpc) == [
        f"{queue}-acme/default"
    ]


def test_zsh_and_fish_are_told_what_an_id_stands_for(
    run: Run, server: ServerProcess, queue: str
) -> None:
    task_id = run("tasks", "enqueue", "nobody", "--queue", queue).stdout.strip()
    words = f"tenure tasks show {task_id}"
    for shell, position in (("zsh", "3"), ("fish", task_id)):
        asked = {"COMP_WORDS": words, "COMP_CWORD": position, "TENURE_TARGET": server.grpc}
        answer = _ran(list(CLI), {**asked, "_TENURE_COMPLETE": f"{shell}_complete"})
        assert task_id in answer.stdout
        assert "nobody PENDING" in answer.stdout


def test_modules_of_the_folder_are_offered_and_not_imported(tmp_path: Path) -> None:
    (tmp_path / "app" / "jobs").mkdir(parents=True)
    for name in ("app/__init__.py", "app/tasks.py", "app/jobs/__init__.py", "app/jobs/mail.py"):
        (tmp_path / name).write_text("raise SystemExit('imported')")
    (tmp_path / "apple.py").write_text("raise SystemExit('imported')")
    found = ["app", "app.jobs", "app.tasks", "apple"]
    assert completed("tenure worker app", folder=tmp_path) == found
    assert completed("tenure dev app.j", folder=tmp_path) == ["app.jobs", "app.jobs.mail"]
    assert completed("tenure worker nothing.", folder=tmp_path) == []


@pytest.mark.parametrize("target", ["127.0.0.1:1", "no target"])
def test_without_a_server_nothing_is_offered_and_nothing_is_printed(target: str) -> None:
    assert completed("tenure tasks show ", target=target) == []


def test_a_server_that_does_not_answer_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert completed("tenure workers show ", target=f"127.0.0.1:{port}") == []


def test_the_script_of_bash_completes_a_word(tmp_path: Path) -> None:
    (tmp_path / "script").write_text(invoke("completion", "bash").stdout)
    program = tmp_path / "tenure"
    program.write_text(f'#!/bin/sh\nexec {" ".join(CLI)} "$@"\n')
    program.chmod(0o755)
    asked = "COMP_WORDS=(tenure na); COMP_CWORD=1; _tenure_completion tenure"
    lines = f'. {tmp_path}/script; {asked}; echo "${{COMPREPLY[@]}}"'
    path = f"{tmp_path}:{os.environ['PATH']}"
    said = _ran(["bash", "--norc", "-c", lines], {"PATH": path})
    assert (said.stdout.split(), said.stderr) == (["namespaces"], "")
