"""Clients that offer enqueues at a rate, whatever the server makes of them.

``python -m tests.soak.offer --edge http --address … --rate 3000 --seconds 5``; a rate of 0 keeps
every place busy, which measures what the server can do. Requests are bytes that were made before,
over HTTP/1.1 and over the few frames of HTTP/2 that gRPC needs, so that the client costs a small
part of what the server does and is not the one that is measured. What it found goes into a file.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import struct
import time
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import msgspec
import uvloop

from tenure.v1 import task_pb2
from tenure.v1 import task_service_pb2 as pb
from tests.bounds import WORK_S
from tests.polling import eventually

QUEUE: Final = "offered"
TICK_S: Final = 0.005
# A connection has 256 streams, and the server counts one that has ended a little longer.
CHANNELS: Final = 8
ACCEPTED: Final = "accepted"
REFUSED: Final = "refused"
OPTIONS: Final = task_pb2.TaskOptions(start_to_close_ms=600_000)


class Offered(msgspec.Struct):
    """What was offered, and what became of it; times in milliseconds."""

    seconds: float
    # Requests that found no free place in their turn: they were not offered.
    skipped: int
    answers: dict[str, int]
    accepted_ms: list[float]
    refused_ms: list[float]
    # Of the client itself, as a share of a core.
    cpu: float

    @property
    def count(self) -> int:
        return sum(self.answers.values())

    def of(self, answer: str) -> int:
        return self.answers.get(answer, 0)


class Counting:
    """The answers of one run, and the places that are free."""

    def __init__(self, *, is_busy: bool) -> None:
        self.answers: Counter[str] = Counter()
        self.took_ms: dict[str, list[float]] = {ACCEPTED: [], REFUSED: []}
        self.skipped = 0
        self.free: deque[Callable[[], None]] = deque()
        self.ends_s = 0.0
        self._is_busy = is_busy

    def done(self, answer: str, began_s: float, again: Callable[[], None]) -> None:
        now_s = time.perf_counter()
        self.answers[answer] += 1
        if answer in self.took_ms:
            self.took_ms[answer].append((now_s - began_s) * 1_000)
        if self._is_busy and now_s < self.ends_s:
            again()
        else:
            self.free.append(again)


class HttpConnection(asyncio.Protocol):
    """One request after the other; an answer is read as far as its length."""

    def __init__(self, counting: Counting, request: bytes) -> None:
        self._counting = counting
        self._request = request
        self._began_s = 0.0
        self._buffer = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A transport of uvloop is one by its methods only.
        self._transport = cast("asyncio.Transport", transport)
        self._counting.free.append(self.send)

    def send(self) -> None:
        assert self._transport is not None
        self._began_s = time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, body = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        if len(body) >= length:
            self._buffer = b""
            self._counting.done(_meaning(head[9:12]), self._began_s, self.send)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._began_s:
            self._counting.answers[f"lost: {exc}"] += 1


def _meaning(status: bytes) -> str:
    if status in {b"200", b"201"}:
        return ACCEPTED
    return REFUSED if status == b"429" else status.decode(errors="replace")


_DATA, _HEADERS, _RST, _SETTINGS, _PING, _GOAWAY, _WINDOW = 0, 1, 3, 4, 6, 7, 8
_END_STREAM, _END_HEADERS, _ACK = 1, 4, 1


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return struct.pack(">I", len(body))[1:] + struct.pack(">BBI", kind, flags, stream) + body


def _literal(name: bytes, value: bytes) -> bytes:
    """Return a header that is not indexed, so that each stream has the same bytes."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


class GrpcConnection(asyncio.Protocol):
    """Calls over one connection of HTTP/2: headers and data out; data means accepted, none refused.

    A refusal of gRPC is only a trailer; the answer to an enqueue always has a message.
    """

    method = b"EnqueueTasks"

    def __init__(self, counting: Counting, request: bytes, address: str, places: int) -> None:
        self._counting = counting
        self._body = struct.pack(">BI", 0, len(request)) + request
        self._head = b"".join(
            _literal(name, value)
            for name, value in (
                (b":method", b"POST"),
                (b":scheme", b"http"),
                (b":path", b"/tenure.v1.TaskService/" + self.method),
                (b":authority", address.encode()),
                (b"te", b"trailers"),
                (b"content-type", b"application/grpc"),
            )
        )
        self._places = places
        self._next_stream = 1
        self._began_s: dict[int, float] = {}
        self._answered: set[int] = set()
        self._buffer = b""
        self._transport: asyncio.Transport | None = None
        # What the server takes: of the connection, and of each stream less than was sent on it.
        self._room = 65_535
        self._stream_room = 65_535
        self._sent: Counter[int] = Counter()
        self._waiting: deque[tuple[int, int]] = deque()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        window = 2**31 - 1
        self._transport.write(
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
            + _frame(_SETTINGS, 0, 0, struct.pack(">HI", 4, window))
            + _frame(8, 0, 0, struct.pack(">I", window - 65_535))
        )
        self._take_places()

    def _take_places(self) -> None:
        self._counting.free.extend([self.send] * self._places)

    def send(self) -> None:
        assert self._transport is not None
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        self._began_s[stream] = time.perf_counter()
        self._transport.write(_frame(_HEADERS, _END_HEADERS, stream, self._head))
        self._send_body(stream, _END_STREAM)

    def _send_body(self, stream: int, flags: int) -> None:
        self._waiting.append((stream, flags))
        self._flush()

    def _flush(self) -> None:
        """Send what the server has room for, in the order in which it came."""
        assert self._transport is not None
        size = len(self._body)
        for _ in range(len(self._waiting)):
            if self._room < size:
                return
            stream, flags = self._waiting.popleft()
            if stream not in self._began_s:
                # It was refused before its body was sent.
                continue
            if self._sent[stream] + size > self._stream_room:
                self._waiting.append((stream, flags))
                continue
            self._room -= size
            self._sent[stream] += size
            self._transport.write(_frame(_DATA, flags, stream, self._body))

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        buffer = self._buffer + data
        at = 0
        while len(buffer) - at >= 9:
            length = int.from_bytes(buffer[at : at + 3])
            if len(buffer) - at < 9 + length:
                break
            kind, flags, stream = struct.unpack_from(">BBI", buffer, at + 3)
            self._take(kind, flags, stream, buffer[at + 9 : at + 9 + length])
            at += 9 + length
        self._buffer = buffer[at:]

    def _take(self, kind: int, flags: int, stream: int, body: bytes) -> None:
        assert self._transport is not None
        if kind == _DATA:
            self._answered.add(stream)
        elif kind in {_HEADERS, _RST} and (flags & _END_STREAM or kind == _RST):
            if stream not in self._began_s:
                # After its answer: the server does not want the rest of a call.
                return
            answer = ACCEPTED if stream in self._answered else REFUSED
            self._answered.discard(stream)
            answer = answer if kind == _HEADERS else "reset"
            self._sent.pop(stream, None)
            self._counting.done(answer, self._began_s.pop(stream), self.send)
        elif kind == _WINDOW:
            self._grow(stream, int.from_bytes(body))
        elif kind in {_SETTINGS, _PING} and not flags & _ACK:
            if kind == _SETTINGS:
                rooms = [value for name, value in struct.iter_unpack(">HI", body) if name == 4]
                self._stream_room = rooms[-1] if rooms else self._stream_room
            self._transport.write(_frame(kind, _ACK, 0, body if kind == _PING else b""))
        elif kind == _GOAWAY:
            self._counting.answers["goaway"] += 1

    def _grow(self, stream: int, size: int) -> None:
        if stream:
            self._sent[stream] -= size
        else:
            self._room += size
        self._flush()


class StreamConnection(GrpcConnection):
    """Streams over one connection, as clients have them: one enqueue at a time on each."""

    method = b"WatchTasks"

    def _take_places(self) -> None:
        assert self._transport is not None
        self._messages: dict[int, bytes] = {}
        for _ in range(self._places):
            stream, self._next_stream = self._next_stream, self._next_stream + 2
            self._messages[stream] = b""
            self._transport.write(_frame(_HEADERS, _END_HEADERS, stream, self._head))
            self._counting.free.append(partial(self._send_on, stream))

    def _send_on(self, stream: int) -> None:
        assert self._transport is not None
        self._began_s[stream] = time.perf_counter()
        self._send_body(stream, 0)

    def _take(self, kind: int, flags: int, stream: int, body: bytes) -> None:
        if kind != _DATA:
            super()._take(kind, flags, stream, body)
            return
        message = self._messages[stream] + body
        if len(message) < 5 or len(message) < 5 + int.from_bytes(message[1:5]):
            self._messages[stream] = message
            return
        self._messages[stream] = b""
        (answer,) = pb.WatchTasksResponse.FromString(message[5:]).answers
        meaning = answer.refusal.code or ACCEPTED
        meaning = REFUSED if meaning == "rate_limited" else meaning
        self._counting.done(meaning, self._began_s.pop(stream), partial(self._send_on, stream))


async def _connect(options: argparse.Namespace, counting: Counting) -> None:
    loop = asyncio.get_running_loop()
    host, _, port = options.address.rpartition(":")
    batch: int = options.batch
    if options.edge in {"grpc", "stream"}:
        task = task_pb2.NewTask(type="work", task_queue=QUEUE, options=OPTIONS, input=b"{}")
        call = pb.EnqueueTasksRequest(tasks=[task] * batch, independent=batch > 1)
        streamed = pb.WatchTasksRequest(enqueues=[pb.StreamedEnqueue(number=1, request=call)])
        message = (call if options.edge == "grpc" else streamed).SerializeToString()
        kind = GrpcConnection if options.edge == "grpc" else StreamConnection
        places = options.places // CHANNELS
        for _ in range(CHANNELS):
            await loop.create_connection(
                lambda: kind(counting, message, options.address, places), host, port
            )
        return
    new: dict[str, Any] = {"type": "work", "queue": QUEUE, "startToCloseMs": 600_000, "input": {}}
    body = json.dumps(new if batch == 1 else {"tasks": [new] * batch}).encode()
    path = b"/v1/tasks" if batch == 1 else b"/v1/tasks:batch"
    request = (
        b"POST %b HTTP/1.1\r\nhost: %b\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\n\r\n%b" % (path, options.address.encode(), len(body), body)
    )
    for _ in range(options.places):
        await loop.create_connection(lambda: HttpConnection(counting, request), host, port)


async def offer(options: argparse.Namespace) -> Offered:
    """Offer until the time is over, then wait for what is on its way."""
    counting = Counting(is_busy=options.rate == 0)
    await _connect(options, counting)
    free = counting.free
    places = len(free)
    began_s = time.perf_counter()
    counting.ends_s = began_s + options.seconds
    used_s = time.process_time()
    if options.rate == 0:
        for _ in range(places):
            free.popleft()()
        await asyncio.sleep(options.seconds)
    else:
        await _pace(counting, options.rate, began_s)
    seconds = time.perf_counter() - began_s
    cpu = (time.process_time() - used_s) / seconds
    await eventually(lambda: len(free) == places, "all answers", within_s=WORK_S)
    return Offered(
        seconds,
        counting.skipped,
        dict(counting.answers),
        counting.took_ms[ACCEPTED],
        counting.took_ms[REFUSED],
        cpu,
    )


async def _pace(counting: Counting, rate: float, began_s: float) -> None:
    sent = 0
    while (now_s := time.perf_counter()) < counting.ends_s:
        due = int((now_s - began_s) * rate)
        while sent < due:
            sent += 1
            if counting.free:
                counting.free.popleft()()
            else:
                counting.skipped += 1
        await asyncio.sleep(TICK_S)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.offer")
    parser.add_argument("--edge", choices=["http", "grpc", "stream"], required=True)
    parser.add_argument("--address", required=True)
    parser.add_argument("--rate", type=float, required=True, help="requests per second")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--places", type=int, default=64, help="requests at a time")
    parser.add_argument("--batch", type=int, default=1, help="tasks in one request")
    parser.add_argument("--found", type=Path, required=True)
    options = parser.parse_args()
    gc.disable()
    options.found.write_bytes(msgspec.json.encode(uvloop.run(offer(options))))


if __name__ == "__main__":
    main()
