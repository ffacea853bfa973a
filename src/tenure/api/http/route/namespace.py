"""The operations on namespaces; a caller sees those that its key is for."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from tenure.api.guard.access import check_namespace
from tenure.api.guard.scope import scope
from tenure.api.http import view
from tenure.api.http.body import EmptyBody, NamespaceBody
from tenure.api.http.operation import Answer, Operation, OperationCall
from tenure.api.http.parameter import NamespaceListQuery, NoQuery
from tenure.core.access.permission import Action
from tenure.engine.access import command as c
from tenure.engine.read import query
from tenure.errors import InvalidArgument

# A name has a slash in it, and a path is matched part by part.
_NAMESPACE: Final = "/v1/namespaces/{tenant}/{workspace}"


async def list_namespaces(call: OperationCall[NamespaceListQuery, None]) -> Answer:
    """Show a page of namespaces."""
    page = query.PageRequest(
        cursor_key=call.engine.secrets.cursor_key,
        size=call.query.page_size,
        token=call.query.page_token,
    )
    found = await query.list_namespaces(
        call.engine.store,
        page=page,
        namespaces=call.principal.namespaces,
    )
    return Answer(view.namespace_list(found))


async def create_namespace(call: OperationCall[NoQuery, NamespaceBody]) -> Answer:
    """Create a namespace."""
    name = call.body.name
    if not name:
        message = "name must be tenant/workspace or a bare name"
        raise InvalidArgument(message, field="name")
    command = c.CreateNamespace(name=scope(name, "name"), actor=call.principal.key_id)
    made = await call.engine.submit(command)
    return Answer(view.NamespaceItem(name=made), HTTPStatus.CREATED)


async def get_namespace(call: OperationCall[NoQuery, None]) -> Answer:
    """Show a namespace."""
    name = _name(call.path)
    check_namespace(call.principal, name)
    return Answer(view.namespace(await query.get_namespace(call.engine.store, name=name)))


async def disable_namespace(call: OperationCall[NoQuery, EmptyBody]) -> Answer:
    """Let a namespace take no workers, no tasks and no polls."""
    return await _set(call, is_disabled=True)


async def enable_namespace(call: OperationCall[NoQuery, EmptyBody]) -> Answer:
    """Let a disabled namespace go on."""
    return await _set(call, is_disabled=False)


async def _set(call: OperationCall[NoQuery, EmptyBody], *, is_disabled: bool) -> Answer:
    command = c.SetNamespace(
        name=_name(call.path),
        is_disabled=is_disabled,
        actor=call.principal.key_id,
    )
    return Answer(view.namespace(await call.engine.submit(command)))


def _name(path: dict[str, str]) -> str:
    return scope(f"{path['tenant']}/{path['workspace']}", "name")


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/v1/namespaces",
        name="listNamespaces",
        group="Namespaces",
        summary="List the namespaces that the caller may see.",
        handle=list_namespaces,
        is_list=True,
        action=Action.READ,
        query=NamespaceListQuery,
        answer=view.NamespaceListView,
    ),
    Operation(
        method="POST",
        path="/v1/namespaces",
        name="createNamespace",
        group="Namespaces",
        summary="Create a namespace.",
        handle=create_namespace,
        action=Action.ADMIN,
        is_whole=True,
        body=NamespaceBody,
        needs_body=True,
        answer=view.NamespaceItem,
        status=HTTPStatus.CREATED,
        errors=("already_exists",),
        example='{"name": "acme"}',
    ),
    Operation(
        method="GET",
        path=_NAMESPACE,
        name="getNamespace",
        group="Namespaces",
        summary="Get a namespace by its full name; acme is acme/default.",
        handle=get_namespace,
        action=Action.READ,
        answer=view.NamespaceItem,
        errors=("not_found",),
    ),
    Operation(
        method="POST",
        path=f"{_NAMESPACE}/disable",
        name="disableNamespace",
        group="Namespaces",
        summary="Take no more workers, tasks and polls; what workers hold they may finish.",
        handle=disable_namespace,
        action=Action.ADMIN,
        is_whole=True,
        body=EmptyBody,
        answer=view.NamespaceItem,
        errors=("not_found",),
    ),
    Operation(
        method="POST",
        path=f"{_NAMESPACE}/enable",
        name="enableNamespace",
        group="Namespaces",
        summary="Let a disabled namespace go on.",
        handle=enable_namespace,
        action=Action.ADMIN,
        is_whole=True,
        body=EmptyBody,
        answer=view.NamespaceItem,
        errors=("not_found",),
    ),
)
