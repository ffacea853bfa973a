"""The part of a diagnosis that is about schedules: bounded reads of small indexes."""

from __future__ import annotations

from functools import partial

from tenure.core.diagnosis import schedule_check as rules
from tenure.core.diagnosis.finding import Finding
from tenure.core.limits import FINDINGS_MAX, SCHEDULE_LATE_MS
from tenure.store.table import schedule_list as reads
from tenure.store.table.diagnosis import Extent
from tenure.store.transaction import Store


async def look_at_schedules(store: Store, extent: Extent, *, now_ms: int) -> list[Finding]:
    """Check the schedules of namespaces."""
    late_before_ms = now_ms - SCHEDULE_LATE_MS
    late = await store.scan(partial(reads.list_late, extent=extent, before_ms=late_before_ms))
    broken = await store.scan(partial(reads.list_broken, extent=extent, amount=FINDINGS_MAX))
    failing = await store.scan(partial(reads.list_failing, extent=extent, amount=FINDINGS_MAX))
    return [
        *rules.check_late(late, now_ms=now_ms),
        *rules.check_broken(broken),
        *rules.check_failing(failing),
    ]
