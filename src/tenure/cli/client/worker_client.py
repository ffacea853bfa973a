"""The part of the way to a server that is about workers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from google.protobuf.duration_pb2 import Duration

from tenure.cli.client.connection import ServerConnection
from tenure.cli.client.request import DrainChoice, StopChoice, WorkerQuery
from tenure.cli.exit_code import ExitCode
from tenure.cli.failure import CliError, refused
from tenure.cli.show import view
from tenure.core.limits import PAGE_SIZE_MAX
from tenure.v1 import admin_service_pb2 as admin_pb
from tenure.v1 import worker_pb2
from tenure.v1 import workflow_service_pb2 as workflow_pb
from tenure.v1.admin_service_pb2_grpc import AdminServiceStub
from tenure.v1.workflow_service_pb2_grpc import WorkflowServiceStub

_ID_LENGTH: Final = 36
# Less of an id says nothing.
_PART_OF_ID: Final = re.compile(r"[0-9a-f-]{4,35}")
_IDS_NAMED_MAX: Final = 3
# The workers that are looked through for a part of an id: the newest 10,000.
_PAGES_MAX: Final = 100


class WorkerClient:
    """Speaks of workers over the channel of a client."""

    def __init__(self, server: ServerConnection) -> None:
        self._call = server.call
        self._namespace = server.namespace
        self._now_ms = server.now_ms
        self._stub = WorkflowServiceStub(server.channel)
        self._admin = AdminServiceStub(server.channel)

    def get_worker(self, worker_id: str) -> view.ShownWorker:
        """Return a worker, with the number of tasks that the server knows it to hold."""
        return view.worker(self._worker(worker_id), self._now_ms())

    def _worker(self, worker_id: str) -> worker_pb2.Worker:
        request = workflow_pb.GetWorkerRequest(namespace_id=self._namespace, worker_id=worker_id)
        return self._call(self._stub.GetWorker, request, workflow_pb.GetWorkerResponse).worker

    def find_id(self, text: str) -> str:
        """Return the id of the one worker whose id begins or ends with a text.

        A whole id is returned as it is, and so is what is no part of one: the server says why.
        """
        if len(text) == _ID_LENGTH or not _PART_OF_ID.fullmatch(text):
            return text
        found = [each for each in self._ids() if each.startswith(text) or each.endswith(text)]
        if len(found) == 1:
            return found[0]
        if not found:
            raise refused("not_found", f"There is no worker with {text!r} in its id.", {})
        some = ", ".join(found[:_IDS_NAMED_MAX])
        raise CliError(
            f"{len(found)} workers have {text!r} in their ids.",
            why=f"It is the begin or the end of {some}{' …' * (len(found) > _IDS_NAMED_MAX)}",
            hint="Give more of the id.",
            exit_code=ExitCode.USAGE,
        )

    def _ids(self) -> Iterator[str]:
        """Return the ids of the newest workers."""
        token = ""
        for _ in range(_PAGES_MAX):
            request = workflow_pb.ListWorkersRequest(
                namespace_id=self._namespace, page_size=PAGE_SIZE_MAX, page_token=token
            )
            answer = self._call(self._stub.ListWorkers, request, workflow_pb.ListWorkersResponse)
            yield from (worker.worker_id for worker in answer.workers)
            token = answer.next_page_token
            if not token:
                return

    def list_workers(self, query: WorkerQuery) -> tuple[list[view.ShownWorker], str]:
        """Return a page of workers and the token of the next one."""
        request = workflow_pb.ListWorkersRequest(
            namespace_id=self._namespace,
            task_queue=query.queue,
            filter_status=query.status,
            labels=query.labels,
            version=query.version,
            page_size=min(query.limit, PAGE_SIZE_MAX),
            page_token=query.page_token,
        )
        answer = self._call(self._stub.ListWorkers, request, workflow_pb.ListWorkersResponse)
        now_ms = self._now_ms()
        return [view.worker(each, now_ms) for each in answer.workers], answer.next_page_token

    def check_stop(self, choice: StopChoice) -> view.ShownStopCheck:
        """Return whether one worker, or all that match, may be stopped."""
        request = admin_pb.CheckStopRequest(
            namespace_id=self._namespace,
            worker_id=choice["worker_id"] or "",
            labels=dict(choice["labels"]),
            version=choice["version"],
        )
        return view.stop_check(
            self._call(self._admin.CheckStop, request, admin_pb.CheckStopResponse)
        )

    def drain(self, choice: DrainChoice) -> list[str]:
        """Let workers finish what they hold and give them nothing new; return their ids."""
        deadline = _duration(choice["deadline_ms"])
        worker_id = choice["worker_id"]
        if worker_id is not None:
            one = admin_pb.DrainWorkerRequest(
                namespace_id=self._namespace, worker_id=worker_id, deadline=deadline
            )
            return [
                self._call(
                    self._admin.DrainWorker, one, admin_pb.DrainWorkerResponse
                ).worker.worker_id
            ]
        several = admin_pb.DrainWorkersRequest(
            namespace_id=self._namespace,
            labels=dict(choice["labels"]),
            version=choice["version"],
            deadline=deadline,
        )
        return list(
            self._call(self._admin.DrainWorkers, several, admin_pb.DrainWorkersResponse).worker_ids
        )

    def evict_worker(self, worker_id: str) -> view.ShownWorker:
        """Take a worker offline, whatever it does."""
        request = admin_pb.EvictWorkerRequest(namespace_id=self._namespace, worker_id=worker_id)
        return view.worker(
            self._call(self._admin.EvictWorker, request, admin_pb.EvictWorkerResponse).worker,
            self._now_ms(),
        )


def _duration(milliseconds: int | None) -> Duration | None:
    if milliseconds is None:
        return None
    duration = Duration()
    duration.FromMilliseconds(milliseconds)
    return duration
