"""What tasks write down when they run. Standard library alone: this runs inside every candidate.

Each process appends to a file of its own, one write of 16 bytes per run: the number of the task
and the instant. What was written survives ``kill -9``. So runs are counted the same way for every
candidate, apart from what its store says.
"""

from __future__ import annotations

import asyncio
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

RECORD = struct.Struct("<QQ")
HOLD_SECONDS = 600
FOLDER_VARIABLE = "PEER_FOLDER"


class Run(NamedTuple):
    """One run of one task."""

    number: int
    at_ns: int
    pid: int


class _Log:
    """The file of this process; a forked child opens its own."""

    def __init__(self) -> None:
        self._pid = 0
        self._file = -1

    def write(self, number: int) -> None:
        pid = os.getpid()
        if pid != self._pid:
            path = Path(os.environ[FOLDER_VARIABLE], f"{pid}.runs")
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            self._pid = pid
        os.write(self._file, RECORD.pack(number, time.monotonic_ns()))


_log = _Log()


def ran(number: int) -> None:
    """Write down that a task runs: the whole body of a no-op."""
    _log.write(number)


def hold(number: int) -> None:
    """Run until killed, the first time; be done at once when run again."""
    if _is_first(number):
        time.sleep(HOLD_SECONDS)


async def hold_async(number: int) -> None:
    """Do as :func:`hold`, on an event loop."""
    if _is_first(number):
        await asyncio.sleep(HOLD_SECONDS)


def _is_first(number: int) -> bool:
    marker = Path(os.environ[FOLDER_VARIABLE], f"{number}.held")
    is_first = not marker.exists()
    marker.touch()
    _log.write(number)
    return is_first


def read(folder: Path) -> Iterator[Run]:
    """Return what was written down in a folder, process by process."""
    for path in folder.glob("*.runs"):
        pid = int(path.stem)
        data = path.read_bytes()
        # A process killed in the middle of its write may leave a part of a record.
        whole = data[: len(data) - len(data) % RECORD.size]
        for number, at_ns in RECORD.iter_unpack(whole):
            yield Run(number, at_ns, pid)


def count(folder: Path) -> int:
    """Return how many runs were written down, without reading them."""
    return sum(path.stat().st_size for path in folder.glob("*.runs")) // RECORD.size
