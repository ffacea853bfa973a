"""Every call of the workflow service by its name: good, stale, foreign, repeated, and bad."""

from __future__ import annotations

import operator
from typing import Any, Final

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from tenure.v1 import worker_pb2
from tenure.v1 import workflow_service_pb2 as pb
from tests.api.rpc.call_table import (
    ELSEWHERE,
    GIVEN,
    MESSAGES,
    METHODS,
    ROWS,
    SAME,
    STATUSES,
    TYPES,
    CallRow,
    Fields,
    Scene,
    call,
    request_of,
    set_scene,
)
from tests.api.rpc.wire import Wire, refused
from tests.engine.world import OTHER_NAMESPACE, World

EVERY: Final = pytest.mark.parametrize("method", ROWS)
CHANGES: Final = [
    pytest.param(method, *bad, id=f"{method} {' '.join(bad[0])} {number}")
    for method, row in ROWS.items()
    for number, bad in enumerate(row.bad)
]


@pytest.fixture
async def scene(wire: Wire, world: World) -> Scene:
    return await set_scene(wire, world)


def message_of(name: str) -> Descriptor:
    file: Any = worker_pb2.DESCRIPTOR if name == "Worker" else pb.DESCRIPTOR
    found: Descriptor = file.message_types_by_name[name]
    return found


async def made(scene: Scene, method: str, **changes: Any) -> Any:
    """Make a good call, or one that differs from it."""
    return await call(scene.wire, method, **{**ROWS[method].given(scene), **changes})


async def prepared(scene: Scene, method: str) -> CallRow:
    row = ROWS[method]
    if row.before is not None:
        await row.before(scene)
    return row


async def is_refused(scene: Scene, method: str, code: str, field: str, **changes: Any) -> None:
    """See that a call gets its refusal and changes nothing."""
    before = await scene.world.dump()
    _, detail = await refused(made(scene, method, **changes))
    assert (detail.code, detail.field if field else "") == (code, field)
    assert await scene.world.dump() == before


def check(answer: Any, expected: Fields) -> None:
    for path, value in expected.items():
        found = operator.attrgetter(path)(answer)
        if value == GIVEN:
            assert found, path
        elif isinstance(value, list):
            assert list(found) == value, path
        else:
            assert found == value, path


def test_every_call_has_a_row() -> None:
    names = {each.name for each in pb.DESCRIPTOR.services_by_name["WorkflowService"].methods}
    assert ROWS.keys() == names
    assert names >= {*METHODS.split()}


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_is_understood_as_clients_of_other_makers_know_it(name: str) -> None:
    names = MESSAGES[name].split()
    wanted = {
        field: (number, TYPES.get(field, FieldDescriptor.TYPE_STRING))
        for number, field in enumerate(names, 1)
    }
    fields = {each.name: (each.number, each.type) for each in message_of(name).fields}
    assert {field: fields.get(field) for field in names} == wanted


def test_the_statuses_of_a_worker_have_their_numbers() -> None:
    for number, name in enumerate(STATUSES):
        assert worker_pb2.WorkerStatus.Value(f"WORKER_STATUS_{name}") == number


def test_a_good_request_has_every_field_that_clients_know() -> None:
    scene = Scene(*[None] * 8)  # type: ignore[arg-type]  # nothing is called
    for method, row in ROWS.items():
        known = MESSAGES.get(f"{method}Request", "").split()
        assert {*known} - {"namespace_id"} <= row.given(scene).keys(), method


@EVERY
async def test_a_good_request_is_answered(scene: Scene, method: str) -> None:
    row = await prepared(scene, method)
    answer = await made(scene, method)
    check(answer, row.answer)
    known = MESSAGES.get(answer.DESCRIPTOR.name, "").split()
    assert {*known} <= {path.partition(".")[0] for path in row.answer}


@EVERY
async def test_a_request_that_is_repeated_does_nothing_twice(scene: Scene, method: str) -> None:
    row = await prepared(scene, method)
    first = await made(scene, method)
    again = ROWS[method].given(scene)
    before = await scene.world.dump()
    if row.repeat == SAME:
        assert await call(scene.wire, method, **again) == first
    elif isinstance(row.repeat, str):
        _, detail = await refused(call(scene.wire, method, **again))
        assert detail.code == row.repeat
    else:
        check(await call(scene.wire, method, **again), row.repeat)
    after = await scene.world.dump()
    if method not in {"DeregisterWorker", "PollActivity"}:
        assert after == before


@pytest.mark.parametrize("method", [each for each in ROWS if ROWS[each].stale])
async def test_an_older_attempt_is_refused(scene: Scene, method: str) -> None:
    await is_refused(scene, method, ROWS[method].stale, "", attempt=1)


@pytest.mark.parametrize("method", [each for each in ROWS if ROWS[each].other])
async def test_another_worker_is_refused(scene: Scene, method: str) -> None:
    await is_refused(scene, method, ROWS[method].other, "", worker_id=scene.other)


@pytest.mark.parametrize("method", [each for each in ROWS if ROWS[each].foreign])
async def test_nothing_of_ours_is_there_in_another_namespace(scene: Scene, method: str) -> None:
    row = await prepared(scene, method)
    if row.foreign != ELSEWHERE:
        await is_refused(scene, method, row.foreign, "", namespace_id=OTHER_NAMESPACE)
        return
    answer = str(await made(scene, method, namespace_id=OTHER_NAMESPACE))
    for ours in (scene.worker, scene.other, scene.run, scene.paused, scene.finished):
        assert ours not in answer


@pytest.mark.parametrize(("method", "changes", "code", "field"), CHANGES)
async def test_a_bad_request_is_refused_by_its_field_and_changes_nothing(
    scene: Scene, method: str, changes: Fields, code: str, field: str
) -> None:
    await is_refused(scene, method, code, field, **changes)


def test_a_row_says_what_every_kind_of_request_needs() -> None:
    for method, row in ROWS.items():
        fields = {each.name for each in request_of(method).DESCRIPTOR.fields}
        assert bool(row.stale) == ("attempt" in fields), method
        assert row.bad or not fields, method
        assert row.foreign or "namespace_id" not in fields, method
