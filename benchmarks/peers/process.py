"""Processes by session, and the CPU time they have used. Linux alone: it reads ``/proc``."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def session_processes(sessions: AbstractSet[int]) -> list[int]:
    """Return the processes of these sessions that have not ended."""
    return [pid for pid, fields in _fields(sessions) if fields[0] != "Z"]


def cpu_seconds(sessions: AbstractSet[int]) -> float:
    """Return the CPU time of these sessions, with that of children that were waited for."""
    ticks = sum(sum(map(int, fields[11:15])) for _, fields in _fields(sessions))
    return ticks / TICKS_PER_SECOND


def _fields(sessions: AbstractSet[int]) -> Iterator[tuple[int, list[str]]]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        # A process may end while it is looked at.
        with contextlib.suppress(OSError):
            # The name of the program is in parentheses and may have spaces.
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[3]) in sessions:
                yield int(path.parent.name), fields
