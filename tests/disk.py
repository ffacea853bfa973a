"""A small disk for tests, to be really full: a file system in memory of a given size."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


class SmallDisk:
    """A folder with little room."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    def fill(self) -> None:
        """Take all the room that is left."""
        with self._filler.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))

    def clear(self) -> None:
        """Give it back."""
        self._filler.unlink()


@contextlib.contextmanager
def small_disk(folder: Path, *, size_mib: int, owner: int) -> Iterator[SmallDisk]:
    """Mount a small disk at a folder, and take it away at the end."""
    folder.mkdir()
    options = f"size={size_mib}m,uid={owner},gid={owner},mode=700"
    mounted = subprocess.run(
        ["/bin/mount", "-t", "tmpfs", "-o", options, "tmpfs", folder],
        check=False,
        capture_output=True,
    )
    if mounted.returncode != 0:
        pytest.skip(
            "a real full disk needs the right to mount one; tests/engine/test_acceptance.py"
        )
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["/bin/umount", "--lazy", folder], check=True)
