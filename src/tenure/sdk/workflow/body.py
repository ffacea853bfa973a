"""Begins bodies: of async functions on the loop of their run, of plain ones on a thread."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from typing import Any

from tenure.sdk.workflow.context import RunInfo, WorkflowContext
from tenure.sdk.workflow.definition import Workflow
from tenure.sdk.workflow.run import Run
from tenure.sdk.workflow.sync.body_thread import BodyThread, ThreadPort
from tenure.sdk.workflow.sync.context import SyncWorkflowContext


def start_body(
    run: Run,
    port: ThreadPort,
    workflow: Workflow[..., Any],
    info: RunInfo,
    arguments: dict[str, Any],
    context: Context,
) -> BodyThread | None:
    """Let a run have the body of a workflow; return the thread of a plain function."""
    ctx = WorkflowContext(run, info, workflow)
    if workflow.is_async:
        run.start(lambda: workflow.function(ctx, **arguments), context)
        return None
    thread = BodyThread(run, port)
    body = _plain(workflow, SyncWorkflowContext(ctx, thread), arguments)
    run.start(lambda: thread.begin(body, context), context)
    return thread


def _plain(
    workflow: Workflow[..., Any], ctx: SyncWorkflowContext, arguments: dict[str, Any]
) -> Callable[[], Any]:
    return lambda: workflow.function(ctx, **arguments)
