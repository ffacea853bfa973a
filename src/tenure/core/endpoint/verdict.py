"""What the answer to a POST means for its attempt and for its endpoint: one table."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Final

import msgspec

from tenure.core.limits import ENDPOINT_BUSY_MS, ENDPOINT_BUSY_MS_MAX


class Verdict(enum.StrEnum):
    """What became of an envelope."""

    # The endpoint has it; its process reports later.
    ACCEPTED = "accepted"
    # Not taken now: nothing more for a while. No failure of the endpoint.
    BUSY = "busy"
    # The envelope is wrong for this endpoint, and will be the next time.
    REFUSED = "refused"
    # The endpoint says that it is no more.
    GONE = "gone"
    # Anything else: the attempt never reached its process, as far as is known.
    FAILED = "failed"


class Delivery(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The result of one POST; ``error`` is for the operator and says nothing of the reply."""

    verdict: Verdict
    error: str = ""
    busy_ms: int = 0
    took_ms: int = 0


_VERDICTS: Final[Mapping[int, Verdict]] = {
    400: Verdict.REFUSED,
    409: Verdict.ACCEPTED,
    410: Verdict.GONE,
    413: Verdict.REFUSED,
    415: Verdict.REFUSED,
    422: Verdict.REFUSED,
    429: Verdict.BUSY,
    503: Verdict.BUSY,
}
_SUCCESS: Final = range(200, 300)


def verdict(status: int) -> Verdict:
    """Return what a status means; redirects are not followed."""
    if status in _SUCCESS:
        return Verdict.ACCEPTED
    return _VERDICTS.get(status, Verdict.FAILED)


def answered(status: int, retry_after: str | None, *, now_ms: int, took_ms: int = 0) -> Delivery:
    """Return the result of a POST that was answered."""
    found = verdict(status)
    return Delivery(
        verdict=found,
        error="" if found is Verdict.ACCEPTED else f"The endpoint answered {status}.",
        busy_ms=busy_ms(retry_after, now_ms=now_ms) if found is Verdict.BUSY else 0,
        took_ms=took_ms,
    )


def busy_ms(retry_after: str | None, *, now_ms: int) -> int:
    """Return how long a busy endpoint wants to be left alone: seconds, a date, or our default."""
    text = (retry_after or "").strip()
    if text.isascii() and text.isdigit():
        # A longer number is a longer time than the longest.
        wanted_ms = int(text[:9]) * 1_000
    else:
        try:
            wanted_ms = int(parsedate_to_datetime(text).timestamp() * 1_000) - now_ms
        except (ValueError, OverflowError):
            wanted_ms = ENDPOINT_BUSY_MS
    return min(max(0, wanted_ms), ENDPOINT_BUSY_MS_MAX)
