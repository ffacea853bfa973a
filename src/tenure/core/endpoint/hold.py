"""When an endpoint gets nothing: it is paused, busy, or has failed too often in a row."""

from __future__ import annotations

from typing import assert_never

from msgspec.structs import replace

from tenure.core.endpoint.record import Endpoint, Pause
from tenure.core.endpoint.verdict import Delivery, Verdict
from tenure.core.limits import ENDPOINT_FAILURES_MAX, ENDPOINT_HOLD_MS, ENDPOINT_HOLD_MS_MAX


def after(endpoint: Endpoint, delivery: Delivery, now_ms: int) -> Endpoint:
    """Return an endpoint after a delivery; a success opens it."""
    match delivery.verdict:
        case Verdict.ACCEPTED | Verdict.REFUSED:
            if not endpoint.failure_count and not endpoint.held_until_ms:
                return endpoint
            return replace(endpoint, failure_count=0, held_until_ms=0)
        case Verdict.BUSY:
            until_ms = max(endpoint.held_until_ms, now_ms + delivery.busy_ms)
            return _with_error(endpoint, delivery, now_ms, held_until_ms=until_ms)
        case Verdict.GONE:
            return replace(
                _with_error(endpoint, delivery, now_ms, held_until_ms=endpoint.held_until_ms),
                pause=endpoint.pause or Pause.GONE,
            )
        case Verdict.FAILED:
            count = endpoint.failure_count + 1
            held_ms = hold_ms(count)
            until_ms = now_ms + held_ms if held_ms else endpoint.held_until_ms
            failed = _with_error(endpoint, delivery, now_ms, held_until_ms=until_ms)
            return replace(failed, failure_count=count)
        case _:
            assert_never(delivery.verdict)


def hold_ms(failure_count: int) -> int:
    """Return for how long an endpoint is left alone after so many failures in a row."""
    doublings = failure_count - ENDPOINT_FAILURES_MAX
    if doublings < 0:
        return 0
    return min(ENDPOINT_HOLD_MS << min(doublings, 16), ENDPOINT_HOLD_MS_MAX)


def is_probing(endpoint: Endpoint) -> bool:
    """Return whether an endpoint is tried with one attempt at a time, until one is accepted."""
    return endpoint.failure_count >= ENDPOINT_FAILURES_MAX


def window(endpoint: Endpoint, *, held_count: int, now_ms: int) -> int:
    """Return how many attempts an endpoint may have now: one more than now to probe it."""
    if endpoint.pause is not None or endpoint.is_deleting or endpoint.is_held(now_ms):
        return 0
    if is_probing(endpoint):
        return min(held_count + 1, endpoint.spec.concurrency)
    return endpoint.spec.concurrency


def _with_error(
    endpoint: Endpoint, delivery: Delivery, now_ms: int, *, held_until_ms: int
) -> Endpoint:
    return replace(
        endpoint, held_until_ms=held_until_ms, last_error=delivery.error, last_error_at_ms=now_ms
    )
