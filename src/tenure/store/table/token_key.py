"""The keys of task tokens: rows of the table of secrets, with a number in their name."""

from __future__ import annotations

from typing import Final

from tenure.core.access.token_key import TokenKey, TokenKeyRing
from tenure.store.table import server as server_table
from tenure.store.transaction import Tx

FIRST: Final = "token_key"
_LATER: Final = "token_key."


def name_of(number: int) -> str:
    """Return the name of a key: the first one is older than the numbers."""
    return FIRST if number == 1 else f"{_LATER}{number}"


def number_of(name: str) -> int | None:
    """Return the number of a key by its name, if it is the name of one."""
    if name == FIRST:
        return 1
    return int(name.removeprefix(_LATER)) if name.startswith(_LATER) else None


async def read_keys(tx: Tx) -> TokenKeyRing:
    """Read all keys."""
    found = await server_table.read_secrets(tx)
    numbered = ((number_of(name), row) for name, row in found.items())
    return TokenKeyRing(
        TokenKey(number, secret, at_ms) for number, (secret, at_ms) in numbered if number
    )


async def insert_key(tx: Tx, key: TokenKey) -> None:
    """Write a new key."""
    secrets = {name_of(key.number): key.secret}
    await server_table.insert_secrets(tx, secrets, now_ms=key.created_at_ms)
