"""What a process has used so far, as the kernel says."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec


class Usage(msgspec.Struct, frozen=True):
    """What a process has used so far."""

    cpu_s: float
    memory_bytes: int
    at_s: float


def usage_of(pid: int) -> Usage:
    """Read what the kernel says of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return Usage(
        cpu_s=ticks / os.sysconf("SC_CLK_TCK"),
        memory_bytes=pages * os.sysconf("SC_PAGE_SIZE"),
        at_s=time.monotonic(),
    )
