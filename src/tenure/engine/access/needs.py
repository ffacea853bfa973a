"""What administrative commands need to have loaded: pure, one function per command."""

from __future__ import annotations

from tenure.engine.access import command as c
from tenure.engine.batch.row_needs import Needs


def set_queue(needs: Needs, command: c.SetQueue) -> None:
    """Lock the queue."""
    needs.namespaces.add(command.namespace)
    needs.queues.add((command.namespace, command.name))


def create_namespace(needs: Needs, command: c.CreateNamespace) -> None:
    """See whether it is there already."""
    _administer(needs, command.actor)
    needs.namespaces.add(command.name)


def set_namespace(needs: Needs, command: c.SetNamespace) -> None:
    """Read the namespace even if it is known."""
    _administer(needs, command.actor)
    needs.administered.add(command.name)


def create_key(needs: Needs, command: c.CreateKey) -> None:
    """See that its namespaces exist, and how many keys there are."""
    _administer(needs, command.actor)
    needs.namespaces.update(command.namespaces)
    needs.counts_api_keys = True


def revoke_key(needs: Needs, command: c.RevokeKey) -> None:
    """Lock the key."""
    _administer(needs, command.actor)
    needs.api_keys.add(command.key_id)


def _administer(needs: Needs, actor: str) -> None:
    needs.locks_access = True
    if actor:
        needs.api_keys.add(actor)
