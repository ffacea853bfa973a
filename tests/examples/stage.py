"""The examples as a user has them: a folder with the files, and a server that is up."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, Self

import examples.quickstart
from tests.bounds import COMMAND_S
from tests.cli.command_process import CommandProcess

FOLDER: Final = Path(examples.quickstart.__file__).parent
_LOOK_SECONDS: Final = 0.02


class Script:
    """``python SCRIPT …`` in the folder of the examples, while it runs and after."""

    def __init__(self, folder: Path, target: str, *arguments: str) -> None:
        self._output = folder / f"{Path(arguments[0]).stem}-{time.monotonic_ns()}.out"
        with self._output.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-u", *arguments],
                cwd=folder,
                env={**os.environ, "TENURE_TARGET": target},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(COMMAND_S)

    @property
    def lines(self) -> list[str]:
        return self._output.read_text().splitlines()

    def end(self) -> list[str]:
        """Wait for a good end and return what it has said."""
        assert self.process.wait(COMMAND_S) == 0, self._output.read_text()
        return self.lines


class Stage:
    """A folder with the examples, and where the server is."""

    def __init__(self, folder: Path, target: str) -> None:
        self.folder = folder
        self.target = target

    def script(self, *arguments: str) -> Script:
        return Script(self.folder, self.target, *arguments)

    def run(self, *arguments: str) -> list[str]:
        """Run a script to its good end and return what it has said."""
        with self.script(*arguments) as script:
            return script.end()

    def worker(self, module: str) -> CommandProcess:
        """Start ``tenure worker MODULE``; it is registered when this returns."""
        process = CommandProcess(self.folder, "worker", module, "--target", self.target)
        process.until("Tenure worker is registered")
        return process
