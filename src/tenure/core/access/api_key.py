"""API keys: who may call this server, and for what.

A key is ``tnr_<id>_<secret>``. Its id may be shown; its secret is random and shown once, when the
key is made. Only a hash of it is kept: guessing 256 random bits needs no slow hash to be hopeless.
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
# What the secret of an unknown key is compared with, so that it takes as long as any other.
_NO_DIGEST = bytes(hashlib.sha256().digest_size)


class Role(enum.StrEnum):
    """What the holder of a key is; ``core.permission`` says what each may do."""

    ADMIN = "admin"
    CLIENT = "client"
    WORKER = "worker"
    VIEWER = "viewer"


class ApiKey(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What is kept of a key. Without namespaces it is good for all of them.

    ``created_by`` is the id of the key that made it; it is empty if no key was needed for that.
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
        """Assert what holds for every key."""
        assert len(self.secret_digest) == len(_NO_DIGEST)
        assert list(self.namespaces) == sorted(set(self.namespaces))

    def __repr__(self) -> str:
        """Show which key it is and nothing of its secret."""
        return f"ApiKey({self.id})"

    def is_live(self, now_ms: int) -> bool:
        """Tell whether the key is neither revoked nor expired."""
        if self.revoked_at_ms is not None:
            return False
        return self.expires_at_ms is None or now_ms < self.expires_at_ms


class KeyText(msgspec.Struct, frozen=True, gc=False):
    """A key as its holder has it: the id, and the secret that proves it."""

    key_id: str
    secret: str

    def __repr__(self) -> str:
        """Show nothing of the secret."""
        return f"KeyText({self.key_id})"

    def reveal(self) -> str:
        """Return the whole key; it must not be printed or logged but where it was asked for."""
        return f"{_PREFIX}_{self.key_id}_{self.secret}"

    def digest(self) -> bytes:
        """Return what is kept of the secret."""
        return hashlib.sha256(self.secret.encode()).digest()


def make(*, id_bytes: bytes, secret_bytes: bytes) -> KeyText:
    """Return a new key of random bytes."""
    assert len(id_bytes) == ID_BYTES
    assert len(secret_bytes) == SECRET_BYTES
    key_id = base64.b32encode(id_bytes).decode().lower()
    secret = base64.urlsafe_b64encode(secret_bytes).rstrip(b"=").decode()
    return KeyText(key_id, secret)


def parse(text: str) -> KeyText | None:
    """Return the parts of a key, or None for a text that is none."""
    match = _TEXT.fullmatch(text)
    return None if match is None else KeyText(match[1], match[2])


def matches(key: ApiKey | None, given: KeyText) -> bool:
    """Tell whether a secret is that of the key; it takes the same time whatever is wrong."""
    expected = _NO_DIGEST if key is None else key.secret_digest
    is_equal = hmac.compare_digest(given.digest(), expected)
    return is_equal and key is not None and key.id == given.key_id


def check_id(value: object, field: str = "keyId") -> str:
    """Check the id of a key. The refusal does not repeat it: it may be a whole key by mistake."""
    if isinstance(value, str) and _ID.fullmatch(value):
        return value
    message = f"{field} must be the 16 characters between {_PREFIX}_ and the secret of a key"
    raise InvalidArgument(message, field=field)
