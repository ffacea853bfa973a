"""``GET /v1/events``: change hints of a namespace, as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from typing import Annotated, Final

import msgspec
from msgspec import Meta
from starlette.datastructures import Headers

from tenure.api.http import view
from tenure.api.http.edge.server_sent import ServerSentEvents
from tenure.api.http.operation import Operation, OperationCall
from tenure.api.http.parameter import Scoped
from tenure.core import check
from tenure.core.access.permission import Action
from tenure.core.change_hint import CHANGES, EventFilter, EventKind, Hint
from tenure.core.limits import EVENT_GATHER_MS, EVENT_ID_LENGTH_MAX, EVENT_RETRY_MS, STREAM_PING_MS
from tenure.engine.read import query
from tenure.engine.replica.event_feed import HintPage, Subscription
from tenure.errors import InvalidArgument

LAST_EVENT_ID: Final = "last-event-id"
_KINDS: Final = frozenset(each.value for each in EventKind)
_KIND_LIST: Final = ", ".join(each.value for each in EventKind)
# The id is that of ``core.change_hint.position_text``, without creating a text for each hint.
_EVENT: Final = b"id: %b:%d\nevent: %b\ndata: %b\n\n"
_NAMES: Final = {each: each.value.encode() for each in EventKind}
_encode: Final = msgspec.json.Encoder().encode


class EventQuery(Scoped, frozen=True):
    """Filter for hints."""

    kind: Annotated[str, Meta(description=f"Only these, comma-separated: {_KIND_LIST}")] = ""
    queue: Annotated[str, Meta(description="Only this queue and its content")] = ""
    last_event_id: Annotated[
        str,
        Meta(
            description="Continue after this event; the header Last-Event-ID overrides it",
            max_length=EVENT_ID_LENGTH_MAX,
        ),
    ] = ""

    def chosen(self, namespace: str) -> EventFilter:
        """Return the filter for a namespace."""
        kinds = frozenset(self.kind.split(",")) if self.kind else CHANGES
        if not kinds <= _KINDS:
            message = f"kind must be a comma-separated list of {_KIND_LIST}"
            raise InvalidArgument(message, field="kind")
        queue = check.name(self.queue, "queue") if self.queue else ""
        return EventFilter(namespace, frozenset(map(EventKind, kinds)), queue)


class Reset(view.View, frozen=True):
    """Hints of these kinds are missing: read lists of these kinds again."""

    kinds: list[EventKind]
    reason: str


class EventFeedStream(ServerSentEvents):
    """The hints of one subscriber, from now on or from a given event."""

    def __init__(self, call: OperationCall[EventQuery, None], last_id: str) -> None:
        """Prepare; the subscription starts when it is sent."""
        super().__init__(call.context, call.caller)
        self._chosen = call.query.chosen(call.namespace)
        self._last_id = last_id

    async def events(self) -> AsyncGenerator[bytes, None]:
        """Send hints, many in one write, and a comment when there are none."""
        feed = self._context.engine.events
        with feed.subscribe(self._chosen, self._last_id) as subscription:
            # An id without data is not an event, but a client that reconnects continues from it.
            head = b": hints of what changed\nretry: %d\nid: %b\n\n"
            yield head % (EVENT_RETRY_MS, subscription.position.encode())
            stopping = asyncio.ensure_future(self._end(subscription))
            try:
                while (pages := await subscription.next(STREAM_PING_MS)) is not None:
                    if not pages:
                        yield b": still there\nid: %b\n\n" % subscription.position.encode()
                    elif data := self._rendered(pages):
                        yield data
                        await asyncio.sleep(EVENT_GATHER_MS / 1000)
            finally:
                stopping.cancel()
                await asyncio.gather(stopping, return_exceptions=True)
        yield b": the server stops\n\n"

    async def _end(self, subscription: Subscription) -> None:
        await self._context.readiness.stopping.wait()
        subscription.close()

    def _rendered(self, pages: Iterable[HintPage]) -> bytes:
        server_id = self._context.engine.server_id
        return b"".join(rendered(page, self._chosen, server_id) for page in pages)


def rendered(page: HintPage, chosen: EventFilter, server_id: str) -> bytes:
    """Return a page as events; subscribers with the same filter share them."""
    if page.missed:
        return _reset(page, chosen, server_id)
    if chosen.queue:
        return _hints(page, chosen, server_id)
    data = page.rendered.get(chosen.kinds)
    if data is None:
        data = page.rendered[chosen.kinds] = _hints(page, chosen, server_id)
    return data


def _hints(page: HintPage, chosen: EventFilter, server_id: str) -> bytes:
    server = server_id.encode()
    made = [
        _EVENT % (server, seq, _NAMES[hint.kind], _encode(hint))
        for seq, hint in enumerate(page.hints, page.first_seq)
        if chosen.takes(hint)
    ]
    return b"".join(made)


def _reset(page: HintPage, chosen: EventFilter, server_id: str) -> bytes:
    kinds = sorted(page.missed & chosen.kinds)
    if not kinds:
        return b""
    data = _encode(Reset(kinds=kinds, reason=page.reason))
    return _EVENT % (server_id.encode(), page.end_seq, b"reset", data)


async def listen_to_events(call: OperationCall[EventQuery, None]) -> EventFeedStream:
    """Send changes as they happen."""
    given = Headers(scope=call.scope).get(LAST_EVENT_ID)
    stream = EventFeedStream(call, given or call.query.last_event_id)
    await query.check_namespace(call.engine.store, namespace=call.namespace)
    return stream


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/v1/events",
        name="listenToEvents",
        group="Events",
        summary="Hints about changes in a namespace as server-sent events: task, run, worker, "
        "queue and namespace (a Hint), and reset (a Reset) when lists have to be read again.",
        handle=listen_to_events,
        action=Action.READ,
        query=EventQuery,
        media_type="text/event-stream",
        events=(Hint, Reset),
        is_waiting=True,
        errors=("not_found",),
    ),
)
