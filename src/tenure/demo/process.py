"""The processes of the demo: started, killed and ended here."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Final, Self

_LISTENING: Final = re.compile(r"http=(\S+) grpc=(\S+)")
_STOP_SECONDS: Final = 15


class DemoStage:
    """A server on a store in a temporary folder, and the workers that talk to it."""

    def __init__(self, http: str, grpc: str) -> None:
        """Prepare; entering it starts the server."""
        self.http = http
        self.grpc = grpc
        self.workers: dict[str, subprocess.Popen[str]] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="tenure-demo-")
        self._server: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        """Start the server and read its addresses."""
        path = Path(self._folder.name)
        command = [sys.executable, "-m", "tenure.cli", "server"]
        command += ["--store", f"sqlite:///{path / 'tenure.db'}"]
        command += ["--http", self.http, "--grpc", self.grpc]
        with (path / "server.log").open("w") as log:
            self._server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self._server.stdout is not None
        found = _LISTENING.search(self._server.stdout.readline())
        if found is None:
            problem = (path / "server.log").read_text().strip()
            self.__exit__(None, None, None)
            raise SystemExit(problem or "The server did not start.")
        self.http, self.grpc = found.groups()
        return self

    def start_worker(self, name: str) -> None:
        """Start a worker process."""
        command = [sys.executable, "-m", "tenure.demo.worker", self.grpc, name]
        self.workers[name] = subprocess.Popen(command, stderr=subprocess.DEVNULL, text=True)

    def kill_worker(self, name: str) -> None:
        """Kill a worker without warning."""
        self.workers[name].kill()
        self.workers[name].wait()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End all processes, and remove the folder."""
        for process in (*self.workers.values(), self._server):
            if process is not None and process.poll() is None:
                process.terminate()
                try:
                    process.wait(_STOP_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
            if process is not None and process.stdout is not None:
                process.stdout.close()
        self._folder.cleanup()
