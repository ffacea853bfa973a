"""Reads about access: namespaces, API keys and the audit log.

A caller with some namespaces sees what belongs to these or fewer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tenure.core import check
from tenure.core.access import api_key
from tenure.core.access.api_key import ApiKey
from tenure.core.access.audit import ALL_AUDIT, AuditFilter, AuditRecord
from tenure.core.filter import query_text
from tenure.core.limits import INSTANT_MS_MAX
from tenure.core.queue import Namespace
from tenure.engine.read.query import (
    Page,
    PageRequest,
    Read,
    check_exists,
    namespace_not_found,
    page_of,
    place_of,
    read,
    scan,
)
from tenure.errors import NotFound
from tenure.store.table import access as access_table
from tenure.store.table import listing
from tenure.store.table import queue as queue_table
from tenure.store.table.access import KeyPlace
from tenure.store.transaction import Store, Tx

_NEWEST_KEY: Final = f"{INSTANT_MS_MAX + 1} "


async def list_namespaces(
    store: Store, *, page: PageRequest, namespaces: Sequence[str] = ()
) -> Page[Namespace]:
    """Return the namespaces of this server by name; only those of a limited caller's key."""
    place = place_of(_scope_text(namespaces), "namespaces", page, first="")

    async def body(tx: Tx) -> list[Namespace]:
        if not namespaces:
            return await listing.list_namespaces(tx, place.part)
        wanted = [name for name in namespaces if name > place.part.position]
        found = await queue_table.read_namespaces(tx, wanted)
        return sorted(found, key=lambda namespace: namespace.name)[: place.part.amount]

    found = Read(await scan(store, body))
    return page_of(found, place, lambda namespace: namespace.name)


async def get_namespace(store: Store, *, name: str, namespaces: Sequence[str] = ()) -> Namespace:
    """Return a namespace, if the caller has access to it."""
    name = check.namespace(name)
    _check_own(name, namespaces)
    found = await read(store, lambda tx: queue_table.read_namespaces(tx, [name]))
    if not found:
        raise namespace_not_found(name)
    return found[0]


async def list_keys(
    store: Store, *, page: PageRequest, namespaces: Sequence[str] = ()
) -> Page[ApiKey]:
    """Return API keys, newest first, including revoked ones.

    A caller with some namespaces sees the keys for these or fewer.
    """
    place = place_of(_scope_text(namespaces), "keys", page, first=_NEWEST_KEY)
    created_at, _, key_id = place.part.position.partition(" ")
    part = KeyPlace(int(created_at), key_id, place.part.amount)
    found = await scan(store, lambda tx: access_table.list_keys(tx, namespaces, part))
    return page_of(Read(found), place, lambda key: f"{key.created_at_ms} {key.id}")


async def get_key(store: Store, *, key_id: str, namespaces: Sequence[str] = ()) -> ApiKey:
    """Return an API key, if the caller may administer it."""
    key_id = api_key.check_id(key_id)
    found = await read(store, lambda tx: access_table.read_keys(tx, [key_id]))
    if not found or (namespaces and not _is_within(found[0].namespaces, namespaces)):
        raise NotFound(f"API key {key_id} was not found.")
    return found[0]


async def list_audit(
    store: Store,
    *,
    page: PageRequest,
    where: AuditFilter = ALL_AUDIT,
    namespaces: Sequence[str] = (),
) -> Page[AuditRecord]:
    """Return audit records, newest first.

    A caller with some namespaces sees the records of these or fewer.
    """
    where = where.checked()
    query = query_text("audit", where)
    place = place_of(_scope_text(namespaces), query, page)
    if where.namespace:
        _check_own(where.namespace, namespaces)

    async def body(tx: Tx) -> list[AuditRecord]:
        if where.namespace:
            await check_exists(tx, where.namespace)
        part = place.part
        return await access_table.list_audit(
            tx, namespaces, where, before_id=part.position, amount=part.amount
        )

    found = Read(await scan(store, body))
    return page_of(found, place, lambda record: record.id)


def _scope_text(namespaces: Sequence[str]) -> str:
    """Return the scope of a cursor of a caller's list; no namespace has such a name."""
    return " ".join(sorted(namespaces))


def _is_within(names: Sequence[str], namespaces: Sequence[str]) -> bool:
    return bool(names) and set(names).issubset(namespaces)


def _check_own(name: str, namespaces: Sequence[str]) -> None:
    if namespaces and name not in namespaces:
        raise namespace_not_found(name)
