"""The operations on endpoints. A secret is only in the answer that makes it."""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Final

from msgspec import UNSET, Meta, UnsetType

from tenure.api.http.body import EmptyBody
from tenure.api.http.operation import Answer, Operation, OperationCall
from tenure.api.http.parameter import Scoped, ScopedPageQuery
from tenure.api.http.route.endpoint.body import EndpointBody, NewEndpointBody
from tenure.api.http.view import (
    Instant,
    NextPageToken,
    View,
    instant,
    instant_or_unset,
    name_or_unset,
    or_unset,
    page_fields,
)
from tenure.api.paging import requested_page
from tenure.core.access.permission import Action
from tenure.core.endpoint.signature import secret_text
from tenure.engine.endpoint import command as c
from tenure.engine.endpoint import operate
from tenure.engine.read.endpoint import EndpointView, list_endpoints

_ENDPOINT: Final = "/v1/endpoints/{endpoint}"


class EndpointItem(View, frozen=True):
    """An endpoint; of its headers only the names are shown."""

    name: str
    worker_id: str
    queue: str
    types: list[str]
    url: str
    headers: list[str]
    concurrency: int
    timeout_ms: int
    delivery_timeout_ms: int
    heartbeat_interval_ms: int
    heartbeat_timeout_ms: int
    token_ttl_ms: int
    created_at: Instant
    failure_count: Annotated[int, Meta(description="Failed deliveries in a row")]
    paused: Annotated[str, Meta(description="OPERATOR or GONE")] | UnsetType = UNSET
    is_deleting: bool | UnsetType = UNSET
    held_until: Instant | UnsetType = UNSET
    last_error: str | UnsetType = UNSET
    last_error_at: Instant | UnsetType = UNSET
    held_count: int | UnsetType = UNSET
    server_id: str | UnsetType = UNSET


class EndpointListView(View, frozen=True):
    """A page of endpoints, by name."""

    endpoints: list[EndpointItem]
    next_page_token: NextPageToken = UNSET


class NewEndpointView(View, frozen=True):
    """An endpoint with a new secret, which is never shown again."""

    endpoint: EndpointItem
    secret: str


class DeliveryView(View, frozen=True):
    """What became of a message without a task."""

    verdict: str
    took_ms: int
    error: str | UnsetType = UNSET


def _item(view: EndpointView) -> EndpointItem:
    endpoint = view.endpoint
    spec, times = endpoint.spec, endpoint.spec.times
    is_held = endpoint.is_held(view.now_ms)
    return EndpointItem(
        name=endpoint.name,
        worker_id=endpoint.id,
        queue=endpoint.queue,
        types=list(spec.types),
        url=spec.url,
        headers=sorted(spec.headers),
        concurrency=spec.concurrency,
        timeout_ms=spec.timeout_ms,
        delivery_timeout_ms=times.delivery_timeout_ms,
        heartbeat_interval_ms=times.heartbeat_interval_ms,
        heartbeat_timeout_ms=times.heartbeat_timeout_ms,
        token_ttl_ms=times.token_ms,
        created_at=instant(endpoint.created_at_ms),
        failure_count=endpoint.failure_count,
        paused=name_or_unset(endpoint.pause),
        is_deleting=endpoint.is_deleting or UNSET,
        held_until=instant(endpoint.held_until_ms) if is_held else UNSET,
        last_error=or_unset(endpoint.last_error),
        last_error_at=instant_or_unset(endpoint.last_error_at_ms),
        held_count=or_unset(view.held_count),
        server_id=or_unset(view.server_id),
    )


async def create_endpoint(call: OperationCall[Scoped, NewEndpointBody]) -> Answer:
    """Create an endpoint."""
    body = call.body
    command = c.CreateEndpoint(
        namespace=call.namespace,
        name=body.name,
        queue=body.queue,
        spec=body.spec(),
        actor=call.principal.key_id,
    )
    made = await operate.create(call.engine, command)
    return await _with_secret(call, made, HTTPStatus.CREATED)


async def _with_secret(
    call: OperationCall[Scoped, Any], made: c.EndpointMade, status: int = HTTPStatus.OK
) -> Answer:
    view = await operate.find(call.engine, call.namespace, made.endpoint.name)
    shown = NewEndpointView(endpoint=_item(view), secret=secret_text(made.secret))
    return Answer(shown, status)


async def list_all(call: OperationCall[ScopedPageQuery, None]) -> Answer:
    """Show a page of endpoints."""
    page = await list_endpoints(
        call.engine.store, namespace=call.namespace, page=requested_page(call.engine, call.query)
    )
    items = [_item(each) for each in page.items]
    return Answer(EndpointListView(endpoints=items, **page_fields(page)))


async def get_endpoint(call: OperationCall[Scoped, Any]) -> Answer:
    """Show an endpoint."""
    return Answer(_item(await operate.find(call.engine, call.namespace, call.path["endpoint"])))


async def set_endpoint(call: OperationCall[Scoped, EndpointBody]) -> Answer:
    """Change an endpoint."""
    change, actor = call.body.change(), call.principal.key_id
    await operate.change(call.engine, call.namespace, call.path["endpoint"], change, actor=actor)
    return await get_endpoint(call)


async def pause_endpoint(call: OperationCall[Scoped, EmptyBody]) -> Answer:
    """Hand out nothing more to an endpoint."""
    return await _pause(call, is_paused=True)


async def resume_endpoint(call: OperationCall[Scoped, EmptyBody]) -> Answer:
    """Hand out tasks to an endpoint again."""
    return await _pause(call, is_paused=False)


async def _pause(call: OperationCall[Scoped, EmptyBody], *, is_paused: bool) -> Answer:
    name, actor = call.path["endpoint"], call.principal.key_id
    await operate.pause(call.engine, call.namespace, name, is_paused=is_paused, actor=actor)
    return await get_endpoint(call)


async def test_endpoint(call: OperationCall[Scoped, EmptyBody]) -> Answer:
    """Send an endpoint a message without a task."""
    found = await operate.test(call.engine, call.namespace, call.path["endpoint"])
    shown = DeliveryView(
        verdict=found.verdict.upper(), took_ms=found.took_ms, error=or_unset(found.error)
    )
    return Answer(shown)


async def rotate_secret(call: OperationCall[Scoped, EmptyBody]) -> Answer:
    """Make a new secret for an endpoint."""
    name, actor = call.path["endpoint"], call.principal.key_id
    made = await operate.rotate_secret(call.engine, call.namespace, name, actor=actor)
    return await _with_secret(call, made)


async def delete_endpoint(call: OperationCall[Scoped, None]) -> Answer:
    """Delete an endpoint."""
    name, actor = call.path["endpoint"], call.principal.key_id
    view = await operate.find(call.engine, call.namespace, name)
    await operate.delete(call.engine, call.namespace, name, actor=actor)
    return Answer(_item(view))


_operation: Final = partial(
    Operation,
    group="Endpoints",
    query=Scoped,
    action=Action.OPERATE,
    answer=EndpointItem,
    errors=("not_found",),
)


_change: Final = partial(
    _operation, method="POST", body=EmptyBody, errors=("not_found", "wrong_state")
)
OPERATIONS: Final = (
    _operation(
        method="GET",
        path="/v1/endpoints",
        name="listEndpoints",
        summary="List endpoints by name.",
        handle=list_all,
        is_list=True,
        action=Action.READ,
        query=ScopedPageQuery,
        answer=EndpointListView,
    ),
    _operation(
        method="POST",
        path="/v1/endpoints",
        name="createEndpoint",
        summary="Create an endpoint; its secret is only in this answer.",
        handle=create_endpoint,
        body=NewEndpointBody,
        needs_body=True,
        answer=NewEndpointView,
        status=HTTPStatus.CREATED,
        errors=("not_found", "already_exists", "wrong_state"),
        example='{"name": "mail", "queue": "default", "types": ["mail"], '
        '"url": "https://hook.example/tasks"}',
    ),
    _operation(
        method="GET",
        path=_ENDPOINT,
        name="getEndpoint",
        summary="Get an endpoint, with what it holds and which server drives it.",
        handle=get_endpoint,
        action=Action.READ,
    ),
    _operation(
        method="PUT",
        path=_ENDPOINT,
        name="setEndpoint",
        summary="Change an endpoint; fields that are not given do not change.",
        handle=set_endpoint,
        body=EndpointBody,
        needs_body=True,
        errors=("not_found", "wrong_state"),
        example='{"concurrency": 20}',
    ),
    _operation(
        method="DELETE",
        path=_ENDPOINT,
        name="deleteEndpoint",
        summary="Delete an endpoint: it gets nothing more, and is gone when it holds nothing.",
        handle=delete_endpoint,
    ),
    _change(
        path=f"{_ENDPOINT}/pause",
        name="pauseEndpoint",
        summary="Push nothing more to an endpoint; live attempts continue.",
        handle=pause_endpoint,
    ),
    _change(
        path=f"{_ENDPOINT}/resume",
        name="resumeEndpoint",
        summary="Push tasks to a paused endpoint again.",
        handle=resume_endpoint,
    ),
    _change(
        path=f"{_ENDPOINT}/test",
        name="testEndpoint",
        summary="Send a signed message without a task, and show what became of it.",
        handle=test_endpoint,
        answer=DeliveryView,
        deadline_ms=30_000,
    ),
    _change(
        path=f"{_ENDPOINT}/rotate-secret",
        name="rotateEndpointSecret",
        summary="Make a new secret, which is only in this answer; the old one signs for a day too.",
        handle=rotate_secret,
        answer=NewEndpointView,
    ),
)
