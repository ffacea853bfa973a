"""The methods that a worker calls."""

from typing import Final

from google.protobuf.duration_pb2 import Duration
from google.protobuf.empty_pb2 import Empty

from tenure.sdk.transport.channel import Method
from tenure.v1 import session_service_pb2 as session_pb
from tenure.v1 import task_service_pb2 as task_pb
from tenure.v1 import workflow_service_pb2 as workflow_pb

# How long a call may take before it is repeated.
CALL_S: Final = 5.0
# So long a signal is tried: as long as a local step may take.
SIGNAL_S: Final = 10.0

REGISTER: Final[Method[workflow_pb.RegisterWorkerRequest, workflow_pb.RegisterWorkerResponse]] = (
    Method(
        "WorkflowService/RegisterWorker",
        workflow_pb.RegisterWorkerRequest.SerializeToString,
        workflow_pb.RegisterWorkerResponse.FromString,
    )
)
HEARTBEAT: Final[
    Method[workflow_pb.WorkerHeartbeatRequest, workflow_pb.WorkerHeartbeatResponse]
] = Method(
    "WorkflowService/WorkerHeartbeat",
    workflow_pb.WorkerHeartbeatRequest.SerializeToString,
    workflow_pb.WorkerHeartbeatResponse.FromString,
)
DEREGISTER: Final[Method[workflow_pb.DeregisterWorkerRequest, Empty]] = Method(
    "WorkflowService/DeregisterWorker",
    workflow_pb.DeregisterWorkerRequest.SerializeToString,
    Empty.FromString,
)
POLL: Final[Method[workflow_pb.PollActivityRequest, workflow_pb.PollActivityResponse]] = Method(
    "WorkflowService/PollActivity",
    workflow_pb.PollActivityRequest.SerializeToString,
    workflow_pb.PollActivityResponse.FromString,
)
START_TASKS: Final[Method[task_pb.StartTasksRequest, task_pb.StartTasksResponse]] = Method(
    "TaskService/StartTasks",
    task_pb.StartTasksRequest.SerializeToString,
    task_pb.StartTasksResponse.FromString,
)
HEARTBEAT_TASKS: Final[Method[task_pb.HeartbeatTasksRequest, task_pb.HeartbeatTasksResponse]] = (
    Method(
        "TaskService/HeartbeatTasks",
        task_pb.HeartbeatTasksRequest.SerializeToString,
        task_pb.HeartbeatTasksResponse.FromString,
    )
)
FINISH_TASKS: Final[Method[task_pb.FinishTasksRequest, task_pb.FinishTasksResponse]] = Method(
    "TaskService/FinishTasks",
    task_pb.FinishTasksRequest.SerializeToString,
    task_pb.FinishTasksResponse.FromString,
)
REPORT_RUNS: Final[Method[task_pb.ReportRunsRequest, task_pb.ReportRunsResponse]] = Method(
    "TaskService/ReportRuns",
    task_pb.ReportRunsRequest.SerializeToString,
    task_pb.ReportRunsResponse.FromString,
)
SIGNAL_RUN: Final = Method.of(
    "WorkflowService/SignalWorkflowRun",
    workflow_pb.SignalWorkflowRunRequest,
    workflow_pb.SignalWorkflowRunResponse,
)
OPEN_SESSION: Final[Method[session_pb.ClientFrame, session_pb.ServerFrame]] = Method(
    "SessionService/Open",
    session_pb.ClientFrame.SerializeToString,
    session_pb.ServerFrame.FromString,
)


def duration(milliseconds: int) -> Duration:
    """Return a duration as a protobuf message."""
    made = Duration()
    made.FromMilliseconds(milliseconds)
    return made
