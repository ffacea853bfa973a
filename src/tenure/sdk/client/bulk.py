"""Bulk enqueue: requests of up to a thousand tasks, each of them all or nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any, Final, TypeVar

from tenure.core.limits import BULK_ENQUEUE_MAX
from tenure.sdk.activity.definition import Activity, Call, check_call
from tenure.sdk.client.client_state import ClientState, new_task_id
from tenure.sdk.client.enqueue_outbox import BODY_BYTES_MAX, check_size
from tenure.sdk.client.handle import Handle
from tenure.sdk.client.method import ENQUEUE
from tenure.sdk.client.task_bytes import request_bytes, task_bytes

R = TypeVar("R")

# The next request is made while the server stores one; more than two gain nothing.
_IN_FLIGHT_MAX: Final = 2


class _Chunk:
    """The tasks of one request."""

    __slots__ = ("bodies", "handles", "keyed", "size")

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.handles: list[Handle[Any]] = []
        # Tasks with an idempotency key: the answer may be the id of an earlier task.
        self.keyed: list[int] = []
        self.size = 0

    def has_room(self, body: bytes) -> bool:
        return len(self.bodies) < BULK_ENQUEUE_MAX and self.size + len(body) <= BODY_BYTES_MAX


async def enqueue_many(state: ClientState, calls: Iterable[Call[R]]) -> list[Handle[R]]:
    """Enqueue calls; return their handles in the same order."""
    handles: list[Handle[R]] = []
    sending: list[asyncio.Task[int]] = []
    accepted = 0
    try:
        async for chunk in _chunks(state, calls):
            handles += chunk.handles
            sending.append(asyncio.get_running_loop().create_task(_send(state, chunk)))
            if len(sending) >= _IN_FLIGHT_MAX:
                accepted += await sending.pop(0)
        while sending:
            accepted += await sending.pop(0)
    except Exception as error:
        others = await asyncio.gather(*sending, return_exceptions=True)
        accepted += sum(each for each in others if isinstance(each, int))
        error.add_note(f"{accepted} other tasks of this call were enqueued.")
        raise
    finally:
        for each in sending:
            each.cancel()
        await asyncio.gather(*sending, return_exceptions=True)
    return handles


async def _chunks(state: ClientState, calls: Iterable[Call[R]]) -> AsyncIterator[_Chunk]:
    chunk = _Chunk()
    activity: Activity[Any, R] | None = None
    encoding, shared, run_at_ms = "", b"", 0
    for call in calls:
        check_call(call)
        payload = state.converter.seal(call.payload)
        if call.activity is not activity or payload.encoding != encoding:
            activity, encoding = call.activity, payload.encoding
            shared = state.shared(activity, encoding)
            run_at_ms = await state.run_at_ms(activity.options)
        task_id = new_task_id()
        body = task_bytes(shared, task_id, payload.data, run_at_ms)
        if not chunk.has_room(body):
            check_size(body)
            yield chunk
            chunk = _Chunk()
        if activity.options.idempotency_key:
            chunk.keyed.append(len(chunk.bodies))
        chunk.bodies.append(body)
        chunk.handles.append(Handle(state, task_id, activity))
        chunk.size += len(body)
    if chunk.bodies:
        yield chunk


async def _send(state: ClientState, chunk: _Chunk) -> int:
    """Send a request until it is answered; return how many tasks it has."""

    def request(*, is_resend: bool) -> bytes:
        return request_bytes(state.namespace, chunk.bodies, independent=False, is_resend=is_resend)

    answer = await state.channel.call(
        ENQUEUE,
        request(is_resend=False),
        timeout_s=state.timeout_s,
        again=lambda: request(is_resend=True),
    )
    for index in chunk.keyed:
        chunk.handles[index].task_id = answer.results[index].task_id
    return len(chunk.bodies)
