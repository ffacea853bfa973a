"""The variables of the environment: the same for the SDK and the command line, and in one table."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
import pytest

from tenure import Client, SyncClient, Worker, activity
from tenure.cli.command.worker_process import REGISTERED
from tenure.sdk.transport.tls import resolve
from tests.cli.command_process import CommandProcess
from tests.cli.conftest import Run, invoke, read
from tests.cli.reference import commands
from tests.cli.server import ServerProcess
from tests.polling import eventually

ROOT: Final = Path(__file__).parents[2]
APP: Final = """
from tenure import activity

@activity(start_to_close="1m")
def nothing() -> None: ...
"""
PAGE: Final = ROOT / "docs/reference/environment.md"


@activity(start_to_close="30s")
def greet(name: str) -> str:
    return f"Hello, {name}!"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A server that wants keys: its address, and a key."""
    folder = tmp_path_factory.mktemp("guarded")
    url = f"sqlite:///{folder}/tenure.db"
    key = invoke("keys", "create", "--role", "admin", "--store", url).stdout.strip()
    with ServerProcess(url, folder / "log") as process:
        yield process.grpc, key


def listed(env: dict[str, str]) -> Any:
    result = invoke("tasks", "ls", "-o", "json", env=env)
    assert result.exit_code == 0, result.stderr
    return [each["taskId"] for each in read(result)["tasks"]]


async def test_the_namespace_of_the_environment_is_that_of_clients_workers_and_commands(
    run: Run, server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("namespaces", "create", "everywhere").exit_code == 0
    env = {"TENURE_TARGET": server.grpc, "TENURE_NAMESPACE": "everywhere"}
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    worker = Worker(activities=[greet])
    running = asyncio.get_running_loop().create_task(worker.run(handle_signals=False))
    async with Client() as client:
        first = await client.enqueue(greet, "Ann")
        assert await first.result() == "Hello, Ann!"
        assert (await first.describe()).namespace == "everywhere/default"
    with SyncClient() as sync_client:
        second = await asyncio.to_thread(sync_client.enqueue, greet, "Bob")
    assert set(await asyncio.to_thread(listed, env)) == {first.task_id, second.task_id}
    async with Client(namespace="default") as other:
        there = {each.task_id async for each in other.list(type="greet")}
        assert not there & {first.task_id, second.task_id}
    await eventually(lambda: worker.is_registered)
    await worker.shutdown()
    await running


def test_a_key_in_the_file_of_the_environment_counts_for_commands_too(
    guarded: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, key = guarded
    file = tmp_path / "key"
    file.write_text(f"{key}\n")
    env = {"TENURE_TARGET": target, "TENURE_API_KEY_FILE": str(file)}
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    with SyncClient() as client:
        handle = client.enqueue(greet, "Ann")
    assert listed(env) == [handle.task_id]
    wrong = "tnr_aaaaaaaaaaaaaaaa_" + "a" * 43
    # A key in the environment wins over a file, and one that was given over both.
    refused = invoke("tasks", "ls", env={**env, "TENURE_API_KEY": wrong})
    assert "not valid" in refused.stderr
    assert invoke("tasks", "ls", "--api-key", key, env=env).exit_code == 0
    missing = invoke("tasks", "ls", env={**env, "TENURE_API_KEY_FILE": str(tmp_path / "none")})
    assert missing.exit_code == 2
    assert "cannot be read from" in missing.stderr


def test_a_key_file_on_the_command_line_of_a_worker_wins_over_a_key_of_the_environment(
    guarded: tuple[str, str], tmp_path: Path
) -> None:
    target, key = guarded
    (tmp_path / "key").write_text(f"{key}\n")
    (tmp_path / "app.py").write_text(APP)
    env = {"TENURE_API_KEY": "tnr_aaaaaaaaaaaaaaaa_" + "a" * 43}
    options = ("--target", target, "--api-key-file", "key")
    with CommandProcess(tmp_path, "worker", "app", *options, env=env) as process:
        process.until(REGISTERED)


@pytest.mark.parametrize(
    "said", ["1", "true", "T", "yes", "y", "on", "0", "false", "f", "no", "N", "off", "soon"]
)
def test_tls_is_switched_on_and_off_by_the_same_words(
    said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENURE_TLS", said)
    try:
        wanted = click.BOOL.convert(said, None, None)
    except click.BadParameter:
        with pytest.raises(ValueError, match="TENURE_TLS must be 1 or 0"):
            resolve(None)
    else:
        assert (resolve(None) is not None) == wanted


def test_the_page_has_every_variable_that_is_read_and_no_other() -> None:
    named = re.findall(r"^\| `(TENURE_\w+)`", PAGE.read_text("utf-8"), re.MULTILINE)
    assert len(named) == len(set(named))
    read_names: set[str] = set()
    for file in (ROOT / "src/tenure").rglob("*.py"):
        read_names |= set(re.findall(r"(?<![_A-Z])TENURE_[A-Z_]*[A-Z]\b", file.read_text("utf-8")))
    assert set(named) == read_names


def test_the_page_names_the_options_and_the_commands_that_read_each_variable() -> None:
    readers: dict[str, set[str]] = {}
    options: dict[str, set[str]] = {}
    for path, command in commands():
        for each in command.params:
            if isinstance(each.envvar, str):
                readers.setdefault(each.envvar, set()).add(" ".join(path.split()[:2]))
                options.setdefault(each.envvar, set()).add(each.opts[0])
    shared, single = PAGE.read_text("utf-8").split("## Single commands")
    for part, has_commands in ((shared, False), (single, True)):
        for row in re.findall(r"^\| `TENURE_.*$", part, re.MULTILINE):
            name = re.findall(r"TENURE_\w+", row)[0]
            assert all(each in row for each in options[name]), row
            if has_commands:
                assert set(re.findall(r"tenure \w+", row)) == readers[name], row
