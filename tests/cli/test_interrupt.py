"""Ctrl-C ends a command in the same way wherever it strikes."""

from __future__ import annotations

import signal

import click
import pytest
from click.testing import CliRunner

from tenure.cli.client.invocation import Invocation, with_server
from tenure.cli.exit_code import ExitCode
from tenure.cli.failure import CliError
from tests.cli.server import ServerProcess
from tests.cli.terminal import Terminal


def _ended(*, error: Exception | None, is_pressed: bool) -> int:
    @click.command
    @with_server
    def command(call: Invocation) -> None:
        del call
        try:
            if is_pressed:
                signal.raise_signal(signal.SIGINT)
        finally:
            if error is not None:
                raise error

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        result = CliRunner().invoke(command)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    return result.exit_code


@pytest.mark.parametrize(
    "error",
    [
        None,
        # What a lock of the standard library says when it is struck between two of its steps.
        RuntimeError("cannot release un-acquired lock"),
        CliError("The call was cancelled."),
    ],
)
def test_whatever_follows_an_interrupt_is_an_interrupt(error: Exception | None) -> None:
    assert _ended(error=error, is_pressed=True) == ExitCode.INTERRUPTED


def test_without_an_interrupt_an_error_stays_what_it_is() -> None:
    error = CliError("No.", exit_code=ExitCode.CONFLICT)
    assert _ended(error=error, is_pressed=False) == ExitCode.CONFLICT


@pytest.mark.parametrize(
    ("arguments", "first"),
    [
        (("top",), "live tasks"),
        (("tasks", "tail"), "Waiting for changes"),
        (("workers", "ls", "--watch"), "WORKER"),
    ],
)
def test_what_runs_until_ctrl_c_ends_without_a_word(
    server: ServerProcess, arguments: tuple[str, ...], first: str
) -> None:
    environment = {"TENURE_TARGET": server.grpc, "TENURE_HTTP": server.http}
    with Terminal(*arguments, env=environment) as terminal:
        place = terminal.until(first)
        assert terminal.interrupt() == ExitCode.INTERRUPTED
        said = terminal.said[place:]
    for noise in ("Traceback", "Error", "Interrupted", "Aborted", "KeyboardInterrupt"):
        assert noise not in said
