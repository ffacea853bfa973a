"""A command that runs until it is told to end, as a process, and what it has said."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.bounds import WAIT_S
from tests.cli.server import CLI


class CommandProcess:
    """``tenure`` with some arguments in a folder; both of its outputs are kept together."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        command: Sequence[str] = CLI,
        env: Mapping[str, str] | None = None,
    ) -> None:
        others = {key: value for key, value in os.environ.items() if not key.startswith("TENURE_")}
        self._process = subprocess.Popen(
            [*command, *arguments],
            cwd=folder,
            env={**others, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: list[str] = []
        self._news = threading.Condition()
        self._is_over = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._news:
                self.lines.append(line.rstrip())
                self._news.notify_all()
        with self._news:
            self._is_over = True
            self._news.notify_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.terminate()
        self._process.wait(WAIT_S)
        self._reader.join(WAIT_S)
        assert self._process.stdout is not None
        self._process.stdout.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def said(self) -> str:
        return "\n".join(self.lines)

    def until(self, text: str, count: int = 1) -> str:
        """Wait for the line with a text, the ``count``-th of them, and return it."""

        def found() -> list[str]:
            return [line for line in self.lines if text in line]

        with self._news:
            self._news.wait_for(lambda: self._is_over or len(found()) >= count, timeout=WAIT_S)
            assert len(found()) >= count, self.said
            return found()[count - 1]

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()

    def exit_code(self) -> int:
        """Wait for the end and return how it was."""
        code = self._process.wait(WAIT_S)
        self._reader.join(WAIT_S)
        return code


def field(line: str, name: str) -> str:
    """Return the value of ``name=value`` in a line."""
    return dict(each.split("=", 1) for each in line.split() if "=" in each)[name]
