"""A real server runs out of file descriptors: it says so once, and serves again afterwards."""

from __future__ import annotations

import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Final

import grpc
import pytest

from tenure.v1.workflow_service_pb2 import HealthCheckRequest
from tenure.v1.workflow_service_pb2_grpc import WorkflowServiceStub
from tests.bounds import WORK_S
from tests.cli.server import CLI, ServerProcess
from tests.polling import eventually_sync

SPARE: Final = 8
OUT: Final = "server.out_of_descriptors"
FREE: Final = "server.descriptors_free"
# The same command on the loop of asyncio, as where there is no uvloop.
_PLAIN: Final = "import sys; sys.modules['uvloop'] = None; from tenure.cli.main import main; main()"
LOOPS: Final = {"uvloop": CLI, "asyncio": (CLI[0], "-c", _PLAIN)}


class Starved:
    """A server that may open only a few descriptors more than it has."""

    def __init__(self, server: ServerProcess, log: Path) -> None:
        self.server = server
        self._log = log
        self._pid = server.process.pid

    def limit(self) -> None:
        most = self.count() + SPARE
        resource.prlimit(self._pid, resource.RLIMIT_NOFILE, (most, most))

    def count(self) -> int:
        return len(list(Path(f"/proc/{self._pid}/fd").iterdir()))

    def said(self, event: str) -> int:
        return self._log.read_text().count(event)

    def lines(self) -> int:
        return len(self._log.read_text().splitlines())

    @contextmanager
    def crowd(self, address: str) -> Iterator[None]:
        """Connect more often than the server can accept, again and again while the block runs."""
        host, _, port = address.rpartition(":")
        with ExitStack() as stack:

            def knock() -> None:
                for _ in range(2 * SPARE):
                    stack.enter_context(socket.create_connection((host, int(port)), WORK_S))

            def is_out() -> bool:
                knock()
                time.sleep(0.2)
                return self.said(OUT) > said

            said = self.said(OUT)
            eventually_sync(is_out)
            for _ in range(5):
                is_out()
            yield

    def is_serving(self) -> bool:
        """Tell whether both ports serve somebody who comes now."""
        with closing(HTTPConnection(self.server.http, timeout=5)) as web, self.channel() as channel:
            try:
                web.request("GET", "/v1/tasks")
                return web.getresponse().status == 200 and is_answered(channel)
            except (OSError, HTTPException):
                return False

    def channel(self) -> grpc.Channel:
        """Return a channel with a connection of its own."""
        return grpc.insecure_channel(self.server.grpc, (("grpc.use_local_subchannel_pool", 1),))


def is_answered(channel: grpc.Channel) -> bool:
    """Tell whether a call on a channel is answered."""
    try:
        WorkflowServiceStub(channel).HealthCheck(HealthCheckRequest(), timeout=5)
    except grpc.RpcError:
        return False
    return True


@pytest.mark.parametrize(
    ("loop", "edge", "rounds"),
    [("uvloop", "http", 2), ("uvloop", "grpc", 1), ("asyncio", "http", 1)],
)
def test_a_server_without_descriptors_says_so_once_and_serves_again(
    tmp_path: Path, loop: str, edge: str, rounds: int
) -> None:
    log = tmp_path / "log"
    with ServerProcess(f"sqlite:///{tmp_path}/tenure.db", log, command=LOOPS[loop]) as server:
        starved = Starved(server, log)
        known = starved.channel()
        eventually_sync(lambda: is_answered(known) and starved.is_serving())
        starved.limit()
        for number in range(1, rounds + 1):
            before = starved.lines()
            with starved.crowd(getattr(server, edge)):
                assert is_answered(known), "Whoever is connected is served all the time"
                assert starved.said(OUT) == number
                assert starved.lines() == before + 1, log.read_text()
            eventually_sync(lambda now=number: starved.said(FREE) == now)  # type: ignore[misc]
            eventually_sync(starved.is_serving)
        known.close()
        assert server.stop() == 0
