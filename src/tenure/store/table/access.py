"""Keys, disabled namespaces and the audit log.

Every change of keys or namespaces first locks one row and increases its version: servers do so one
after the other, and a read of that row shows whether something is new.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, cast

import msgspec

from tenure.core.access.api_key import ApiKey, Role
from tenure.core.access.audit import AuditFilter, AuditRecord
from tenure.core.access.token_key import TokenKey, TokenKeyRing
from tenure.store.table import codec
from tenure.store.table import token_key as token_key_table
from tenure.store.table.codec import AnyRow
from tenure.store.table.row_set import RowSet, Table
from tenure.store.transaction import Tx

if TYPE_CHECKING:
    from tenure.store.table.lock_order import RowSets


class AccessState(msgspec.Struct, frozen=True):
    """All that a server has to cache: live keys, disabled namespaces, the keys of task tokens.

    ``has_keys`` says whether there has ever been a key: their rows stay for ever.
    """

    version: int
    now_ms: int
    keys: list[ApiKey]
    disabled: frozenset[str]
    has_keys: bool
    token_keys: TokenKeyRing


class KeyPlace(msgspec.Struct, frozen=True, gc=False):
    """After which key a part of the list of keys begins, and how many rows it may have."""

    created_at_ms: int
    key_id: str
    amount: int


async def read_version(tx: Tx) -> tuple[int, int]:
    """Return the version of access, and the time."""
    return _version(await tx.one("read_access")), await tx.now_ms()


async def lock_version(tx: Tx) -> int:
    """Prevent other changes of access during this transaction; return its version."""
    return _version(await tx.one("lock_access"))


async def raise_version(tx: Tx) -> int:
    """Note that access was changed; return its new version."""
    return _version(await tx.one("raise_access"))


def _version(rows: Sequence[Sequence[object]]) -> int:
    return cast("int", rows[0][0])


async def read_state(tx: Tx) -> AccessState:
    """Read the data for the cache; the version first, so that it is never newer than the rest."""
    version, now_ms = await read_version(tx)
    keys = [key_from(row) for row in await tx.one("list_live_api_keys", now_ms)]
    disabled = frozenset(cast("str", row[0]) for row in await tx.one("list_disabled_namespaces"))
    has_keys = bool(keys) or bool(await tx.one("find_api_key"))
    token_keys = await token_key_table.read_keys(tx)
    return AccessState(version, now_ms, keys, disabled, has_keys, token_keys)


async def lock_keys(tx: Tx, key_ids: Iterable[str]) -> list[ApiKey]:
    """Lock keys, if they exist."""
    rows = await tx.each("lock_api_keys", [(each,) for each in sorted(key_ids)])
    return [key_from(row) for row in rows]


async def read_keys(tx: Tx, key_ids: Iterable[str]) -> list[ApiKey]:
    """Read keys, if they exist."""
    rows = await tx.each("read_api_keys", [(each,) for each in sorted(key_ids)])
    return [key_from(row) for row in rows]


async def list_keys(tx: Tx, scope: Sequence[str], place: KeyPlace) -> list[ApiKey]:
    """Return keys, newest first, all of whose namespaces are in ``scope``; an empty one has all."""
    given = (codec.names_to(scope), place.created_at_ms, place.key_id, place.amount)
    return [key_from(row) for row in await tx.one("list_api_keys", *given)]


async def count_live_keys(tx: Tx, now_ms: int) -> int:
    """Count the keys that are neither revoked nor expired."""
    rows = await tx.one("count_live_api_keys", now_ms)
    return cast("int", rows[0][0])


async def insert_keys(tx: Tx, keys: Iterable[ApiKey]) -> None:
    """Write new keys."""
    await tx.each("insert_api_keys", [_inserted(key) for key in keys])


def _inserted(key: ApiKey) -> tuple[object, ...]:
    return (
        key.id,
        key.name,
        key.role,
        codec.names_to(key.namespaces),
        key.secret_digest,
        key.created_at_ms,
        key.created_by,
        key.expires_at_ms,
        key.revoked_at_ms,
    )


async def revoke_keys(tx: Tx, keys: Iterable[ApiKey]) -> None:
    """Write when keys were revoked; the first time stays."""
    await tx.each("revoke_api_keys", [(key.id, key.revoked_at_ms) for key in keys])


async def touch_keys(tx: Tx, used: Mapping[str, int]) -> None:
    """Write when keys were last used; the time never decreases."""
    await tx.each("touch_api_keys", sorted(used.items()))


async def insert_audit(tx: Tx, records: Iterable[AuditRecord]) -> None:
    """Write audit records."""
    await tx.each("insert_audit", [_audited(each) for each in records])


def _audited(record: AuditRecord) -> tuple[object, ...]:
    return (
        record.id,
        record.at_ms,
        record.actor,
        record.action,
        codec.names_to(record.namespaces),
        record.target,
        record.detail,
    )


async def list_audit(
    tx: Tx, scope: Sequence[str], where: AuditFilter, *, before_id: str, amount: int
) -> list[AuditRecord]:
    """Return records, newest first, that concern nothing outside ``scope``."""
    given = (codec.names_to(scope), where.namespace, where.action, where.actor)
    return [_audit_from(row) for row in await tx.one("list_audit", *given, before_id, amount)]


def key_from(row: AnyRow) -> ApiKey:
    """Make a key from its row."""
    return ApiKey(
        id=row[0],
        name=row[1],
        role=Role(row[2]),
        namespaces=codec.names_from(row[3]),
        secret_digest=row[4],
        created_at_ms=row[5],
        created_by=row[6],
        expires_at_ms=row[7],
        revoked_at_ms=row[8],
        last_used_at_ms=row[9],
    )


def _audit_from(row: AnyRow) -> AuditRecord:
    return AuditRecord(
        id=row[0],
        at_ms=row[1],
        actor=row[2],
        action=row[3],
        namespaces=codec.names_from(row[4]),
        target=row[5],
        detail=row[6],
    )


NO_TOKEN_KEYS: Final = TokenKeyRing()


class AccessRows(RowSet[str, ApiKey]):
    """API keys by id. A change of access (``is_changing``) excludes other changes.

    ``version`` is set if this transaction may change access; ``saved_version`` is the version after
    it. ``token_keys`` are loaded if one is to be made, which then is ``new_token_key``.
    """

    __slots__ = (
        "is_changing",
        "is_counting",
        "is_rotating",
        "live_count",
        "new_token_key",
        "saved_version",
        "token_keys",
        "version",
    )

    table = Table(operator.attrgetter("id"), insert=insert_keys, update=revoke_keys)

    def __init__(self) -> None:
        """Start without changing anything."""
        super().__init__()
        self.is_changing = False
        self.is_counting = False
        self.is_rotating = False
        self.live_count = 0
        self.token_keys = NO_TOKEN_KEYS
        self.new_token_key: TokenKey | None = None
        self.version: int | None = None
        self.saved_version: int | None = None

    def add(self, record: ApiKey) -> None:
        """Add a new key, which is live."""
        super().add(record)
        self.live_count += 1

    async def load(self, tx: Tx, rows: RowSets) -> None:
        """Prevent other changes of access, and load the wanted keys."""
        if not self.is_changing:
            return
        self.version = self.saved_version = await lock_version(tx)
        for key in await lock_keys(tx, self.wanted):
            self.take(key)
        if self.is_counting:
            self.live_count = await count_live_keys(tx, await tx.now_ms())
        if self.is_rotating:
            self.token_keys = await token_key_table.read_keys(tx)
        rows.note_locked()

    async def save(self, tx: Tx, rows: RowSets) -> None:
        """Save keys; the version shows other servers that access has changed."""
        await super().save(tx, rows)
        if self.new_token_key is not None:
            await token_key_table.insert_key(tx, self.new_token_key)
        if self.new or self.changed or self.new_token_key or rows.namespaces.changed:
            self.saved_version = await raise_version(tx)


class AuditRows(RowSet[str, AuditRecord]):
    """Audit records, by id; they are only written."""

    table = Table(operator.attrgetter("id"), insert=insert_audit)
