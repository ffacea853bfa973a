"""Writes when API keys were last used: once a minute for all of them, never during a call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from tenure.core.limits import KEY_USED_MS
from tenure.engine.service import Report
from tenure.store.failure import StoreError
from tenure.store.table import access as access_table
from tenure.store.transaction import LaneName

if TYPE_CHECKING:
    from tenure.engine.engine import Engine


log = structlog.get_logger("tenure.engine")


class KeyUse:
    """Takes the uses that the access cache has noted."""

    name = "key_use"

    def interval_ms(self, engine: Engine) -> int:
        """Return the precision of the last use of a key."""
        del engine
        return KEY_USED_MS

    async def run_once(self, engine: Engine) -> Report:
        """Write the uses; what could not be written is kept for the next round."""
        used = engine.access_cache.take_used()
        if not used:
            return Report()
        try:
            await engine.store.transaction(
                lambda tx: access_table.touch_keys(tx, used), LaneName.SERVICE
            )
        except BaseException:
            engine.access_cache.keep_used(used)
            raise
        return Report(len(used))


async def write_last(engine: Engine) -> None:
    """Write the uses since the last round when a server stops; without a store they are lost."""
    try:
        await KeyUse().run_once(engine)
    except StoreError as error:
        if not engine.outage.failed(error):
            log.warning("service.failed", service=KeyUse.name, error=str(error))
