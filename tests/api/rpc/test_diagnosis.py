"""The doctor over gRPC."""

from __future__ import annotations

from tenure import __version__
from tenure.v1 import admin_service_pb2 as pb
from tests.api.rpc.wire import Wire, refused
from tests.engine.world import NAMESPACE, World


async def test_findings_are_told_with_their_levels(world: World, wire: Wire) -> None:
    await wire.enqueue()
    await world.advance(60_000)
    answer = await wire.admin.Diagnose(pb.DiagnoseRequest(client_now_ms=world.clock.now_ms()))
    assert answer.server_version == __version__
    assert answer.store_now_ms == answer.server_now_ms == world.clock.now_ms()
    findings = {each.check: each for each in answer.findings}
    assert findings["orphaned_work"].level == "problem"
    assert findings["orphaned_work"].evidence["namespace"] == NAMESPACE
    assert findings["client_clock"].level == "ok"


async def test_a_namespace_that_is_not_there_is_not_found(wire: Wire) -> None:
    request = pb.DiagnoseRequest(namespace_id="nobody")
    status, refusal = await refused(wire.admin.Diagnose(request))
    assert (status, refusal.code) == ("NOT_FOUND", "not_found")


async def test_a_clock_that_is_none_is_refused(wire: Wire) -> None:
    request = pb.DiagnoseRequest(client_now_ms=-1)
    status, refusal = await refused(wire.admin.Diagnose(request))
    assert (status, refusal.field) == ("INVALID_ARGUMENT", "client_now_ms")
