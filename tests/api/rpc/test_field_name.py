"""Errors over gRPC name fields as the protocol does, whatever the checks call them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from google.protobuf.descriptor import Descriptor

import tenure
from tenure.api.rpc import error
from tenure.api.rpc.field_name import proto_name
from tenure.api.rpc.table import REQUESTS
from tenure.errors import InvalidArgument
from tenure.sdk.transport.python_name import in_python
from tenure.sdk.transport.refusal import from_detail

ROOT: Final = Path(tenure.__file__).parent
CHECKS: Final = frozenset(
    {
        "attempt",
        "check_id",
        "duration_ms",
        "instant_ms",
        "integer",
        "labels",
        "name",
        "namespace",
        "number",
        "page_size",
        "payload",
        "priority",
        "task_id",
        "text",
        "worker_id",
    }
)
# About a message as a whole, a setting of the server, or only in stored rows.
NO_FIELDS: Final = frozenset({"request", "grpc", "retry_of"})
# Only over HTTP: what HTTP workers report, the fleet, and searches for tasks.
HTTP_FIELDS: Final = frozenset(
    {"at", "by", "cancelled_during_phase", "id", "id_prefix", "metrics", "partial_progress"}
    | {"total_count"}
)
# A call of an endpoint has this name itself; everywhere else it is that of the worker's types.
OWN_NAMES: Final = frozenset({"types"})


def fields_of(path: Path) -> Iterator[str]:
    """Return the names of fields that the code of a file blames."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        for keyword in node.keywords:
            if keyword.arg == "field" and isinstance(keyword.value, ast.Constant):
                yield str(keyword.value.value)
        is_check = isinstance(node.func, ast.Attribute) and node.func.attr in CHECKS
        if is_check and len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
            yield str(node.args[1].value)


def blamed() -> list[str]:
    files = [
        *(ROOT / "core").rglob("*.py"),
        *(ROOT / "engine").rglob("*.py"),
        *(ROOT / "api" / "rpc").rglob("*.py"),
    ]
    return sorted({field for path in files for field in fields_of(path)})


def names_of(message: Descriptor, seen: set[str]) -> set[str]:
    """Return the names of all fields of a message, also of those inside it."""
    if message.full_name in seen:
        return set()
    seen.add(message.full_name)
    found = set()
    for field in message.fields:
        found.add(field.name)
        if field.message_type is not None:
            found |= names_of(field.message_type, seen)
    return found


PROTOCOL: Final = set().union(*(names_of(each, set()) for each in REQUESTS.values()))


def test_what_the_checks_blame_is_found() -> None:
    assert {"taskId", "queue", "types", "leaseDurationMs", "error.stackTrace"} <= set(blamed())
    assert len(blamed()) > 60


@pytest.mark.parametrize("field", blamed())
def test_every_field_that_is_blamed_has_a_name_in_the_protocol(field: str) -> None:
    told = error.detail(InvalidArgument(f"{field} must be good", field=field))
    for part in told.field.split("."):
        assert part in PROTOCOL | NO_FIELDS | HTTP_FIELDS, part
    assert told.message == f"{told.field} must be good"


@pytest.mark.parametrize(
    ("method", "field", "name"),
    [
        ("EnqueueTasks", "queue", "task_queue"),
        ("EnqueueTasks", "retry.initialIntervalMs", "retry.initial_interval_ms"),
        ("EnqueueTasks", "labels.camelCase", "labels.camelCase"),
        ("RegisterWorker", "types", "workflow_types"),
        ("RegisterWorker", "types, maxConcurrent", "workflow_types, max_concurrent"),
        ("RegisterWorker", "leaseDurationMs", "lease_duration"),
        ("PollActivity", "types", "supported_workflow_types"),
        ("PollActivity", "queue", "task_queue"),
        ("PollActivity", "waitMs", "wait"),
        ("WorkerHeartbeat", "leaseDurationMs", "lease_duration"),
        ("DrainWorker", "deadlineMs", "deadline"),
        ("DeregisterWorker", "deadlineMs", "drain_deadline"),
        ("GetQueue", "queue", "name"),
        ("GetNamespace", "namespace", "name"),
        ("ListTasks", "page_size", "page_size"),
        ("HeartbeatTasks", "progressPct", "progress_percent"),
        ("FinishTasks", "error.nextRetryDelayMs", "error.next_retry_delay_ms"),
        ("FinishTasks", "wakeAt", "wake_at_ms"),
        ("PutSchedule", "every", "every_ms"),
        ("PutSchedule", "startsAt", "starts_at_ms"),
        ("PutSchedule", "scheduleId", "schedule_id"),
        ("BackfillSchedule", "from", "from_ms"),
    ],
)
def test_a_field_has_the_name_of_its_request(method: str, field: str, name: str) -> None:
    blaming = InvalidArgument(f"{field} must be good", field=field)
    told = error.detail(blaming, REQUESTS[method])
    assert (told.field, told.message) == (name, f"{name} must be good")


def test_a_message_names_other_fields_in_the_same_words() -> None:
    said = "An activity needs startToCloseMs or scheduleToCloseMs."
    told = error.detail(InvalidArgument(said, field="startToCloseMs"))
    assert told.message == "An activity needs start_to_close_ms or schedule_to_close_ms."
    assert from_detail(told).message == "An activity needs start_to_close or schedule_to_close."


@pytest.mark.parametrize(
    ("field", "name"),
    [
        ("queue", "queue"),
        ("startToCloseMs", "start_to_close"),
        ("cancelGracePeriodMs", "cancel_grace"),
        ("retry.maximumAttempts", "retry.max_attempts"),
        ("retry.maximumIntervalMs", "retry.maximum_interval"),
        ("runAt", "run_at"),
        ("idempotencyKey", "idempotency_key"),
        ("maxConcurrent", "max_concurrent"),
        ("leaseDurationMs", "lease"),
        ("labels.max_ms", "labels.max_ms"),
        ("namespace", "namespace"),
        ("progressPct", "percent"),
        ("scheduleId", "id"),
        ("offset", "offset"),
        ("catchupWindowMs", "catchup_window"),
        ("endsAt", "ends_at"),
        ("types", "activities"),
    ],
)
def test_python_users_read_python_names(field: str, name: str) -> None:
    told = error.detail(InvalidArgument(f"{field} must be good", field=field))
    read = from_detail(told)
    assert (read.fields["field"], read.message) == (name, f"{name} must be good")


def test_a_name_of_an_edge_stays_as_it_is() -> None:
    for name in sorted(PROTOCOL - OWN_NAMES):
        assert proto_name(name, None) == name
        assert in_python(in_python(name)) == in_python(name)
