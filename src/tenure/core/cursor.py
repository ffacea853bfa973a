"""Paging cursors: opaque to the caller, signed, and valid only for the list they came from.

A cursor is version, signature and position. Namespace and query are signed but not contained, so a
cursor of another tenant or of another filter does not verify. Anyone can decode the position: it
must contain nothing that the caller may not see.
"""

import base64
import binascii
import hashlib
import hmac
from typing import NoReturn

from tenure.core import limits
from tenure.errors import InvalidArgument

_VERSION = b"\x01"
_SIGNATURE_BYTES = 16
_HEAD_BYTES = len(_VERSION) + _SIGNATURE_BYTES


def encode(key: bytes, *, namespace: str, query: str, position: str) -> str:
    """Return the cursor for the rows of `query` in `namespace` that come after `position`."""
    place = position.encode()
    token = _to_text(_VERSION + _sign(key, (namespace.encode(), query.encode(), place)) + place)
    assert len(token) <= limits.PAGE_TOKEN_LENGTH_MAX
    return token


def decode(key: bytes, token: str, *, namespace: str, query: str) -> str:
    """Return the position of a cursor that `encode` made for the same namespace and query."""
    if len(token) > limits.PAGE_TOKEN_LENGTH_MAX:
        _refuse()
    raw = _from_text(token)
    signature, place = raw[len(_VERSION) : _HEAD_BYTES], raw[_HEAD_BYTES:]
    expected = _sign(key, (namespace.encode(), query.encode(), place))
    if not raw.startswith(_VERSION) or not hmac.compare_digest(signature, expected):
        _refuse()
    return place.decode()


def _sign(key: bytes, parts: tuple[bytes, ...]) -> bytes:
    assert key
    # The lengths distinguish ("a", "bc") from ("ab", "c").
    body = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    return hmac.digest(key, _VERSION + body, hashlib.sha256)[:_SIGNATURE_BYTES]


def _to_text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _from_text(token: str) -> bytes:
    try:
        raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    except (binascii.Error, ValueError):  # ValueError: not ASCII.
        _refuse()
    # The decoder ignores foreign characters and spare bits; one cursor has exactly one text.
    if _to_text(raw) != token:
        _refuse()
    return raw


def _refuse() -> NoReturn:
    message = "page_token is not valid for this list. Start again with the first page."
    raise InvalidArgument(message, field="page_token")
