"""The operations on API keys. The answer to a key's creation is the only one with its secret."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Final

from msgspec import UNSET, Meta, UnsetType

from tenure.api.guard import key_grant
from tenure.api.http import view
from tenure.api.http.body import Body
from tenure.api.http.operation import Answer, Operation, OperationCall
from tenure.api.http.parameter import NamespaceListQuery, NoQuery
from tenure.core import limits
from tenure.core.access.api_key import ApiKey, Role
from tenure.core.access.permission import Action
from tenure.engine.access import command as c
from tenure.engine.read import query

_KEY: Final = "/v1/api-keys/{keyId}"


class ApiKeyBody(Body, frozen=True):
    """A key to create; without namespaces it is for all of them, without expiry for ever."""

    role: Role
    name: str
    namespaces: Annotated[tuple[str, ...], Meta(max_length=limits.KEY_NAMESPACES_MAX)] = ()
    expires_in_ms: Annotated[int, Meta(ge=0, le=limits.DURATION_MS_MAX)] = 0


class ApiKeyView(view.View, frozen=True):
    """A key without its secret; lastUsedAt is exact to a minute."""

    key_id: str
    name: str
    role: Role
    namespaces: list[str]
    created_at: view.Instant
    created_by: str | UnsetType = UNSET
    expires_at: view.Instant | UnsetType = UNSET
    revoked_at: view.Instant | UnsetType = UNSET
    last_used_at: view.Instant | UnsetType = UNSET


class ApiKeyListView(view.View, frozen=True):
    """A page of keys, newest first."""

    keys: list[ApiKeyView]
    next_page_token: str | UnsetType = UNSET


class NewApiKeyView(view.View, frozen=True):
    """A new key: the secret is the whole key as it is sent, and is never shown again."""

    key: ApiKeyView
    secret: str


def _shown(key: ApiKey) -> ApiKeyView:
    return ApiKeyView(
        key_id=key.id,
        name=key.name,
        role=key.role,
        namespaces=list(key.namespaces),
        created_at=view.instant(key.created_at_ms),
        created_by=key.created_by or UNSET,
        expires_at=_instant(key.expires_at_ms),
        revoked_at=_instant(key.revoked_at_ms),
        last_used_at=_instant(key.last_used_at_ms),
    )


def _instant(at_ms: int | None) -> str | UnsetType:
    return UNSET if at_ms is None else view.instant(at_ms)


async def create_key(call: OperationCall[NoQuery, ApiKeyBody]) -> Answer:
    """Make a key."""
    body = call.body
    command = key_grant.creation(
        call.principal,
        name=body.name,
        role=body.role,
        namespaces=body.namespaces,
        expires_in_ms=body.expires_in_ms,
    )
    made = await call.engine.submit(command)
    shown = NewApiKeyView(key=_shown(made.key), secret=made.text.reveal())
    return Answer(shown, HTTPStatus.CREATED)


async def list_keys(call: OperationCall[NamespaceListQuery, None]) -> Answer:
    """Show a page of keys."""
    page = await query.list_keys(
        call.engine.store,
        page=query.PageRequest(
            cursor_key=call.engine.secrets.cursor_key,
            size=call.query.page_size,
            token=call.query.page_token,
        ),
        namespaces=call.principal.namespaces,
    )
    shown = ApiKeyListView(
        keys=[_shown(each) for each in page.items],
        next_page_token=page.next_page_token or UNSET,
    )
    return Answer(shown)


async def get_key(call: OperationCall[NoQuery, None]) -> Answer:
    """Show a key."""
    key = await query.get_key(
        call.engine.store,
        key_id=call.path["keyId"],
        namespaces=call.principal.namespaces,
    )
    return Answer(_shown(key))


async def revoke_key(call: OperationCall[NoQuery, None]) -> Answer:
    """End a key for good."""
    command = c.RevokeKey(key_id=call.path["keyId"], actor=call.principal.key_id)
    return Answer(_shown(await call.engine.submit(command)))


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/v1/api-keys",
        name="listApiKeys",
        group="API keys",
        summary="List API keys, newest first, ended ones too.",
        handle=list_keys,
        is_list=True,
        action=Action.ADMIN,
        query=NamespaceListQuery,
        answer=ApiKeyListView,
    ),
    Operation(
        method="POST",
        path="/v1/api-keys",
        name="createApiKey",
        group="API keys",
        summary="Create an API key; its secret is in this answer and nowhere else.",
        handle=create_key,
        action=Action.ADMIN,
        body=ApiKeyBody,
        needs_body=True,
        answer=NewApiKeyView,
        status=HTTPStatus.CREATED,
        errors=("not_found",),
        example='{"role": "worker", "name": "mail", "namespaces": ["acme"]}',
    ),
    Operation(
        method="GET",
        path=_KEY,
        name="getApiKey",
        group="API keys",
        summary="Get an API key by its id, without its secret.",
        handle=get_key,
        action=Action.ADMIN,
        answer=ApiKeyView,
        errors=("not_found",),
    ),
    Operation(
        method="DELETE",
        path=_KEY,
        name="revokeApiKey",
        group="API keys",
        summary="Revoke an API key: nobody gets in with it any more, and its streams end.",
        handle=revoke_key,
        action=Action.ADMIN,
        answer=ApiKeyView,
        errors=("not_found",),
    ),
)
