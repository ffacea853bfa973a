"""The keys that all servers of one database share: created once, by the first server."""

from __future__ import annotations

from typing import Final

import msgspec

from tenure.core.limits import TOKEN_KEY_BYTES
from tenure.engine.clock import Clock
from tenure.store.failure import SchemaError
from tenure.store.table import server as server_table
from tenure.store.table import token_key as token_key_table
from tenure.store.transaction import LaneName, Store, Tx

KEY_BYTES: Final = TOKEN_KEY_BYTES
CURSOR: Final = "cursor_key"
CALL: Final = "call_key"


class Secrets(msgspec.Struct, frozen=True, gc=False):
    """The secrets of page tokens and of calls to served workers; never printed.

    Those of task tokens are in the access cache.
    """

    cursor_key: bytes
    call_key: bytes

    def __repr__(self) -> str:
        """Show nothing of the secrets."""
        return "Secrets(…)"


async def load_secrets(store: Store, clock: Clock) -> Secrets:
    """Return the keys of a database; missing ones are created and stored first.

    Servers that start together may each create a key: the first one that commits wins, and all
    servers read it after that. A key that is too short was not made by Tenure, and is refused.
    """
    names = (CURSOR, token_key_table.FIRST, CALL)
    made = {name: clock.random_bytes(KEY_BYTES) for name in names}

    async def body(tx: Tx) -> dict[str, tuple[bytes, int]]:
        found = await server_table.read_secrets(tx)
        missing = {name: key for name, key in made.items() if name not in found}
        if not missing:
            return found
        await server_table.insert_secrets(tx, missing, now_ms=await tx.now_ms())
        return await server_table.read_secrets(tx)

    found = await store.transaction(body, LaneName.SERVICE)
    for name, (secret, _) in sorted(found.items()):
        if len(secret) < KEY_BYTES:
            message = (
                f"The secret {name} in the database has less than {KEY_BYTES} bytes. Delete its "
                "row from the table secrets: the server makes a new one."
            )
            raise SchemaError(message)
    return Secrets(found[CURSOR][0], found[CALL][0])
