"""The part of the way to a server that is about runs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from google.protobuf import empty_pb2
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from tenure.cli.client.connection import ServerConnection
from tenure.cli.client.request import RunSelection, StartOptions
from tenure.cli.exit_code import ExitCode
from tenure.cli.failure import CliError
from tenure.cli.show import explain, run_view
from tenure.core.journal.numbering import BEFORE_ALL_IDS
from tenure.core.limits import PAGE_SIZE_MAX
from tenure.v1 import task_pb2
from tenure.v1 import workflow_service_pb2 as pb
from tenure.v1.workflow_service_pb2_grpc import WorkflowServiceStub

_JSON: Final = "json"
Response = TypeVar("Response", bound=Message)
# What to do next, where it is another command than for a task.
_HINTS: Final = {
    "not_found": "Check the id and --namespace. List the runs: tenure runs ls",
    "task_already_terminal": "See how it ended: tenure runs show ID",
    "wrong_state": "Only a paused or a parked run is resumed, and only a finished one "
    "retried. See its status: tenure runs show ID",
    "payload_too_large": "Store the data elsewhere and send a reference; a signal has at most "
    "256 KiB.",
    "already_exists": "Use another --id, or look at that run: tenure runs show external:ID",
    "idempotency_conflict": "Use another --key or --id, or send the same content.",
}


class RunClient:
    """Speaks of runs over the channel of a client."""

    def __init__(self, server: ServerConnection) -> None:
        self._server = server
        self._namespace = server.namespace
        self._stub = WorkflowServiceStub(server.channel)

    def start(self, type_name: str, options: StartOptions) -> run_view.ShownStarted:
        """Start a run."""
        request = pb.StartWorkflowRequest(
            namespace_id=self._namespace,
            run_id=self._server.clock.new_id(),
            workflow_type=type_name,
            task_queue=options["queue"],
            options=_run_options(options),
            input=options["input"] or b"",
            priority=options["priority"],
            labels=dict(options["labels"]),
            idempotency_key=options["key"],
            external_id=options["external_id"],
            on_live=options["on_live"],
            on_finished=options["on_finished"],
        )
        run_at_ms = options["at_ms"] or 0
        if options["delay_ms"]:
            run_at_ms = self._server.now_ms() + options["delay_ms"]
        if run_at_ms:
            request.run_at.FromMilliseconds(run_at_ms)
        with _hints():
            answer = self._server.call_new(
                self._stub.StartWorkflow, request, pb.StartWorkflowResponse, f"run {request.run_id}"
            )
        return run_view.started(answer)

    def get_run(self, run_id: str) -> run_view.ShownRun:
        """Return a run as it stands."""
        request = pb.GetWorkflowRunRequest(namespace_id=self._namespace, run_id=run_id)
        answer = self._call(self._stub.GetWorkflowRun, request, pb.GetWorkflowRunResponse)
        return run_view.run(answer.run)

    def list_runs(self, query: RunSelection) -> tuple[list[run_view.ShownRun], str]:
        """Return a page of runs and the token of the next one."""
        request = pb.ListWorkflowRunsRequest(
            namespace_id=self._namespace,
            task_queue=query.queue,
            workflow_type=query.type,
            filter_status=query.status,
            labels=query.labels,
            created_from=_stamp(query.created_from_ms),
            created_to=_stamp(query.created_to_ms),
            external_id_prefix=query.external_id,
            page_size=min(query.limit, PAGE_SIZE_MAX),
            page_token=query.page_token,
        )
        answer = self._call(self._stub.ListWorkflowRuns, request, pb.ListWorkflowRunsResponse)
        return [run_view.run(each) for each in answer.runs], answer.next_page_token

    def read_journal(self, run_id: str, *, after: int = 0) -> Iterator[run_view.ShownEntry]:
        """Yield the entries of a journal behind a position, page by page as they are taken."""
        end = after + 1
        while after < end:
            request = pb.GetJournalRequest(namespace_id=self._namespace, run_id=run_id, after=after)
            page = self._call(self._stub.GetJournal, request, pb.GetJournalResponse).page
            yield from map(run_view.entry, page.entries)
            if not page.entries:
                return
            after, end = page.entries[-1].pos, page.end

    def read_open(self, run_id: str) -> list[run_view.ShownOpenChild]:
        """Return the first 1,000 children of a run that have not ended."""
        request = pb.GetJournalRequest(
            namespace_id=self._namespace, run_id=run_id, open_after=BEFORE_ALL_IDS
        )
        page = self._call(self._stub.GetJournal, request, pb.GetJournalResponse).page
        return [run_view.open_child(each) for each in page.open]

    def explain_run(self, run_id: str) -> explain.ShownRunExplanation:
        """Return why a run does not go on now."""
        request = pb.ExplainWorkflowRunRequest(namespace_id=self._namespace, run_id=run_id)
        answer = self._call(self._stub.ExplainWorkflowRun, request, pb.ExplainWorkflowRunResponse)
        return explain.run_explanation(answer, run_view.status_name(answer.status))

    def cancel_run(self, run_id: str, reason: str) -> str:
        """Ask for the end of a run; return its status."""
        request = pb.CancelWorkflowRunRequest(
            namespace_id=self._namespace, run_id=run_id, reason=reason
        )
        self._call(self._stub.CancelWorkflowRun, request, empty_pb2.Empty)
        return self.get_run(run_id).status

    def resume_run(self, run_id: str) -> str:
        """Let a paused run go on, and try a parked one; return its status."""
        request = pb.ResumeWorkflowRunRequest(namespace_id=self._namespace, run_id=run_id)
        return self._changed(self._stub.ResumeWorkflowRun, request)

    def resume_parked(self, type_name: str) -> int:
        """Try all parked runs, page by page; return how many there were."""
        resumed, token = 0, None
        while token != "":
            query = RunSelection(
                status="PARKED", type=type_name, limit=PAGE_SIZE_MAX, page_token=token or ""
            )
            found, token = self.list_runs(query)
            for each in found:
                resumed += self._try(each.run_id)
        return resumed

    def _try(self, run_id: str) -> bool:
        """Try a parked run; False if it goes on already, or has ended."""
        try:
            self.resume_run(run_id)
        except CliError as error:
            if error.end not in (ExitCode.CONFLICT, ExitCode.NOT_FOUND):
                raise
            return False
        return True

    def terminate_run(self, run_id: str) -> str:
        """End a run without asking its code; return its status."""
        request = pb.TerminateWorkflowRunRequest(namespace_id=self._namespace, run_id=run_id)
        return self._changed(self._stub.TerminateWorkflowRun, request)

    def retry_run(self, run_id: str, from_step: str, from_position: int) -> run_view.ShownRetried:
        """Make a new run from a finished one; return its id and what it keeps."""
        request = pb.RetryWorkflowRunRequest(
            namespace_id=self._namespace,
            run_id=self.get_run(run_id).run_id,
            from_step=from_step,
            from_position=from_position,
            new_run_id=self._server.clock.new_id(),
        )
        answer = self._call(self._stub.RetryWorkflowRun, request, pb.RetryWorkflowRunResponse)
        return run_view.ShownRetried(answer.run_id, request.run_id, answer.kept_entries)

    def signal_run(self, run_id: str, name: str, payload: bytes | None, signal_id: str) -> bool:
        """Send a signal; return whether it is new."""
        encoding = "" if payload is None else _JSON
        signal = pb.NewSignal(name=name, payload=payload, encoding=encoding, signal_id=signal_id)
        request = pb.SignalWorkflowRunRequest(
            namespace_id=self._namespace, run_id=run_id, signal=signal
        )
        answer = self._call(self._stub.SignalWorkflowRun, request, pb.SignalWorkflowRunResponse)
        return answer.is_new

    def _changed(self, method: Callable[..., object], request: Message) -> str:
        answer = self._call(method, request, pb.ChangeWorkflowRunResponse)
        return run_view.status_name(answer.status)

    def _call(
        self, method: Callable[..., object], request: Message, kind: type[Response]
    ) -> Response:
        with _hints():
            return self._server.call(method, request, kind)


@contextlib.contextmanager
def _hints() -> Iterator[None]:
    """Advise what helps with runs."""
    try:
        yield
    except CliError as error:
        error.hint = _HINTS.get(error.code, error.hint)
        raise


def _run_options(options: StartOptions) -> task_pb2.TaskOptions:
    return task_pb2.TaskOptions(
        kind=task_pb2.TASK_KIND_WORKFLOW,
        schedule_to_close_ms=options["schedule_to_close_ms"] or 0,
        retry=task_pb2.RetryPolicy(maximum_attempts=options["max_attempts"]),
        encoding=_JSON,
    )


def _stamp(at_ms: int | None) -> Timestamp | None:
    if at_ms is None:
        return None
    made = Timestamp()
    made.FromMilliseconds(at_ms)
    return made
