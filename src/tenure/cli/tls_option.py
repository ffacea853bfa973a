"""The options of TLS, which all commands share that talk to a server."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tenure.cli.exit_code import ExitCode
from tenure.cli.failure import CliError
from tenure.cli.help import ConnectionOption
from tenure.cli.parameter import option

if TYPE_CHECKING:
    from tenure.sdk.transport.tls import TLS


def tls_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options, and hand them over as one argument: ``tls``, None for no TLS."""

    @option(
        "--tls/--no-tls",
        "is_tls",
        cls=ConnectionOption,
        envvar="TENURE_TLS",
        default=None,
        help="Use TLS. Without --tls-ca the authorities of this machine are trusted.",
    )
    @_file_option(
        "--tls-ca", "TENURE_TLS_CA", "PEM file of the authorities to trust. Turns TLS on."
    )
    @_file_option("--tls-cert", "TENURE_TLS_CERT", "PEM file of the client certificate.")
    @_file_option(
        "--tls-key", "TENURE_TLS_KEY", "PEM file of the private key of the client certificate."
    )
    @functools.wraps(function)
    def command(
        *args: object,
        is_tls: bool | None,
        tls_ca: str,
        tls_cert: str,
        tls_key: str,
        **arguments: object,
    ) -> object:
        return function(*args, tls=tls_of(tls_ca, tls_cert, tls_key, is_tls=is_tls), **arguments)

    return command


def tls_of(ca: str, certificate: str, key: str, *, is_tls: bool | None) -> TLS | None:
    """Return the settings that the values of the options mean, or None for no TLS."""
    # Whoever names a file wants TLS.
    is_wanted = bool(ca or certificate or key) if is_tls is None else is_tls
    return _settings(ca, certificate, key) if is_wanted else None


def _file_option(
    name: str, variable: str, text: str
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return option(
        name, cls=ConnectionOption, envvar=variable, default="", metavar="FILE", help=text
    )


def _settings(ca: str, certificate: str, key: str) -> TLS:
    from tenure.sdk.transport.tls import checked, of_paths

    try:
        return checked(of_paths(ca, certificate, key))
    except ValueError as error:
        hint = "Check --tls-ca, --tls-cert and --tls-key, or the variables TENURE_TLS_..."
        raise CliError(str(error), hint=hint, exit_code=ExitCode.USAGE) from None
