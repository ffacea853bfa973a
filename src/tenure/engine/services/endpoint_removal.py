"""Removes endpoints that are deleted, or whose worker row has ended, when they hold nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.core.limits import ENDPOINTS_REMOVED_MAX
from tenure.engine.endpoint.command import EndEndpoint
from tenure.engine.service import Report
from tenure.store.table import endpoint as endpoint_table

if TYPE_CHECKING:
    from tenure.engine.engine import Engine


class EndpointRemoval:
    """Looks for endpoints that are leaving; one that holds something stays until it does not."""

    name = "endpoint_removal"

    def interval_ms(self, engine: Engine) -> int:
        """Return the interval of the rounds."""
        return engine.settings.seat_round_ms

    async def run_once(self, engine: Engine) -> Report:
        """Try to remove some of them."""
        leaving = await engine.store.read(
            lambda tx: endpoint_table.list_leaving(tx, amount=ENDPOINTS_REMOVED_MAX)
        )
        count = 0
        for endpoint_id, namespace in leaving:
            command = EndEndpoint(namespace=namespace, endpoint_id=endpoint_id)
            count += await engine.submit(command)
        return Report(count)
