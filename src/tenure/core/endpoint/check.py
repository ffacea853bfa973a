"""Checks of what an operator says about an endpoint; addresses are in ``core.address``."""

from __future__ import annotations

import re
from typing import Final, NoReturn

from tenure.core import check as checks
from tenure.core import limits
from tenure.core.endpoint.record import EndpointSpec
from tenure.core.task.callback import CallbackTimes
from tenure.errors import InvalidArgument

_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_HEADER_VALUE: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
# What the server says itself, or what would change how the message is read.
_OWN_HEADERS: Final = re.compile(
    r"host|content-.*|transfer-encoding|connection|keep-alive|te|trailer|upgrade|expect|proxy-.*"
    r"|webhook-.*|tenure-.*"
)


def check_spec(spec: EndpointSpec) -> None:
    """Check all fields but the URL, each with its name."""
    if not 0 < len(spec.types) <= limits.TYPES_PER_WORKER_MAX:
        _refuse("types", f"must have 1 to {limits.TYPES_PER_WORKER_MAX} entries")
    for each in spec.types:
        checks.name(each, "types")
    _check_headers(spec.headers)
    checks.integer(spec.concurrency, "concurrency", 1, limits.WORKER_SLOTS_MAX)
    checks.integer(
        spec.timeout_ms, "timeoutMs", limits.ENDPOINT_TIMEOUT_MS_MIN, limits.ENDPOINT_TIMEOUT_MS_MAX
    )


def times(
    *,
    heartbeat_interval_ms: int = limits.CALLBACK_HEARTBEAT_INTERVAL_MS,
    heartbeat_timeout_ms: int = limits.CALLBACK_HEARTBEAT_TIMEOUT_MS,
    delivery_timeout_ms: int = limits.CALLBACK_DELIVERY_TIMEOUT_MS,
    token_ms: int = limits.CALLBACK_TOKEN_MS,
) -> CallbackTimes:
    """Return checked times."""
    checks.duration_ms(heartbeat_interval_ms, "heartbeatIntervalMs")
    checks.duration_ms(heartbeat_timeout_ms, "heartbeatTimeoutMs")
    if heartbeat_timeout_ms < 2 * heartbeat_interval_ms:
        _refuse("heartbeatTimeoutMs", "must be at least twice heartbeatIntervalMs")
    most_ms = limits.CALLBACK_DELIVERY_TIMEOUT_MS_MAX
    checks.integer(delivery_timeout_ms, "deliveryTimeoutMs", 1, most_ms)
    checks.integer(
        token_ms, "tokenTtlMs", limits.CALLBACK_TOKEN_MS_MIN, limits.CALLBACK_TOKEN_MS_MAX
    )
    return CallbackTimes(
        heartbeat_interval_ms=heartbeat_interval_ms,
        heartbeat_timeout_ms=heartbeat_timeout_ms,
        delivery_timeout_ms=delivery_timeout_ms,
        token_ms=token_ms,
    )


def _check_headers(headers: dict[str, str]) -> None:
    if len(headers) > limits.ENDPOINT_HEADERS_MAX:
        _refuse("headers", f"must have at most {limits.ENDPOINT_HEADERS_MAX} entries")
    if len({name.lower() for name in headers}) < len(headers):
        _refuse("headers", "must have each name once")
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            _refuse("headers", "must have names of HTTP headers")
        if _OWN_HEADERS.fullmatch(name.lower()):
            _refuse("headers", "must not have a header that the server sends itself")
        if len(value) > limits.ENDPOINT_HEADER_BYTES_MAX or not _HEADER_VALUE.fullmatch(value):
            _refuse("headers", "must have values of visible ASCII characters")


def _refuse(field: str, problem: str) -> NoReturn:
    raise InvalidArgument(f"{field} {problem}", field=field)
