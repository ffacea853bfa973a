"""Whose findings a key is told of."""

from __future__ import annotations

import pytest

from tenure.v1 import admin_service_pb2 as pb
from tests.api.access.keyed_server import NAMESPACE, KeyedServer, shown
from tests.engine.world import OTHER_NAMESPACE


async def findings(lobby: KeyedServer, key: str, **fields: str) -> dict[str, pb.Finding]:
    request = pb.DiagnoseRequest(**fields)  # type: ignore[arg-type]  # all of them are texts
    answer = await lobby.wire.admin.Diagnose(request, metadata=shown(key))
    return {each.check: each for each in answer.findings}


async def test_a_key_of_some_namespaces_sees_their_findings_alone(small: KeyedServer) -> None:
    await small.world.add(small.engine)
    await small.world.advance(60_000)
    mine = await small.make_key("admin", NAMESPACE)
    theirs = await small.make_key("admin", OTHER_NAMESPACE)
    everything = await small.make_key("admin")
    assert (await findings(small, mine))["orphaned_work"].level == "problem"
    assert (await findings(small, theirs))["orphaned_work"].level == "ok"
    assert "disk" not in await findings(small, mine)
    assert {"disk", "orphaned_work"} <= (await findings(small, everything)).keys()


async def test_another_namespace_is_not_found_over_both_edges(small: KeyedServer) -> None:
    key = await small.make_key("admin", NAMESPACE)
    request = pb.DiagnoseRequest(namespace_id=OTHER_NAMESPACE)
    call = small.wire.admin.Diagnose(request, metadata=shown(key))
    assert await small.refused(call) == ("NOT_FOUND", "not_found")
    path = f"/v1/diagnosis?namespace={OTHER_NAMESPACE}"
    assert await small.code("GET", path, key) == (404, "not_found")
    assert await small.code("GET", f"/v1/diagnosis?namespace={NAMESPACE}", key) == (200, "")


@pytest.mark.parametrize("role", ["client", "worker", "viewer"])
async def test_other_roles_are_not_told_at_all(small: KeyedServer, role: str) -> None:
    key = await small.make_key(role)
    assert await small.code("GET", "/v1/diagnosis", key) == (403, "permission_denied")
    call = small.wire.admin.Diagnose(pb.DiagnoseRequest(), metadata=shown(key))
    assert await small.refused(call) == ("PERMISSION_DENIED", "permission_denied")


async def test_a_viewer_may_ask_why_a_task_is_not_running(small: KeyedServer) -> None:
    (task_id,) = await small.world.add(small.engine)
    viewer = await small.make_key("viewer", NAMESPACE)
    stranger = await small.make_key("admin", OTHER_NAMESPACE)
    path = f"/v1/tasks/{task_id}/explain"
    assert await small.code("GET", path, viewer) == (200, "")
    assert await small.code("GET", path, stranger) == (404, "not_found")
    assert await small.code("GET", path) == (401, "unauthenticated")
