"""Checks the target, namespace and timeout of a client before it connects."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from tenure.core import check
from tenure.errors import InvalidArgument
from tenure.sdk.duration import Duration, duration_ms

DEFAULT_TARGET: Final = "127.0.0.1:7301"
DEFAULT_NAMESPACE: Final = "default"
_VARIABLE: Final = "TENURE_TARGET"
_NAMESPACE_VARIABLE: Final = "TENURE_NAMESPACE"


def split_targets(targets: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the targets in their order; a ValueError says what is wrong with them.

    None is what the environment names, as for the command line, or else the server of this machine.
    """
    if targets is None:
        targets = os.environ.get(_VARIABLE) or DEFAULT_TARGET
    parts = targets.split(",") if isinstance(targets, str) else list(targets)
    found = tuple(part.strip() for part in parts if part.strip())
    if not found:
        raise ValueError("The target is empty. Give the gRPC address of a server as host:port.")
    for each in found:
        _check_target(each)
    return found


def _check_target(target: str) -> None:
    if "://" in target and not target.startswith(("dns:", "unix:", "ipv4:", "ipv6:")):
        raise ValueError(f"{target!r} is a URL. Give the gRPC address of a server as host:port.")
    host, _, port = target.rpartition(":")
    if not target.startswith("unix:") and not (host and port.isdigit()):
        missing = "port" if host or not port.isdigit() else "host"
        raise ValueError(f"{target!r} has no {missing}. Write host:port, such as {DEFAULT_TARGET}.")


def find_namespace(given: str | None) -> str:
    """Return the namespace; None is the one of the environment, or else ``default``."""
    if given is not None:
        return given
    return os.environ.get(_NAMESPACE_VARIABLE) or DEFAULT_NAMESPACE


def check_client(
    target: str | Sequence[str] | None, namespace: str | None, timeout: Duration
) -> str:
    """Raise ``ValueError`` for what a client cannot be made of; return its namespace."""
    split_targets(target)
    found = find_namespace(namespace)
    try:
        check.namespace(found)
    except InvalidArgument as error:
        raise ValueError(error.message) from None
    duration_ms(timeout, "timeout")
    return found
