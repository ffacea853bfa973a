"""The operations on API keys. The answer to a key's creation is the only one with its secret."""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from typing import Annotated, Final

from msgspec import UNSET, Meta, UnsetType

from tenure.api.guard import key_grant
from tenure.api.http import view
from tenure.api.http.body import Body, EmptyBody
from tenure.api.http.operation import Answer, Operation, OperationCall
from tenure.api.http.parameter import NoQuery, PageQuery
from tenure.api.paging import requested_page
from tenure.core import limits
from tenure.core.access.api_key import ApiKey, Role
from tenure.core.access.permission import Action
from tenure.engine.access import command as c
from tenure.engine.read import access as access_read

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
        created_by=view.or_unset(key.created_by),
        expires_at=view.instant_or_unset(key.expires_at_ms),
        revoked_at=view.instant_or_unset(key.revoked_at_ms),
        last_used_at=view.instant_or_unset(key.last_used_at_ms),
    )


async def create_key(call: OperationCall[NoQuery, ApiKeyBody]) -> Answer:
    """Create a key."""
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


async def list_keys(call: OperationCall[PageQuery, None]) -> Answer:
    """Show a page of keys."""
    page = await access_read.list_keys(
        call.engine.store,
        page=requested_page(call.engine, call.query),
        namespaces=call.principal.namespaces,
    )
    keys = [_shown(each) for each in page.items]
    return Answer(ApiKeyListView(keys=keys, **view.page_fields(page)))


async def get_key(call: OperationCall[NoQuery, None]) -> Answer:
    """Show a key."""
    key = await access_read.get_key(
        call.engine.store, key_id=call.path["keyId"], namespaces=call.principal.namespaces
    )
    return Answer(_shown(key))


async def revoke_key(call: OperationCall[NoQuery, None]) -> Answer:
    """Revoke a key for good."""
    command = c.RevokeKey(key_id=call.path["keyId"], actor=call.principal.key_id)
    return Answer(_shown(await call.engine.submit(command)))


class TokenKeyView(view.View, frozen=True):
    """The number of a new key of task tokens, and from when on servers sign with it."""

    number: int
    signs_from: view.Instant


async def rotate_token_key(call: OperationCall[NoQuery, EmptyBody]) -> Answer:
    """Make a new key for task tokens."""
    made = await call.engine.submit(c.RotateTokenKey(actor=call.principal.key_id))
    shown = TokenKeyView(number=made.number, signs_from=view.instant(made.signs_from_ms))
    return Answer(shown, HTTPStatus.CREATED)


_operation: Final = partial(Operation, group="API keys", action=Action.ADMIN)
OPERATIONS: Final = (
    _operation(
        method="GET",
        path="/v1/api-keys",
        name="listApiKeys",
        summary="List API keys, newest first, including ended ones.",
        handle=list_keys,
        is_list=True,
        query=PageQuery,
        answer=ApiKeyListView,
    ),
    _operation(
        method="POST",
        path="/v1/api-keys",
        name="createApiKey",
        summary="Create an API key; its secret is only in this answer.",
        handle=create_key,
        body=ApiKeyBody,
        needs_body=True,
        answer=NewApiKeyView,
        status=HTTPStatus.CREATED,
        errors=("not_found",),
        example='{"role": "worker", "name": "mail", "namespaces": ["acme"]}',
    ),
    _operation(
        method="GET",
        path=_KEY,
        name="getApiKey",
        summary="Get an API key by its id, without its secret.",
        handle=get_key,
        answer=ApiKeyView,
        errors=("not_found",),
    ),
    _operation(
        method="DELETE",
        path=_KEY,
        name="revokeApiKey",
        summary="Revoke an API key: it is refused from now on, and its streams end.",
        handle=revoke_key,
        answer=ApiKeyView,
        errors=("not_found",),
    ),
    _operation(
        method="POST",
        path="/v1/token-keys",
        name="rotateTokenKey",
        summary="Make a new key that signs task tokens; tokens of the old one count until they "
        "expire.",
        handle=rotate_token_key,
        is_whole=True,
        body=EmptyBody,
        answer=TokenKeyView,
        status=HTTPStatus.CREATED,
        errors=("wrong_state",),
    ),
)
