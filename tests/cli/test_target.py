"""Which server a command talks to: one of several, and none that speaks something else."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tenure import SyncClient
from tests.bounds import WAIT_S
from tests.cli.conftest import invoke, read
from tests.cli.server import CLI, ServerProcess
from tests.cli.worker import SmallWorker

NOBODY = "127.0.0.1:1"


def test_a_command_takes_several_targets_and_uses_the_first_that_answers(
    server: ServerProcess, queue: str
) -> None:
    env = {"TENURE_TARGET": f"{NOBODY}, {server.grpc}"}
    made = read(invoke("tasks", "enqueue", "x", "--queue", queue, "-o", "json", env=env))
    assert read(invoke("tasks", "show", made["taskId"], "-o", "json", env=env))["queue"] == queue
    looked = read(invoke("top", "--once", "-o", "json", "--http", server.http, env=env))
    assert looked["target"] == server.grpc


def test_none_of_several_targets_is_told_with_all_of_them() -> None:
    result = invoke("tasks", "ls", "--target", "127.0.0.1:1,127.0.0.1:2")
    assert result.exit_code == 5
    assert "no Tenure server at 127.0.0.1:1 or 127.0.0.1:2" in result.stderr


@pytest.mark.parametrize("text", ["", ",", "host", "127.0.0.1:7301,host"])
def test_what_is_no_target_is_refused(text: str) -> None:
    assert invoke("tasks", "ls", "--target", text).exit_code == 2


@pytest.mark.parametrize("text", ["http://127.0.0.1:7301", "host", ":7301", "127.0.0.1:7301,host"])
def test_a_target_that_a_client_refuses_is_refused_by_commands_too(text: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        SyncClient(text)
    result = invoke("tasks", "ls", "--target", text)
    assert result.exit_code == 2
    assert "HOST:PORT" in result.stderr


def test_rates_and_changes_come_from_the_first_http_address_that_answers(
    server: ServerProcess,
) -> None:
    address = f"{NOBODY},{server.http}"
    arguments = ("top", "--once", "-o", "json", "--target", server.grpc, "--http", address)
    assert read(invoke(*arguments))["enqueuedPerS"] >= 0


def test_a_wait_goes_on_at_the_next_target(tmp_path: Path, queue: str) -> None:
    url = f"sqlite:///{tmp_path}/tenure.db"
    with ServerProcess(url, tmp_path / "first") as first:
        # The address of a server that has gone is free for the one that comes.
        with ServerProcess(f"sqlite:///{tmp_path}/other.db", tmp_path / "other") as free:
            place = free.grpc
        env = {**os.environ, "TENURE_TARGET": f"{first.grpc},{place}"}
        arguments = ("tasks", "enqueue", "echo", "--queue", queue, "--input", "7", "--wait")
        with subprocess.Popen(
            [*CLI, *arguments], env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as waiting:
            assert waiting.stdout is not None
            assert waiting.stderr is not None
            assert "waiting for a worker" in waiting.stderr.readline()
            first.kill()
            with (
                ServerProcess(url, tmp_path / "second", grpc=place) as second,
                SmallWorker(second.grpc, queue),
            ):
                assert waiting.wait(WAIT_S) == 0
            assert json.loads(waiting.stdout.read()) == 7


@pytest.mark.parametrize("option", [(), ("--tls",)])
def test_the_http_port_as_target_is_explained(
    server: ServerProcess, option: tuple[str, ...]
) -> None:
    result = invoke("tasks", "ls", "--target", server.http, *option)
    assert result.exit_code == 5
    said = "does not speak TLS" if option else "It may be the HTTP port. Use the gRPC port"
    assert said in result.stderr
