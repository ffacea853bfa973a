"""What ``make dist`` builds, once for all tests of a process."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.bounds import INSTALL_S

ROOT: Final = Path(__file__).parents[2]
# As for a user: no settings of this repository, of the tests, or of the make that started them.
_OURS: Final = ("TENURE_", "PYTHON", "MAKE", "MFLAGS", "VIRTUAL_ENV")
ENVIRONMENT: Final[Mapping[str, str]] = {
    name: value for name, value in os.environ.items() if not name.startswith(_OURS)
}


def run(*command: object, folder: Path, **variables: str) -> str:
    """Run a command to its good end and return what it has said."""
    ended = subprocess.run(
        [*map(str, command)],
        check=False,
        cwd=folder,
        env={**ENVIRONMENT, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=INSTALL_S,
    )
    assert ended.returncode == 0, ended.stdout
    return ended.stdout


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with the wheel and the source distribution."""
    folder = tmp_path_factory.mktemp("dist")
    run("make", "dist", f"DIST={folder}", folder=ROOT)
    return folder
