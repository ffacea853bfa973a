"""The methods of the server that a client calls."""

from __future__ import annotations

from typing import Final

from google.protobuf.empty_pb2 import Empty

from tenure.sdk.transport.channel import Method
from tenure.v1 import schedule_service_pb2 as schedule_pb
from tenure.v1 import task_service_pb2 as pb
from tenure.v1 import workflow_service_pb2 as workflow_pb

# Made of bytes that are put together by hand; see ``task_bytes``.
ENQUEUE: Final[Method[bytes, pb.EnqueueTasksResponse]] = Method(
    "TaskService/EnqueueTasks", bytes, pb.EnqueueTasksResponse.FromString
)
WATCH: Final[Method[bytes, pb.WatchTasksResponse]] = Method(
    "TaskService/WatchTasks", bytes, pb.WatchTasksResponse.FromString
)
GET: Final = Method.of("TaskService/GetTask", pb.GetTaskRequest, pb.GetTaskResponse)
LIST: Final = Method.of("TaskService/ListTasks", pb.ListTasksRequest, pb.ListTasksResponse)
ATTEMPTS: Final = Method.of(
    "TaskService/ListAttempts", pb.ListAttemptsRequest, pb.ListAttemptsResponse
)
EXPLAIN: Final = Method.of("TaskService/ExplainTask", pb.ExplainTaskRequest, pb.ExplainTaskResponse)
CANCEL: Final = Method.of("TaskService/CancelTask", pb.CancelTaskRequest, pb.ChangeTaskResponse)
PAUSE: Final = Method.of("TaskService/PauseTask", pb.PauseTaskRequest, pb.ChangeTaskResponse)
RESUME: Final = Method.of("TaskService/ResumeTask", pb.ResumeTaskRequest, pb.ChangeTaskResponse)
TERMINATE: Final = Method.of(
    "TaskService/TerminateTask", pb.TerminateTaskRequest, pb.ChangeTaskResponse
)
RETRY: Final = Method.of("TaskService/RetryTask", pb.RetryTaskRequest, pb.RetryTaskResponse)
COMPLETE_BY_TOKEN: Final = Method.of(
    "TaskService/CompleteByToken", pb.CompleteByTokenRequest, pb.CompleteTaskResponse
)
COMPLETE_BY_ID: Final = Method.of(
    "TaskService/CompleteById", pb.CompleteByIdRequest, pb.CompleteTaskResponse
)
HEARTBEAT_BY_TOKEN: Final = Method.of(
    "TaskService/HeartbeatByToken", pb.HeartbeatByTokenRequest, pb.HeartbeatTaskResponse
)
HEARTBEAT_BY_ID: Final = Method.of(
    "TaskService/HeartbeatById", pb.HeartbeatByIdRequest, pb.HeartbeatTaskResponse
)
START: Final = Method.of(
    "WorkflowService/StartWorkflow",
    workflow_pb.StartWorkflowRequest,
    workflow_pb.StartWorkflowResponse,
)
GET_RUN: Final = Method.of(
    "WorkflowService/GetWorkflowRun",
    workflow_pb.GetWorkflowRunRequest,
    workflow_pb.GetWorkflowRunResponse,
)
LIST_RUNS: Final = Method.of(
    "WorkflowService/ListWorkflowRuns",
    workflow_pb.ListWorkflowRunsRequest,
    workflow_pb.ListWorkflowRunsResponse,
)
LIST_STEPS: Final = Method.of(
    "WorkflowService/ListStepAttempts",
    workflow_pb.ListStepAttemptsRequest,
    workflow_pb.ListStepAttemptsResponse,
)
SIGNAL_RUN: Final = Method.of(
    "WorkflowService/SignalWorkflowRun",
    workflow_pb.SignalWorkflowRunRequest,
    workflow_pb.SignalWorkflowRunResponse,
)
EXPLAIN_RUN: Final = Method.of(
    "WorkflowService/ExplainWorkflowRun",
    workflow_pb.ExplainWorkflowRunRequest,
    workflow_pb.ExplainWorkflowRunResponse,
)
CANCEL_RUN: Final = Method.of(
    "WorkflowService/CancelWorkflowRun", workflow_pb.CancelWorkflowRunRequest, Empty
)
RESUME_RUN: Final = Method.of(
    "WorkflowService/ResumeWorkflowRun",
    workflow_pb.ResumeWorkflowRunRequest,
    workflow_pb.ChangeWorkflowRunResponse,
)
RETRY_RUN: Final = Method.of(
    "WorkflowService/RetryWorkflowRun",
    workflow_pb.RetryWorkflowRunRequest,
    workflow_pb.RetryWorkflowRunResponse,
)
TERMINATE_RUN: Final = Method.of(
    "WorkflowService/TerminateWorkflowRun",
    workflow_pb.TerminateWorkflowRunRequest,
    workflow_pb.ChangeWorkflowRunResponse,
)
CREATE_SCHEDULE: Final = Method.of(
    "ScheduleService/CreateSchedule",
    schedule_pb.CreateScheduleRequest,
    schedule_pb.CreateScheduleResponse,
)
PUT_SCHEDULE: Final = Method.of(
    "ScheduleService/PutSchedule", schedule_pb.PutScheduleRequest, schedule_pb.PutScheduleResponse
)
GET_SCHEDULE: Final = Method.of(
    "ScheduleService/GetSchedule", schedule_pb.GetScheduleRequest, schedule_pb.GetScheduleResponse
)
LIST_SCHEDULES: Final = Method.of(
    "ScheduleService/ListSchedules",
    schedule_pb.ListSchedulesRequest,
    schedule_pb.ListSchedulesResponse,
)
PAUSE_SCHEDULE: Final = Method.of(
    "ScheduleService/PauseSchedule",
    schedule_pb.PauseScheduleRequest,
    schedule_pb.PauseScheduleResponse,
)
RESUME_SCHEDULE: Final = Method.of(
    "ScheduleService/ResumeSchedule",
    schedule_pb.ResumeScheduleRequest,
    schedule_pb.ResumeScheduleResponse,
)
TRIGGER_SCHEDULE: Final = Method.of(
    "ScheduleService/TriggerSchedule",
    schedule_pb.TriggerScheduleRequest,
    schedule_pb.TriggerScheduleResponse,
)
BACKFILL_SCHEDULE: Final = Method.of(
    "ScheduleService/BackfillSchedule",
    schedule_pb.BackfillScheduleRequest,
    schedule_pb.BackfillScheduleResponse,
)
DELETE_SCHEDULE: Final = Method.of(
    "ScheduleService/DeleteSchedule",
    schedule_pb.DeleteScheduleRequest,
    schedule_pb.DeleteScheduleResponse,
)
LIST_NEXT_FIRES: Final = Method.of(
    "ScheduleService/ListNextFires",
    schedule_pb.ListNextFiresRequest,
    schedule_pb.ListNextFiresResponse,
)
PREVIEW_RULE: Final = Method.of(
    "ScheduleService/PreviewRule", schedule_pb.PreviewRuleRequest, schedule_pb.PreviewRuleResponse
)
LIST_FIRES: Final = Method.of(
    "ScheduleService/ListFires", schedule_pb.ListFiresRequest, schedule_pb.ListFiresResponse
)
HEALTH: Final = Method.of(
    "WorkflowService/HealthCheck", workflow_pb.HealthCheckRequest, workflow_pb.HealthCheckResponse
)
