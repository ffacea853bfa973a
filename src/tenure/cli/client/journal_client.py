"""The part of the way to a server that reads whole journals, as they travel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tenure.cli.client.connection import ServerConnection
from tenure.core.limits import PAGE_SIZE_MAX
from tenure.v1 import task_pb2
from tenure.v1 import workflow_service_pb2 as pb
from tenure.v1.workflow_service_pb2_grpc import WorkflowServiceStub

LIVE: Final = ("PENDING", "RUNNING", "CANCELLING", "SLEEPING", "WAITING", "PARKED", "PAUSED")
ENDED: Final = ("COMPLETED", "FAILED", "CANCELLED")


class JournalClient:
    """Reads runs and their journals over the channel of a client."""

    def __init__(self, server: ServerConnection) -> None:
        self._server = server
        self._namespace = server.namespace
        self._stub = WorkflowServiceStub(server.channel)

    def list_runs(self, status: str, type_name: str = "") -> Iterator[pb.WorkflowRun]:
        """Yield the runs of a status, newest first, without payloads; page by page."""
        token = ""
        while True:
            request = pb.ListWorkflowRunsRequest(
                namespace_id=self._namespace,
                workflow_type=type_name,
                filter_status=status,
                page_size=PAGE_SIZE_MAX,
                page_token=token,
            )
            page = self._server.call(
                self._stub.ListWorkflowRuns, request, pb.ListWorkflowRunsResponse
            )
            yield from page.runs
            token = page.next_page_token
            if not token:
                return

    def get_run(self, run_id: str) -> pb.WorkflowRun:
        """Return a run with its payloads."""
        request = pb.GetWorkflowRunRequest(namespace_id=self._namespace, run_id=run_id)
        answer = self._server.call(self._stub.GetWorkflowRun, request, pb.GetWorkflowRunResponse)
        return answer.run

    def pages(self, run_id: str) -> Iterator[task_pb2.JournalPage]:
        """Yield the journal of a run page by page; what is open comes with the first pages."""
        page = self._page(run_id)
        yield page
        open_next = page.open_next
        while open_next:
            more = self._page(run_id, open_after=open_next)
            yield task_pb2.JournalPage(open=more.open)
            open_next = more.open_next
        while page.entries and page.entries[-1].pos < page.end:
            page = self._page(run_id, after=page.entries[-1].pos)
            yield page

    def results(self, run_id: str, group_key: str, after: int) -> task_pb2.JournalPage:
        """Return a page of the results of a group."""
        return self._page(run_id, after=after, group_key=group_key)

    def _page(
        self, run_id: str, *, after: int = 0, group_key: str = "", open_after: str = ""
    ) -> task_pb2.JournalPage:
        request = pb.GetJournalRequest(
            namespace_id=self._namespace,
            run_id=run_id,
            after=after,
            group_key=group_key,
            open_after=open_after,
        )
        return self._server.call(self._stub.GetJournal, request, pb.GetJournalResponse).page
