"""One function per decoder: it takes any bytes, and fails only when the decoder does.

A decoder gives its value or refuses in its own words; nothing else may come out of it. What it
gives must be what its encoder makes the same text from.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from tenure.api.http.edge import strict_json
from tenure.api.http.edge.reading import read_query
from tenure.api.http.route.task import body
from tenure.api.http.route.task.parameter import TaskListQuery, TaskQuery
from tenure.api.http.route.worker import WorkerListQuery
from tenure.core import change_hint, check, cursor
from tenure.core.access import api_key
from tenure.core.access import task_token as task_tokens
from tenure.core.access.task_token import Claims, Purpose
from tenure.core.limits import PAYLOAD_BYTES_MAX
from tenure.core.task.record import Spec
from tenure.errors import InvalidArgument, InvalidToken, PayloadTooLarge
from tenure.sdk.payload import Converter, Payload, PayloadError
from tenure.sdk.worker.execution import frame
from tenure.store.table import codec

KEY: Final = b"k" * 32
NAMESPACE: Final = "acme/default"
QUERY: Final = "tasks?queue=q"
NOW_MS: Final = 1_800_000_000_000
SERVER_ID: Final = "01890000-0000-7000-8000-000000000001"
REFUSALS: Final = (InvalidArgument, PayloadTooLarge)
DAMAGE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
CLAIMS: Final = Claims(Purpose.COMPLETION, NAMESPACE, "", SERVER_ID, 1, NOW_MS + 1)

T = TypeVar("T")
Target = Callable[[bytes], None]


def _given(refusals: tuple[type[Exception], ...], read: Callable[[], T]) -> T | None:
    """Return what a decoder gives; None when it refuses as it may."""
    try:
        return read()
    except refusals:
        return None


def _text(data: bytes) -> str:
    """Return any text, lone surrogates too: command lines and environments can bring them."""
    return data.decode("utf-8", "surrogateescape")


def cursors(data: bytes) -> None:
    """Read a page token; a good one has exactly one text."""
    text = _text(data)

    def read() -> str:
        return cursor.decode(KEY, text, namespace=NAMESPACE, query=QUERY)

    position = _given(REFUSALS, read)
    if position is not None:
        assert cursor.encode(KEY, namespace=NAMESPACE, query=QUERY, position=position) == text


def tokens(data: bytes) -> None:
    """Read a task token; nobody but us can make one."""
    text = _text(data)

    def read() -> Claims:
        return task_tokens.verify(KEY, text, purpose=Purpose.COMPLETION, now_ms=NOW_MS)

    assert _given((InvalidToken,), read) in {None, CLAIMS}


def api_keys(data: bytes) -> None:
    """Read an API key and the id of one."""
    text = _text(data)
    parsed = api_key.parse(text)
    if parsed is not None:
        assert parsed.reveal() == text
        assert parsed.secret not in repr(parsed)
        assert not api_key.matches(None, parsed)
    assert _given(REFUSALS, lambda: api_key.check_id(text)) in {None, text}


def json_bodies(data: bytes) -> None:
    """Read the bodies of requests, and make of them what the engine takes."""
    task = _given(REFUSALS, lambda: strict_json.decode(data, body.EnqueueBody))
    if task is not None:
        _given(REFUSALS, lambda: task.new_task(SERVER_ID))
    complete = _given(REFUSALS, lambda: strict_json.decode(data, body.CompleteBody))
    if complete is not None:
        _given(REFUSALS, lambda: complete.finish(SERVER_ID))
    _given(REFUSALS, lambda: strict_json.decode(data, body.BatchBody))


def json_payloads(data: bytes) -> None:
    """Look at a payload: what is taken as JSON can be read as JSON, and be shown."""
    if not strict_json.is_json(data):
        return

    def read() -> object:
        strict_json.check_payload(data, "input")
        return msgspec.json.decode(data)

    _given(REFUSALS, read)


def queries(data: bytes) -> None:
    """Read what stands behind a question mark."""
    for kind in (TaskListQuery, WorkerListQuery, TaskQuery):
        found = _given(REFUSALS, lambda kind=kind: read_query(data, kind))  # type: ignore[misc]  # a lambda with a default
        if isinstance(found, TaskQuery):
            _given(REFUSALS, found.whole_wait_ms)


def names(data: bytes) -> None:
    """Check names, ids, texts and labels; a good one is written as UTF-8 without NUL."""
    text = _text(data)
    checks: tuple[Callable[[], object], ...] = (
        lambda: check.name(text, "name"),
        lambda: check.namespace(text),
        lambda: check.task_id(text),
        lambda: check.worker_id(text),
        lambda: check.text(text, "text", bytes_max=100),
        lambda: check.labels({text[:9]: text[9:]}),
        lambda: check.payload(data, "input"),
    )
    for each in checks:
        found = _given(REFUSALS, each)
        if isinstance(found, str):
            assert "\0" not in found
            found.encode()


def payloads(data: bytes) -> None:
    """Read a payload by its encoding, as the SDK does."""
    encoding, _, rest = data.partition(b"\n")
    converter = Converter()
    payload = Payload(encoding.decode("latin-1"), rest)
    for wanted in (Any, dict[str, int], bytes, str, None):
        _given((PayloadError,), lambda wanted=wanted: converter.decode(payload, wanted))  # type: ignore[misc]  # a lambda with a default
    _given((PayloadError,), lambda: converter.decode_details(data))


def rows(data: bytes) -> None:
    """Read what a row holds encoded; damage is refused, never taken for something else."""
    _given(DAMAGE, lambda: codec.spec_from(data))
    text = data.decode("latin-1")
    _given(DAMAGE, lambda: codec.types_from(text))
    known = _given(DAMAGE, lambda: codec.names_from(text))
    if known is not None:
        assert codec.names_from(codec.names_to(known)) == known


_reports: Final = msgspec.msgpack.Decoder(frame.Report)


def frames(data: bytes) -> None:
    """Read what a child process says over its socket."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(data[:60_000])
        theirs.shutdown(socket.SHUT_WR)
        reader = frame.Frames(ours)
        while _given((frame.BrokenFrame,), lambda: reader.read(_reports)) is not None:
            pass


def event_ids(data: bytes) -> None:
    """Read where a stream of events left off, and a hint of another server."""
    text = _text(data)
    position = change_hint.position_of(text, SERVER_ID)
    if position is not None:
        assert position >= 0
    hint = change_hint.hint_of(text)
    if hint is not None:
        assert change_hint.hint_of(change_hint.text_of(hint)) == hint


TARGETS: Final[Mapping[str, Target]] = {
    "cursors": cursors,
    "tokens": tokens,
    "api_keys": api_keys,
    "json_bodies": json_bodies,
    "json_payloads": json_payloads,
    "queries": queries,
    "names": names,
    "payloads": payloads,
    "rows": rows,
    "frames": frames,
    "event_ids": event_ids,
}

_TASK: Final = b'{"type":"t","queue":"q","startToCloseMs":1,"input":{"a":[1,2.5e3,"x"]}}'
_DEEP: Final = b"[" * 2_000 + b"]" * 2_000
_REPORT: Final = msgspec.msgpack.encode(frame.ChildBeat(details=b"x", percent=5.0, message="half"))
_LINES: Final = "task acme/default x 7 PENDING q"
# Good examples and known bad ones, from which the rest is made.
EXAMPLES: Final[Mapping[str, tuple[bytes, ...]]] = {
    "cursors": (
        cursor.encode(KEY, namespace=NAMESPACE, query=QUERY, position="5:x").encode(),
        cursor.encode(b"other", namespace=NAMESPACE, query=QUERY, position="5:x").encode(),
    ),
    "tokens": (task_tokens.sign(KEY, CLAIMS).encode(), task_tokens.sign(b"other", CLAIMS).encode()),
    "api_keys": (
        api_key.make(id_bytes=bytes(10), secret_bytes=bytes(32)).reveal().encode(),
        b"tnr_" + b"a" * 16 + b"_" + b"A" * 44,
    ),
    "json_bodies": (
        _TASK,
        b'{"tasks":[%b,%b]}' % (_TASK, _TASK),
        b'{"outcome":"FAILED","error":{"message":"m","details":null}}',
        b'{"type":"t","queue":"q","inputBase64":"eA==","encoding":"x","runAt":"2030-01-01T00:00Z"}',
        b'{"type":"t","type":"u"}',
        b'{"type":"\\ud800"}',
    ),
    "json_payloads": (b'{"a":[1e400,"\\ud800"]}', _DEEP, b"1" * 400, b"NaN", b'"\xff"'),
    "queries": (
        b"queue=q&pageSize=5&state=PENDING&totalCount=true",
        b"label=a%3Db&label=c%3Dd&health=DEAF",
        b"wait=30s&namespace=acme%2Fdefault&waitMs=1",
        b"%ff=%00&pageSize=1e3",
    ),
    "names": (b"acme/default", SERVER_ID.encode(), b"..", b"__proto__x", b"\xed\xa0\x80", b"a\0b"),
    "payloads": (b'json\n{"a":1}', b"bytes\nx", b"json\n" + _DEEP, b"x\n", b"name\0[1]", b"[1]"),
    "rows": (msgspec.msgpack.encode(Spec(start_to_close_ms=1)), b'["acme/default"]', _DEEP),
    "frames": (
        len(_REPORT).to_bytes(4, "big") + _REPORT,
        b"\0\0\0\1\xc0" * 3,
        (4 * PAYLOAD_BYTES_MAX + 1).to_bytes(4, "big"),
    ),
    "event_ids": (f"{SERVER_ID}:12".encode(), b":", _LINES.encode(), b"x:-1"),
}


def mutated(name: str, rng: random.Random) -> bytes:
    """Return bytes that were an example of a target once."""
    data = rng.choice(EXAMPLES[name])
    for _ in range(rng.choice((0, 1, 1, 2, 5))):
        at, to = sorted(rng.randrange(len(data) + 1) for _ in range(2))
        data = rng.choice(
            (
                data[:at] + data[to:],
                data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :],
                data[:to] + data[at:],
                data[:at] + rng.randbytes(rng.randrange(8)) + data[at:],
                data[:at] + rng.choice(EXAMPLES[name]) + data[to:],
            )
        )[:20_000]
    return data
