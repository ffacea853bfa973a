"""The pytest plugin in test runs of other projects: with pytest-asyncio, without it, and unused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ASYNC_TEST: Final = """
from tenure import activity
{imports}

@activity(start_to_close="30s")
async def greet(name: str) -> str:
    return f"Hello {{name}}"

{mark}
async def test_greet(tenure_engine, tenure_client):
    async with tenure_engine.worker([greet]):
        handle = await tenure_client.enqueue(greet.with_options(delay="3d"), "Ann")
        await tenure_engine.advance("3d")
        assert await handle.result() == "Hello Ann"
"""
SYNC_TEST: Final = """
from tenure import activity

@activity(start_to_close="30s")
def greet(name: str) -> str:
    return f"Hello {name}"

def test_greet(tenure_sync_engine, tenure_sync_client):
    with tenure_sync_engine.worker([greet]):
        handle = tenure_sync_client.enqueue(greet.with_options(delay="3d"), "Ann")
        tenure_sync_engine.advance("3d")
        assert handle.result() == "Hello Ann"
"""
PLAIN_TEST: Final = """
import sys

def test_nothing():
    pass

def test_nothing_of_a_server_is_loaded():
    heavy = {"grpc", "google", "apsw", "structlog", "msgspec", "uvicorn", "starlette", "uuid_utils"}
    assert not heavy & set(sys.modules)
    ours = sorted(name for name in sys.modules if name.partition(".")[0] == "tenure")
    assert ours == EXPECTED
"""
GUIDE: Final = Path(__file__).parents[2] / "docs" / "guide" / "testing.md"
ASYNCIO: Final = "pytest_asyncio.plugin"
UNUSED: Final = ["tenure", "tenure.testing", "tenure.testing.plugin"]


def run(folder: Path, test: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in a project of its own; warnings are errors there, too."""
    (folder / "test_it.py").write_text(test)
    settings = "[pytest]\nfilterwarnings = error\n"
    if ASYNCIO in options:
        settings += "asyncio_default_fixture_loop_scope = function\n"
    (folder / "pytest.ini").write_text(settings)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    # What another plugin of this environment does is no business of these projects.
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command += ["-p", "tenure.testing.plugin"]
    return subprocess.run(
        command, cwd=folder, env=environment, check=False, capture_output=True, text=True
    )


@pytest.mark.parametrize("mode", ["auto", "strict"])
def test_async_tests_have_an_engine_and_a_client(tmp_path: Path, mode: str) -> None:
    mark = "@pytest.mark.asyncio" if mode == "strict" else ""
    imports = "import pytest" if mode == "strict" else ""
    test = ASYNC_TEST.format(imports=imports, mark=mark)
    ended = run(tmp_path, test, "-p", ASYNCIO, f"--asyncio-mode={mode}")
    assert ended.returncode == 0, ended.stdout
    assert "1 passed" in ended.stdout


@pytest.mark.parametrize("test", ["test_a_reminder_is_sent", "test_half_a_file_is_removed"])
def test_the_examples_of_the_guide_run_in_the_default_mode_of_pytest_asyncio(
    tmp_path: Path, test: str
) -> None:
    blocks = [block.partition("```")[0] for block in GUIDE.read_text("utf-8").split("```python\n")]
    (example,) = [block for block in blocks if f"def {test}" in block]
    ended = run(tmp_path, example, "-p", ASYNCIO)
    assert "1 passed" in ended.stdout, ended.stdout


def test_the_order_in_which_plugins_are_loaded_does_not_matter(tmp_path: Path) -> None:
    test = ASYNC_TEST.format(imports="", mark="")
    options = ["-p", "tenure.testing.plugin", "-p", ASYNCIO, "--asyncio-mode=auto"]
    ended = run(tmp_path, test, *options)
    assert "1 passed" in ended.stdout, ended.stdout


def test_sync_tests_need_no_async_plugin(tmp_path: Path) -> None:
    ended = run(tmp_path, SYNC_TEST)
    assert ended.returncode == 0, ended.stdout
    assert "1 passed" in ended.stdout


@pytest.mark.parametrize("has_asyncio", [True, False])
def test_a_run_that_does_not_use_it_loads_nothing_of_it(tmp_path: Path, has_asyncio: bool) -> None:
    expected = sorted([*UNUSED, "tenure.testing.async_fixture"] if has_asyncio else UNUSED)
    options = ["-p", ASYNCIO] if has_asyncio else []
    ended = run(tmp_path, PLAIN_TEST.replace("EXPECTED", repr(expected)), *options)
    assert ended.returncode == 0, ended.stdout
    assert "2 passed" in ended.stdout


def test_pytest_finds_the_plugin_by_itself(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "--fixtures", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
    )
    for name in (
        *("tenure_engine", "tenure_client", "tenure_sync_engine", "tenure_sync_client"),
        "check_journals",
    ):
        assert f"\n{name} " in ended.stdout or f"\n{name} --" in ended.stdout, ended.stdout
