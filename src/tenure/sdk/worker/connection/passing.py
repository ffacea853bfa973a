"""What the refusal of a call means for whoever repeats it."""

from __future__ import annotations

from tenure.errors import ERRORS, PermissionDenied, TenureError, Unauthenticated, WorkerInactive
from tenure.sdk.transport import refusal


def is_passing(error: TenureError) -> bool:
    """Return whether the same call may succeed later."""
    return ERRORS[error.code].is_retryable or refusal.is_silence(error)


def is_denied(error: TenureError) -> bool:
    """Return whether the server refuses the API key, which says nothing about the request."""
    return isinstance(error, Unauthenticated | PermissionDenied)


def reason_of(over: WorkerInactive) -> str:
    """Return the server's reason why an incarnation is over."""
    return str(over.fields.get("reason", "unknown"))
