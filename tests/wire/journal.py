"""What a worker did: one line of JSON per event, written at once, so that it survives a kill.

Wall time is for the reader; ``mono_s`` is the machine's monotonic clock, the same in all of its
processes, so lines of several workers can be compared.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from tests.bounds import WORK_S
from tests.polling import eventually

POLL_SECONDS: Final = 0.02


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One event of one worker."""

    event: str
    mono_s: float
    wall_ms: int
    worker_id: str = ""
    task_id: str = ""
    attempt: int = 0
    text: str = ""
    # Of the process that wrote it: a worker, or the child that it runs an activity in.
    pid: int = 0

    @property
    def ref(self) -> tuple[str, int]:
        return (self.task_id, self.attempt)


class RunJournal:
    """The writing end, for one worker process."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._encoder = msgspec.json.Encoder()

    def write(
        self, event: str, worker_id: str, ref: tuple[str, int] = ("", 0), text: str = ""
    ) -> None:
        line = Line(
            event=event,
            worker_id=worker_id,
            task_id=ref[0],
            attempt=ref[1],
            text=text,
            pid=os.getpid(),
            mono_s=time.monotonic(),
            wall_ms=time.time_ns() // 1_000_000,
        )
        os.write(self._file, self._encoder.encode(line) + b"\n")


class Tail:
    """The reading end: what was written so far, read on from where the last look ended."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._decoder = msgspec.json.Decoder(Line)
        self._lines: list[Line] = []

    @property
    def lines(self) -> list[Line]:
        """Return all lines; the last one of a killed process may be cut off and is left out."""
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
            end = data.rfind(b"\n") + 1
            self._offset += end
            self._lines += [self._decoder.decode(each) for each in data[:end].splitlines()]
        return self._lines

    def of(self, *events: str) -> list[Line]:
        return [line for line in self.lines if line.event in events]

    async def wait(self, count: int, *events: str) -> None:
        """Wait until there are so many lines of some events."""
        what = f"{count} lines of {' or '.join(events)}"
        await eventually(lambda: len(self.of(*events)) >= count, what, within_s=WORK_S)


def merge(tails: Iterable[Tail]) -> list[Line]:
    """Return the lines of several workers in the order of time."""
    return sorted((line for tail in tails for line in tail.lines), key=lambda line: line.mono_s)
