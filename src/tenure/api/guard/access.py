"""Who calls, and what they may do: one set of rules for gRPC and HTTP.

A server whose store has never had a key is open: every caller is an administrator. From its first
key on every call needs one, for ever. What is outside the namespaces of a key is not found, with
the same message as if it did not exist. Long calls are guarded: they end when their key ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Final

import structlog

from tenure.api.guard.refusal_log import RefusalLog
from tenure.core.access import api_key
from tenure.core.access.api_key import Role
from tenure.core.access.permission import Action
from tenure.core.access.principal import Principal
from tenure.core.access.task_token import Claims, Purpose
from tenure.core.limits import CALL_MS
from tenure.engine.engine import Engine
from tenure.engine.read import access as access_read
from tenure.engine.read import query
from tenure.errors import (
    DeadlineExceeded,
    InvalidToken,
    NotFound,
    PermissionDenied,
    TenureError,
    Unauthenticated,
)

log = structlog.get_logger("tenure.access")

OPEN: Final = Principal.open()
NOBODY: Final = Principal("", "", Role.VIEWER)
"""Whoever comes with a task token, which is all that it may use."""
PRINCIPAL: Final[ContextVar[Principal]] = ContextVar("principal", default=OPEN)
"""The caller of the present request."""
_BEARER: Final = "bearer"


class KeyRefused(Unauthenticated):
    """The API key is not valid here: it is wrong, has expired or was revoked. Use another one."""

    def __init__(self, message: str = "", *, key_id: str = "") -> None:
        """Keep the id of the key for the log; the caller knows it anyway."""
        super().__init__(message)
        self.key_id = key_id


class ForeignNamespace(NotFound):
    """A namespace outside the caller's key: for the caller it does not exist."""

    def __init__(self, namespace: str) -> None:
        """Use the message for a namespace that does not exist."""
        super().__init__(f"Namespace {namespace} was not found.")
        self.namespace = namespace


class ForeignPage(PermissionDenied):
    """A request that a web page of another site may have sent to an open server."""

    def __init__(self, message: str, *, reason: str) -> None:
        """Keep the reason for the log."""
        super().__init__(message)
        self.reason = reason


def task_token(authorization: str | None) -> str:
    """Return the task token in a header; there is no other way to send it."""
    scheme, _, text = (authorization or "").partition(" ")
    if scheme.lower() != _BEARER:
        raise InvalidToken("A task token is needed (header Authorization: Bearer …).")
    return text.strip()


class Access:
    """Checks the callers of one edge, and ends their streams when their keys end."""

    def __init__(self, engine: Engine, refusals: RefusalLog | None = None) -> None:
        """Use the keys that the engine knows."""
        self._refusals = refusals or RefusalLog(engine.clock)
        self._engine = engine
        self._outage = engine.outage
        self._access_cache = engine.access_cache
        self._guarded: dict[str, set[asyncio.Timeout]] = {}
        self._access_cache.on_change(self._end_streams)

    @property
    def is_open(self) -> bool:
        """Return whether there has never been a key: then no call needs one."""
        return not self._access_cache.has_keys

    def left_out(self, error: TenureError, address: str) -> int | None:
        """Return how many refusals without a valid key were not logged; None skips this one too.

        Refusals with a valid key are all logged, and so are all refusals at an open server. What is
        refused because the store is away is counted as a part of that outage.
        """
        if self._outage.refused(error):
            return None
        is_unknown = PRINCIPAL.get() is OPEN and not self.is_open
        if is_unknown or isinstance(error, ForeignPage):
            return self._refusals.take(address)
        return 0

    async def verify(self, authorization: str | None) -> Claims:
        """Return the claims of the task token of an attempt; no key does in its place."""
        return await self._engine.tokens.verify(task_token(authorization), Purpose.CALLBACK)

    async def authenticate(self, authorization: str | None) -> Principal:
        """Return the principal for this header; on an open server the header is ignored."""
        if not self._access_cache.has_keys:
            return OPEN
        if not authorization:
            raise KeyRefused("An API key is needed (header Authorization: Bearer tnr_…).")
        scheme, _, text = authorization.partition(" ")
        given = api_key.parse(text.strip()) if scheme.lower() == _BEARER else None
        if given is None:
            raise KeyRefused
        key_id = given.key_id
        key = self._access_cache.find(key_id) or await self._look_up(key_id)
        # Also for an unknown key, so that the time of an answer reveals nothing.
        if not api_key.matches(key, given) or key is None:
            raise KeyRefused(key_id=key_id)
        self._access_cache.used(key_id)
        return Principal.of(key)

    async def _look_up(self, key_id: str) -> api_key.ApiKey | None:
        """Return a key that may have been created elsewhere just now."""
        try:
            async with asyncio.timeout(CALL_MS / 1000):
                return await self._access_cache.look_up(key_id)
        except TimeoutError:
            raise DeadlineExceeded from None

    async def confirm_open(self) -> None:
        """Make sure that an open server has not got its first key elsewhere just now."""
        store = self._engine.store
        if not store.is_shared:
            return
        page = query.PageRequest(cursor_key=self._engine.secrets.cursor_key, size=1)
        if (await access_read.list_keys(store, page=page)).items:
            self._access_cache.hear()
            raise _ended("")

    @asynccontextmanager
    async def guard(self, principal: Principal) -> AsyncIterator[None]:
        """Let a call go on while the key of its caller is live."""
        key_id = principal.key_id
        # It may have ended while the request was read.
        if not self._is_live(key_id):
            raise _ended(key_id)
        guarded = self._guarded.setdefault(key_id, set())
        patience = asyncio.timeout(None)
        guarded.add(patience)
        try:
            async with patience:
                yield
        except TimeoutError:
            if not patience.expired():
                raise
            raise _ended(key_id) from None
        finally:
            guarded.discard(patience)
            if not guarded:
                self._guarded.pop(key_id, None)

    def _is_live(self, key_id: str) -> bool:
        if not key_id:
            return self.is_open
        return self._access_cache.find(key_id) is not None

    def _end_streams(self) -> None:
        """End streams whose key has ended, or that were opened while the server was open."""
        now_s = asyncio.get_running_loop().time() if self._guarded else 0.0
        for key_id, guarded in self._guarded.items():
            if not self._is_live(key_id):
                for patience in guarded:
                    # One that has fired already ends by itself.
                    if not patience.expired():
                        patience.reschedule(now_s)


def check_action(principal: Principal, action: Action, *, is_whole: bool = False) -> None:
    """Refuse what the role of a key does not allow, or what needs a key for all namespaces."""
    if not principal.may(action):
        message = (
            f"The role {principal.role} of API key {principal.key_id} does not allow this call. "
            "Use a key with another role."
        )
        raise PermissionDenied(message)
    if is_whole and principal.namespaces:
        message = (
            f"API key {principal.key_id} is only for {', '.join(principal.namespaces)}, and this "
            "call concerns the whole server. Use a key for all namespaces."
        )
        raise PermissionDenied(message)


def speaker() -> str | None:
    """Return the key that must be the worker's own in a worker's call; ``None`` if any may be."""
    principal = PRINCIPAL.get()
    return None if principal.may(Action.ADMIN) else principal.key_id


def actor() -> str:
    """Return the id of the caller's key, for the audit log; an open server has none."""
    return PRINCIPAL.get().key_id


def check_namespace(principal: Principal, namespace: str) -> None:
    """Refuse a namespace that is not the caller's, as if it did not exist."""
    if not principal.sees(namespace):
        raise ForeignNamespace(namespace)


def note_refusal(error: TenureError, method: str, address: str = "", left_out: int = 0) -> None:
    """Log a denied call, with caller and method and nothing that is secret.

    Calls without a valid key are not all logged: ``left_out`` is how many more there were.
    """
    key_id = PRINCIPAL.get().key_id
    if isinstance(error, ForeignNamespace):
        log.warning(
            "access.denied",
            method=method,
            key_id=key_id,
            code=error.code,
            reason="foreign_namespace",
            namespace=error.namespace,
        )
    elif isinstance(error, ForeignPage):
        log.warning(
            "access.denied",
            method=method,
            code=error.code,
            reason=error.reason,
            address=address,
            left_out=left_out,
        )
    elif isinstance(error, KeyRefused):
        log.warning(
            "access.denied",
            method=method,
            key_id=error.key_id,
            code=error.code,
            address=address,
            left_out=left_out,
        )
    elif isinstance(error, Unauthenticated | PermissionDenied):
        log.warning("access.denied", method=method, key_id=key_id, code=error.code)


def _ended(key_id: str) -> KeyRefused:
    if not key_id:
        return KeyRefused("This server has its first API key now, and every call needs one.")
    return KeyRefused(f"API key {key_id} has expired or was revoked.", key_id=key_id)
