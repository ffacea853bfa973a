"""Signatures of envelopes by Standard Webhooks: id, time and body, with every live secret."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable
from typing import Final

_PREFIX: Final = "whsec_"
_VERSION: Final = "v1"


def secret_text(value: bytes) -> str:
    """Return a secret as its owner keeps it."""
    return _PREFIX + base64.b64encode(value).decode()


def headers(secrets: Iterable[bytes], message_id: str, at_s: int, body: bytes) -> dict[str, str]:
    """Return the headers of a signed message."""
    signed = f"{message_id}.{at_s}.".encode() + body
    signatures = (
        base64.b64encode(hmac.digest(secret, signed, hashlib.sha256)).decode() for secret in secrets
    )
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(at_s),
        "webhook-signature": " ".join(f"{_VERSION},{each}" for each in signatures),
    }
