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

_VERSION = 1
_HEAD_BYTES = 2
_SIGNATURE_BYTES = 32
_CLAIMS_AT = _HEAD_BYTES + _SIGNATURE_BYTES


class Purpose(enum.StrEnum):
    """What the holder of a token may do."""

    CALLBACK = "callback"
    COMPLETION = "completion"


class Claims(msgspec.Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """The claims of a token; those of earlier versions do not say when they were issued."""

    purpose: Purpose
    namespace: str
    run_id: str
    task_id: str
    attempt: int
    expires_at_ms: int
    issued_at_ms: int = 0


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Claims).decode


def sign(key: bytes, claims: Claims, *, number: int = 1) -> str:
    """Return the token for ``claims``, signed with the key of this number."""
    head = bytes((_VERSION, number))
    body = _encode(claims)
    raw = head + hmac.digest(key, head + body, hashlib.sha256) + body
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def key_number(token: str) -> int:
    """Return the number of the key that a token names; it is not verified yet."""
    raw = _from_text(token)
    if len(raw) <= _CLAIMS_AT or raw[0] != _VERSION:
        _refuse("is not from this server")
    return raw[1]


def verify(key: bytes | None, token: str, *, purpose: Purpose, now_ms: int) -> Claims:
    """Return the claims of a token of this key that is for this purpose and not expired.

    Without a key, because no key has its number, the token is refused like a forged one.
    """
    raw = _from_text(token)
    head, signature, body = raw[:_HEAD_BYTES], raw[_HEAD_BYTES:_CLAIMS_AT], raw[_CLAIMS_AT:]
    expected = hmac.digest(key or b"", head + body, hashlib.sha256)
    if not hmac.compare_digest(signature, expected) or key is None or head[0] != _VERSION:
        _refuse("is not from this server")
    try:
        claims = _decode(body)
    except msgspec.MsgspecError:
        _refuse("has another version")
    if claims.purpose is not purpose:
        _refuse("is for another purpose")
    if claims.expires_at_ms <= now_ms:
        _refuse("has expired")
    if claims.issued_at_ms > now_ms + limits.TOKEN_SKEW_MS:
        _refuse("is not valid yet")
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
