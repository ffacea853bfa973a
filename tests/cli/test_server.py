"""``tenure server`` as a process: what it says, and how it ends."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import urllib.request
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest

from tests.cli.conftest import invoke
from tests.cli.server import CLI, ServerProcess, read_addresses


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_says_where_it_is_and_stops_gracefully(
    tmp_path: Path, number: signal.Signals
) -> None:
    with ServerProcess(f"sqlite:///{tmp_path}/tenure.db", tmp_path / "log") as server:
        with urllib.request.urlopen(f"http://{server.http}/healthz", timeout=10) as answer:
            assert answer.status == 200
        assert invoke("tasks", "ls", "--target", server.grpc).exit_code == 0
        assert server.stop(number) == 0
    said = "".join(server.said)
    assert f"--target {server.grpc}" in said
    assert f"http://{server.http}/docs" in said
    assert "server.stopped" in (tmp_path / "log").read_text()


def test_a_server_logs_json_and_prints_nothing_else_when_asked(tmp_path: Path) -> None:
    arguments = ["server", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--log-format", "json"]
    with subprocess.Popen(
        [*CLI, *arguments, "--store", f"sqlite:///{tmp_path}/tenure.db"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        started = json.loads(process.stderr.readline())
        process.terminate()
        assert [json.loads(line)["level"] for line in process.stderr]
        assert process.stdout.read() == ""
    assert process.returncode == 0
    assert started["event"] == "server.started"
    assert {"http", "grpc"} <= started.keys()


def test_only_its_own_line_is_taken_for_the_addresses() -> None:
    line = "Tenure is listening: http=127.0.0.1:1 grpc=[::1]:2\n"
    assert read_addresses(line) == ("127.0.0.1:1", "[::1]:2")
    assert read_addresses("  Stop:   Ctrl-C\n") is None


def test_an_address_that_others_can_reach_needs_to_be_allowed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tenure.db"
    result = invoke("server", "--store", url, "--http", "0.0.0.0:0", "--grpc", "127.0.0.1:0")
    assert result.exit_code == 2
    assert "--insecure" in result.stderr
    assert "tenure keys create --role admin --store" in result.stderr


@pytest.mark.parametrize("address", ["7300", "host:", "127.0.0.1:99999"])
def test_an_address_that_cannot_be_read_is_refused(tmp_path: Path, address: str) -> None:
    url = f"sqlite:///{tmp_path}/tenure.db"
    result = invoke("server", "--store", url, "--grpc", address)
    assert result.exit_code == 2
    assert "grpc" in result.stderr


@pytest.mark.parametrize("edge", ["http", "grpc"])
def test_a_port_that_is_taken_is_told(tmp_path: Path, edge: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        addresses = {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0", edge: address}
        options = [f"--{name}={value}" for name, value in addresses.items()]
        result = invoke("server", "--store", f"sqlite:///{tmp_path}/tenure.db", *options)
    assert result.exit_code == 2, result.output
    assert f"Cannot listen on {address}" in result.stderr
    assert f"Change --{edge}." in result.stderr


def test_a_second_server_on_one_file_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tenure.db"
    with ServerProcess(url, tmp_path / "log"):
        result = invoke("server", "--store", url, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")
    assert result.exit_code == 4
    assert "Another Tenure server uses tenure.db" in result.stderr


@pytest.mark.parametrize("text", ["99ms", "16s", "-1s", "soon"])
def test_a_session_grace_that_cannot_work_is_refused(text: str) -> None:
    result = invoke("server", "--store", "sqlite:///x", "--session-grace", text)
    assert result.exit_code == 2
    assert repr(text) in result.stderr


def _status(address: str, host: str) -> int:
    with closing(HTTPConnection(address, timeout=10)) as connection:
        connection.request("GET", "/v1/tasks", headers={"Host": host})
        return connection.getresponse().status


def test_a_server_without_keys_answers_for_names_that_are_given(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tenure.db"
    given = ("--allow-host", "Tenure.internal", "--allow-host", "[2001:DB8:0::7]")
    with ServerProcess(url, tmp_path / "log", options=given) as server:
        for host in (server.http, "tenure.internal:7300", "[2001:db8::7]:7300"):
            assert _status(server.http, host) == 200
        assert _status(server.http, "evil.example:7300") == 403


@pytest.mark.parametrize("text", ["", "a:7300", "http://a", "a/b", "*", "a b", "-a", "a."])
def test_a_name_that_is_none_is_refused(text: str) -> None:
    result = invoke("server", "--store", "sqlite:///x", "--allow-host", text)
    assert result.exit_code == 2
    assert "allow-host must be a name or an address without a port" in result.stderr
