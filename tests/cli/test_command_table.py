"""The commands as a whole: help, lazy loading, the reference page, completion."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import click
import pytest

import tenure
from tenure.cli.main import PLACES
from tenure.cli.main import tenure as root
from tests.cli import reference
from tests.cli.conftest import invoke

CONNECTION: Final = {"--target", "--api-key", "--api-key-file", "--tls", "--tls-ca", "--http"}
# Their --http is where they listen.
LISTENING: Final = {"tenure server", "tenure dev"}
COMMANDS: Final = dict(reference.commands())
HEAVY: Final = ("grpc", "rich", "google", "msgspec", "apsw", "asyncio", "structlog", "starlette")
# What Python and click load by themselves, with some room.
MODULES_MAX: Final = 200
_COUNT: Final = """
import sys
from tenure.cli.main import tenure
try:
    tenure.main(sys.argv[1:])
except SystemExit:
    pass
print(len(sys.modules), *(name for name in sys.modules if "." not in name))
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("--version",),
        ("tasks", "--help"),
        ("workers", "ls", "--help"),
        ("db", "-h"),
        ("worker", "--help"),
        ("dev", "--help"),
    ],
)
def test_help_loads_nothing_heavy(arguments: tuple[str, ...]) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _COUNT, *arguments], check=True, capture_output=True, text=True
    )
    count, *names = ended.stdout.splitlines()[-1].split()
    assert not set(HEAVY) & set(names)
    assert int(count) < MODULES_MAX


@pytest.mark.parametrize("name", PLACES)
def test_the_help_of_the_root_says_what_the_command_says_itself(name: str) -> None:
    command = root.get_command(click.Context(root), name)
    assert command is not None
    assert command.name == name
    assert command.get_short_help_str(100) == PLACES[name].summary


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_explains_itself(path: str) -> None:
    command = COMMANDS[path]
    assert command.help
    assert command.get_short_help_str(100).endswith(".")
    for option in command.params:
        if isinstance(option, click.Option) and not option.hidden:
            assert option.help, option.name
    result = invoke(*path.split()[1:], "--help")
    assert result.exit_code == 0
    assert ("Examples:" in result.output) == (path != "tenure version")


def test_the_commands_are_those_of_the_reference_page() -> None:
    assert reference.page() == reference.PAGE.read_text("utf-8")


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("doctors",), "doctor"),
        (("taks", "ls"), "tasks"),
        (("task",), "tasks"),
        (("tasks", "list"), "ls"),
        (("queues", "puase", "mail"), "pause"),
    ],
)
def test_a_command_that_does_not_exist_is_told_with_the_one_that_was_meant(
    words: tuple[str, ...], meant: str
) -> None:
    result = invoke(*words)
    assert result.exit_code == 2
    assert "No such command" in result.stderr
    assert f"Did you mean {meant}" in result.stderr


def test_a_command_that_is_like_no_other_is_only_refused() -> None:
    result = invoke("xyzzy")
    assert result.exit_code == 2
    assert result.stderr.endswith("Error: No such command 'xyzzy'.\n")


@pytest.mark.parametrize("path", COMMANDS)
def test_the_options_of_the_connection_are_in_a_section_of_their_own(path: str) -> None:
    text = invoke(*path.split()[1:], "--help").output
    own, _, shared = text.partition("\nConnection options:\n")
    names = {name for each in COMMANDS[path].params for name in each.opts}
    if path not in LISTENING:
        for name in CONNECTION & names:
            assert f"  {name} " in shared
            assert f"  {name} " not in own
    assert ("--target" in names) == bool(shared)


@pytest.mark.parametrize("arguments", [("version",), ("--version",)])
def test_the_version_is_printed(arguments: tuple[str, ...]) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 0
    assert result.stdout.startswith(f"tenure {tenure.__version__} ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_says_how_to_install_it(shell: str) -> None:
    result = invoke("completion", shell)
    assert result.exit_code == 0
    assert f"tenure completion {shell}" in result.stdout
    assert f"_TENURE_COMPLETE={shell}_complete" in result.stdout
