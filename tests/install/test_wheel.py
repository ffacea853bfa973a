"""From an empty directory: the wheel is installed with pip, and the example of the README runs."""

from __future__ import annotations

import re
import shlex
import sys
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import Final

import pytest

from tests.cli.command_process import CommandProcess, field
from tests.install.conftest import ROOT, run

PAGES: Final = {name: ROOT / name for name in ("README.md", "docs/guide/install.md")}
PORTS: Final = ("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")
# A version that is locked, with its condition and without its hashes.
_LOCKED: Final = re.compile(r"^[\w.-]+==[^\\\n]*", re.MULTILINE)


def blocks(language: str, page: str = "README.md") -> list[str]:
    """Return the blocks of code of a language in a page."""
    return re.findall(rf"```{language}\n(.*?)```", PAGES[page].read_text(), re.DOTALL)


def commands(block: str) -> list[str]:
    """Return the commands of a block, without their remarks."""
    return [line[2:].partition("  ")[0] for line in block.splitlines() if line.startswith("$ ")]


@pytest.fixture
def wheel(dist: Path) -> Path:
    (found,) = dist.glob("tenure-*.whl")
    return found


@pytest.fixture
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as file:
        (name,) = [each for each in file.namelist() if each.endswith(".dist-info/METADATA")]
        return Parser().parsestr(file.read(name).decode())


def test_the_wheel_is_installed_with_pip_and_the_example_of_the_readme_runs(
    wheel: Path, tmp_path: Path
) -> None:
    """The versions are those of the lock; ports of their own may be free where others are not."""
    lock = (ROOT / "requirements.lock").read_text()
    (tmp_path / "versions.txt").write_text("\n".join(_LOCKED.findall(lock)))
    folder, programs = tmp_path / "empty", tmp_path / "environment" / "bin"
    folder.mkdir()
    run(sys.executable, "-m", "venv", programs.parent, folder=folder)
    install = (programs / "pip", "--quiet", "--disable-pip-version-check", "install")
    run(*install, "--constraint", tmp_path / "versions.txt", wheel, folder=folder)
    run(programs / "pip", "check", folder=folder)

    task, workflow = blocks("python")
    (folder / "quickstart.py").write_text(f"{task}\n\n{workflow}")
    (tried,) = [block for block in blocks("console") if "tenure dev" in block]
    (started,) = [block for block in blocks("console") if "tenure run " in block]
    assert commands(tried) == ["tenure dev quickstart", "python quickstart.py", "tenure workers ls"]
    program = (str(programs / "tenure"),)
    with CommandProcess(folder, "dev", "quickstart", *PORTS, command=program) as dev:
        target = field(dev.until("Tenure runs for development"), "grpc")
        printed = run(programs / "python", "quickstart.py", folder=folder, TENURE_TARGET=target)
        assert printed in tried
        shown = run(programs / "tenure", "workers", "ls", folder=folder, TENURE_TARGET=target)
        assert "ONLINE" in shown
        for command in commands(started):
            _, *arguments = shlex.split(command)
            shown = run(programs / "tenure", *arguments, folder=folder, TENURE_TARGET=target)
        assert "welcome" in shown
    # Whoever has not installed the extra is told which one it is.
    with CommandProcess(
        folder, "db", "status", "--store", "postgresql://nobody@localhost/tenure", command=program
    ) as status:
        assert status.exit_code() != 0
    assert "pip install 'tenure[postgres]'" in status.said


@pytest.mark.parametrize("page", PAGES)
def test_the_pages_name_the_wheel_that_is_built(page: str, wheel: Path) -> None:
    text = PAGES[page].read_text()
    assert "make dist" in text
    assert f"pip install dist/{wheel.name}" in text
    assert set(re.findall(r"tenure-[\w.]+-py3[\w-]*\.whl", text)) == {wheel.name}


def test_the_example_of_the_readme_is_the_one_of_the_quickstart() -> None:
    _, _, code = (ROOT / "examples" / "quickstart.py").read_text().partition("\n\n")
    assert blocks("python")[0] == code


def test_the_wheel_says_where_the_project_is_and_which_extras_it_has(metadata: Message) -> None:
    named = {line.partition(", ")[0] for line in metadata.get_all("Project-URL", [])}
    assert named >= {"Documentation", "Source", "Changelog", "Issues"}
    extras = set(metadata.get_all("Provides-Extra", []))
    page = PAGES["docs/guide/install.md"].read_text()
    assert set(re.findall(r"^\| `tenure\[(\w+)\]`", page, re.MULTILINE)) == extras
