"""The numbered keys that sign task tokens, and for how long each of them counts.

A new key is accepted by every server before any of them signs with it, and an old one as long as a
token of it may live. Nothing is removed: the age of the next key says when one is over.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tenure.core.access.task_token import Purpose
from tenure.core.limits import (
    CALLBACK_TOKEN_MS_MAX,
    COMPLETION_TOKEN_MS,
    DURATION_MS_MAX,
    TOKEN_KEY_AGE_MS,
    TOKEN_KEY_BYTES,
    TOKEN_KEYS_MAX,
    TOKEN_SKEW_MS,
)

# The longest life of a token; one for asynchronous completion lives as long as its attempt may.
_LIVES_MS = {
    Purpose.CALLBACK: CALLBACK_TOKEN_MS_MAX,
    Purpose.COMPLETION: max(COMPLETION_TOKEN_MS, DURATION_MS_MAX),
}


class TokenKey(msgspec.Struct, frozen=True, gc=False):
    """One key. Its secret is never printed."""

    number: int
    secret: bytes
    created_at_ms: int

    def __post_init__(self) -> None:
        """Check the invariants of a key."""
        assert 1 <= self.number <= TOKEN_KEYS_MAX
        assert len(self.secret) >= TOKEN_KEY_BYTES

    def __repr__(self) -> str:
        """Show nothing of the secret."""
        return f"TokenKey({self.number})"


class TokenKeyRing:
    """All keys of a database, as one server knows them."""

    def __init__(self, keys: Iterable[TokenKey] = ()) -> None:
        """Sort them by their numbers, which is by their age."""
        self._keys = tuple(sorted(keys, key=lambda each: each.number))

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._keys)

    def with_key(self, key: TokenKey) -> TokenKeyRing:
        """Return a ring with a new key."""
        return TokenKeyRing([*(each for each in self._keys if each.number != key.number), key])

    def next_number(self) -> int:
        """Return the number of the next key."""
        return self._keys[-1].number + 1 if self._keys else 1

    def signer(self, now_ms: int) -> TokenKey:
        """Return the key to sign with: the newest that every server has had time to read."""
        assert self._keys
        old_enough = [key for key in self._keys if key.created_at_ms + TOKEN_KEY_AGE_MS <= now_ms]
        return old_enough[-1] if old_enough else self._keys[0]

    def find(self, number: int) -> TokenKey | None:
        """Return a key by its number."""
        return next((key for key in self._keys if key.number == number), None)

    def is_over(self, key: TokenKey, purpose: Purpose, now_ms: int) -> bool:
        """Return whether the last token of a key has ended: only a thief can still sign with it."""
        later = [each for each in self._keys if each.number > key.number]
        if not later:
            return False
        last_signed_at_ms = later[0].created_at_ms + TOKEN_KEY_AGE_MS
        return last_signed_at_ms + _LIVES_MS[purpose] + TOKEN_SKEW_MS <= now_ms
