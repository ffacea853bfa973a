"""A command on a terminal of its own, and what stands on it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
from collections.abc import Mapping
from typing import Final, Self

from tests.bounds import WAIT_S
from tests.cli.server import CLI
from tests.polling import eventually_sync

_CODES: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """Runs ``tenure`` with some arguments on a terminal."""

    def __init__(
        self, *arguments: str, env: Mapping[str, str], columns: int = 100, rows: int = 30
    ) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self._process = subprocess.Popen(
            [*CLI, *arguments],
            env={**os.environ, "TERM": "xterm", **env},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self._said = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(WAIT_S)
        self._reader.join(WAIT_S)
        os.close(self._master)

    def _read(self) -> None:
        while True:
            try:
                some = os.read(self._master, 65_536)
            except OSError:
                # The other side has closed the terminal.
                return
            if not some:
                return
            self._said += some

    @property
    def said(self) -> str:
        """Return all that was written, without colours and movements."""
        return _CODES.sub("", self._said.decode(errors="replace"))

    @property
    def frame(self) -> str:
        """Return the last whole screen of ``tenure top``."""
        return self.said.split("tenure top")[-2]

    def until(self, *texts: str, after: int = 0) -> int:
        """Wait until all texts stand behind a place; return the place where they end."""
        try:
            eventually_sync(lambda: all(text in self.said[after:] for text in texts), str(texts))
        except AssertionError as failure:
            failure.add_note(self.said[after:])
            raise
        return len(self.said)

    def press(self, keys: str) -> None:
        """Send what a terminal sends for keys."""
        os.write(self._master, keys.encode())

    def interrupt(self) -> int:
        """Press Ctrl-C and return how the command ended."""
        self._process.send_signal(signal.SIGINT)
        return self.exit_code()

    def exit_code(self) -> int:
        """Wait until the command has ended and all that it wrote is read."""
        code = self._process.wait(WAIT_S)
        self._reader.join(WAIT_S)
        return code

    @property
    def modes(self) -> list[object]:
        """Return the settings of the terminal: what is echoed, and when a key is handed on."""
        return termios.tcgetattr(self._master)
