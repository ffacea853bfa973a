"""Reports of a worker as calls of their own: in poll mode, and at the end of a worker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from tenure.errors import TenureError, WorkerInactive
from tenure.sdk.worker.connection import method
from tenure.sdk.worker.connection.held_attempts import Ref, Reports
from tenure.sdk.worker.connection.passing import is_denied, is_passing
from tenure.sdk.worker.connection.run_reports import RunMessages
from tenure.sdk.worker.executor_protocol import ChildReport
from tenure.v1 import journal_pb2, task_pb2
from tenure.v1 import task_service_pb2 as task_pb
from tenure.v1.error_pb2 import ErrorDetail

if TYPE_CHECKING:
    from tenure.sdk.worker.connection.incarnation import Incarnation

Attempted = task_pb2.TaskRef | task_pb2.TaskBeat | task_pb2.TaskFinish | journal_pb2.StepReport
Item = TypeVar(
    "Item",
    task_pb2.TaskRef,
    task_pb2.TaskBeat,
    task_pb2.TaskFinish,
    journal_pb2.StepReport,
    journal_pb2.SpawnReport,
    journal_pb2.ChildCancel,
    journal_pb2.JournalRequest,
)


class ReportCalls:
    """Reports by calls, and passes the answers on."""

    def __init__(self, incarnation: Incarnation) -> None:
        """Report for one incarnation."""
        self._me = incarnation

    async def report(self, reports: Reports) -> None:
        """Report started attempts, then heartbeats, then runs, then ended attempts."""
        me = self._me
        if reports.started:
            await _each(self._start_tasks, reports.started, _by_ref(me.refused))
        if reports.beats:
            await _each(self._beat_tasks, reports.beats, _by_ref(me.refused))
        await self._report_runs(reports.runs)
        if reports.finished:
            await _each(self._finish_tasks, reports.finished, _by_ref(me.answered))

    async def _report_runs(self, runs: RunMessages) -> None:
        """Report all of it together. If that is refused, report each kind alone."""
        if not (runs.steps or runs.children or runs.requests):
            return
        request = task_pb.ReportRunsRequest(
            steps=runs.steps,
            spawns=runs.spawns,
            child_cancels=runs.child_cancels,
            journal=runs.requests,
        )
        try:
            await self._ask_about_runs(request)
        except TenureError as error:
            _raise_if_general(error)
            await self._report_runs_apart(runs)

    async def _report_runs_apart(self, runs: RunMessages) -> None:
        if runs.steps:
            await _each(self._record_steps, runs.steps, _by_ref(self._me.steps_refused))
        if spawns := runs.spawns:
            await _each(self._spawn, spawns, self._children_refused)
        if cancels := runs.child_cancels:
            await _each(self._cancel_children, cancels, self._children_refused)
        if runs.requests:
            await _each(self._fetch_pages, runs.requests, self._page_refused)

    async def _start_tasks(self, items: Sequence[task_pb2.TaskRef]) -> None:
        me = self._me
        request = task_pb.StartTasksRequest(
            namespace_id=me.setup.namespace, worker_id=me.worker_id, items=items
        )
        answer = await me.ask(method.START_TASKS, request, timeout_s=method.CALL_S)
        self._take_results(
            items,
            answer.results,
            lambda ref, result: me.accepted(ref, is_exclusive=result.exclusive),
        )

    async def _beat_tasks(self, items: Sequence[task_pb2.TaskBeat]) -> None:
        me = self._me
        request = task_pb.HeartbeatTasksRequest(
            namespace_id=me.setup.namespace, worker_id=me.worker_id, items=items
        )
        answer = await me.ask(method.HEARTBEAT_TASKS, request, timeout_s=method.CALL_S)
        self._take_results(
            items, answer.results, lambda ref, _: me.held_attempts.exclusives.beat_accepted(ref)
        )

    def _take_results(
        self,
        items: Iterable[task_pb2.TaskRef | task_pb2.TaskBeat],
        results: Iterable[task_pb.ReportResult],
        accept: Callable[[Ref, task_pb.ReportResult], None],
    ) -> None:
        for item, result in zip(items, results, strict=True):
            ref = (item.task_id, item.attempt)
            if result.HasField("error"):
                self._me.refused(ref, result.error)
                continue
            if result.should_cancel:
                self._me.cancel([ref])
            accept(ref, result)

    async def _record_steps(self, items: Sequence[journal_pb2.StepReport]) -> None:
        await self._ask_about_runs(task_pb.ReportRunsRequest(steps=items))

    async def _spawn(self, items: Sequence[journal_pb2.SpawnReport]) -> None:
        await self._ask_about_runs(task_pb.ReportRunsRequest(spawns=items))

    async def _cancel_children(self, items: Sequence[journal_pb2.ChildCancel]) -> None:
        await self._ask_about_runs(task_pb.ReportRunsRequest(child_cancels=items))

    async def _fetch_pages(self, items: Sequence[journal_pb2.JournalRequest]) -> None:
        await self._ask_about_runs(task_pb.ReportRunsRequest(journal=items))

    async def _ask_about_runs(self, request: task_pb.ReportRunsRequest) -> None:
        me = self._me
        request.namespace_id, request.worker_id = me.setup.namespace, me.worker_id
        answer = await me.ask(method.REPORT_RUNS, request, timeout_s=method.CALL_S)
        me.take_entries(answer.step_acks, answer.pages, answer.child_acks)

    def _children_refused(self, item: ChildReport, error: ErrorDetail) -> None:
        ack = journal_pb2.ChildAck(
            task_id=item.task_id, attempt=item.attempt, number=item.number, error=error
        )
        self._me.take_entries((), (), [ack])

    def _page_refused(self, item: journal_pb2.JournalRequest, error: ErrorDetail) -> None:
        page = task_pb2.JournalPage(
            task_id=item.task_id,
            attempt=item.attempt,
            after=item.after,
            group_key=item.group_key,
            error=error,
        )
        self._me.page_refused(page)

    async def _finish_tasks(self, items: Sequence[task_pb2.TaskFinish]) -> None:
        me = self._me
        request = task_pb.FinishTasksRequest(
            namespace_id=me.setup.namespace, worker_id=me.worker_id, items=items
        )
        answer = await me.ask(method.FINISH_TASKS, request, timeout_s=method.CALL_S)
        for item, result in zip(items, answer.results, strict=True):
            error = result.error if result.HasField("error") else None
            me.answered((item.task_id, item.attempt), error, result.state)


def _by_ref(refuse: Callable[[Ref, ErrorDetail], None]) -> Callable[[Attempted, ErrorDetail], None]:
    """Return what refuses a report of an attempt."""
    return lambda item, error: refuse((item.task_id, item.attempt), error)


def _raise_if_general(error: TenureError) -> None:
    """Raise a refusal that says nothing about what was reported."""
    if is_passing(error) or is_denied(error) or isinstance(error, WorkerInactive):
        raise error


async def _each(
    send: Callable[[Sequence[Item]], Awaitable[None]],
    items: Sequence[Item],
    refuse: Callable[[Item, ErrorDetail], None],
) -> None:
    """Report items together. If the whole call is refused, report each alone."""
    try:
        await send(items)
    except TenureError as error:
        _raise_if_general(error)
        if len(items) == 1:
            refuse(items[0], ErrorDetail(code=error.code, message=error.message))
            return
        for item in items:
            await _each(send, [item], refuse)
