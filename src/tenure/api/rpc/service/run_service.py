"""Runs over gRPC: the calls of the workflow service that start, show and change them."""

from __future__ import annotations

from google.protobuf import empty_pb2
from msgspec.structs import replace

from tenure.api.guard.access import actor
from tenure.api.guard.scope import scope
from tenure.api.paging import requested_page
from tenure.api.rpc.context import Context
from tenure.api.rpc.service_spec import EngineService, ServiceDependencies
from tenure.api.rpc.view import journal_view, run_view, task_view
from tenure.core.filter import RunFilter
from tenure.core.run.status import status_at
from tenure.engine.read import run as run_read
from tenure.engine.run import command as c
from tenure.v1 import workflow_service_pb2 as pb

_OfRun = (
    pb.CancelWorkflowRunRequest
    | pb.SignalWorkflowRunRequest
    | pb.ResumeWorkflowRunRequest
    | pb.TerminateWorkflowRunRequest
)


class RunService(EngineService):
    """The life of runs, as clients and operators see it."""

    def __init__(self, shared: ServiceDependencies) -> None:
        """Remember the options of runs."""
        super().__init__(shared)
        self._run_specs = task_view.SpecReader(run_view.read_options)

    async def StartWorkflow(
        self, request: pb.StartWorkflowRequest, context: Context
    ) -> pb.StartWorkflowResponse:
        """Start a run; the same idempotency key again returns the same one."""
        namespace = scope(request.namespace_id)
        run_id = request.run_id or self._engine.clock.new_id()
        command = c.StartRun(
            namespace=namespace,
            new=run_view.new_run(request, run_id, self._run_specs),
            signals=tuple(run_view.signal(each) for each in request.signals),
            is_resend=request.is_resend,
            external_id=request.external_id,
            on_live=run_view.on_live(request.on_live),
            on_finished=run_view.on_finished(request.on_finished),
        )
        self._allowance.enqueues.take(namespace)
        answer = await self._engine.submit(command)
        return pb.StartWorkflowResponse(
            run_id=answer.task_id,
            already_exists=not answer.is_new,
            status=run_view.STATUSES[status_at(answer.state, answer.outcome)],
            content_differs=answer.content_differs,
        )

    async def GetWorkflowRun(
        self, request: pb.GetWorkflowRunRequest, context: Context
    ) -> pb.GetWorkflowRunResponse:
        """Show a run, live or finished."""
        view = await run_read.get_run(
            self._engine.store, namespace=scope(request.namespace_id), run_id=request.run_id
        )
        return pb.GetWorkflowRunResponse(run=run_view.shown(view))

    async def ListWorkflowRuns(
        self, request: pb.ListWorkflowRunsRequest, context: Context
    ) -> pb.ListWorkflowRunsResponse:
        """List runs, newest first, without their payloads, and their number."""
        namespace = scope(request.namespace_id)
        self._allowance.lists.take(namespace)
        page = await run_read.list_runs(
            self._engine.store,
            namespace=namespace,
            page=requested_page(self._engine, request, wants_total=True),
            where=_filter(request),
        )
        return pb.ListWorkflowRunsResponse(
            runs=[run_view.listed(each) for each in page.items],
            next_page_token=page.next_page_token,
            total_count=page.total_count or 0,
            is_total_exact=page.is_total_exact,
        )

    async def GetJournal(
        self, request: pb.GetJournalRequest, context: Context
    ) -> pb.GetJournalResponse:
        """Show a page of the journal of a run, or of a group; it reads as much as a list does."""
        namespace = scope(request.namespace_id)
        self._allowance.lists.take(namespace)
        page = await run_read.read_journal(
            self._engine.store,
            namespace=namespace,
            run_id=request.run_id,
            after=request.after,
            group_key=request.group_key,
            open_after=request.open_after,
        )
        return pb.GetJournalResponse(page=journal_view.page(request.run_id, 0, page))

    async def CancelWorkflowRun(
        self, request: pb.CancelWorkflowRunRequest, context: Context
    ) -> empty_pb2.Empty:
        """Ask a run to end; its code may clean up."""
        namespace, run_id = await self._named(request)
        command = c.CancelRun(
            namespace=namespace, run_id=run_id, reason=request.reason, actor=actor()
        )
        await self._engine.submit(command)
        return empty_pb2.Empty()

    async def SignalWorkflowRun(
        self, request: pb.SignalWorkflowRunRequest, context: Context
    ) -> pb.SignalWorkflowRunResponse:
        """Send a signal to a run; one with an id is recorded once."""
        namespace, run_id = await self._named(request)
        command = c.SignalRun(
            namespace=namespace, run_id=run_id, signal=run_view.signal(request.signal)
        )
        # It is stored like a task is.
        self._allowance.enqueues.take(command.namespace)
        answer = await self._engine.submit(command)
        return pb.SignalWorkflowRunResponse(is_new=answer.is_new)

    async def ResumeWorkflowRun(
        self, request: pb.ResumeWorkflowRunRequest, context: Context
    ) -> pb.ChangeWorkflowRunResponse:
        """Let a paused run go on, and try a parked one at once."""
        namespace, run_id = await self._named(request)
        command = c.ResumeRun(namespace=namespace, run_id=run_id, actor=actor())
        return await self._change(command)

    async def TerminateWorkflowRun(
        self, request: pb.TerminateWorkflowRunRequest, context: Context
    ) -> pb.ChangeWorkflowRunResponse:
        """End a run without asking its code."""
        namespace, run_id = await self._named(request)
        command = c.TerminateRun(namespace=namespace, run_id=run_id, actor=actor())
        return await self._change(command)

    async def RetryWorkflowRun(
        self, request: pb.RetryWorkflowRunRequest, context: Context
    ) -> pb.RetryWorkflowRunResponse:
        """Make a new run from a finished one; what was recorded before a step is kept."""
        namespace = scope(request.namespace_id)
        self._allowance.enqueues.take(namespace)
        command = await run_read.plan_retry(
            self._engine.store,
            namespace=namespace,
            run_id=request.run_id,
            new_run_id=request.new_run_id or self._engine.clock.new_id(),
            from_step=request.from_step,
            from_position=request.from_position,
        )
        answer = await self._engine.submit(replace(command, actor=actor()))
        return pb.RetryWorkflowRunResponse(run_id=answer.task_id, kept_entries=answer.kept_count)

    async def _named(self, request: _OfRun) -> tuple[str, str]:
        """Return the namespace and the run of a request, which may name it by its external id."""
        namespace = scope(request.namespace_id)
        run_id = await run_read.run_named(
            self._engine.store, namespace=namespace, run_id=request.run_id
        )
        return namespace, run_id

    async def _change(self, command: c.ResumeRun | c.TerminateRun) -> pb.ChangeWorkflowRunResponse:
        answer = await self._engine.submit(command)
        # Neither leaves a run waiting.
        return pb.ChangeWorkflowRunResponse(status=run_view.STATUSES[status_at(answer.state, None)])


def _filter(request: pb.ListWorkflowRunsRequest) -> RunFilter:
    return RunFilter(
        queue=request.task_queue,
        type=request.workflow_type,
        status=run_view.status(request.filter_status),
        labels=dict(request.labels),
        created_from_ms=run_view.given_instant_ms(request, "created_from"),
        created_to_ms=run_view.given_instant_ms(request, "created_to"),
        external_id_prefix=request.external_id_prefix,
    )
