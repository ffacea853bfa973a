"""The names of the protocol in messages of the server, as users of the SDK write them."""

from __future__ import annotations

import functools
import re
from typing import Final

from tenure.errors import wire_name

# Names of the protocol, and the parameters of the SDK that they come from.
_NAMES: Final = {
    "schedule_to_start_ms": "schedule_to_start",
    "schedule_to_close_ms": "schedule_to_close",
    "start_to_close_ms": "start_to_close",
    "heartbeat_timeout_ms": "heartbeat_timeout",
    "heartbeat_interval_ms": "heartbeat_interval",
    "cancel_grace_period_ms": "cancel_grace",
    "initial_interval_ms": "initial_interval",
    "backoff_coefficient": "backoff_coefficient",
    "maximum_interval_ms": "maximum_interval",
    "maximum_attempts": "max_attempts",
    "non_retryable_error_types": "non_retryable_error_types",
    "next_retry_delay_ms": "next_retry_delay",
    "run_at": "run_at",
    "run_at_ms": "run_at",
    "idempotency_key": "idempotency_key",
    "task_queue": "queue",
    "task_id": "task_id",
    "task_token": "token",
    "namespace_id": "namespace",
    "max_concurrent": "max_concurrent",
    "lease_duration": "lease",
    "lease_duration_ms": "lease",
    "workflow_types": "activities",
    "supported_workflow_types": "activities",
    "progress_percent": "percent",
    "progress_pct": "percent",
    "worker_id": "worker_id",
    "schedule_id": "id",
    "every_ms": "every",
    "offset_ms": "offset",
    "starts_at_ms": "starts_at",
    "ends_at_ms": "ends_at",
    "max_catchup": "max_catchup",
    "catchup_window_ms": "catchup_window",
    "jitter_ms": "jitter",
    "pause_after_failures": "pause_after_failures",
    "from_ms": "from_",
    "to_ms": "to",
}


def in_python(text: str) -> str:
    """Return a message, or the name of a field, with the names of the SDK; quotes stay."""
    return _pattern().sub(_replaced, text)


def _replaced(found: re.Match[str]) -> str:
    return _words().get(found[0], found[0])


@functools.cache
def _words() -> dict[str, str]:
    return {each: name for wire, name in _NAMES.items() for each in (wire, wire_name(wire))}


@functools.cache
def _pattern() -> re.Pattern[str]:
    words = "|".join(sorted(_words(), key=len, reverse=True))
    return re.compile(rf"'[^']*'|\b(?:{words})\b")
