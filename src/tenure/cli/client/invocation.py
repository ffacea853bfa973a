"""One call of a command that talks to a server: its target, its namespace and its output."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

import click

from tenure.cli import suggestion
from tenure.cli.exit_code import ExitCode
from tenure.cli.failure import CliError
from tenure.cli.help import ConnectionOption
from tenure.cli.interrupt import Interrupt
from tenure.cli.parameter import option
from tenure.cli.parameter import target as parse_target
from tenure.cli.tls_option import tls_options

if TYPE_CHECKING:
    from tenure.cli.client.client import ServerClient
    from tenure.cli.show.output import Format, Output
    from tenure.sdk.transport.tls import TLS

DEFAULT_TARGET: Final = "127.0.0.1:7301"
DEFAULT_NAMESPACE: Final = "default"
_FORMATS: Final = ("table", "json", "jsonl")


class Invocation:
    """What a command needs; gRPC and the rest are loaded when it really asks for them."""

    def __init__(
        self,
        target: str,
        namespace: str,
        form: str,
        *,
        api_key: str | None = None,
        tls: TLS | None = None,
    ) -> None:
        """Prepare a call; nothing is connected yet."""
        self._api_key = api_key
        self.tls = tls
        self.targets = target.split(",")
        self.namespace = namespace
        self.form = form

    @functools.cached_property
    def api_key(self) -> str:
        """Return the API key, or nothing; not given, it is in the file of the environment."""
        from tenure.sdk.transport.api_key import find_api_key

        if self._api_key is not None:
            return self._api_key
        try:
            return find_api_key(None)
        except ValueError as error:
            hint = "Check the file in TENURE_API_KEY_FILE."
            raise CliError(str(error), hint=hint, exit_code=ExitCode.USAGE) from None

    @functools.cached_property
    def client(self) -> ServerClient:
        """Return the way to the server."""
        # Its C core would write its own account of every failed connection to stderr.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        from tenure.cli.client.client import ServerClient
        from tenure.sdk.transport.tls import is_exposed

        if is_exposed(self.targets, self.api_key, self.tls):
            where = ", ".join(self.targets)
            what = f"Warning: the API key is sent to {where} without TLS. Use --tls."
            click.echo(what, err=True)
        return ServerClient(self.targets, self.namespace, api_key=self.api_key, tls=self.tls)

    @functools.cached_property
    def output(self) -> Output:
        """Return the way to the reader."""
        from tenure.cli.show.output import Output

        return Output(cast("Format", self.form))

    def close(self) -> None:
        """Leave the server, if it was spoken to."""
        if "client" in self.__dict__:
            self.client.close()


def output_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``-o``."""
    return option(
        "-o",
        "--format",
        "form",
        type=click.Choice(_FORMATS),
        default="table",
        help="Output format; jsonl is one JSON object per line.",
    )(function)


namespace_option = option(
    "--namespace",
    cls=ConnectionOption,
    shell_complete=suggestion.namespaces,
    envvar="TENURE_NAMESPACE",
    default=DEFAULT_NAMESPACE,
    metavar="NAME",
    help="The namespace: NAME or TENANT/WORKSPACE.",
)


def with_server(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that name a server and a namespace, and hand the invocation over."""

    @target_option
    @namespace_option
    @output_option
    @functools.wraps(function)
    def command(
        target: str,
        namespace: str,
        form: str,
        api_key: str | None,
        tls: TLS | None,
        **arguments: object,
    ) -> None:
        call = Invocation(target, namespace, form, api_key=api_key, tls=tls)
        _run(function, call, arguments)

    return command


def with_bare_server(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that name a server and a namespace, for what has an output of its own."""

    @target_option
    @namespace_option
    @functools.wraps(function)
    def command(
        target: str, namespace: str, api_key: str | None, tls: TLS | None, **arguments: object
    ) -> None:
        call = Invocation(target, namespace, "table", api_key=api_key, tls=tls)
        _run(function, call, arguments)

    return command


def with_whole_server(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that name a server, for what belongs to no namespace."""

    @target_option
    @output_option
    @functools.wraps(function)
    def command(
        target: str, form: str, api_key: str | None, tls: TLS | None, **arguments: object
    ) -> None:
        call = Invocation(target, DEFAULT_NAMESPACE, form, api_key=api_key, tls=tls)
        _run(function, call, arguments)

    return command


def target_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--target`` and ``--api-key``, and the options of TLS, which arrive as ``tls``."""
    key = option(
        "--api-key",
        cls=ConnectionOption,
        envvar="TENURE_API_KEY",
        metavar="KEY",
        help="The API key. Prefer the variable: other users can see the command line.",
    )
    return option(
        "--target",
        cls=ConnectionOption,
        envvar="TENURE_TARGET",
        default=DEFAULT_TARGET,
        type=parse_target,
        metavar="HOST:PORT,...",
        help="The gRPC address of the server. Of several, the first that answers is used.",
    )(key(tls_options(function)))


def _run(function: Callable[..., None], call: Invocation, arguments: dict[str, Any]) -> None:
    with Interrupt() as interrupt:
        try:
            function(call, **arguments)
        except (Exception, KeyboardInterrupt) as error:
            is_interrupted = interrupt.has_struck or isinstance(error, KeyboardInterrupt)
            is_told = isinstance(error, CliError) and error.end is ExitCode.INTERRUPTED
            if is_interrupted and not is_told:
                _end_line()
                raise click.exceptions.Exit(ExitCode.INTERRUPTED) from None
            if isinstance(error, CliError):
                error.is_json = call.form != "table"
            raise
        finally:
            call.close()


def _end_line() -> None:
    """Let the prompt of the shell begin a line: the terminal has written ^C into this one."""
    if sys.stderr.isatty():
        click.echo(err=True)
