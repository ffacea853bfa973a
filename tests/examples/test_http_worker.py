"""HTTP workers without a library: the script, and the same in bash, work on pushed tasks."""

from __future__ import annotations

import os
import shutil
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bounds import ANSWER_S
from tests.cli.conftest import invoke, read
from tests.cli.server import ServerProcess
from tests.examples.stage import FOLDER
from tests.polling import eventually_sync


@pytest.fixture
def pushing(tmp_path: Path) -> Iterator[ServerProcess]:
    options = ("--endpoint-allow", "127.0.0.1")
    store = f"sqlite:///{tmp_path}/tenure.db"
    with ServerProcess(store, tmp_path / "log", options=options) as made:
        yield made


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


def create(server: ServerProcess, port: int) -> dict[str, str]:
    url = f"http://127.0.0.1:{port}/"
    arguments = ("endpoints", "create", "hook", "--queue", "default", "--type", "mail")
    made = invoke(*arguments, "--url", url, env={"TENURE_TARGET": server.grpc})
    return {
        **os.environ,
        "ENDPOINT_SECRET": made.stdout.strip(),
        "TENURE_ORIGIN": f"http://{server.http}",
        "PORT": str(port),
    }


def enqueue_and_wait(server: ServerProcess) -> dict[str, object]:
    arguments = ("tasks", "enqueue", "mail", "--queue", "default", "--input", '{"to":"ann"}')
    done = invoke(*arguments, "--wait", "-o", "json", env={"TENURE_TARGET": server.grpc})
    assert done.exit_code == 0, done.output
    return dict(read(done))


def test_the_script_is_short_and_works(pushing: ServerProcess) -> None:
    script = FOLDER / "http_worker.py"
    assert len(script.read_text("utf-8").splitlines()) <= 60
    port = free_port()
    env = create(pushing, port)
    worker = subprocess.Popen([sys.executable, str(script)], env=env, stderr=subprocess.DEVNULL)
    try:

        def listens() -> bool:
            with socket.socket() as sock:
                return sock.connect_ex(("127.0.0.1", port)) == 0

        eventually_sync(listens, within_s=ANSWER_S)
        assert enqueue_and_wait(pushing)["output"] == {"sent": {"to": "ann"}}
    finally:
        worker.kill()
        worker.wait()


@pytest.mark.skipif(not all(map(shutil.which, ("bash", "curl", "openssl"))), reason="needs them")
def test_the_same_works_in_bash(pushing: ServerProcess) -> None:
    env: dict[str, str] = {}

    class Handler(socketserver.BaseRequestHandler):
        """What socat would do."""

        def handle(self) -> None:
            command = ["bash", str(FOLDER / "http_worker.sh")]
            file = self.request.makefile("rwb", buffering=0)
            subprocess.run(command, stdin=file, stdout=file, env=env, check=True)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as listener:
        threading.Thread(target=listener.serve_forever, daemon=True).start()
        env |= create(pushing, listener.server_address[1])
        assert enqueue_and_wait(pushing)["output"] == {"sent": True}
        listener.shutdown()
