"""A server for all tests of the command line, and ways to run commands against it."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tenure.cli.main import tenure
from tests.cli.server import ServerProcess
from tests.logs import logging_left_as_it_was

Run = Callable[..., Result]
_numbers = itertools.count(1)


@pytest.fixture(autouse=True)
def _no_trace_in_logging() -> Iterator[None]:
    """Commands such as ``tenure server`` set up the logging of what they take for their process."""
    with logging_left_as_it_was():
        yield


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("TENURE_") and not name.startswith("TENURE_TEST_"):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Return a server that the command line started, on a store of its own."""
    folder = tmp_path_factory.mktemp("server")
    with ServerProcess(f"sqlite:///{folder}/tenure.db", folder / "log") as process:
        yield process


@pytest.fixture
def run(server: ServerProcess) -> Run:
    """Return a function that runs a command against the server, in this process."""

    def call(*arguments: str, **options: Any) -> Result:
        return invoke(*arguments, env={"TENURE_TARGET": server.grpc}, **options)

    return call


def invoke(*arguments: str, **options: Any) -> Result:
    """Run a command in this process; a mistake of ours is raised as it is."""
    result = CliRunner().invoke(tenure, arguments, **options)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def read(result: Result) -> Any:
    """Return what a command wrote as JSON, after it ended well."""
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture
def queue() -> str:
    """Return a queue that no other test uses."""
    return f"queue-{next(_numbers)}"
