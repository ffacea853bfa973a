"""A key made in a store itself: the first one of a server, or one for who has lost all others."""

from __future__ import annotations

import asyncio

from tenure.api.guard import key_grant
from tenure.api.guard.access import OPEN
from tenure.api.rpc.view import access_view as rpc_view
from tenure.cli.client.access_client import KeyChoice
from tenure.cli.database.store_failure import failure_of
from tenure.cli.show import access_view
from tenure.core.access.api_key import Role
from tenure.engine.access import command as c
from tenure.engine.access import first_key
from tenure.engine.clock import SystemClock
from tenure.store.failure import StoreInUseError
from tenure.store.location import make_store


def create(store_url: str, schema: str, choice: KeyChoice) -> access_view.ShownNewKey:
    """Make a key; whoever may write to the store may do everything anyway."""
    try:
        made = asyncio.run(_create(store_url, schema, choice))
    except Exception as error:
        failure = failure_of(error, store_url)
        if failure is None:
            raise
        if isinstance(error, StoreInUseError):
            failure.hint = (
                "Create the key at that server: use --target instead of --store. "
                "Without an admin key for it, stop the server first."
            )
        raise failure from error
    shown = rpc_view.key(made.key)
    return access_view.new_key(shown, made.text.reveal(), made.key.created_at_ms)


async def _create(store_url: str, schema: str, choice: KeyChoice) -> c.CreatedKey:
    command = key_grant.creation(
        OPEN,
        name=choice["name"],
        role=Role(choice["role"]),
        namespaces=choice["namespaces"],
        expires_in_ms=choice["expires_in_ms"],
    )
    clock = SystemClock()
    store = make_store(store_url, clock=clock.now_ms, schema=schema)
    return await first_key.create_key(store, command, clock=clock)
