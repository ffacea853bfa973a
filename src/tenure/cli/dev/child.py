"""A command of ours as a process of its own, for a command that looks after others."""

from __future__ import annotations

import ctypes
import functools
import signal
import subprocess
import sys
import threading
from typing import IO, Final

_SET_DEATH_SIGNAL: Final = 1
# Loaded here: between fork and exec there shall be nothing but a system call.
_LIBC: Final = ctypes.CDLL(None)


class CommandProcess:
    """One process: started with it, and ended by whoever made it."""

    def __init__(
        self, *arguments: str, is_read: bool = False, death_signal: signal.Signals = signal.SIGTERM
    ) -> None:
        """Start ``tenure`` with arguments; what it writes goes where ours goes, or is read.

        ``death_signal`` is what it gets when we are killed and cannot end it any more (on Linux).
        """
        command = [sys.executable, "-m", "tenure.cli", *arguments]
        # In a session of its own: Ctrl-C at the terminal reaches nobody but us, so that we can
        # end one after the other.
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
        """What it writes, if it is read."""
        assert self._process.stdout is not None
        return self._process.stdout

    def ignore_output(self) -> None:
        """Forget what else it writes; a full pipe would block it."""
        self._reader = threading.Thread(target=self._read_on, daemon=True)
        self._reader.start()

    def _read_on(self) -> None:
        for _ in self.output:
            pass

    @property
    def exit_code(self) -> int | None:
        """How it has ended, if it has."""
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
        """End it, if need be without asking."""
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
