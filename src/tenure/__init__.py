"""Tenure: durable tasks and workflows, with workers you can trust.

This module has every public name of the SDK. Each name is loaded with its first use, so
``import tenure`` alone is cheap. A client never loads the server.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tenure.core.run.status import RunStatus
    from tenure.core.run.step_attempt import StepKind, StepStatus
    from tenure.core.schedule.record import ScheduleState
    from tenure.core.task.record import TaskKind, TaskState
    from tenure.core.task.retry import ErrorCategory
    from tenure.errors import TenureError
    from tenure.sdk.activity.context import Info, Stopped, StopReason
    from tenure.sdk.activity.decorator import ActivityDecorator, activity
    from tenure.sdk.activity.definition import Activity, AsyncActivity, Call, SyncActivity
    from tenure.sdk.activity.option import ActivitySettings, OneCallSettings, RetryPolicy
    from tenure.sdk.client import (
        AttemptInfo,
        BackfillResult,
        Client,
        Completion,
        ExplainedReason,
        ExplainedTask,
        Explanation,
        Handle,
        HeartbeatAnswer,
        HeartbeatDetails,
        OnProgress,
        Overlap,
        PlannedFire,
        RunDescription,
        RunExplanation,
        RunGroup,
        RunHandle,
        RunStep,
        RunWait,
        Schedule,
        ScheduleFire,
        ScheduleInfo,
        Schedules,
        StepItems,
        TaskInfo,
        TaskProgress,
    )
    from tenure.sdk.duration import Duration
    from tenure.sdk.failure import (
        ApplicationError,
        CancelTimedOut,
        ChildFailed,
        RemoteError,
        StepFailed,
        TaskCancelled,
        TaskFailed,
        TaskPoisoned,
        TaskTerminated,
        TaskTimedOut,
        WorkerEvicted,
        WorkersLost,
        WorkerSuperseded,
    )
    from tenure.sdk.payload import Codec, Payload, PayloadError
    from tenure.sdk.sync_client import SyncClient, SyncCompletion, SyncHandle, SyncRunHandle
    from tenure.sdk.sync_schedules import SyncSchedules
    from tenure.sdk.transport.tls import TLS
    from tenure.sdk.worker.worker import Worker, WorkerOptions
    from tenure.sdk.workflow.child import ChildRun, OnCancel, OnClose, OnError
    from tenure.sdk.workflow.context import RunInfo, WorkflowContext, WorkflowLog
    from tenure.sdk.workflow.definition import (
        Changes,
        OneRunSettings,
        Workflow,
        WorkflowDecorator,
        WorkflowSettings,
        workflow,
    )
    from tenure.sdk.workflow.guard import NotDurable
    from tenure.sdk.workflow.outside_signal import ExternalRun
    from tenure.sdk.workflow.results import Results
    from tenure.sdk.workflow.signal import Signal, signal
    from tenure.sdk.workflow.step import Step, StepSettings, step
    from tenure.sdk.workflow.sync.context import (
        ReturnWhen,
        SyncWorkflowContext,
        SyncWorkflowLog,
        Waited,
    )
    from tenure.sdk.workflow.sync.results import SyncResults
    from tenure.sdk.workflow.sync.step import SyncChildRun, SyncExternalRun, SyncStep

__version__ = "0.1.0"

_HOME = {
    "TLS": "tenure.sdk.transport.tls",
    "Activity": "tenure.sdk.activity.definition",
    "ActivityDecorator": "tenure.sdk.activity.decorator",
    "ActivitySettings": "tenure.sdk.activity.option",
    "ApplicationError": "tenure.sdk.failure",
    "AsyncActivity": "tenure.sdk.activity.definition",
    "AttemptInfo": "tenure.sdk.client",
    "BackfillResult": "tenure.sdk.client",
    "Call": "tenure.sdk.activity.definition",
    "CancelTimedOut": "tenure.sdk.failure",
    "Changes": "tenure.sdk.workflow.definition",
    "ChildFailed": "tenure.sdk.failure",
    "ChildRun": "tenure.sdk.workflow.child",
    "Client": "tenure.sdk.client",
    "Codec": "tenure.sdk.payload",
    "Completion": "tenure.sdk.client",
    "Duration": "tenure.sdk.duration",
    "ErrorCategory": "tenure.core.task.retry",
    "ExplainedReason": "tenure.sdk.client",
    "ExplainedTask": "tenure.sdk.client",
    "Explanation": "tenure.sdk.client",
    "ExternalRun": "tenure.sdk.workflow.outside_signal",
    "Handle": "tenure.sdk.client",
    "HeartbeatAnswer": "tenure.sdk.client",
    "HeartbeatDetails": "tenure.sdk.client",
    "Info": "tenure.sdk.activity.context",
    "NotDurable": "tenure.sdk.workflow.guard",
    "OnCancel": "tenure.sdk.workflow.child",
    "OnClose": "tenure.sdk.workflow.child",
    "OnError": "tenure.sdk.workflow.child",
    "OnProgress": "tenure.sdk.client",
    "OneCallSettings": "tenure.sdk.activity.option",
    "OneRunSettings": "tenure.sdk.workflow.definition",
    "Overlap": "tenure.sdk.client",
    "Payload": "tenure.sdk.payload",
    "PayloadError": "tenure.sdk.payload",
    "PlannedFire": "tenure.sdk.client",
    "RemoteError": "tenure.sdk.failure",
    "Results": "tenure.sdk.workflow.results",
    "RetryPolicy": "tenure.sdk.activity.option",
    "ReturnWhen": "tenure.sdk.workflow.sync.context",
    "RunDescription": "tenure.sdk.client",
    "RunExplanation": "tenure.sdk.client",
    "RunGroup": "tenure.sdk.client",
    "RunHandle": "tenure.sdk.client",
    "RunInfo": "tenure.sdk.workflow.context",
    "RunStatus": "tenure.core.run.status",
    "RunStep": "tenure.sdk.client",
    "RunWait": "tenure.sdk.client",
    "Schedule": "tenure.sdk.client",
    "ScheduleFire": "tenure.sdk.client",
    "ScheduleInfo": "tenure.sdk.client",
    "ScheduleState": "tenure.core.schedule.record",
    "Schedules": "tenure.sdk.client",
    "Signal": "tenure.sdk.workflow.signal",
    "Step": "tenure.sdk.workflow.step",
    "StepFailed": "tenure.sdk.failure",
    "StepItems": "tenure.sdk.client",
    "StepKind": "tenure.core.run.step_attempt",
    "StepSettings": "tenure.sdk.workflow.step",
    "StepStatus": "tenure.core.run.step_attempt",
    "StopReason": "tenure.sdk.activity.context",
    "Stopped": "tenure.sdk.activity.context",
    "SyncActivity": "tenure.sdk.activity.definition",
    "SyncChildRun": "tenure.sdk.workflow.sync.step",
    "SyncClient": "tenure.sdk.sync_client",
    "SyncCompletion": "tenure.sdk.sync_client",
    "SyncExternalRun": "tenure.sdk.workflow.sync.step",
    "SyncHandle": "tenure.sdk.sync_client",
    "SyncResults": "tenure.sdk.workflow.sync.results",
    "SyncRunHandle": "tenure.sdk.sync_client",
    "SyncSchedules": "tenure.sdk.sync_schedules",
    "SyncStep": "tenure.sdk.workflow.sync.step",
    "SyncWorkflowContext": "tenure.sdk.workflow.sync.context",
    "SyncWorkflowLog": "tenure.sdk.workflow.sync.context",
    "TaskCancelled": "tenure.sdk.failure",
    "TaskFailed": "tenure.sdk.failure",
    "TaskInfo": "tenure.sdk.client",
    "TaskKind": "tenure.core.task.record",
    "TaskPoisoned": "tenure.sdk.failure",
    "TaskProgress": "tenure.sdk.client",
    "TaskState": "tenure.core.task.record",
    "TaskTerminated": "tenure.sdk.failure",
    "TaskTimedOut": "tenure.sdk.failure",
    "TenureError": "tenure.errors",
    "Waited": "tenure.sdk.workflow.sync.context",
    "Worker": "tenure.sdk.worker.worker",
    "WorkerEvicted": "tenure.sdk.failure",
    "WorkerOptions": "tenure.sdk.worker.worker",
    "WorkerSuperseded": "tenure.sdk.failure",
    "WorkersLost": "tenure.sdk.failure",
    "Workflow": "tenure.sdk.workflow.definition",
    "WorkflowContext": "tenure.sdk.workflow.context",
    "WorkflowDecorator": "tenure.sdk.workflow.definition",
    "WorkflowLog": "tenure.sdk.workflow.context",
    "WorkflowSettings": "tenure.sdk.workflow.definition",
    "activity": "tenure.sdk.activity.decorator",
    "signal": "tenure.sdk.workflow.signal",
    "step": "tenure.sdk.workflow.step",
    "workflow": "tenure.sdk.workflow.definition",
}

__all__ = [
    "TLS",
    "Activity",
    "ActivityDecorator",
    "ActivitySettings",
    "ApplicationError",
    "AsyncActivity",
    "AttemptInfo",
    "BackfillResult",
    "Call",
    "CancelTimedOut",
    "Changes",
    "ChildFailed",
    "ChildRun",
    "Client",
    "Codec",
    "Completion",
    "Duration",
    "ErrorCategory",
    "ExplainedReason",
    "ExplainedTask",
    "Explanation",
    "ExternalRun",
    "Handle",
    "HeartbeatAnswer",
    "HeartbeatDetails",
    "Info",
    "NotDurable",
    "OnCancel",
    "OnClose",
    "OnError",
    "OnProgress",
    "OneCallSettings",
    "OneRunSettings",
    "Overlap",
    "Payload",
    "PayloadError",
    "PlannedFire",
    "RemoteError",
    "Results",
    "RetryPolicy",
    "ReturnWhen",
    "RunDescription",
    "RunExplanation",
    "RunGroup",
    "RunHandle",
    "RunInfo",
    "RunStatus",
    "RunStep",
    "RunWait",
    "Schedule",
    "ScheduleFire",
    "ScheduleInfo",
    "ScheduleState",
    "Schedules",
    "Signal",
    "Step",
    "StepFailed",
    "StepItems",
    "StepKind",
    "StepSettings",
    "StepStatus",
    "StopReason",
    "Stopped",
    "SyncActivity",
    "SyncChildRun",
    "SyncClient",
    "SyncCompletion",
    "SyncExternalRun",
    "SyncHandle",
    "SyncResults",
    "SyncRunHandle",
    "SyncSchedules",
    "SyncStep",
    "SyncWorkflowContext",
    "SyncWorkflowLog",
    "TaskCancelled",
    "TaskFailed",
    "TaskInfo",
    "TaskKind",
    "TaskPoisoned",
    "TaskProgress",
    "TaskState",
    "TaskTerminated",
    "TaskTimedOut",
    "TenureError",
    "Waited",
    "Worker",
    "WorkerEvicted",
    "WorkerOptions",
    "WorkerSuperseded",
    "WorkersLost",
    "Workflow",
    "WorkflowContext",
    "WorkflowDecorator",
    "WorkflowLog",
    "WorkflowSettings",
    "activity",
    "signal",
    "step",
    "workflow",
]


# Hidden from type checkers: with this function they would accept any name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Load a public name from its module."""
        home = _HOME.get(name)
        if home is None:
            raise AttributeError(f"module 'tenure' has no attribute {name!r}")
        value = getattr(import_module(home), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(set(globals()) | set(_HOME))
