"""The cache of keys and of disabled namespaces, so that no call has to read them.

A change of this server is in the cache before the change is answered. A change of another server is
read: after its hint, when an unknown key is used, and at an interval. Each change increases a
version in the store, so that a check for changes reads one row.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import structlog

from tenure.core.access.api_key import ApiKey, Role
from tenure.core.access.token_key import TokenKeyRing
from tenure.core.limits import KEY_EXPIRY_LOOK_MS
from tenure.engine.batch.working_set import WorkingSet
from tenure.engine.clock import Clock
from tenure.engine.replica.polling_loop import PollingLoop
from tenure.engine.settings import Settings
from tenure.engine.store_outage import StoreOutage
from tenure.errors import Unavailable
from tenure.store.failure import Lost
from tenure.store.table import access as access_table
from tenure.store.table.access import AccessRows
from tenure.store.transaction import Store

log = structlog.get_logger("tenure.engine")
RETRY_AFTER_MS: Final = 500
# The end of a key is reported at most this late; a call with it is refused at the exact instant.
_EXPIRY_LEAST_MS: Final = 10


class AccessCache:
    """The live keys and the disabled namespaces that this server knows."""

    def __init__(
        self, store: Store, outage: StoreOutage, *, clock: Clock, settings: Settings
    ) -> None:
        """Start empty; ``load`` reads everything."""
        self._store = store
        self._clock = clock
        self._settings = settings
        self._keys: dict[str, ApiKey] = {}
        self._version = -1
        # What this server itself has written last; an older read of the store is ignored.
        self._own_version = -1
        self._ahead_ms = 0
        self._used: dict[str, int] = {}
        self._listeners: list[Callable[[], None]] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._expiry: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._polling_loop = PollingLoop(
            "access_cache",
            self._look,
            self._period_ms,
            outage=outage,
            # It was loaded while this server already received hints, so no change was missed.
            first_ms=settings.fallback_poll_ms,
        )
        self.disabled: frozenset[str] = frozenset()
        self.has_keys = False
        self.token_keys = TokenKeyRing()

    # -- For the edges

    def find(self, key_id: str) -> ApiKey | None:
        """Return a key that is live, from memory."""
        key = self._keys.get(key_id)
        return key if key is not None and key.is_live(self.now_ms()) else None

    async def look_up(self, key_id: str) -> ApiKey | None:
        """Return a live key; a key that is not known here may have been created elsewhere.

        However many ask at a time, the store is read at most each 50 ms, one row each.
        """
        found = self.find(key_id)
        if found is not None or key_id in self._keys or not self._store.is_shared:
            return found
        await self._wait_for_look()
        return self.find(key_id)

    async def look_up_token_keys(self) -> TokenKeyRing:
        """Return the keys of task tokens: one may have been made elsewhere just now."""
        if self._store.is_shared:
            await self._wait_for_look()
        return self.token_keys

    def enabled(self, namespaces: frozenset[str]) -> frozenset[str]:
        """Return the namespaces that are not known to be disabled."""
        return namespaces - self.disabled if self.disabled else namespaces

    def is_disabled(self, namespace: str) -> bool:
        """Return whether a namespace accepts no workers, no tasks and no polls."""
        return namespace in self.disabled

    @property
    def has_admin(self) -> bool:
        """Return whether there is a key that can administer everything."""
        now_ms = self.now_ms()
        return any(
            key.role is Role.ADMIN and not key.namespaces and key.is_live(now_ms)
            for key in self._keys.values()
        )

    def used(self, key_id: str) -> None:
        """Note that a key was used; it is written at intervals."""
        if key_id in self._keys:
            self._used[key_id] = self.now_ms()

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` after each change of the cache, and when a key expires."""
        self._listeners.append(listener)

    def now_ms(self) -> int:
        """Return the time of the store, as known without reading it."""
        return self._clock.now_ms() + self._ahead_ms

    # -- For the engine

    async def load(self) -> None:
        """Read everything; done once before the server answers calls."""
        own_version = self._own_version
        state = await self._store.read(access_table.read_state)
        if own_version != self._own_version > state.version:
            # This server has changed something after the rows were read.
            self._polling_loop.call()
            return
        self._version = state.version
        self._learn_time(state.now_ms)
        self._keys = {key.id: key for key in state.keys}
        self.has_keys = self.has_keys or state.has_keys
        self.disabled = state.disabled
        self.token_keys = state.token_keys
        self._tell()

    async def serve(self) -> None:
        """Follow changes of other servers until cancelled."""
        await self._polling_loop.serve()

    def hear(self) -> None:
        """Read soon: another server has changed something, or a result is unknown."""
        self._polling_loop.call()

    def committed(self, ws: WorkingSet) -> bool:
        """Take in what this server has committed; return whether the others need a hint.

        Rows that were only read, under the lock that changes need, are as current as changed ones.
        """
        if AccessRows not in ws.rows.made:
            return False
        before, after = ws.access.version, ws.access.saved_version
        if before is None or after is None:
            return False
        self._own_version = after
        if before == self._version:
            self._version = after
        else:
            self._polling_loop.call()
        for key in ws.access.values():
            self.has_keys = True
            if key.is_live(ws.now_ms):
                self._keys[key.id] = key
            else:
                self._keys.pop(key.id, None)
        if ws.access.new_token_key is not None:
            self.token_keys = self.token_keys.with_key(ws.access.new_token_key)
        looked_at = ws.namespaces.looked_at()
        disabled = {each.name for each in looked_at if each.is_disabled}
        self.disabled = (self.disabled - {each.name for each in looked_at}) | disabled
        self._tell()
        return after != before

    def take_used(self) -> dict[str, int]:
        """Return when which keys were used since the last call."""
        used, self._used = self._used, {}
        return used

    def keep_used(self, used: Mapping[str, int]) -> None:
        """Keep uses that could not be written, unless there were later ones."""
        self._used = {**used, **self._used}

    def close(self) -> None:
        """Stop: callers that still wait for a read get ``shutting_down``."""
        self._is_closed = True
        if self._expiry is not None:
            self._expiry.cancel()
        waiting, self._waiting = self._waiting, []
        _answer(waiting, _stopping())

    # -- Reading

    def _period_ms(self) -> int | None:
        if not self._store.is_shared:
            return None
        settings = self._settings
        return settings.fallback_poll_ms if self._store.is_listening else settings.news_poll_ms

    async def _wait_for_look(self) -> None:
        """Wait for a read that starts after now."""
        if self._is_closed:
            raise _stopping()
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        self._polling_loop.call()
        await waiter

    async def _look(self, is_full: bool) -> None:  # noqa: FBT001 (the polling loop's signature)
        del is_full
        waiting, self._waiting = self._waiting, []
        try:
            version, now_ms = await self._store.read(access_table.read_version)
            self._learn_time(now_ms)
            if version != self._version:
                await self.load()
        except BaseException as error:
            _answer(waiting, _unavailable(error))
            raise
        _answer(waiting)

    def _learn_time(self, now_ms: int) -> None:
        """Note how far the store's clock is ahead; a store without a clock uses ours."""
        if self._store.is_shared:
            self._ahead_ms = now_ms - self._clock.now_ms()

    # -- Notifying

    def _tell(self) -> None:
        """Notify the listeners of a change, and set the timer for the next expiring key."""
        self._arm()
        for listener in self._listeners:
            try:
                listener()
            except Exception:
                # The mistake of one listener must not affect the others.
                log.exception("access_cache.listener_failed")

    def _arm(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        ends = [key.expires_at_ms for key in self._keys.values() if key.expires_at_ms is not None]
        if ends and not self._is_closed:
            left_ms = max(min(ends) - self.now_ms(), _EXPIRY_LEAST_MS)
            loop = asyncio.get_running_loop()
            self._expiry = loop.call_later(min(left_ms, KEY_EXPIRY_LOOK_MS) / 1000, self._expire)

    def _expire(self) -> None:
        """Remove the keys that have expired, and notify the listeners if there are any."""
        now_ms = self.now_ms()
        live = {key_id: key for key_id, key in self._keys.items() if key.is_live(now_ms)}
        if len(live) == len(self._keys):
            self._arm()
            return
        self._keys = live
        self._tell()


def _answer(waiting: Iterable[asyncio.Future[None]], error: Unavailable | None = None) -> None:
    for waiter in waiting:
        if waiter.done():
            continue
        if error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(error)


def _unavailable(error: BaseException) -> Unavailable:
    if isinstance(error, asyncio.CancelledError):
        return _stopping()
    reason = error.reason if isinstance(error, Lost) else "conflict"
    message = f"The store is not available ({reason}). Try again."
    return Unavailable(message, reason=reason, retry_after_ms=RETRY_AFTER_MS)


def _stopping() -> Unavailable:
    message = "The server is shutting down. Try again."
    return Unavailable(message, reason="shutting_down", retry_after_ms=RETRY_AFTER_MS)
