"""The client: enqueues tasks and starts runs, waits for results, asks about them, changes them.

Concurrent calls are combined: what is enqueued while a request is in flight goes into the next
one, and all results come over one stream. Ids are made here, and every repetition is marked, so
that a lost answer never enqueues twice. A client belongs to one event loop; ``SyncClient`` is the
same for code without one.

When the server is away, calls are tried again until the client's ``timeout``; waiting for a result
goes on until its own.
"""

from tenure.sdk.client.client import Client
from tenure.sdk.client.completion import Completion
from tenure.sdk.client.explanation import (
    ExplainedReason,
    ExplainedTask,
    Explanation,
    RunExplanation,
)
from tenure.sdk.client.handle import Handle
from tenure.sdk.client.result_wait import OnProgress
from tenure.sdk.client.run_handle import RunHandle
from tenure.sdk.client.run_view import RunDescription, RunGroup, RunWait
from tenure.sdk.client.schedule import Overlap, Schedule
from tenure.sdk.client.schedule_view import BackfillResult, PlannedFire, ScheduleFire, ScheduleInfo
from tenure.sdk.client.schedules import Schedules
from tenure.sdk.client.step_view import RunStep, StepItems
from tenure.sdk.client.view import AttemptInfo, HeartbeatAnswer, TaskInfo
from tenure.sdk.progress import HeartbeatDetails, TaskProgress

__all__ = [
    "AttemptInfo",
    "BackfillResult",
    "Client",
    "Completion",
    "ExplainedReason",
    "ExplainedTask",
    "Explanation",
    "Handle",
    "HeartbeatAnswer",
    "HeartbeatDetails",
    "OnProgress",
    "Overlap",
    "PlannedFire",
    "RunDescription",
    "RunExplanation",
    "RunGroup",
    "RunHandle",
    "RunStep",
    "RunWait",
    "Schedule",
    "ScheduleFire",
    "ScheduleInfo",
    "Schedules",
    "StepItems",
    "TaskInfo",
    "TaskProgress",
]
