"""Reads the journal of a run from a server, page by page."""

from __future__ import annotations

import grpc

from tenure.v1 import workflow_service_pb2 as pb
from tenure.v1.workflow_service_pb2_grpc import WorkflowServiceStub
from tests.bounds import ANSWER_S

NAMESPACE = "default"


async def positions_of(target: str, run_id: str) -> list[int]:
    """Return the positions of all entries, as they come."""
    positions: list[int] = []
    async with grpc.aio.insecure_channel(target) as channel:
        stub = WorkflowServiceStub(channel)
        while True:
            after = positions[-1] if positions else 0
            request = pb.GetJournalRequest(namespace_id=NAMESPACE, run_id=run_id, after=after)
            page = (await stub.GetJournal(request, timeout=ANSWER_S)).page
            positions += [entry.pos for entry in page.entries]
            if not page.entries or positions[-1] >= page.end:
                return positions
