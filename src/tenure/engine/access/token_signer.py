"""Signs and verifies task tokens with the keys that the access cache knows."""

from __future__ import annotations

import asyncio

from tenure.core.access import task_token
from tenure.core.access.task_token import Claims, Purpose
from tenure.core.access.token_key import TokenKeyRing
from tenure.core.limits import CALL_MS
from tenure.engine.access.access_cache import AccessCache
from tenure.errors import DeadlineExceeded


class TokenSigner:
    """The task tokens of one server."""

    def __init__(self, access_cache: AccessCache) -> None:
        """Use the keys and the time of the cache."""
        self._cache = access_cache

    @property
    def now_ms(self) -> int:
        """Return the time in which tokens are issued and expire: that of the store."""
        return self._cache.now_ms()

    def sign(self, claims: Claims) -> str:
        """Return the token for claims."""
        key = self._cache.token_keys.signer(self.now_ms)
        return task_token.sign(key.secret, claims, number=key.number)

    async def verify(self, token: str, purpose: Purpose) -> Claims:
        """Return the claims of a good token; a key that is not known here is read once."""
        number = task_token.key_number(token)
        keys = self._cache.token_keys
        key = keys.find(number)
        if key is None:
            keys = await self._look()
            key = keys.find(number)
        now_ms = self.now_ms
        is_good = key is not None and not keys.is_over(key, purpose, now_ms)
        secret = key.secret if is_good and key is not None else None
        return task_token.verify(secret, token, purpose=purpose, now_ms=now_ms)

    async def _look(self) -> TokenKeyRing:
        try:
            async with asyncio.timeout(CALL_MS / 1000):
                return await self._cache.look_up_token_keys()
        except TimeoutError:
            raise DeadlineExceeded from None
