"""Keys that are pressed on a terminal while a command shows something."""

from __future__ import annotations

import os
import re
import select
import sys
import termios
import threading
import tty
from collections.abc import Callable, Iterator
from typing import Any, Final, Self

_KEY: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z~]|\x1bO[A-Za-z]|[^\x1b]")
# The beginning of a key whose rest has not arrived.
_BEGUN: Final = re.compile(r"\x1b(?:\[[0-9;]*|O)?\Z")
_NAMES: Final = {
    "\x1b[A": "up",
    "\x1bOA": "up",
    "k": "up",
    "\x1b[B": "down",
    "\x1bOB": "down",
    "j": "down",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    " ": "page down",
    "\x1b[H": "home",
    "\x1bOH": "home",
    "\x1b[1~": "home",
    "\x1b[7~": "home",
    "\x1b[F": "end",
    "\x1bOF": "end",
    "\x1b[4~": "end",
    "\x1b[8~": "end",
    "q": "quit",
    "Q": "quit",
}


class Keyboard:
    """Reads keys in a thread inside a ``with`` block; the terminal is then as it was before.

    Ctrl-C stays a signal. Without a terminal there are no keys.
    """

    def __init__(self, press: Callable[[str], None]) -> None:
        """Call ``press`` with the name of each known key."""
        self._press = press
        self._stop_read, self._stop_write = os.pipe()
        self._thread = threading.Thread(target=self._run, name="tenure-keys", daemon=True)
        self._before: list[Any] | None = None

    def __enter__(self) -> Self:
        """Take each key at once, and do not show it."""
        if sys.stdin.isatty():
            self._before = termios.tcgetattr(sys.stdin)
            tty.setcbreak(sys.stdin)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Give the terminal back."""
        os.close(self._stop_write)
        if self._before is not None:
            self._thread.join()
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._before)
        os.close(self._stop_read)

    def _run(self) -> None:
        number = sys.stdin.fileno()
        begun = ""
        while True:
            ready, _, _ = select.select([number, self._stop_read], [], [])
            if self._stop_read in ready:
                return
            some = os.read(number, 1_024)
            if not some:
                return
            begun += some.decode(errors="replace")
            for key in names(begun):
                self._press(key)
            found = _BEGUN.search(begun)
            begun = found.group() if found else ""


def names(text: str) -> Iterator[str]:
    """Return the names of the known keys in what a terminal has sent."""
    for found in _KEY.finditer(text):
        if found.group() in _NAMES:
            yield _NAMES[found.group()]
