"""The part of the way to a server that reads whole journals, as they travel."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from google.protobuf.message import Message

from tenure.cli.client.connection import ServerConnection
from tenure.cli.failure import CliError
from tenure.core.limits import LISTS_PER_S, PAGE_SIZE_MAX
from tenure.sdk.payload import Payload
from tenure.v1 import task_pb2, task_service_pb2
from tenure.v1 import workflow_service_pb2 as pb
from tenure.v1.task_service_pb2_grpc import TaskServiceStub
from tenure.v1.workflow_service_pb2_grpc import WorkflowServiceStub

LIVE: Final = ("PENDING", "RUNNING", "CANCELLING", "SLEEPING", "WAITING", "PARKED", "PAUSED")
ENDED: Final = ("COMPLETED", "FAILED", "CANCELLED")

Response = TypeVar("Response", bound=Message)
# Whoever looks at lists meanwhile has the other half of what a namespace may ask for.
_PACE_S: Final = 2 / LISTS_PER_S
# So long a call is repeated while the server has a lower limit, or others use it up.
_PATIENCE_S: Final = 30.0
_RETRY_MS: Final = 10


class JournalClient:
    """Reads runs and their journals over the channel of a client, and leaves room for others."""

    def __init__(self, server: ServerConnection) -> None:
        self._server = server
        self._namespace = server.namespace
        self._stub = WorkflowServiceStub(server.channel)
        self._tasks = TaskServiceStub(server.channel)
        self._next_s = 0.0

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
            page = self._call(self._stub.ListWorkflowRuns, request, pb.ListWorkflowRunsResponse)
            yield from page.runs
            token = page.next_page_token
            if not token:
                return

    def get_run(self, run_id: str) -> pb.WorkflowRun:
        """Return a run with its payloads."""
        request = pb.GetWorkflowRunRequest(namespace_id=self._namespace, run_id=run_id)
        answer = self._call(self._stub.GetWorkflowRun, request, pb.GetWorkflowRunResponse)
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

    def child_input(self, task_id: str) -> Payload | None:
        """Return what a task was given; None if it is gone."""
        request = task_service_pb2.GetTaskRequest(namespace_id=self._namespace, task_id=task_id)
        try:
            task = self._call(self._tasks.GetTask, request, task_service_pb2.GetTaskResponse).task
        except CliError as error:
            if error.code != "not_found":
                raise
            return None
        return Payload(task.options.encoding, task.input)

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
        return self._call(self._stub.GetJournal, request, pb.GetJournalResponse).page

    def _call(
        self, method: Callable[..., object], request: Message, kind: type[Response]
    ) -> Response:
        """Call when it is time to, and again while too much is asked for."""
        until_s = time.monotonic() + _PATIENCE_S
        while True:
            now_s = time.monotonic()
            time.sleep(max(0.0, self._next_s - now_s))
            self._next_s = max(self._next_s, now_s) + _PACE_S
            try:
                return self._server.call(method, request, kind)
            except CliError as error:
                if error.code != "rate_limited" or time.monotonic() > until_s:
                    raise
                wait_ms = error.fields.get("retryAfterMs")
                wait_ms = wait_ms if isinstance(wait_ms, int) else _RETRY_MS
                self._next_s = time.monotonic() + wait_ms / 1_000
