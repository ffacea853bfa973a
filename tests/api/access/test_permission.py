"""The tables of what each call needs are complete, and both edges go by them."""

from __future__ import annotations

import re
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from tenure.api.http.table import OPERATIONS
from tenure.api.rpc.permission import Scope
from tenure.api.rpc.table import OPEN_METHODS, RULES
from tenure.core.access.api_key import Role
from tenure.core.access.permission import allows
from tenure.v1 import (
    admin_service_pb2,
    schedule_service_pb2,
    session_service_pb2,
    task_service_pb2,
    workflow_service_pb2,
)
from tests.api.access.keyed_server import FREE, KeyedServer, shown
from tests.api.rpc.wire import detail

FILES = (
    admin_service_pb2,
    schedule_service_pb2,
    session_service_pb2,
    task_service_pb2,
    workflow_service_pb2,
    health_pb2,
    reflection_pb2,
)
METHODS = {
    f"/{service.full_name}/{method.name}": method
    for file in FILES
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
STREAMS = {path for path, method in METHODS.items() if method.client_streaming}


def test_every_method_of_every_service_is_in_the_table() -> None:
    assert METHODS.keys() == RULES.keys() | OPEN_METHODS
    assert not RULES.keys() & OPEN_METHODS


def test_a_method_that_takes_a_namespace_is_bound_to_it() -> None:
    for path, rule in RULES.items():
        fields = METHODS[path].input_type.fields_by_name
        if rule.scope is Scope.HELLO:
            assert "namespace_id" in fields["hello"].message_type.fields_by_name
        else:
            assert ("namespace_id" in fields) == (rule.scope is not Scope.NONE), path


def test_only_the_health_of_the_server_needs_no_key_over_http() -> None:
    free = [each for each in OPERATIONS if each.action is None and not each.has_task_token]
    assert tuple(each.path for each in free) == FREE


@pytest.mark.parametrize("role", Role)
async def test_a_role_may_call_what_the_table_says_over_grpc(
    small: KeyedServer, role: Role
) -> None:
    key = await small.make_key(role)
    for path in METHODS.keys() - STREAMS - {"/grpc.health.v1.Health/Watch"}:
        is_allowed = path in OPEN_METHODS or allows(role, RULES[path].action)
        assert await _is_denied(small, path, key) != is_allowed, path


async def _is_denied(lobby: KeyedServer, path: str, key: str) -> bool:
    call: Any = lobby.wire.channel.unary_unary(path)
    try:
        await call(b"", metadata=shown(key))
    except grpc.aio.AioRpcError as failure:
        # What has no worker waits for none.
        return failure.code() is grpc.StatusCode.PERMISSION_DENIED and bool(detail(failure))
    return False


@pytest.mark.parametrize("role", Role)
async def test_a_role_may_ask_for_what_the_table_says_over_http(
    small: KeyedServer, role: Role
) -> None:
    key = await small.make_key(role)
    for each in OPERATIONS:
        path = re.sub(r"\{\w+\}", "x", each.path)
        if each.media_type == "text/event-stream" and each.path == "/v1/events":
            continue
        if each.has_task_token:
            # No key opens it.
            continue
        is_allowed = each.action is None or allows(role, each.action)
        answer = await small.http(each.method, path, key)
        assert (answer.status_code == 403) != is_allowed, (each.method, path, answer.text)
        assert answer.status_code != 401, path
