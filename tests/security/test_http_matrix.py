"""Every route with every id and every principal: exactly those who may, and nobody else's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pytest
from msgspec import inspect

from tenure.api.http.operation import Operation
from tenure.api.http.table import OPERATIONS
from tests.engine.world import OTHER_NAMESPACE
from tests.security.http_table import ID_FIELDS, LATER_FIELDS, PLAIN_FIELDS, ROUTES
from tests.security.row import OK, Place, Where, filled, places
from tests.security.stage import Stage, Who, expected

shared = pytest.mark.asyncio(loop_scope="module")
ROUTE_OF: Final[dict[str, Operation]] = {f"{each.method} {each.path}": each for each in OPERATIONS}
CASES: Final = [pytest.param(route, id=each.name) for route, each in ROUTE_OF.items()]
HEADER: Final = "tenure-namespace"


def _leaves(type_: inspect.Type, path: str) -> Iterator[tuple[str, str, str]]:
    """Return path, struct and name of each text in a query or a body."""
    if isinstance(type_, inspect.Metadata):
        yield from _leaves(type_.type, path)
    elif isinstance(type_, inspect.UnionType):
        for each in type_.types:
            yield from _leaves(each, path)
    elif isinstance(type_, inspect.ListType | inspect.VarTupleType):
        yield from _leaves(type_.item_type, path)
    elif isinstance(type_, inspect.StructType):
        for field in type_.fields:
            for place, struct, name in _leaves(field.type, f"{path}.{field.encode_name}"):
                yield place, struct or type_.cls.__name__, name or field.encode_name
    elif not isinstance(type_, _NO_TEXT):
        yield path, "", ""


_NO_TEXT: Final = (inspect.IntType, inspect.FloatType, inspect.BoolType, inspect.RawType)


def _is_in(fields: frozenset[str], struct: str, name: str) -> bool:
    return name in fields or f"{struct}.{name}" in fields


def test_every_route_is_in_the_table() -> None:
    assert ROUTE_OF.keys() == ROUTES.keys()


@pytest.mark.parametrize("route", CASES)
def test_every_id_that_a_request_can_bear_is_in_its_template(route: str) -> None:
    operation, template = ROUTE_OF[route], ROUTES[route].template
    wanted = {"path"} if "{" in operation.path else set()
    described: list[tuple[str, Any]] = [("query", operation.query)]
    if operation.body is not None and "no" not in (template["body"] or {}):
        described.append(("body", operation.body))
    for part, kind in described:
        for place, struct, name in _leaves(inspect.type_info(kind), part):
            is_id, is_plain = _is_in(ID_FIELDS, struct, name), _is_in(PLAIN_FIELDS, struct, name)
            assert is_id != is_plain, f"{struct}.{name} is not known as an id or as none"
            if is_id and f"{struct}.{name}" not in LATER_FIELDS:
                wanted.add(place)
    assert {each.path for each in places(template)} == wanted
    pattern = re.sub(r"\{\w+\}", "[^/]+", operation.path)
    path = template["path"].replace("$namespace", "a/b")
    assert re.fullmatch(pattern, path), "The template is that of another route"


@shared
@pytest.mark.parametrize("route", CASES)
async def test_exactly_those_who_may_are_let_in(stage: Stage, route: str) -> None:
    row, method = ROUTES[route], ROUTE_OF[route].method
    cast = await stage.cast()
    before = await stage.commit_count()
    allowed = [who for who in stage.everybody if expected(row, who) == row.answer]
    for who in stage.everybody:
        if who not in allowed:
            got = await stage.http(method, filled(row.template, cast), who)
            assert got.code == expected(row, who), (who.name, got.raw)
    assert await stage.commit_count() == before
    for who in allowed:
        cast = await stage.cast() if row.is_change else cast
        got = await stage.http(method, filled(row.template, cast), who)
        assert got.code == row.answer, (who.name, got.raw)
        if who.namespaces == (OTHER_NAMESPACE,) and row.where is Where.OWN:
            assert not [each for each in cast.texts() if each in got.raw]


@shared
@pytest.mark.parametrize("route", CASES)
async def test_a_foreign_namespace_is_told_like_one_that_does_not_exist(
    stage: Stage, route: str
) -> None:
    row, method = ROUTES[route], ROUTE_OF[route].method
    cast, nothing = await stage.cast(), stage.absent()
    for who in stage.everybody:
        if who.namespaces == (OTHER_NAMESPACE,):
            told = await stage.http(method, filled(row.template, cast), who)
            if told.code == "not_found":
                absent = await stage.http(method, filled(row.template, nothing), who)
                assert told.text == absent.text, who.name


SPOTS: Final = [
    pytest.param(route, place, id=f"{ROUTE_OF[route].name}-{place.path}")
    for route, row in ROUTES.items()
    for place in dict.fromkeys(places(row.template))
]
# What a caller may be told of an id that it does not have; names are free to be used by all.
TOLD: Final = {
    "namespace": {"not_found", "permission_denied"},
    "task_cursor": {"invalid_argument"},
    "run_cursor": {"invalid_argument"},
    "step_cursor": {"invalid_argument"},
    "worker_cursor": {"invalid_argument"},
    "queue_cursor": {"invalid_argument"},
    "schedule_cursor": {"invalid_argument"},
    "fire_cursor": {"invalid_argument"},
    # With the cursor of another one.
    "schedule": {"not_found", "invalid_argument"},
    "paused_schedule": {"not_found"},
    "endpoint_cursor": {"invalid_argument"},
    "endpoint": {"not_found"},
    "queue": {"invalid_argument", OK},
    "key": {"not_found", OK},
    "worker": {"not_found"},
    "pending": {"not_found"},
    "held": {"not_found"},
    "paused": {"not_found"},
    "finished": {"not_found"},
    "run": {"not_found"},
    "paused_run": {"not_found"},
    "finished_run": {"not_found"},
    "stepped_run": {"not_found"},
}


@shared
@pytest.mark.parametrize(("route", "place"), SPOTS)
async def test_an_id_of_another_namespace_is_as_one_that_does_not_exist(
    stage: Stage, route: str, place: Place
) -> None:
    row, method = ROUTES[route], ROUTE_OF[route].method
    who = stage.who("admin here")
    theirs, nobody = await stage.foreign(place.name), stage.absent()
    before = await stage.rows(OTHER_NAMESPACE)
    told = []
    for other in (theirs, nobody):
        request = filled(row.template, await stage.cast(), (place, other))
        told.append(await stage.http(method, request, who))
    assert told[0].text == told[1].text
    if row.answer == OK:
        # A filter of a list finds nothing, whatever it names.
        is_filter = place.path in {"query.id", "query.workerId"}
        allowed = {OK} if is_filter else TOLD.get(place.name, {OK})
        assert told[0].code in allowed
    if place.path == "query.namespace":
        await _compare_headers(stage, route, who)
    assert await stage.rows(OTHER_NAMESPACE) == before
    said = told[0].raw.replace(str(getattr(theirs, place.name)), "")
    assert not [each for each in theirs.texts() if each in said]


async def _compare_headers(stage: Stage, route: str, who: Who) -> None:
    """The namespace may also come in the header: it says the same, or nothing is done."""
    row, method = ROUTES[route], ROUTE_OF[route].method
    if route in NO_HEADER:
        return
    told = []
    for namespace in (OTHER_NAMESPACE, stage.absent().namespace):
        request = filled(row.template, await stage.cast())
        both = await stage.http(method, request, who, {HEADER: namespace})
        assert both.code == "invalid_argument"
        del request["query"]["namespace"]
        told.append(await stage.http(method, request, who, {HEADER: namespace}))
    assert told[0].code == "not_found"
    assert told[0].text == told[1].text


# They concern all namespaces of a key; only the query chooses one.
NO_HEADER: Final = {"GET /v1/audit", "GET /v1/diagnosis"}


def test_the_shapes_of_requests_are_known() -> None:
    """A kind of type that is not looked into would hide ids."""
    for each in OPERATIONS:
        for kind in (each.query, each.body):
            # A payload as a body says nothing to the server.
            if kind not in {None, msgspec.Raw}:
                assert issubclass(kind, msgspec.Struct)
