"""Which files a program is made of, and whether one of them has changed."""

from __future__ import annotations

import importlib.util
import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

# A folder with more files is not a program that somebody edits.
FILES_MAX: Final = 10_000
FOLDERS_MAX: Final = 2_000
_SKIPPED: Final = frozenset({"__pycache__", "node_modules", "site-packages"})

Snapshot = dict[str, tuple[int, int]]
"""The size and the time of change of each file."""


def root_of(module: str) -> Path:
    """Return the folder that contains a module, or its top-level package.

    Nothing is imported, so a broken module is watched as well.
    """
    top = module.partition(".")[0]
    here = str(Path.cwd())
    try:
        found = importlib.util.find_spec(top) if top not in sys.modules else None
    except (ImportError, ValueError):
        found = None
    if found is None:
        return Path(here)
    places = list(found.submodule_search_locations or ())
    if places:
        return Path(places[0]).parent
    return Path(found.origin).parent if found.origin and os.sep in found.origin else Path(here)


def take(root: Path) -> Snapshot:
    """Return all Python files below a folder, except in environments and hidden folders."""
    found: Snapshot = {}
    for path in _files(root):
        try:
            status = os.stat(path)  # noqa: PTH116 (thousands of them, twice a second)
        except OSError:
            # It was removed meanwhile.
            continue
        found[path] = (status.st_size, status.st_mtime_ns)
        if len(found) >= FILES_MAX:
            break
    return found


def changed(before: Snapshot, after: Snapshot) -> list[str]:
    """Return the files that are new, gone or different."""
    return sorted(
        path for path in before.keys() | after.keys() if before.get(path) != after.get(path)
    )


def _files(root: Path) -> Iterator[str]:
    for folder, folders, files in itertools.islice(os.walk(root), FOLDERS_MAX):
        folders[:] = sorted(
            name
            for name in folders
            if name not in _SKIPPED
            and not name.startswith(".")
            and not os.path.exists(os.path.join(folder, name, "pyvenv.cfg"))  # noqa: PTH110, PTH118
        )
        for name in sorted(files):
            if name.endswith(".py"):
                yield os.path.join(folder, name)  # noqa: PTH118 (the same)
