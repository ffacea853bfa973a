"""What this server tells the other replicas: where there is work that nobody here can take."""

from __future__ import annotations

import asyncio

import structlog

from tenure.core.limits import NOTIFY_MS
from tenure.engine.offer import Group
from tenure.store.transaction import Store

log = structlog.get_logger("tenure.engine")


class Replicas:
    """Sends hints together, apart from the lanes. A lost one costs a second, never work."""

    def __init__(self, store: Store) -> None:
        """Tell through ``store``."""
        self._store = store
        self._groups: set[Group] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._sending: set[asyncio.Task[None]] = set()

    def tell(self, group: Group) -> None:
        """Tell of work in a queue, soon."""
        self._groups.add(group)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(NOTIFY_MS / 1000, self._send)

    def _send(self) -> None:
        self._timer = None
        groups, self._groups = self._groups, set()
        payload = "\n".join(f"{namespace} {queue}" for namespace, queue in sorted(groups))
        task = asyncio.get_running_loop().create_task(self._notify(payload))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _notify(self, payload: str) -> None:
        try:
            await self._store.notify(payload)
        except Exception as error:  # noqa: BLE001 (whatever it is, polls bridge the gap)
            log.warning("notify.failed", error=str(error))

    async def close(self) -> None:
        """Send nothing more."""
        self.kill()
        await asyncio.gather(*self._sending, return_exceptions=True)

    def kill(self) -> None:
        """Stop at once."""
        if self._timer is not None:
            self._timer.cancel()
        for task in self._sending:
            task.cancel()


def heard(payload: str) -> list[Group]:
    """Return the queues that another replica has told of."""
    groups = []
    for line in payload.splitlines():
        namespace, _, queue = line.partition(" ")
        groups.append((namespace, queue))
    return groups
