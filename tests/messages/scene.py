"""Where mistakes are made: a folder with an application, servers, workers and commands.

Everything is a real process on a free port, started with the first mistake that needs it.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack, closing
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tenure import SyncClient
from tenure.cli.command.worker_process import REGISTERED
from tests.bounds import COMMAND_S
from tests.cli.command_process import CommandProcess
from tests.cli.server import CLI, ServerProcess

HTTP: Final = "127.0.0.1:7300"
GRPC: Final = "127.0.0.1:7301"
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?Z?")
_TRIED: Final = re.compile(r"(It was tried for )[\d.]+ s")
_LOCAL: Final = re.compile(r"\w+\.<locals>\.")
_AGO: Final = re.compile(r"\b\d+(\.\d+)?(ms|s)( ago|\b(?= more))")


class Scene:
    """One user, his folder, and what he has started."""

    def __init__(self, folder: Path) -> None:
        """Work in a folder."""
        self.folder = folder / "app"
        self.folder.mkdir()
        shutil.copy(Path(__file__).with_name("app.py"), self.folder / "app.py")
        self._stack = ExitStack()
        self._places: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    @cached_property
    def server(self) -> ServerProcess:
        """A server without keys."""
        return self._started("open.db")

    @cached_property
    def guarded(self) -> ServerProcess:
        """A server with an API key, which nobody here has."""
        store = f"sqlite:///{self.folder}/guarded.db"
        self.command("keys", "create", "--role", "admin", "--store", store)
        return self._started("guarded.db")

    @cached_property
    def client(self) -> SyncClient:
        """A client of the server."""
        return self._stack.enter_context(closing(SyncClient(self.server.grpc)))

    @cached_property
    def worker(self) -> CommandProcess:
        """A worker that runs the application."""
        return self.start("worker", "app", "--target", self.server.grpc)

    @cached_property
    def silent_port(self) -> str:
        """An address where nobody listens."""
        with closing(socket.create_server(("127.0.0.1", 0))) as listening:
            host, port = listening.getsockname()
        return self.called(f"{host}:{port}", GRPC)

    def started_worker(self) -> None:
        """Wait until the worker of the application is there."""
        self.worker.until(REGISTERED)

    def called(self, address: str, name: str) -> str:
        """Show an address of this scene as another one on the page."""
        self._places[address] = name
        return address

    def start(self, *arguments: str, command: Sequence[str] = CLI) -> CommandProcess:
        """Start a command that runs until it is told to end."""
        return self._stack.enter_context(CommandProcess(self.folder, *arguments, command=command))

    def command(self, *arguments: str, **variables: str) -> str:
        """Run a command to its end and return what it has said."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("TENURE_")}
        ended = subprocess.run(
            [*CLI, *arguments],
            check=False,
            cwd=self.folder,
            env={**kept, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_S,
        )
        return ended.stdout.strip()

    def shown(self, text: str) -> str:
        """Return a text with placeholders for what is different each time."""
        for address, name in self._places.items():
            text = text.replace(address, name)
        text = text.replace(str(self.folder), "/home/ann/app")
        text = _LOCAL.sub("", text).replace("tests.messages.", "")
        text = _UUID.sub("ID", text)
        text = _DATE.sub("TIME", text)
        text = _TRIED.sub(r"\1N s", text)
        return _AGO.sub(r"N s\3", text)

    def _started(self, name: str) -> ServerProcess:
        store = f"sqlite:///{self.folder}/{name}"
        server = ServerProcess(store, self.folder / f"{name}.log")
        self._stack.enter_context(server)
        self.called(server.http, HTTP)
        self.called(server.grpc, GRPC)
        return server
