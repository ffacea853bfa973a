"""``GET /v1/events``: change hints of a namespace, as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from typing import Annotated, Final

import msgspec
from msgspec import Meta, field
from starlette.datastructures import Headers

from tenure.api.http import view
from tenure.api.http.edge.server_sent import ServerSentEvents
from tenure.api.http.operation import Operation, OperationCall
from tenure.api.http.parameter import Scoped
from tenure.core import check
from tenure.core.access.permission import Action
from tenure.core.change_hint import CHANGES, EventFilter, EventKind, Hint
from tenure.core.limits import (
    DIGEST_IDS_MAX,
    DIGEST_MS_MAX,
    DIGEST_MS_MIN,
    EVENT_GATHER_MS,
    EVENT_ID_LENGTH_MAX,
    EVENT_RETRY_MS,
    STREAM_PING_MS,
)
from tenure.engine.read import query
from tenure.engine.replica.event_feed import HintPage, Subscription
from tenure.engine.replica.hint_digest import Digest, digest
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

    digest: Annotated[
        int,
        Meta(
            description="Add up hints for so many ms, 100 to 10000, and send digests",
            ge=0,
            le=DIGEST_MS_MAX,
        ),
    ] = 0
    id: Annotated[
        list[str], Meta(description="With digest: send hints of these ids, too; up to 200")
    ] = field(default_factory=list)

    def named(self) -> frozenset[str]:
        """Return the ids of which a digest has the hints."""
        if 0 < self.digest < DIGEST_MS_MIN:
            message = f"digest must be 0, or at least {DIGEST_MS_MIN}"
            raise InvalidArgument(message, field="digest")
        if (self.id and not self.digest) or len(self.id) > DIGEST_IDS_MAX:
            message = f"id may be repeated {DIGEST_IDS_MAX} times, with digest"
            raise InvalidArgument(message, field="id")
        return frozenset(self.id)

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
        self._digest_s = call.query.digest / 1000
        self._named = call.query.named()

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
                    elif self._digest_s:
                        pages += await self._gathered(subscription)
                        yield self._digested(pages, subscription)
                    elif data := self._rendered(pages):
                        yield data
                        await asyncio.sleep(EVENT_GATHER_MS / 1000)
            finally:
                stopping.cancel()
                await asyncio.gather(stopping, return_exceptions=True)
        yield b": the server stops\n\n"

    async def _gathered(self, subscription: Subscription) -> list[HintPage]:
        """Return what else happens until the digest is due."""
        await asyncio.sleep(self._digest_s)
        found: list[HintPage] = []
        while pages := await subscription.next(0):
            found += pages
        return found

    def _digested(self, pages: list[HintPage], subscription: Subscription) -> bytes:
        """Return a digest, behind the notes that some hints are missing."""
        server_id = self._context.engine.server_id
        resets = b"".join(_reset(page, self._chosen, server_id) for page in pages if page.missed)
        found = digest(pages, self._chosen, self._named)
        if not found.counts:
            return resets or b": nothing that was asked for\n\n"
        return resets + _EVENT % (server_id.encode(), subscription.seq, b"digest", _encode(found))

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
        "queue and namespace (a Hint) or digest (a Digest), and reset (a Reset) when lists have "
        "to be read again.",
        handle=listen_to_events,
        action=Action.READ,
        query=EventQuery,
        media_type="text/event-stream",
        events=(Hint, Digest, Reset),
        is_waiting=True,
        errors=("not_found",),
    ),
)
