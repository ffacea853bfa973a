"""What a process was told: one line per acknowledged operation, written when the answer came.

A line is one ``write`` to a file opened for appending, so it survives the end of its process; the
file is synchronised a few times per second, which would matter only if the machine died.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import msgspec


class Done(msgspec.Struct, frozen=True):
    """A completion that was accepted."""

    task_id: str
    attempt: int
    output: str


class Journal:
    """The writing end, for one process."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def enqueued(self, task_id: str) -> None:
        self._write("enqueued", task_id)

    def done(self, done: Done) -> None:
        self._write("done", done.task_id, str(done.attempt), done.output)

    def sync(self) -> None:
        os.fsync(self._file)

    def _write(self, *words: str) -> None:
        os.write(self._file, (" ".join(words) + "\n").encode())


class Acknowledged(msgspec.Struct):
    """What all processes of a run were told together."""

    enqueued: set[str] = msgspec.field(default_factory=set)
    done: dict[str, set[Done]] = msgspec.field(default_factory=lambda: defaultdict(set))

    @property
    def done_count(self) -> int:
        """Return of how many tasks a completion was accepted."""
        return len(self.done)


def read(paths: Iterable[Path]) -> Acknowledged:
    """Read journals; the last line of a process that was killed may be cut off."""
    found = Acknowledged()
    for path in paths:
        text = path.read_text() if path.exists() else ""
        for line in text.splitlines(keepends=True):
            if line.endswith("\n"):
                _take(found, line.split())
    return found


def _take(found: Acknowledged, words: list[str]) -> None:
    if words[0] == "enqueued":
        found.enqueued.add(words[1])
    else:
        found.done[words[1]].add(Done(words[1], int(words[2]), words[3]))


def count_lines(path: Path) -> int:
    """Return how many operations a process has logged so far."""
    return path.read_bytes().count(b"\n") if path.exists() else 0
