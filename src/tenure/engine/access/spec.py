"""The specs of administrative commands: queues, namespaces and API keys."""

from __future__ import annotations

from typing import Final

from tenure.engine.access import check, handler, needs
from tenure.engine.access import command as c
from tenure.engine.command_spec import CommandSpec

# A tuple without a type of its own: mypy compares each function with its kind of command.
ACCESS_SPECS: Final = (
    CommandSpec(c.SetQueue, check.set_queue, needs.set_queue, handler.set_queue),
    CommandSpec(
        c.CreateNamespace, check.name_namespace, needs.create_namespace, handler.create_namespace
    ),
    CommandSpec(c.SetNamespace, check.name_namespace, needs.set_namespace, handler.set_namespace),
    CommandSpec(c.CreateKey, check.create_key, needs.create_key, handler.create_key),
    CommandSpec(
        c.RotateTokenKey, check.rotate_token_key, needs.rotate_token_key, handler.rotate_token_key
    ),
    CommandSpec(c.RevokeKey, check.revoke_key, needs.revoke_key, handler.revoke_key),
)
