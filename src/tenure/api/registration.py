"""How often workers may register: a bucket per tenant, so that a crash loop slows only itself."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from tenure.engine.clock import Clock
from tenure.errors import RateLimited

# Tenants whose buckets are kept; one that is forgotten starts full, as it would after a second.
_TENANTS_MAX: Final = 10_000
_MS_PER_S: Final = 1_000


class RegistrationLimit:
    """Lets a second's worth of registrations through at once, then as many per second."""

    def __init__(self, clock: Clock, *, per_s: int) -> None:
        """Start with full buckets."""
        self._clock = clock
        self._per_s = per_s
        self._buckets: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def take(self, namespace: str) -> None:
        """Count a registration, or refuse it before anything was done."""
        tenant = namespace.partition("/")[0]
        now_ms = self._clock.monotonic_ms()
        left, at_ms = self._buckets.get(tenant, (float(self._per_s), now_ms))
        left = min(float(self._per_s), left + (now_ms - at_ms) * self._per_s / _MS_PER_S)
        if left < 1:
            raise RateLimited(
                f"Workers of {tenant} register more than {self._per_s} times a second.",
                retry_after_ms=max(1, round((1 - left) * _MS_PER_S / self._per_s)),
            )
        self._buckets[tenant] = (left - 1, now_ms)
        self._buckets.move_to_end(tenant)
        if len(self._buckets) > _TENANTS_MAX:
            self._buckets.popitem(last=False)
