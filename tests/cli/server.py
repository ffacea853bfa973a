"""A real server process for the tests, started by the command line itself."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from tenure.cli.command.server import LISTENING
from tests.bounds import STOP_S
from tests.secret_scan import check_logs

_LINE: Final = re.compile(re.escape(LISTENING) + r" http=(\S+) grpc=(\S+)")
CLI: Final = (sys.executable, "-m", "tenure.cli")


def read_addresses(line: str) -> tuple[str, str] | None:
    """Return the addresses of HTTP and gRPC if a server says them in this line."""
    found = _LINE.fullmatch(line.strip())
    return (found[1], found[2]) if found else None


class ServerProcess:
    """One server that this process started; it says where it listens."""

    def __init__(
        self,
        store_url: str,
        log: Path,
        *,
        grpc: str = "127.0.0.1:0",
        http: str = "127.0.0.1:0",
        options: Sequence[str] = (),
        command: Sequence[str] = CLI,
    ) -> None:
        self._log = log
        self.store_url = store_url
        arguments = ["server", "--store", store_url, "--http", http, "--grpc", grpc]
        arguments += options
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [*command, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert self.process.stdout is not None
        self.said: list[str] = []
        addresses = None
        while addresses is None:
            line = self.process.stdout.readline()
            assert line, log.read_text()
            self.said.append(line)
            addresses = read_addresses(line)
        self.http, self.grpc = addresses
        # Nobody reads the rest, and a full pipe would block the server.
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.said += self.process.stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()
        check_logs([self._log])

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to end; return its exit code."""
        self.process.send_signal(number)
        try:
            return self._ended(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def kill(self) -> None:
        """End it without asking."""
        self.process.kill()
        self._ended(STOP_S)

    def _ended(self, seconds: float) -> int:
        code = self.process.wait(seconds)
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code
