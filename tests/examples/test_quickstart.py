"""The quickstart: at most 20 lines, two commands, and the guide shows what is in the file."""

from __future__ import annotations

import re
from pathlib import Path

from tests.cli.command_process import CommandProcess, field
from tests.examples.stage import FOLDER, Stage

GUIDE = FOLDER.parent / "docs/guide/quickstart.md"


def _block(language: str) -> str:
    """Return the first block of code of a language in the guide."""
    found = re.search(rf"```{language}\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def test_the_quickstart_has_at_most_20_lines() -> None:
    assert len((FOLDER / "quickstart.py").read_text().splitlines()) <= 20


def test_the_guide_shows_the_quickstart_as_it_is() -> None:
    _, _, code = (FOLDER / "quickstart.py").read_text().partition("\n\n")
    assert _block("python") == code


def test_the_two_commands_of_the_guide_print_what_the_guide_says(folder: Path) -> None:
    """Ports of their own are all that is added: the usual ones may be taken here."""
    said = _block("console").splitlines()
    commands = [line[2:].partition("  ")[0] for line in said if line.startswith("$ ")]
    assert commands == ["tenure dev quickstart", "python quickstart.py"]
    ports = ("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")
    with CommandProcess(folder, "dev", "quickstart", *ports) as dev:
        target = field(dev.until("Tenure runs for development"), "grpc")
        printed = Stage(folder, target).run("quickstart.py")
    assert printed == [line for line in said if not line.startswith("$ ")]
