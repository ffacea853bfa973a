"""Checks of administrative commands: invalid input gets its typed error before it is accepted."""

from __future__ import annotations

from tenure.core import check as checks
from tenure.core import limits
from tenure.core.access import api_key
from tenure.engine.access import command as c
from tenure.engine.check import check_namespace
from tenure.errors import InvalidArgument


def set_queue(command: c.SetQueue) -> None:
    """Check pause and limit of a queue."""
    check_namespace(command.namespace)
    checks.name(command.name, "queue")
    if command.concurrency_max is not None:
        checks.integer(command.concurrency_max, "concurrencyMax", 0, 2**31 - 1)


def name_namespace(command: c.CreateNamespace | c.SetNamespace) -> None:
    """Check the name of a namespace."""
    check_namespace(command.name)


def create_key(command: c.CreateKey) -> None:
    """Check a new key: its namespaces are canonical, and not too many."""
    checks.name(command.name, "name")
    if len(command.namespaces) > limits.KEY_NAMESPACES_MAX:
        message = (
            f"namespaces must have at most {limits.KEY_NAMESPACES_MAX} entries; none means all"
        )
        raise InvalidArgument(message, field="namespaces")
    for each in command.namespaces:
        if checks.namespace(each, "namespaces") != each:
            message = "namespaces must be tenant/workspace here"
            raise InvalidArgument(message, field="namespaces")
    if command.expires_in_ms:
        checks.duration_ms(command.expires_in_ms, "expiresInMs")


def rotate_token_key(command: c.RotateTokenKey) -> None:
    """Nothing is given."""
    del command


def revoke_key(command: c.RevokeKey) -> None:
    """Check that the id of a key is well-formed."""
    api_key.check_id(command.key_id)
