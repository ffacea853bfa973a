"""Task tokens: the credential for one attempt, signed with the key that all replicas share.

A token is version, key number, signature and claims. It names the attempt, the task, the namespace,
the purpose, and when it expires. It allows that and nothing else; the fence of the attempt still
decides whether the attempt is live.
"""

import base64
import binascii
import enum
import hashlib
import hmac
from typing import NoReturn

import msgspec

from tenure.core import limits
from tenure.errors import InvalidToken

_HEAD = b"\x01\x01"
_SIGNATURE_BYTES = 32
_CLAIMS_AT = len(_HEAD) + _SIGNATURE_BYTES


class Purpose(enum.StrEnum):
    """What the holder of a token may do."""

    CALLBACK = "callback"
    COMPLETION = "completion"


class Claims(msgspec.Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """The claims of a token."""

    purpose: Purpose
    namespace: str
    run_id: str
    task_id: str
    attempt: int
    expires_at_ms: int


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Claims).decode


def sign(key: bytes, claims: Claims) -> str:
    """Return the token for ``claims``."""
    body = _encode(claims)
    raw = _HEAD + hmac.digest(key, _HEAD + body, hashlib.sha256) + body
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def verify(key: bytes, token: str, *, purpose: Purpose, now_ms: int) -> Claims:
    """Return the claims of a token of this server that is for this purpose and not expired."""
    raw = _from_text(token)
    signature, body = raw[len(_HEAD) : _CLAIMS_AT], raw[_CLAIMS_AT:]
    expected = hmac.digest(key, _HEAD + body, hashlib.sha256)
    if not raw.startswith(_HEAD) or not hmac.compare_digest(signature, expected):
        _refuse("is not from this server")
    try:
        claims = _decode(body)
    except msgspec.MsgspecError:
        _refuse("has another version")
    if claims.purpose is not purpose:
        _refuse("is for another purpose")
    if claims.expires_at_ms <= now_ms:
        _refuse("has expired")
    return claims


def _from_text(token: str) -> bytes:
    if not 0 < len(token) <= limits.TASK_TOKEN_LENGTH_MAX:
        _refuse("is missing or too long")
    try:
        return base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        _refuse("is malformed")


def _refuse(problem: str) -> NoReturn:
    raise InvalidToken(f"The task token {problem}. Use the token of this attempt.")
