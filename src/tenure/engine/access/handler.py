"""Administrative commands: keys, namespaces, queues. Each change is in the audit log.

The rights of the caller are checked under the lock of its key: a key that was revoked meanwhile,
even earlier in the same batch, changes nothing.
"""

from __future__ import annotations

from msgspec.structs import replace

from tenure.core.access import api_key
from tenure.core.access.api_key import ApiKey, Role
from tenure.core.access.audit import AuditAction
from tenure.core.access.permission import Action
from tenure.core.access.principal import Principal
from tenure.core.access.token_key import TokenKey
from tenure.core.limits import LIVE_KEYS_MAX, TOKEN_KEY_AGE_MS, TOKEN_KEY_BYTES, TOKEN_KEYS_MAX
from tenure.core.queue import Namespace, Queue
from tenure.core.task.effect import WakeQueue
from tenure.engine.access import command as c
from tenure.engine.batch.working_set import WorkingSet
from tenure.engine.task.handler import not_found
from tenure.errors import (
    AlreadyExists,
    InvalidArgument,
    PermissionDenied,
    Unauthenticated,
    WrongState,
)


def create_key(ws: WorkingSet, command: c.CreateKey) -> c.CreatedKey:
    """Create a key with no more rights, and for no other namespaces, than that of the caller."""
    principal = _administrator(ws, command.actor)
    namespaces = tuple(sorted(set(command.namespaces)))
    if principal.is_scoped and not namespaces:
        message = (
            f"API key {principal.key_id} is for some namespaces and cannot create one for all. "
            "Name the namespaces of the new key."
        )
        raise PermissionDenied(message)
    for name in namespaces:
        if not principal.sees(name) or not ws.namespaces.exists(name):
            raise not_found("Namespace", name)
    if ws.access.live_count >= LIVE_KEYS_MAX:
        message = f"There are {LIVE_KEYS_MAX} live API keys. Revoke unused keys."
        raise WrongState(message, state="full")
    if command.needs_admin and not ws.access.live_count:
        _check_first(command)
    text = api_key.make(
        id_bytes=ws.clock.random_bytes(api_key.ID_BYTES),
        secret_bytes=ws.clock.random_bytes(api_key.SECRET_BYTES),
    )
    key = ApiKey(
        id=text.key_id,
        name=command.name,
        role=command.role,
        namespaces=namespaces,
        secret_digest=text.digest(),
        created_at_ms=ws.now_ms,
        created_by=command.actor,
        expires_at_ms=ws.now_ms + command.expires_in_ms if command.expires_in_ms else None,
    )
    ws.access.add(key)
    _record_key(ws, AuditAction.KEY_CREATE, command.actor, key)
    return c.CreatedKey(key, text)


def _check_first(command: c.CreateKey) -> None:
    """Refuse a first key that can create no others: it would lock everybody out."""
    is_admin = command.role is Role.ADMIN
    if is_admin and not command.namespaces:
        return
    message = (
        "The first API key must be an admin key for all namespaces. "
        "After the first key every call needs a key, and only an admin key can create others."
    )
    raise InvalidArgument(message, field="namespaces" if is_admin else "role")


def revoke_key(ws: WorkingSet, command: c.RevokeKey) -> ApiKey:
    """Revoke a key for good; a key that is already revoked does not change."""
    principal = _administrator(ws, command.actor)
    key = ws.access.get(command.key_id)
    if key is None or not principal.covers(key.namespaces):
        raise not_found("API key", command.key_id)
    if key.revoked_at_ms is not None:
        return key
    revoked = replace(key, revoked_at_ms=ws.now_ms)
    ws.access.put(revoked)
    _record_key(ws, AuditAction.KEY_REVOKE, command.actor, key)
    return revoked


def rotate_token_key(ws: WorkingSet, command: c.RotateTokenKey) -> c.RotatedTokenKey:
    """Make a new key for task tokens."""
    _whole_administrator(ws, command.actor)
    number = ws.access.token_keys.next_number()
    made = ws.access.new_token_key
    if made is not None:
        # Another command of this batch has just made one.
        return c.RotatedTokenKey(made.number, made.created_at_ms + TOKEN_KEY_AGE_MS)
    if number > TOKEN_KEYS_MAX:
        message = f"There have been {TOKEN_KEYS_MAX} keys of task tokens, which is the limit."
        raise WrongState(message, state="full")
    secret = ws.clock.random_bytes(TOKEN_KEY_BYTES)
    ws.access.new_token_key = TokenKey(number, secret, ws.now_ms)
    ws.record(AuditAction.TOKEN_KEY_ROTATE, command.actor, str(number), namespaces=())
    return c.RotatedTokenKey(number, ws.now_ms + TOKEN_KEY_AGE_MS)


def _record_key(ws: WorkingSet, action: AuditAction, actor: str, key: ApiKey) -> None:
    scope = f"{len(key.namespaces)} namespaces" if key.namespaces else "all namespaces"
    if len(key.namespaces) == 1:
        (scope,) = key.namespaces
    detail = f"{key.role} key {key.name} for {scope}"
    ws.record(action, actor, key.id, namespaces=key.namespaces, detail=detail)


def create_namespace(ws: WorkingSet, command: c.CreateNamespace) -> str:
    """Create a namespace."""
    _whole_administrator(ws, command.actor)
    if ws.namespaces.exists(command.name):
        message = f"Namespace {command.name} already exists. Choose another name."
        raise AlreadyExists(message)
    ws.namespaces.add(Namespace(command.name, ws.now_ms))
    action = AuditAction.NAMESPACE_CREATE
    ws.record(action, command.actor, command.name, namespaces=(command.name,))
    return command.name


def set_namespace(ws: WorkingSet, command: c.SetNamespace) -> Namespace:
    """Disable or enable a namespace; without a change it stays as it is."""
    _whole_administrator(ws, command.actor)
    namespace = ws.namespaces.get(command.name)
    if namespace is None:
        raise not_found("Namespace", command.name)
    if namespace.is_disabled == command.is_disabled:
        return namespace
    namespace = replace(namespace, is_disabled=command.is_disabled)
    ws.namespaces.put(namespace)
    is_disabled = command.is_disabled
    action = AuditAction.NAMESPACE_DISABLE if is_disabled else AuditAction.NAMESPACE_ENABLE
    ws.record(action, command.actor, command.name, namespaces=(command.name,))
    return namespace


def set_queue(ws: WorkingSet, command: c.SetQueue) -> Queue:
    """Set pause and limit of a queue."""
    if not ws.namespaces.exists(command.namespace):
        raise not_found("Namespace", command.namespace)
    key = (command.namespace, command.name)
    old = ws.queues.get(key, Queue(command.namespace, command.name))
    queue = Queue(
        command.namespace,
        command.name,
        old.is_paused if command.is_paused is None else command.is_paused,
        old.concurrency_max if command.concurrency_max is None else command.concurrency_max,
        old.version,
    )
    ws.queues.put(queue)
    if queue != old:
        action, namespaces = AuditAction.QUEUE_SET, (command.namespace,)
        ws.record(action, command.actor, command.name, namespaces=namespaces, detail=_brakes(queue))
    # After a resume or a higher limit, waiting tasks can be handed out.
    ws.effects.append(WakeQueue(command.namespace, command.name))
    return queue


def _brakes(queue: Queue) -> str:
    state = "paused" if queue.is_paused else "open"
    return f"{state}, at most {queue.concurrency_max}" if queue.concurrency_max else state


def _administrator(ws: WorkingSet, actor: str) -> Principal:
    """Return the caller, if it is an administrator now; a server without keys needs none."""
    if not actor:
        return Principal.open()
    key = ws.access.get(actor)
    if key is None or not key.is_live(ws.now_ms):
        raise Unauthenticated
    principal = Principal.of(key)
    if not principal.may(Action.ADMIN):
        raise PermissionDenied
    return principal


def _whole_administrator(ws: WorkingSet, actor: str) -> None:
    principal = _administrator(ws, actor)
    if principal.is_scoped:
        message = (
            f"API key {actor} is for some namespaces, and this changes the whole server. Use an "
            "admin key for all of them."
        )
        raise PermissionDenied(message)
