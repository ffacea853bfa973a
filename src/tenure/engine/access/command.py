"""Administrative commands: queues, namespaces and API keys, and the answers."""

from __future__ import annotations

import msgspec

from tenure.core.access.api_key import ApiKey, KeyText, Role
from tenure.core.queue import Namespace, Queue
from tenure.engine.command import Command


class SetQueue(Command[Queue], frozen=True, kw_only=True):
    """Set pause and limit of a queue; ``None`` leaves one as it is."""

    namespace: str
    name: str
    is_paused: bool | None = None
    concurrency_max: int | None = None
    actor: str = ""


class CreateNamespace(Command[str], frozen=True, kw_only=True):
    """Create a namespace."""

    name: str
    actor: str = ""


class SetNamespace(Command[Namespace], frozen=True, kw_only=True):
    """Disable or enable a namespace; doing so twice is allowed. The answer is the namespace."""

    name: str
    is_disabled: bool
    actor: str = ""


class CreatedKey(msgspec.Struct, frozen=True, gc=False):
    """A new key, and the only chance to read its text: ``text.reveal()``."""

    key: ApiKey
    text: KeyText


class CreateKey(Command[CreatedKey], frozen=True, kw_only=True):
    """Create an API key. Without namespaces it is for all of them; without expiry it never ends.

    The rights of ``actor`` are checked when the command runs: a key that was revoked meanwhile
    creates no other. With ``needs_admin`` the command is refused if there is no live key and the
    new one could create no others.
    """

    name: str
    role: Role
    namespaces: tuple[str, ...] = ()
    expires_in_ms: int = 0
    needs_admin: bool = False
    actor: str = ""


class RotatedTokenKey(msgspec.Struct, frozen=True, gc=False):
    """The number of a new key of task tokens, and from when on servers sign with it."""

    number: int
    signs_from_ms: int


class RotateTokenKey(Command[RotatedTokenKey], frozen=True, kw_only=True):
    """Make a new key for task tokens; tokens of the old one count until they expire."""

    actor: str = ""


class RevokeKey(Command[ApiKey], frozen=True, kw_only=True):
    """Revoke a key for good; doing so twice gives the same answer, the key."""

    key_id: str
    actor: str = ""
