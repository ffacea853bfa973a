"""A diagnosis as a message of the wire."""

from __future__ import annotations

from msgspec import structs

from tenure.engine.read.diagnosis import Diagnosis
from tenure.v1 import admin_service_pb2 as pb


def diagnosis(found: Diagnosis) -> pb.DiagnoseResponse:
    """Show the findings."""
    return pb.DiagnoseResponse(
        findings=[pb.Finding(**structs.asdict(each)) for each in found.findings],
        server_id=found.server_id,
        server_version=found.server_version,
        server_now_ms=found.server_now_ms,
        store_now_ms=found.store_now_ms,
    )
