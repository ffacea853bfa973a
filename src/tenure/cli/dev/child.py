"""A ``tenure`` command as a child process of another command."""

from __future__ import annotations

import ctypes
import functools
import signal
import subprocess
import sys
import threading
from typing import IO, Final

_SET_DEATH_SIGNAL: Final = 1
# Loaded here: between fork and exec only a system call is safe.
_LIBC: Final = ctypes.CDLL(None)


class CommandProcess:
    """One child process. Its creator has to close it."""

    def __init__(
        self, *arguments: str, is_read: bool = False, death_signal: signal.Signals = signal.SIGTERM
    ) -> None:
        """Start ``tenure`` with arguments. Its output goes where ours goes, unless ``is_read``.

        ``death_signal`` is sent to it when this process dies without closing it (on Linux).
        """
        command = [sys.executable, "-m", "tenure.cli", *arguments]
        # In a session of its own, so that Ctrl-C reaches only this process, which then ends its
        # children one after the other.
        self._process: subprocess.Popen[str] = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if is_read else None,
            text=True,
            start_new_session=True,
            preexec_fn=functools.partial(_die_with_parent, death_signal),  # noqa: PLW1509 (one system call)
        )
        self._reader: threading.Thread | None = None

    @property
    def output(self) -> IO[str]:
        """Its standard output, if ``is_read``."""
        assert self._process.stdout is not None
        return self._process.stdout

    def ignore_output(self) -> None:
        """Read and drop the rest of its output. A full pipe would block it."""
        self._reader = threading.Thread(target=self._read_on, daemon=True)
        self._reader.start()

    def _read_on(self) -> None:
        for _ in self.output:
            pass

    @property
    def exit_code(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.poll()

    def terminate(self) -> None:
        """Ask it to end."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def wait(self, seconds: float) -> bool:
        """Wait for its end; False if it takes longer."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def close(self, seconds: float) -> None:
        """End it. If it takes longer than some seconds, kill it."""
        self.terminate()
        if not self.wait(seconds):
            self._process.kill()
            self._process.wait()
        if self._reader is not None:
            self._reader.join()
        if self._process.stdout is not None:
            self._process.stdout.close()


def _die_with_parent(number: signal.Signals) -> None:
    """Let the kernel send a signal to this process when its parent has ended."""
    if sys.platform == "linux":
        _LIBC.prctl(_SET_DEATH_SIGNAL, number)
