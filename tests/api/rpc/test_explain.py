"""Explaining over gRPC."""

from __future__ import annotations

import pytest

from tenure.engine.engine import Engine
from tenure.v1 import task_service_pb2 as pb
from tests.api.rpc.wire import Wire, open_wire, refused, state_name
from tests.engine.world import NAMESPACE

UNKNOWN = "019b0000-0000-7000-8000-ffffffffffff"


async def test_a_task_is_explained_in_reasons_and_in_one_text(wire: Wire) -> None:
    (task_id,) = await wire.enqueue()
    request = pb.ExplainTaskRequest(namespace_id=NAMESPACE, task_id=task_id)
    answer = await wire.tasks.ExplainTask(request)
    assert state_name(answer.state) == "PENDING"
    assert [each.code for each in answer.reasons] == ["no_worker"]
    assert dict(answer.reasons[0].evidence)["type"] == "mail"
    assert answer.explanation == f"{answer.reasons[0].message} {answer.reasons[0].advice}"


async def test_a_worker_that_waits_is_nothing_in_the_way(wire: Wire) -> None:
    await wire.register()
    (task_id,) = await wire.enqueue()
    request = pb.ExplainTaskRequest(namespace_id=NAMESPACE, task_id=task_id)
    answer = await wire.tasks.ExplainTask(request)
    assert [each.code for each in answer.reasons] == ["next"]


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"task_id": UNKNOWN}, "NOT_FOUND", "not_found"),
        ({"task_id": "x"}, "INVALID_ARGUMENT", "invalid_argument"),
        ({}, "INVALID_ARGUMENT", "invalid_argument"),
        ({"task_id": UNKNOWN, "namespace_id": "a/b/c"}, "INVALID_ARGUMENT", "invalid_argument"),
    ],
)
async def test_what_cannot_be_explained_is_refused(
    wire: Wire, fields: dict[str, str], status: str, code: str
) -> None:
    found, refusal = await refused(wire.tasks.ExplainTask(pb.ExplainTaskRequest(**fields)))
    assert (found, refusal.code) == (status, code)


async def test_it_counts_against_the_rate_of_lists(engine: Engine) -> None:
    async with open_wire(engine, lists_per_s=1) as wire:
        (task_id,) = await wire.enqueue()
        request = pb.ExplainTaskRequest(namespace_id=NAMESPACE, task_id=task_id)
        await wire.tasks.ExplainTask(request)
        status, refusal = await refused(wire.tasks.ExplainTask(request))
    assert (status, refusal.code, refusal.retry_after_ms) == (
        "RESOURCE_EXHAUSTED",
        "rate_limited",
        1_000,
    )
