"""Bad input: the exact refusal, and nothing is changed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio

from tenure.api.http.edge.app import make_app
from tenure.api.readiness import Readiness
from tenure.api.setting import ServerSettings
from tests.api.http.site import TASK, UNKNOWN_ID, Site, client_of, site_of
from tests.engine.world import Clock, World, open_database

pytestmark = pytest.mark.asyncio(loop_scope="module")
JSON = {"content-type": "application/json"}
BODY = '{"type":"mail","queue":"q","startToCloseMs":1000%s}'
SECRET = "hunter2"
ASKED = {"field": "body"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def small() -> AsyncIterator[Site]:
    """One server for all of them: what is refused changes nothing."""
    clock = Clock()
    async with open_database("sqlite", clock) as database:
        world = World(database, clock)
        async with site_of(world, await world.start()) as site:
            yield site
        await world.close()


def body(more: str | bytes) -> bytes:
    """Return a good body with something more in it."""
    text = more.encode() if isinstance(more, str) else more
    return (BODY % ",").encode().replace(b",}", b"," + text + b"}")


async def refused_with(site: Site, data: bytes) -> Any:
    """Send a body that has to be refused, and see that nothing is changed."""
    before = await site.world.dump()
    status, code, fields = await site.refused("POST", "/v1/tasks", content=data, headers=JSON)
    assert await site.world.dump() == before
    assert (status, code) == (400, "invalid_argument"), fields
    return fields["field"]


@pytest.mark.parametrize(
    ("more", "field"),
    [
        pytest.param('"input":' + "[" * 100_000 + "]" * 100_000, "body", id="depth bomb"),
        pytest.param('"input":' + "[" * 101 + "]" * 101, "input", id="too deep"),
        pytest.param('"input":' + '{"a":' * 101 + "1" + "}" * 101, "input", id="deep objects"),
        pytest.param('"input":' + "9" * 5_000, "input", id="huge integer"),
        pytest.param('"input":NaN', "body", id="NaN"),
        pytest.param('"input":[-Infinity]', "body", id="infinity"),
        pytest.param('"input":[1e400]', "input", id="beyond a float"),
        pytest.param(b'"input":"\xff"', "body", id="no UTF-8"),
        pytest.param(b'"input":"\xed\xa0\x80"', "body", id="a surrogate in UTF-8"),
        pytest.param('"input":"\\ud800 x"', "body", id="a lone surrogate"),
        pytest.param('"input":[1,]', "body", id="a comma too many"),
        pytest.param('"input":1,"input":2', "input", id="a key twice"),
        pytest.param('"labels":{"a":"1","a":"2"}', "labels.a", id="a label twice"),
        pytest.param('"retry":{"maximumAttempts":1,"maximumAttempts":2}', None, id="deep twice"),
        pytest.param('"\\u0070riority":1,"priority":2', "priority", id="a key twice, escaped"),
        pytest.param('"colour":1', "colour", id="an unknown field"),
        pytest.param('"retry":{"colour":1}', "retry.colour", id="an unknown field inside"),
        pytest.param('"<script>":1', "body", id="a crafted field"),
        pytest.param('"priority":"5"', "priority", id="text for a number"),
        pytest.param('"priority":1.0', "priority", id="a fraction for a whole number"),
        pytest.param('"priority":true', "priority", id="a boolean for a number"),
        pytest.param('"priority":10', "priority", id="a priority out of range"),
        pytest.param('"priority":9223372036854775808', "priority", id="beyond 64 bits"),
        pytest.param('"scheduleToStartMs":0', "scheduleToStartMs", id="zero"),
        pytest.param('"scheduleToStartMs":-1', "scheduleToStartMs", id="negative"),
        pytest.param('"heartbeatTimeoutMs":316224000001', "heartbeatTimeoutMs", id="ten years"),
        pytest.param('"deliveryTimeoutMs":120001', "deliveryTimeoutMs", id="a long delivery"),
        pytest.param('"retry":{"backoffCoefficient":0.5}', "retry.backoffCoefficient", id="shrink"),
        pytest.param('"retry":{"backoffCoefficient":1e400}', None, id="an endless coefficient"),
        pytest.param('"retry":null', "retry", id="null"),
        pytest.param('"runAt":"yesterday"', "runAt", id="no instant"),
        pytest.param('"runAt":"2026-01-01T00:00:00"', "runAt", id="no zone"),
        pytest.param('"runAt":"1969-12-31T23:59:59Z"', "runAt", id="before 1970"),
        pytest.param('"runAt":"9999-12-31T23:59:59-12:00"', "runAt", id="beyond the calendar"),
        pytest.param('"taskId":"NO-UUID"', "taskId", id="no id"),
        pytest.param('"isResend":true', "isResend", id="a resend of nothing"),
        pytest.param('"labels":{"a b":"x"}', "labels", id="a bad label"),
        pytest.param('"labels":{"a":"x\\u0000"}', "labels.a", id="NUL in a label"),
        pytest.param('"labels":{"a":"x\\u202e"}', "labels.a", id="an invisible character"),
        pytest.param('"labels":{"__proto__":"x"}', "labels", id="a prototype"),
        pytest.param('"labels":{"a":1}', "labels", id="a number as a label"),
        pytest.param(f'"labels":{{"a":"{"x" * 257}"}}', "labels.a", id="a long label"),
        pytest.param('"inputBase64":"AA=="', "encoding", id="bytes without encoding"),
        pytest.param('"input":1,"encoding":"json"', "encoding", id="an encoding of JSON"),
        pytest.param('"inputBase64":"A","encoding":"x"', "inputBase64", id="bad base64"),
        pytest.param('"input":1,"inputBase64":"AA==","encoding":"x"', "inputBase64", id="both"),
    ],
)
async def test_a_bad_field_is_named_and_nothing_is_stored(
    small: Site, more: str | bytes, field: str | None
) -> None:
    found = await refused_with(small, body(more))
    assert found == field or field is None


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (b"", "body"),
        (b"null", "body"),
        (b"[]", "body"),
        (b"{", "body"),
        (b"\xef\xbb\xbf" + body('"priority":1'), "body"),
        (body('"priority":1') + b"{}", "body"),
        (b'{"queue":"q"}', "type"),
        (b'{"type":"../x","queue":"q","startToCloseMs":1}', "type"),
        (b'{"type":"mail","queue":"","startToCloseMs":1}', "queue"),
        (b'{"type":"mail","queue":"q"}', "startToCloseMs"),
        (body('"priority":1').decode().encode("utf-16"), "body"),
    ],
)
async def test_a_bad_body_is_refused(small: Site, data: bytes, field: str) -> None:
    assert await refused_with(small, data) == field


async def test_what_is_allowed_inside_an_input_is_kept(small: Site) -> None:
    for value in (
        '[{"a":1},{"a":2},{"b":{"a":1},"c":{"a":":"}}]',
        '{"a":1.50,"b":1E2,"c":"\\u0041\\/","A":[{}]}',
        "[" * 100 + "]" * 100,
        '"[[["',
        "123456789012345678901234567890",
    ):
        answer = await small.client.post(
            "/v1/tasks", content=body(f'"input":{value}'), headers=JSON
        )
        assert answer.status_code == 201, answer.text
        stored = await small.world.task(answer.json()["taskId"])
        assert stored.input == value.encode()


_LONG = f'"{"x" * 2_000}"'


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ('{"a":1,"a":1}', "input.a"),
        ('{"a":1,"\\u0061":2}', "input.a"),
        ('{"a":{"b":[0,{"c":1,"d":2,"c":3}]}}', "input.a.b[1].c"),
        ('{"a":1.50,"b":"\\u0041","a":2}', "input.a"),
        (f'[{_LONG},{{"a":1,"a":2}}]', "input[1].a"),
        # What is not a plain name is not repeated.
        ('{"hunter2 x":1,"hunter2 x":2}', "input"),
    ],
)
async def test_a_key_that_stands_twice_inside_an_input_is_refused(
    small: Site, value: str, field: str
) -> None:
    assert await refused_with(small, body(f'"input":{value}')) == field


async def test_an_input_may_say_what_a_label_says(small: Site) -> None:
    """A key of a label is refused for its length, also when it is the input too."""
    more = f'"labels":{{{_LONG}:"a"}},"input":{_LONG}'
    assert await refused_with(small, body(more)) == "labels"


async def test_a_large_input_is_stored_and_a_larger_one_refused(small: Site) -> None:
    large = json.dumps("x" * (2 * 1024 * 1024 - 2))
    answer = await small.client.post("/v1/tasks", content=body(f'"input":{large}'), headers=JSON)
    assert answer.status_code == 201
    larger = json.dumps("x" * (2 * 1024 * 1024))
    for more in (f'"input":{larger}', f'"input":{large}, "priority":1,"priority":2'):
        before = await small.world.dump()
        status, code, fields = await small.refused(
            "POST", "/v1/tasks", content=body(more), headers=JSON
        )
        assert await small.world.dump() == before
        if more.startswith(f'"input":{larger}'):
            assert (status, code, fields) == (413, "payload_too_large", {"limit": 2 * 1024**2})
        else:
            assert (status, code, fields) == (400, "invalid_argument", {"field": "priority"})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def narrow(small: Site) -> AsyncIterator[Site]:
    """A server whose bodies have at most 1,000 bytes."""
    settings = ServerSettings(body_bytes_max=1_000)
    app = make_app(small.engine, settings, Readiness(small.engine))
    async with site_of(small.world, small.engine, app) as site:
        yield site


async def test_a_body_over_the_limit_is_refused_by_its_length_or_while_it_is_read(
    narrow: Site,
) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(30):
            yield b" " * 100

    for content in (b" " * 1_001, chunks()):
        answer = await narrow.client.post("/v1/tasks", content=content, headers=JSON)
        assert answer.status_code == 413
        assert answer.json()["error"] == "payload_too_large"
        assert answer.json()["limit"] == 1_000
    exact = body('"labels":{}').ljust(1_000)
    assert (await narrow.client.post("/v1/tasks", content=exact, headers=JSON)).status_code == 201


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content-type": "text/plain"},
        {"content-type": "application/json; charset=latin-1"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "application/json", "content-encoding": "gzip"},
        {"content-type": "application/json", "content-encoding": "br, identity"},
    ],
)
async def test_another_content_type_or_encoding_is_refused(
    small: Site, headers: dict[str, str]
) -> None:
    before = await small.world.dump()
    refused = await small.refused(
        "POST", "/v1/tasks", content=json.dumps(TASK).encode(), headers=headers
    )
    assert refused == (415, "unsupported_media_type", {})
    assert await small.world.dump() == before


async def test_a_body_is_refused_where_none_is_taken(small: Site) -> None:
    task_id = await small.enqueue()
    refused = await small.refused("GET", f"/v1/tasks/{task_id}", content=b"{}", headers=JSON)
    assert refused == (400, "invalid_argument", ASKED)
    path = f"/v1/tasks/{task_id}/pause"
    refused = await small.refused("POST", path, json={"reason": "x"})
    assert refused == (400, "invalid_argument", {"field": "reason"})
    assert (await small.task(task_id))["state"] == "PENDING"
    for kind in ("application/json", 'Application/JSON; charset="UTF-8"'):
        answer = await small.client.post(path, content=b"{}", headers={"content-type": kind})
        assert answer.status_code in {200, 409}


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("colour=red", "colour"),
        ("state=pending", "state"),
        ("state=PENDING'--", "state"),
        ("queue=a&queue=b", "queue"),
        ("queue=a%20b", "queue"),
        ("pageSize=-1", "pageSize"),
        ("pageSize=ten", "pageSize"),
        ("pageSize=" + "9" * 400, "pageSize"),
        ("totalCount=maybe", "totalCount"),
        ("queue=%ff", "query"),
        ("&".join(["a=1"] * 221), "query"),
        ("namespace=a/b/c", "namespace"),
        ("namespace=..", "namespace"),
        ("%3Cscript%3E=1", "query"),
        ("pageToken=" + "A" * 1_025, "pageToken"),
    ],
)
async def test_a_bad_query_is_refused(small: Site, query: str, field: str) -> None:
    headers = {"tenure-namespace": "acme"} if "namespace" not in query else {}
    async with client_of(small.port, **headers) as client:
        site = Site(small.world, small.engine, client, small.port)
        refused = await site.refused("GET", f"/v1/tasks?{query}")
    assert refused == (400, "invalid_argument", {"field": field})


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/tasks/x", 400),
        (f"/v1/tasks/{UNKNOWN_ID.upper()}", 400),
        (f"/v1/tasks/{UNKNOWN_ID}%00", 404),
        (f"/v1/tasks/{UNKNOWN_ID}%2fattempts", 404),
        ("/v1/tasks/..%2f..%2fhealthz", 404),
        ("/v1/tasks/%2e%2e%5cx", 404),
        ("/v1/tasks/", 404),
        ("//v1/tasks", 404),
        ("/V1/tasks", 404),
        ("/v1/tasks/%ff%fe", 400),
        (f"/v1/tasks/{UNKNOWN_ID}", 404),
    ],
)
async def test_a_path_is_matched_exactly(small: Site, path: str, status: int) -> None:
    # Sent as it is: a client would tidy it up.
    head = f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    answer = (await small.raw(head.encode())).decode()
    assert answer.startswith(f"HTTP/1.1 {status} "), answer
    code = "not_found" if status == 404 else "invalid_argument"
    assert f'"error":"{code}"' in answer


async def test_no_refusal_repeats_what_was_sent(small: Site) -> None:
    for data in (
        body(f'"input":1,"encoding":"{SECRET}"'),
        body(f'"priority":"{SECRET}"'),
        body(f'"runAt":"{SECRET}"'),
        body(f'"taskId":"{SECRET}"'),
        body(f'"labels":{{"a":"{SECRET}\\u0000"}}'),
    ):
        answer: httpx.Response = await small.client.post("/v1/tasks", content=data, headers=JSON)
        assert answer.status_code == 400
        assert SECRET not in answer.text


def _sent(*lines: str, body: bytes = b"", path: str = "/v1/tasks") -> bytes:
    """Return a request with exactly these headers, and one more behind it."""
    head = [f"POST {path} HTTP/1.1", "host: localhost", *lines, "", ""]
    behind = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    return "\r\n".join(head).encode() + body + behind


TASK_BODY = body('"priority":1')
LENGTH = f"content-length: {len(TASK_BODY)}"
CHUNKED = b"%x\r\n%b\r\n0\r\n\r\n" % (len(TASK_BODY), TASK_BODY)
TYPE = "content-type: application/json"


@pytest.mark.parametrize(
    ("lines", "sent", "field"),
    [
        ((TYPE, LENGTH, "transfer-encoding: chunked"), CHUNKED, "transfer-encoding"),
        ((TYPE, "transfer-encoding: chunked", LENGTH), CHUNKED, "transfer-encoding"),
        ((TYPE, "content-length: 0", "Transfer-Encoding: Chunked"), CHUNKED, "transfer-encoding"),
        ((TYPE, TYPE, LENGTH), TASK_BODY, "content-type"),
        ((TYPE, "Content-Type: text/plain", LENGTH), TASK_BODY, "content-type"),
        ((TYPE, "content-type: text/plain", "content-length: 0"), b"", "content-type"),
        ((TYPE, "content-encoding: identity", "content-encoding: gzip", LENGTH), b"", None),
        ((TYPE, "content-length: 1", LENGTH), TASK_BODY, "request"),
        ((TYPE, f"{LENGTH}, 1"), TASK_BODY, "request"),
        ((TYPE, LENGTH, "host: other"), TASK_BODY, "request"),
        ((TYPE, "transfer-encoding: chunked, identity"), CHUNKED, "request"),
        ((TYPE, "transfer-encoding: chunked", "transfer-encoding: chunked"), CHUNKED, "request"),
        ((TYPE, f"content-length : {len(TASK_BODY)}"), TASK_BODY, "request"),
        ((TYPE, f"content-length: +{len(TASK_BODY)}"), TASK_BODY, "request"),
    ],
)
async def test_a_head_that_says_two_things_is_refused_and_nothing_behind_it_is_read(
    small: Site, lines: tuple[str, ...], sent: bytes, field: str | None
) -> None:
    before = await small.world.dump()
    answer = await small.raw(_sent(*lines, body=sent))
    assert answer.startswith(b"HTTP/1.1 400 "), answer
    assert b'"error":"invalid_argument"' in answer
    assert field is None or f'"field":"{field}"'.encode() in answer
    assert answer.count(b"HTTP/1.1 ") == 1
    assert await small.world.dump() == before


@pytest.mark.parametrize(
    "lines",
    [
        (TYPE, LENGTH, LENGTH),
        (TYPE, f"{LENGTH}, {len(TASK_BODY)}"),
        # A line that goes on is one line, as the specification says.
        ("content-type:", " application/json", LENGTH),
    ],
)
async def test_a_head_that_says_one_thing_twice_is_read_as_everybody_reads_it(
    small: Site, lines: tuple[str, ...]
) -> None:
    answer = await small.raw(_sent(*lines, body=TASK_BODY))
    assert answer.startswith(b"HTTP/1.1 201 "), answer
    assert answer.count(b"HTTP/1.1 ") == 2
