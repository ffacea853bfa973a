"""The keys that all servers of one database share: created once, by the first server."""

from __future__ import annotations

from typing import Final

import msgspec

from tenure.engine.clock import Clock
from tenure.store.table import server as server_table
from tenure.store.transaction import LaneName, Store, Tx

KEY_BYTES: Final = 32
CURSOR: Final = "cursor_key"
TOKEN: Final = "token_key"  # noqa: S105 (a name)
CALL: Final = "call_key"


class Secrets(msgspec.Struct, frozen=True, gc=False):
    """The secrets of page tokens, of task tokens, and of calls to served workers; never printed."""

    cursor_key: bytes
    token_key: bytes
    call_key: bytes

    def __repr__(self) -> str:
        """Show nothing of the secrets."""
        return "Secrets(…)"


async def load_secrets(store: Store, clock: Clock) -> Secrets:
    """Return the keys of a database; missing ones are created and stored first.

    Servers that start together may each create a key: the first one that commits wins, and all
    servers read it after that.
    """
    made = {name: clock.random_bytes(KEY_BYTES) for name in (CURSOR, TOKEN, CALL)}

    async def body(tx: Tx) -> dict[str, bytes]:
        found = await server_table.read_secrets(tx)
        missing = {name: key for name, key in made.items() if name not in found}
        if not missing:
            return found
        await server_table.insert_secrets(tx, missing, now_ms=await tx.now_ms())
        return await server_table.read_secrets(tx)

    found = await store.transaction(body, LaneName.SERVICE)
    return Secrets(found[CURSOR], found[TOKEN], found[CALL])
