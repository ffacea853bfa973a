"""``tenure endpoints`` against a real server, and a whole task over HTTP."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tenure.api.http.route.endpoint.route import EndpointItem
from tenure.cli.show.endpoint_view import ShownEndpoint
from tests.bounds import ANSWER_S
from tests.cli.conftest import invoke, read
from tests.cli.server import ServerProcess
from tests.polling import eventually_sync


class Worker(ThreadingHTTPServer):
    """A process that works on what is pushed to it, in a thread of its own."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.envelopes: list[dict[str, Any]] = []
        self.secret = ""
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/tasks"


class Handler(BaseHTTPRequestHandler):
    server: Worker

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        signed = f"{self.headers['webhook-id']}.{self.headers['webhook-timestamp']}.".encode()
        key = base64.b64decode(self.server.secret.removeprefix("whsec_"))
        expected = base64.b64encode(hmac.digest(key, signed + body, hashlib.sha256)).decode()
        is_good = f"v1,{expected}" in self.headers["webhook-signature"].split()
        self.send_response(202 if is_good else 400)
        self.send_header("content-length", "0")
        self.end_headers()
        envelope = json.loads(body)
        self.server.envelopes.append(envelope)
        if is_good and "taskToken" in envelope:
            self.work(envelope)

    def work(self, envelope: dict[str, Any]) -> None:
        attempt = envelope["attempt"]
        say(envelope, "started", {"attempt": attempt, "workerId": "one"})
        done = {"attempt": attempt, "outcome": "SUCCEEDED", "output": envelope["input"]}
        say(envelope, "completed", done)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def say(envelope: dict[str, Any], verb: str, body: dict[str, Any]) -> None:
    request = urllib.request.Request(  # noqa: S310 (a server of this test)
        f"{envelope['callbackBaseUrl']}/v1/tasks/{envelope['taskId']}/{verb}",
        data=json.dumps(body).encode(),
        headers={
            "authorization": f"Bearer {envelope['taskToken']}",
            "content-type": "application/json",
        },
    )
    urllib.request.urlopen(request, timeout=ANSWER_S).close()  # noqa: S310


@pytest.fixture(scope="module")
def pushing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("pushing")
    options = ("--endpoint-allow", "127.0.0.1")
    with ServerProcess(
        f"sqlite:///{folder}/tenure.db", Path(folder) / "log", options=options
    ) as made:
        yield made


@pytest.fixture
def call(pushing: ServerProcess) -> Callable[..., Result]:
    return lambda *arguments: invoke(*arguments, env={"TENURE_TARGET": pushing.grpc})


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker()
    yield made
    made.shutdown()
    made.server_close()


def test_a_task_is_pushed_to_an_endpoint_and_completed(
    call: Callable[..., Result], worker: Worker
) -> None:
    made = call(
        "endpoints", "create", "whole", "--queue", "q1", "--type", "mail", "--url", worker.url
    )
    worker.secret = made.stdout.strip()
    done = call("tasks", "enqueue", "mail", "--queue", "q1", "--input", '{"a":1}', "--wait")
    assert done.exit_code == 0, done.output
    assert worker.envelopes[0]["type"] == "mail"
    shown = read(call("endpoints", "show", "whole", "-o", "json"))
    assert (shown["failureCount"], shown["heldCount"]) == (0, 0)


def test_an_endpoint_is_changed_paused_tested_and_removed(
    call: Callable[..., Result], worker: Worker
) -> None:
    arguments = ("--queue", "q2", "--type", "mail", "--url", worker.url, "--header", "X-Key=abc")
    made = read(call("endpoints", "create", "hook", *arguments, "-o", "json"))
    worker.secret = made["secret"]
    assert made["endpoint"]["headers"] == ["X-Key"]
    assert call("endpoints", "test", "hook").stdout.startswith("accepted after ")
    worker.secret = "whsec_" + base64.b64encode(bytes(32)).decode()
    refused = call("endpoints", "test", "hook")
    assert refused.exit_code == 1
    assert refused.stdout.startswith("refused after ")
    changed = call("endpoints", "set", "hook", "--concurrency", "3", "--timeout", "30s")
    assert "concurrency:" in changed.stdout
    shown = read(call("endpoints", "show", "hook", "-o", "json"))
    assert (shown["concurrency"], shown["timeoutMs"]) == (3, 30_000)
    assert "PAUSED" in call("endpoints", "pause", "hook").stdout
    assert "ACTIVE" in call("endpoints", "resume", "hook").stdout
    again = call("endpoints", "rotate-secret", "hook").stdout.strip()
    assert again.startswith("whsec_")
    assert again != made["secret"]
    rows = call("endpoints", "ls").stdout.splitlines()
    assert any(row.startswith("hook ") and "ACTIVE" in row for row in rows)
    assert "DELETING" in call("endpoints", "rm", "hook").stdout
    eventually_sync(lambda: call("endpoints", "show", "hook").exit_code == 3, within_s=ANSWER_S)


def test_what_is_not_allowed_is_refused(call: Callable[..., Result]) -> None:
    for url in ("http://169.254.169.254/", "https://10.0.0.1/", "ftp://example.com/"):
        told = call("endpoints", "create", "bad", "--queue", "q", "--type", "a", "--url", url)
        assert told.exit_code == 2, told.output
    told = call(
        "endpoints",
        "create",
        "bad",
        "--queue",
        "q",
        "--type",
        "a",
        "--url",
        "http://127.0.0.1/",
        "--header",
        "nonsense",
    )
    assert told.exit_code == 2
    assert call("endpoints", "show", "nothing").exit_code == 3


def test_the_names_in_json_are_those_of_http() -> None:
    shown = set(ShownEndpoint.__struct_encode_fields__)
    assert shown == set(EndpointItem.__struct_encode_fields__)
