"""The operations on namespaces; a caller sees those of its key."""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from typing import Final

from msgspec import UNSET, UnsetType

from tenure.api.guard.access import check_namespace
from tenure.api.guard.scope import scope
from tenure.api.http.body import Body, EmptyBody
from tenure.api.http.operation import Answer, Operation, OperationCall
from tenure.api.http.parameter import NoQuery, PageQuery
from tenure.api.http.view import Instant, View, instant, page_fields
from tenure.api.paging import requested_page
from tenure.core.access.permission import Action
from tenure.core.queue import Namespace
from tenure.engine.access import command as c
from tenure.engine.read import access as access_read
from tenure.errors import InvalidArgument

# A name contains a slash, and a path is matched part by part.
_NAMESPACE: Final = "/v1/namespaces/{tenant}/{workspace}"


class NamespaceBody(Body, frozen=True):
    """A namespace to create: tenant/workspace, or a bare name."""

    name: str


class NamespaceItem(View, frozen=True):
    """A namespace."""

    name: str
    created_at: Instant | UnsetType = UNSET
    is_disabled: bool | UnsetType = UNSET


class NamespaceListView(View, frozen=True):
    """A page of namespaces, by name."""

    namespaces: list[NamespaceItem]
    next_page_token: str | UnsetType = UNSET


def _shown(item: Namespace) -> NamespaceItem:
    """Show a namespace."""
    return NamespaceItem(
        name=item.name, created_at=instant(item.created_at_ms), is_disabled=item.is_disabled
    )


async def list_namespaces(call: OperationCall[PageQuery, None]) -> Answer:
    """Show a page of namespaces."""
    found = await access_read.list_namespaces(
        call.engine.store,
        page=requested_page(call.engine, call.query),
        namespaces=call.principal.namespaces,
    )
    namespaces = [_shown(each) for each in found.items]
    return Answer(NamespaceListView(namespaces=namespaces, **page_fields(found)))


async def create_namespace(call: OperationCall[NoQuery, NamespaceBody]) -> Answer:
    """Create a namespace."""
    name = call.body.name
    if not name:
        message = "name must be tenant/workspace or a bare name"
        raise InvalidArgument(message, field="name")
    command = c.CreateNamespace(name=scope(name, "name"), actor=call.principal.key_id)
    made = await call.engine.submit(command)
    return Answer(NamespaceItem(name=made), HTTPStatus.CREATED)


async def get_namespace(call: OperationCall[NoQuery, None]) -> Answer:
    """Show a namespace."""
    name = _name(call.path)
    check_namespace(call.principal, name)
    return Answer(_shown(await access_read.get_namespace(call.engine.store, name=name)))


async def disable_namespace(call: OperationCall[NoQuery, EmptyBody]) -> Answer:
    """Let a namespace accept no workers, no tasks and no polls."""
    return await _set(call, is_disabled=True)


async def enable_namespace(call: OperationCall[NoQuery, EmptyBody]) -> Answer:
    """Enable a disabled namespace."""
    return await _set(call, is_disabled=False)


async def _set(call: OperationCall[NoQuery, EmptyBody], *, is_disabled: bool) -> Answer:
    command = c.SetNamespace(
        name=_name(call.path), is_disabled=is_disabled, actor=call.principal.key_id
    )
    return Answer(_shown(await call.engine.submit(command)))


def _name(path: dict[str, str]) -> str:
    return scope(f"{path['tenant']}/{path['workspace']}", "name")


_operation: Final = partial(Operation, group="Namespaces")
OPERATIONS: Final = (
    _operation(
        method="GET",
        path="/v1/namespaces",
        name="listNamespaces",
        summary="List the namespaces that the caller may see.",
        handle=list_namespaces,
        is_list=True,
        action=Action.READ,
        query=PageQuery,
        answer=NamespaceListView,
    ),
    _operation(
        method="POST",
        path="/v1/namespaces",
        name="createNamespace",
        summary="Create a namespace.",
        handle=create_namespace,
        action=Action.ADMIN,
        is_whole=True,
        body=NamespaceBody,
        needs_body=True,
        answer=NamespaceItem,
        status=HTTPStatus.CREATED,
        errors=("already_exists",),
        example='{"name": "acme"}',
    ),
    _operation(
        method="GET",
        path=_NAMESPACE,
        name="getNamespace",
        summary="Get a namespace by its full name; acme is acme/default.",
        handle=get_namespace,
        action=Action.READ,
        answer=NamespaceItem,
        errors=("not_found",),
    ),
    _operation(
        method="POST",
        path=f"{_NAMESPACE}/disable",
        name="disableNamespace",
        summary="Accept no more workers, tasks and polls; workers may finish what they hold.",
        handle=disable_namespace,
        action=Action.ADMIN,
        is_whole=True,
        body=EmptyBody,
        answer=NamespaceItem,
        errors=("not_found",),
    ),
    _operation(
        method="POST",
        path=f"{_NAMESPACE}/enable",
        name="enableNamespace",
        summary="Enable a disabled namespace.",
        handle=enable_namespace,
        action=Action.ADMIN,
        is_whole=True,
        body=EmptyBody,
        answer=NamespaceItem,
        errors=("not_found",),
    ),
)
