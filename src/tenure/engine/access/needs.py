"""The rows that administrative commands need: pure, one function per command."""

from __future__ import annotations

from tenure.engine.access import command as c
from tenure.store.table.lock_order import RowSets


def set_queue(needs: RowSets, command: c.SetQueue) -> None:
    """Lock the queue."""
    needs.namespaces.wanted.add(command.namespace)
    needs.queues.wanted.add((command.namespace, command.name))


def create_namespace(needs: RowSets, command: c.CreateNamespace) -> None:
    """Read whether it exists already."""
    _administer(needs, command.actor)
    needs.namespaces.wanted.add(command.name)


def set_namespace(needs: RowSets, command: c.SetNamespace) -> None:
    """Read the namespace even if it is known."""
    _administer(needs, command.actor)
    needs.namespaces.administered.add(command.name)


def create_key(needs: RowSets, command: c.CreateKey) -> None:
    """Read whether its namespaces exist, and how many keys there are."""
    _administer(needs, command.actor)
    needs.namespaces.wanted.update(command.namespaces)
    needs.access.is_counting = True


def rotate_token_key(needs: RowSets, command: c.RotateTokenKey) -> None:
    """Read the keys that there are."""
    _administer(needs, command.actor)
    needs.access.is_rotating = True


def revoke_key(needs: RowSets, command: c.RevokeKey) -> None:
    """Lock the key."""
    _administer(needs, command.actor)
    needs.access.wanted.add(command.key_id)


def _administer(needs: RowSets, actor: str) -> None:
    needs.access.is_changing = True
    if actor:
        needs.access.wanted.add(actor)
