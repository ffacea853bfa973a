"""Requests that are too large, too slow, malformed, or ask for what cannot be."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from tenure.core import limits
from tenure.v1 import admin_service_pb2 as admin_pb
from tenure.v1 import task_pb2, worker_pb2
from tenure.v1 import task_service_pb2 as task_pb
from tenure.v1 import workflow_service_pb2 as workflow_pb
from tests.api.bad_input.both_edges import BothEdges, Refusal, enqueue
from tests.api.http.site import UNKNOWN_ID
from tests.engine.world import NAMESPACE

pytestmark = pytest.mark.asyncio(loop_scope="module")
JSON = {"content-type": "application/json"}
MIB = 1024 * 1024


def raw_call(stand: BothEdges, method: str = "EnqueueTasks", **options: Any) -> Any:
    """Return a call whose message is sent as the bytes that it is."""
    return stand.wire.channel.unary_unary(f"/tenure.v1.TaskService/{method}", **options)


def invalid(field: str, proto_field: str = "") -> tuple[Refusal, Refusal]:
    """Return how HTTP and gRPC refuse a field, each by its own name of it."""
    code = "invalid_argument"
    return Refusal(400, code, field), Refusal("INVALID_ARGUMENT", code, proto_field or field)


async def test_a_body_or_a_message_over_four_mebibytes(stand: BothEdges) -> None:
    large = b" " * (4 * MIB + 1)
    refusal = await stand.http("POST", "/v1/tasks", content=large, headers=JSON)
    assert refusal == Refusal(413, "payload_too_large")
    before = await stand.world.dump()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await raw_call(stand)(b"\x0a" * (4 * MIB + 64 * 1024 + 1))
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    # What fits a message may still be too large for a payload.
    task = stand.wire.new(input=bytes(limits.PAYLOAD_BYTES_MAX + 1))
    status, detail = await stand.detail(stand.wire.enqueue(task))
    assert (status, detail.code) == ("RESOURCE_EXHAUSTED", "payload_too_large")
    assert detail.limit == limits.PAYLOAD_BYTES_MAX
    assert await stand.world.dump() == before


async def test_a_bomb_that_is_compressed_is_not_unpacked(stand: BothEdges) -> None:
    bomb = gzip.compress(json.dumps(enqueue(input="x" * (64 * MIB))).encode())
    assert len(bomb) < MIB
    for coding in ("gzip", "zstd", "deflate", "br", "gzip, identity"):
        headers = {**JSON, "content-encoding": coding}
        refusal = await stand.http("POST", "/v1/tasks", content=bomb, headers=headers)
        assert refusal == Refusal(415, "unsupported_media_type")
    before = await stand.world.dump()
    message = task_pb.EnqueueTasksRequest(tasks=[stand.wire.new(input=bytes(8 * MIB))])
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stand.wire.tasks.EnqueueTasks(message, compression=grpc.Compression.Gzip)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert await stand.world.dump() == before
    await stand.answers()


async def test_headers_of_ten_thousand_bytes_and_more(stand: BothEdges) -> None:
    large = {"x-large": "x" * 10_000}
    refusal = await stand.http("GET", "/v1/tasks", headers=large)
    assert refusal == Refusal(431, "payload_too_large")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stand.wire.tasks.ListTasks(
            task_pb.ListTasksRequest(), metadata=(("x-large", "x" * 100_000),)
        )
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    await stand.answers()


async def test_a_client_that_sends_its_head_and_then_nothing(stand: BothEdges) -> None:
    # How long it may take is tested with the edge; here others are served meanwhile.
    _, writer = await asyncio.open_connection("127.0.0.1", stand.site.port)
    writer.write(b"POST /v1/tasks HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n")
    await writer.drain()
    await stand.answers()
    writer.close()
    await writer.wait_closed()


DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    ("more", "field"),
    [
        pytest.param(f'"input":{DEEP}', "body", id="depth 10^5"),
        pytest.param('"input":' + "7" * 5_000, "input", id="a 5,000-digit integer"),
        pytest.param('"input":{"a":NaN}', "body", id="NaN"),
        pytest.param('"input":-Infinity', "body", id="Infinity"),
        pytest.param('"input":1e400', "input", id="1e400"),
        pytest.param('"priority":1e400', "priority", id="1e400 for a number of ours"),
        pytest.param('"priority":1,"priority":1', "priority", id="a duplicate key"),
        pytest.param('"labels":{"a":"\udcff"}', "body", id="invalid UTF-8"),
    ],
)
async def test_json_that_some_reader_would_read_otherwise(
    stand: BothEdges, more: str, field: str
) -> None:
    text = json.dumps(enqueue())[:-1] + "," + more + "}"
    data = text.encode("utf-8", "surrogateescape")
    refusal = await stand.http("POST", "/v1/tasks", content=data, headers=JSON)
    assert refusal == invalid(field)[0]


async def test_json_with_a_byte_order_mark(stand: BothEdges) -> None:
    for mark in (b"\xef\xbb\xbf", b"\xff\xfe"):
        data = mark + json.dumps(enqueue()).encode()
        refusal = await stand.http("POST", "/v1/tasks", content=data, headers=JSON)
        assert refusal == invalid("body")[0]


@pytest.mark.parametrize("bad", ["a\0b", "a\u202eb", "a\u200bb", "a\ufeffb", "a/b", "", "x" * 256])
async def test_invisible_characters_in_names_and_labels(stand: BothEdges, bad: str) -> None:
    http, rpc = invalid("type")
    assert await stand.http("POST", "/v1/tasks", json=enqueue(type=bad)) == http
    assert await stand.grpc(stand.wire.enqueue(stand.wire.new(type=bad))) == rpc
    http, rpc = invalid("labels")
    assert await stand.http("POST", "/v1/tasks", json=enqueue(labels={bad: "x"})) == http
    assert await stand.grpc(stand.wire.enqueue(stand.wire.new(labels={bad: "x"}))) == rpc
    assert await stand.grpc(stand.wire.register(labels={bad: "x"})) == rpc


async def test_a_lone_surrogate_in_a_name(stand: BothEdges) -> None:
    data = json.dumps(enqueue(type="a\ud800")).encode()
    assert await stand.http("POST", "/v1/tasks", content=data, headers=JSON) == invalid("body")[0]
    # In protobuf it is no UTF-8, and the message cannot be read.
    good = task_pb.EnqueueTasksRequest(tasks=[stand.wire.new(type="abc")]).SerializeToString()
    call = raw_call(stand)(good.replace(b"abc", b"\xed\xa0\x80"))
    assert await stand.grpc(call) == invalid("request")[1]


TEN_YEARS_MS = limits.DURATION_MS_MAX + 1
TIMES = {
    "startToCloseMs": "start_to_close_ms",
    "scheduleToCloseMs": "schedule_to_close_ms",
    "scheduleToStartMs": "schedule_to_start_ms",
    "heartbeatTimeoutMs": "heartbeat_timeout_ms",
}


@pytest.mark.parametrize("value", [-1, TEN_YEARS_MS, 2**63 - 1])
@pytest.mark.parametrize("field", TIMES)
async def test_a_timeout_that_is_negative_or_longer_than_ten_years(
    stand: BothEdges, field: str, value: int
) -> None:
    http, rpc = invalid(field, TIMES[field])
    assert await stand.http("POST", "/v1/tasks", json=enqueue(**{field: value})) == http
    options = task_pb2.TaskOptions(start_to_close_ms=1_000)
    setattr(options, TIMES[field], value)
    assert await stand.grpc(stand.wire.enqueue(stand.wire.new(options=options))) == rpc


async def test_integers_beyond_64_bits_and_zero_timeouts(stand: BothEdges) -> None:
    for value in (2**63, 2**64, 0):
        body = enqueue(startToCloseMs=value)
        assert await stand.http("POST", "/v1/tasks", json=body) == invalid("startToCloseMs")[0]
    # In protobuf 0 is what is not given, and more than 64 bits cannot be written.
    options = task_pb2.TaskOptions()
    refusal = await stand.grpc(stand.wire.enqueue(stand.wire.new(options=options)))
    assert refusal == invalid("start_to_close_ms")[1]


async def test_page_sizes_that_are_negative_and_a_clamp_for_those_that_are_large(
    stand: BothEdges,
) -> None:
    http, rpc = invalid("page_size")
    refusal = await stand.http("GET", "/v1/tasks?pageSize=-1")
    assert refusal == Refusal(http.status, http.code, "pageSize")
    request = task_pb.ListTasksRequest(namespace_id=NAMESPACE, page_size=-1)
    assert await stand.grpc(stand.wire.tasks.ListTasks(request)) == rpc
    for size in (0, 2**31 - 1):
        request = task_pb.ListTasksRequest(namespace_id=NAMESPACE, page_size=size)
        assert len((await stand.wire.tasks.ListTasks(request)).tasks) <= limits.PAGE_SIZE_MAX


async def test_attempts_that_are_zero_or_negative(stand: BothEdges) -> None:
    made = await stand.wire.register()
    for attempt in (0, -1, -(2**31)):
        item = task_pb2.TaskFinish(
            task_id=UNKNOWN_ID, attempt=attempt, kind=task_pb2.FINISH_KIND_SUCCEEDED
        )
        refusal = await stand.grpc(stand.wire.finish(made.worker_id, item))
        assert refusal == invalid("attempt")[1]
    for attempt in (0, -1, 2**31):
        body = {"outcome": "SUCCEEDED", "attempt": attempt}
        refusal = await stand.http("POST", f"/v1/tasks/{UNKNOWN_ID}/complete", json=body)
        assert refusal == invalid("attempt")[0]


async def test_a_lease_that_is_negative_and_a_clamp_for_one_that_is_long(stand: BothEdges) -> None:
    call = stand.wire.register(lease_duration=Duration(seconds=-1))
    assert await stand.grpc(call) == invalid("lease_duration")[1]
    made = await stand.wire.register(lease_duration=Duration(seconds=315_576_000))
    assert made.lease_duration.seconds == limits.LEASE_MS_MAX // 1_000


async def test_unknown_enums_and_missing_fields(stand: BothEdges) -> None:
    http, rpc = invalid("state")
    assert await stand.http("GET", "/v1/tasks?state=SLEEPING") == http
    request = task_pb.ListTasksRequest(namespace_id=NAMESPACE, state=99)  # type: ignore[arg-type]
    assert await stand.grpc(stand.wire.tasks.ListTasks(request)) == rpc
    assert await stand.grpc(stand.wire.register(mode=99)) == invalid("mode")[1]
    assert await stand.http("POST", "/v1/tasks", json={"queue": "q"}) == invalid("type")[0]
    empty = task_pb.EnqueueTasksRequest(namespace_id=NAMESPACE)
    assert await stand.grpc(stand.wire.tasks.EnqueueTasks(empty)) == invalid("tasks")[1]
    made = await stand.wire.register()
    no_kind = task_pb2.TaskFinish(task_id=UNKNOWN_ID, attempt=1)
    assert await stand.grpc(stand.wire.finish(made.worker_id, no_kind)) == invalid("kind")[1]


async def test_a_wrong_content_type_and_an_unknown_field(stand: BothEdges) -> None:
    data = json.dumps(enqueue()).encode()
    for kind in ("text/plain", "application/xml", "multipart/form-data", "application/x-python"):
        headers = {"content-type": kind}
        refusal = await stand.http("POST", "/v1/tasks", content=data, headers=headers)
        assert refusal == Refusal(415, "unsupported_media_type")
    for unknown in ("colour", "start_to_close_ms"):
        refusal = await stand.http("POST", "/v1/tasks", json=enqueue(**{unknown: "red"}))
        assert refusal == invalid(unknown)[0]


async def test_an_unknown_proto_field_is_ignored(stand: BothEdges) -> None:
    good = task_pb.EnqueueTasksRequest(namespace_id=NAMESPACE, tasks=[stand.wire.new()])
    # Field 4000, a number: a newer client may send it.
    unknown = bytes([0x80, 0xFA, 0x01, 0x2A])
    answer = await raw_call(stand)(good.SerializeToString() + unknown)
    (made,) = task_pb.EnqueueTasksResponse.FromString(answer).results
    assert (await stand.wire.get(made.task_id)).type == "mail"


BAD_IDS = ["x", UNKNOWN_ID.upper(), UNKNOWN_ID.replace("-", ""), "..", "01ARZ3NDEKTSV4RRFFQ69G5FAV"]


@pytest.mark.parametrize("bad", [*BAD_IDS, UNKNOWN_ID + "\n", "../../etc/passwd"])
async def test_malformed_ids_over_grpc(stand: BothEdges, bad: str) -> None:
    request = task_pb.GetTaskRequest(namespace_id=NAMESPACE, task_id=bad)
    refusal = await stand.grpc(stand.wire.tasks.GetTask(request))
    assert refusal == invalid("task_id")[1]
    cancel = task_pb.CancelTaskRequest(namespace_id=NAMESPACE, task_id=bad)
    assert await stand.grpc(stand.wire.tasks.CancelTask(cancel)) == invalid("task_id")[1]
    worker = workflow_pb.GetWorkerRequest(namespace_id=NAMESPACE, worker_id=bad)
    assert (await stand.grpc(stand.wire.workflows.GetWorker(worker)))[:2] == invalid("")[1][:2]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        *((f"/v1/tasks/{bad}", 400) for bad in BAD_IDS if bad != ".."),
        ("/v1/tasks/..%2f..%2fetc%2fpasswd", 404),
        ("/v1/tasks/%2e%2e%2fhealthz", 404),
        (f"/v1/tasks/{UNKNOWN_ID}/../x", 404),
        ("/v1/workers/..%5c", 404),
    ],
)
async def test_malformed_ids_and_path_traversal_over_http(
    stand: BothEdges, path: str, status: int
) -> None:
    head = f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    before = await stand.world.dump()
    answer = await stand.site.raw(head.encode())
    assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer
    assert await stand.world.dump() == before
    await stand.answers()


async def test_ten_thousand_labels_and_a_label_of_a_megabyte(stand: BothEdges) -> None:
    for labels, field in (
        ({f"k{number}": "v" for number in range(10_000)}, "labels"),
        ({"a": "x" * MIB}, "labels.a"),
        ({"__proto__": "x"}, "labels"),
    ):
        http, rpc = invalid(field)
        assert await stand.http("POST", "/v1/tasks", json=enqueue(labels=labels)) == http
        assert await stand.grpc(stand.wire.enqueue(stand.wire.new(labels=labels))) == rpc
        assert await stand.grpc(stand.wire.register(labels=labels)) == rpc


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("queue=(a%2B)%2B$", "queue"),
        ("type=mail'%20OR%20'1'='1", "type"),
        ("state=PENDING;DROP%20TABLE%20tasks", "state"),
        ("orderBy=id;--", "orderBy"),
        ("filter=1=1", "filter"),
    ],
)
async def test_filters_are_a_closed_grammar(stand: BothEdges, query: str, field: str) -> None:
    assert await stand.http("GET", f"/v1/tasks?{query}") == invalid(field)[0]


async def test_filters_over_grpc_and_of_workers_are_a_closed_grammar(stand: BothEdges) -> None:
    refusal = await stand.http("GET", "/v1/workers?label=a%20b=x")
    assert refusal[:2] == (400, "invalid_argument")
    for fields in ({"task_queue": "a' OR 1=1"}, {"labels": {"a'b": "x"}}, {"filter_status": "UP"}):
        request = workflow_pb.ListWorkersRequest(namespace_id=NAMESPACE, **fields)
        refusal = await stand.grpc(stand.wire.workflows.ListWorkers(request))
        assert refusal[:2] == ("INVALID_ARGUMENT", "invalid_argument"), fields


async def test_page_tokens_that_are_forged_or_of_another_query_or_namespace(
    stand: BothEdges,
) -> None:
    await stand.wire.enqueue(*(stand.wire.new() for _ in range(3)))
    request = task_pb.ListTasksRequest(namespace_id=NAMESPACE, page_size=1)
    token = (await stand.wire.tasks.ListTasks(request)).next_page_token
    http, rpc = invalid("page_token")
    http = Refusal(http.status, http.code, "pageToken")
    forged = ("A" if token[0] != "A" else "B") + token[1:]
    for bad in (forged, token[:-4], "A" * 1_024, "e30="):
        assert await stand.http("GET", f"/v1/tasks?pageToken={bad}") == http
        request = task_pb.ListTasksRequest(namespace_id=NAMESPACE, page_token=bad)
        assert await stand.grpc(stand.wire.tasks.ListTasks(request)) == rpc
    assert await stand.http("GET", f"/v1/tasks?state=PENDING&pageToken={token}") == http
    assert await stand.http("GET", f"/v1/workers?pageToken={token}") == http
    other = task_pb.ListTasksRequest(namespace_id="other/default", page_token=token)
    refusal = await stand.grpc(stand.wire.tasks.ListTasks(other))
    assert refusal[1] in {"invalid_argument", "not_found"}
    queues = admin_pb.ListNamespacesRequest(page_token=token)
    assert await stand.grpc(stand.wire.admin.ListNamespaces(queues)) == rpc


async def test_workers_that_claim_to_be_more_than_is_allowed(stand: BothEdges) -> None:
    many = [f"t{number}" for number in range(limits.TYPES_PER_WORKER_MAX + 1)]
    for fields, field in (
        ({"max_concurrent": limits.WORKER_SLOTS_MAX + 1}, "max_concurrent"),
        ({"workflow_types": many}, "workflow_types"),
        ({"hostname": "x" * 1_025}, "hostname"),
        ({"mode": worker_pb2.WORKER_MODE_SERVED}, "address"),
    ):
        assert await stand.grpc(stand.wire.register(**fields)) == invalid(field)[1]
