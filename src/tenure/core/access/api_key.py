"""API keys: who may call this server, and for what.

A key is ``tnr_<id>_<secret>``. Its id may be shown; its secret is random and shown once, when the
key is created. Only a hash of it is stored: 256 random bits cannot be guessed, so a fast hash is
safe.
"""

import base64
import enum
import hashlib
import hmac
import re

import msgspec

from tenure.errors import InvalidArgument

ID_BYTES = 10
SECRET_BYTES = 32
_PREFIX = "tnr"
_ID = re.compile(r"[a-z2-7]{16}")
_TEXT = re.compile(rf"{_PREFIX}_({_ID.pattern})_([A-Za-z0-9_-]{{43}})")
# The secret of an unknown key is compared with this, so that the check takes the same time.
_NO_DIGEST = bytes(hashlib.sha256().digest_size)


class Role(enum.StrEnum):
    """The role of a key; ``core.access.permission`` says what each may do."""

    ADMIN = "admin"
    CLIENT = "client"
    WORKER = "worker"
    VIEWER = "viewer"


class ApiKey(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What is stored about a key. Without namespaces it is valid for all of them.

    ``created_by`` is the id of the key that created it; it is empty if no key was needed for that.
    """

    id: str
    name: str
    role: Role
    secret_digest: bytes
    created_at_ms: int
    namespaces: tuple[str, ...] = ()
    created_by: str = ""
    expires_at_ms: int | None = None
    revoked_at_ms: int | None = None
    last_used_at_ms: int | None = None

    def __post_init__(self) -> None:
        """Check the invariants of a key."""
        assert len(self.secret_digest) == len(_NO_DIGEST)
        assert list(self.namespaces) == sorted(set(self.namespaces))

    def __repr__(self) -> str:
        """Show which key it is, without its secret."""
        return f"ApiKey({self.id})"

    def is_live(self, now_ms: int) -> bool:
        """Return whether the key is neither revoked nor expired."""
        if self.revoked_at_ms is not None:
            return False
        return self.expires_at_ms is None or now_ms < self.expires_at_ms


class KeyText(msgspec.Struct, frozen=True, gc=False):
    """A key as the caller sends it: the id, and the secret that proves it."""

    key_id: str
    secret: str

    def __repr__(self) -> str:
        """Show the key without its secret."""
        return f"KeyText({self.key_id})"

    def reveal(self) -> str:
        """Return the whole key. Print it only for the caller who created it, and never log it."""
        return f"{_PREFIX}_{self.key_id}_{self.secret}"

    def digest(self) -> bytes:
        """Return the hash of the secret, which is stored."""
        return hashlib.sha256(self.secret.encode()).digest()


def make(*, id_bytes: bytes, secret_bytes: bytes) -> KeyText:
    """Return a new key of random bytes."""
    assert len(id_bytes) == ID_BYTES
    assert len(secret_bytes) == SECRET_BYTES
    key_id = base64.b32encode(id_bytes).decode().lower()
    secret = base64.urlsafe_b64encode(secret_bytes).rstrip(b"=").decode()
    return KeyText(key_id, secret)


def parse(text: str) -> KeyText | None:
    """Return the parts of a key, or None for a text that is not a key."""
    match = _TEXT.fullmatch(text)
    return None if match is None else KeyText(match[1], match[2])


def matches(key: ApiKey | None, given: KeyText) -> bool:
    """Return whether a secret is that of the key; the time does not depend on what is wrong."""
    expected = _NO_DIGEST if key is None else key.secret_digest
    is_equal = hmac.compare_digest(given.digest(), expected)
    return is_equal and key is not None and key.id == given.key_id


def check_id(value: object, field: str = "keyId") -> str:
    """Check the id of a key. The refusal does not repeat it: somebody may have sent a whole key."""
    if isinstance(value, str) and _ID.fullmatch(value):
        return value
    message = f"{field} must be the 16 characters between {_PREFIX}_ and the secret of a key"
    raise InvalidArgument(message, field=field)
