"""Every RPC with every id and every principal: exactly those who may, and nobody else's."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any, Final

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor

import tenure.v1
from tests.engine.world import OTHER_NAMESPACE
from tests.security.row import OK, WORKERS, Place, Row, Where, filled, places
from tests.security.rpc_table import ID_FIELDS, LATER_FIELDS, PLAIN_FIELDS, RPCS
from tests.security.stage import Stage, expected

shared = pytest.mark.asyncio(loop_scope="module")


# A server calls it; what it refuses is tested with the worker that hosts it.
HOSTED_BY_WORKERS: Final = {"tenure.v1.WorkerService"}


def _services() -> Iterator[MethodDescriptor]:
    """Return the methods of all services that the package has, also of those that are new."""
    for found in pkgutil.iter_modules(tenure.v1.__path__):
        if found.name.endswith("_pb2"):
            file: Any = importlib.import_module(f"tenure.v1.{found.name}").DESCRIPTOR
            for service in file.services_by_name.values():
                if service.full_name not in HOSTED_BY_WORKERS:
                    yield from service.methods


METHODS: Final = {
    f"/{method.containing_service.full_name}/{method.name}": method for method in _services()
}
CASES: Final = [pytest.param(path, id=path.rpartition(".")[2]) for path in METHODS]


def _leaves(message: Descriptor, path: str = "") -> Iterator[tuple[str, str, str]]:
    """Return path, message and name of each text in a request, as its JSON names them."""
    for field in message.fields:
        name = str(field.json_name)
        place = f"{path}.{name}" if path else name
        inner = field.message_type
        if inner is not None and not inner.GetOptions().map_entry:
            if inner.full_name.startswith("tenure."):
                yield from _leaves(inner, place)
        elif inner is not None or field.type == FieldDescriptor.TYPE_STRING:
            yield place, message.name, name


def _is_in(fields: frozenset[str], message: str, name: str) -> bool:
    return name in fields or f"{message}.{name}" in fields


def test_every_method_is_in_the_table() -> None:
    assert METHODS.keys() == RPCS.keys()


@pytest.mark.parametrize("path", CASES)
def test_every_id_that_a_request_can_bear_is_in_its_template(path: str) -> None:
    wanted = set()
    for place, message, name in _leaves(METHODS[path].input_type):
        is_id, is_plain = _is_in(ID_FIELDS, message, name), _is_in(PLAIN_FIELDS, message, name)
        assert is_id != is_plain, f"{message}.{name} is not known as an id or as none"
        if is_id and f"{message}.{name}" not in LATER_FIELDS:
            wanted.add(place)
    assert {each.path for each in places(RPCS[path].template)} == wanted


@shared
@pytest.mark.parametrize("path", CASES)
async def test_exactly_those_who_may_are_let_in(stage: Stage, path: str) -> None:
    row, method = RPCS[path], METHODS[path]
    cast = await stage.cast()
    before = await stage.commit_count()
    allowed = [who for who in stage.everybody if expected(row, who) == row.answer]
    for who in stage.everybody:
        if who not in allowed:
            got = await stage.rpc(method, filled(row.template, cast), who)
            assert got.code == expected(row, who), (who.name, got.raw)
    assert await stage.commit_count() == before
    for who in allowed:
        cast = await stage.cast() if row.is_change else cast
        got = await stage.rpc(method, filled(row.template, cast), who)
        assert got.code == row.answer, (who.name, got.raw)
        if who.namespaces == (OTHER_NAMESPACE,) and row.where is not Where.OPEN:
            assert not [each for each in cast.texts() if each in got.raw]


@shared
@pytest.mark.parametrize("path", CASES)
async def test_a_foreign_namespace_is_told_like_one_that_does_not_exist(
    stage: Stage, path: str
) -> None:
    row, method = RPCS[path], METHODS[path]
    cast, nothing = await stage.cast(), stage.absent()
    for who in stage.everybody:
        if who.namespaces == (OTHER_NAMESPACE,):
            told = await stage.rpc(method, filled(row.template, cast), who)
            if told.code == "not_found":
                absent = await stage.rpc(method, filled(row.template, nothing), who)
                assert told.text == absent.text, who.name


# What workers say of themselves, and of what they hold.
WORKER_CASES: Final = [
    pytest.param(path, id=path.rpartition(".")[2])
    for path, row in RPCS.items()
    if row.roles == WORKERS
    and row.answer == OK
    and {each.name for each in places(row.template)} & {"worker", "session_worker"}
]


@shared
@pytest.mark.parametrize("path", WORKER_CASES)
async def test_a_worker_is_spoken_for_by_its_own_key_and_by_administrators(
    stage: Stage, path: str
) -> None:
    row, method = RPCS[path], METHODS[path]
    owner, others = stage.who("worker here"), stage.who("worker everywhere")
    cast = await stage.cast(owner=owner)
    before, rows = await stage.commit_count(), await stage.rows(cast.namespace)
    got = await stage.rpc(method, filled(row.template, cast), others)
    assert (got.code, '"reason": "other_key"' in got.raw) == ("worker_inactive", True), got.raw
    assert await stage.commit_count() == before
    assert await stage.rows(cast.namespace) == rows
    for who in (owner, stage.who("admin here"), stage.who("admin everywhere")):
        cast = await stage.cast(owner=owner)
        got = await stage.rpc(method, filled(row.template, cast), who)
        assert got.code == row.answer, (who.name, got.raw)


def _bearing(row: Row) -> list[Place]:
    # A task token is a key of its own: it is good wherever it comes from.
    return [each for each in dict.fromkeys(places(row.template)) if each.name != "task_token"]


SPOTS: Final = [
    pytest.param(path, place, id=f"{path.rpartition('.')[2]}-{place.path}")
    for path, row in RPCS.items()
    for place in _bearing(row)
]
# What a caller may be told of an id that it does not have; names are free to be used by all.
TOLD: Final = {
    "namespace": {"not_found", "permission_denied", "ok"},
    "task_cursor": {"invalid_argument"},
    "run_cursor": {"invalid_argument"},
    "step_cursor": {"invalid_argument"},
    "worker_cursor": {"invalid_argument"},
    "queue_cursor": {"invalid_argument"},
    "schedule_cursor": {"invalid_argument"},
    "fire_cursor": {"invalid_argument"},
    # With the cursor of another one.
    "schedule": {"not_found", "invalid_argument"},
    "endpoint_cursor": {"invalid_argument"},
    "endpoint": {"not_found"},
    "queue": {"invalid_argument", OK},
    "worker": {"not_found", "worker_inactive", "attempt_mismatch", OK},
    "session_worker": {"not_found", "worker_inactive"},
    "key": {"not_found", OK},
}
# By its place in a request; inside a stream the namespace must be that of the stream.
TOLD_AT: Final = {"enqueues.request.namespaceId": {"invalid_argument"}}


@shared
@pytest.mark.parametrize(("path", "place"), SPOTS)
async def test_an_id_of_another_namespace_is_as_one_that_does_not_exist(
    stage: Stage, path: str, place: Place
) -> None:
    row, method = RPCS[path], METHODS[path]
    who = stage.who("admin here")
    theirs, nobody = await stage.foreign(place.name), stage.absent()
    before = await stage.rows(OTHER_NAMESPACE)
    told = []
    for other in (theirs, nobody):
        request = filled(row.template, await stage.cast(), (place, other))
        told.append(await stage.rpc(method, request, who))
    assert told[0].text == told[1].text
    assert await stage.rows(OTHER_NAMESPACE) == before
    if row.answer == OK:
        usual = TOLD.get(place.name, {"not_found", "attempt_mismatch", OK})
        assert told[0].code in TOLD_AT.get(place.path, usual)
    # What is said of it was said by the caller: nothing else of the other namespace is shown.
    said = told[0].raw.replace(str(getattr(theirs, place.name)), "")
    assert not [each for each in theirs.texts() if each in said]
