"""What a server logs while its PostgreSQL is stopped and started again, and while it is watched."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Final

import httpx

from tests.bounds import ANSWER_S, WAIT_S
from tests.cli.conftest import invoke
from tests.cli.server import CLI, ServerProcess
from tests.cli.worker import SmallWorker
from tests.polling import eventually_sync
from tests.postgres import PostgresServer

LINE: Final = re.compile(r"\S+ \[(?P<level>\w+) *\] (?P<event>\S+) +\[\S+\](?P<fields>.*)")
FIELD: Final = re.compile(r"(\w+)=('[^']*'|\S+)")


def events(log: Path) -> list[dict[str, str]]:
    """Return what was logged, each line with its fields."""
    found = [LINE.fullmatch(line) for line in log.read_text().splitlines()]
    assert all(found), log.read_text()
    return [
        {"level": line["level"], "event": line["event"], **dict(FIELD.findall(line["fields"]))}
        for line in found
        if line is not None
    ]


def named(log: Path, name: str) -> list[dict[str, str]]:
    """Return the events of a name."""
    return [event for event in events(log) if event["event"] == name]


def _outage(postgres: PostgresServer, log: Path, environment: dict[str, str]) -> None:
    """Stop the database and start it again, with requests meanwhile."""
    begun = len(events(log))
    count = len(named(log, "store.available"))
    postgres.stop()
    eventually_sync(lambda: invoke("tasks", "ls", env=environment).exit_code == 5, "it is away")
    eventually_sync(lambda: len(events(log)) > begun, "it is told")
    assert invoke("tasks", "enqueue", "x", env=environment).exit_code == 5
    postgres.resume()
    eventually_sync(lambda: len(named(log, "store.available")) > count, "it is back")
    gone, back = events(log)[begun:]
    assert (gone["event"], gone["level"]) == ("store.unavailable", "warning")
    assert gone["reason"] == "store_unreachable"
    assert gone["error"].startswith("'PostgreSQL cannot be reached: ")
    assert (back["event"], back["level"]) == ("store.available", "warning")
    assert int(back["outage_ms"]) > 0
    assert int(back["failure_count"]) > 1
    assert int(back["refused_count"]) > 1


def test_an_outage_of_postgresql_is_two_lines_in_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with PostgresServer.start() as postgres:
        url = postgres.dsn(postgres.create_database())
        with ServerProcess(url, log) as server:
            environment = {"TENURE_TARGET": server.grpc}
            _outage(postgres, log, environment)
            _outage(postgres, log, environment)
            assert invoke("tasks", "enqueue", "x", env=environment).exit_code == 0


def test_scrapes_probes_and_top_write_nothing_at_the_level_info(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with ServerProcess(f"sqlite:///{tmp_path}/tenure.db", log) as server:
        before = events(log)
        for path in ("/metrics", "/healthz", "/readyz", "/v1/queues"):
            assert httpx.get(f"http://{server.http}{path}", timeout=ANSWER_S).status_code == 200
        looks = ("top", "--once", "--target", server.grpc, "--http", server.http)
        watch = ("top", "--interval", "100ms", "-o", "jsonl", *looks[2:])
        assert invoke(*looks).exit_code == 0
        with subprocess.Popen([*CLI, *watch], text=True, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            for _ in range(3):
                process.stdout.readline()
            process.terminate()
            process.wait(WAIT_S)
        with SmallWorker(server.grpc, "mail"):
            assert invoke("queues", "pause", "mail", env={"TENURE_TARGET": server.grpc}).output
        body = {"type": "x", "queue": "mail", "startToCloseMs": 1_000}
        answer = httpx.post(f"http://{server.http}/v1/tasks", json=body, timeout=ANSWER_S)
        assert answer.status_code == 201
        eventually_sync(lambda: named(log, "http.request"), "the write is told")
        added = events(log)[len(before) :]
    routes = [(event["method"], event["route"]) for event in added if "route" in event]
    assert routes == [("POST", "/v1/tasks")]
    assert {event["event"] for event in added} <= {"http.request", "worker.ended"}
