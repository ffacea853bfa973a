"""What each gRPC method needs: the one table that the boundary goes by.

A method that is not in it is refused to everybody, and a test says that none is missing.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from tenure.core.access.permission import Action


class Scope(enum.Enum):
    """Where a request says which namespace it is about."""

    NAMESPACE_ID = "namespace_id"
    # Empty means all that the caller may see.
    OPTIONAL = "optional"
    HELLO = "hello"
    # It belongs to no namespace, or its handler looks at the names in it.
    NONE = "none"


class MethodRule(NamedTuple):
    """What a caller must be allowed to do."""

    action: Action
    scope: Scope = Scope.NAMESPACE_ID
    # Only for keys of all namespaces.
    is_whole: bool = False


_RULES: Final[dict[str, dict[MethodRule, str]]] = {
    "tenure.v1.WorkflowService": {
        MethodRule(Action.READ): "GetWorkflowRun ListWorkflowRuns GetStepAttempt ListStepAttempts "
        "ListWorkers GetWorker",
        MethodRule(Action.SUBMIT): "StartWorkflow CancelWorkflowRun",
        MethodRule(
            Action.WORK
        ): "RegisterWorker WorkerHeartbeat DeregisterWorker PollActivity BeginStep "
        "CompleteStep FailStep CompleteWorkflow FailWorkflow ScheduleSleep",
    },
    "tenure.v1.TaskService": {
        MethodRule(Action.READ): "GetTask ListTasks ListAttempts ExplainTask WatchTasks",
        MethodRule(
            Action.SUBMIT
        ): "EnqueueTasks CancelTask PauseTask ResumeTask TerminateTask RetryTask "
        "CompleteById HeartbeatById",
        MethodRule(Action.WORK): "StartTasks HeartbeatTasks FinishTasks CreateTaskToken",
    },
    "tenure.v1.SessionService": {
        MethodRule(Action.WORK, Scope.HELLO): "Open",
    },
    "tenure.v1.AdminService": {
        MethodRule(Action.READ): "ListQueues GetQueue",
        MethodRule(Action.READ, Scope.NONE): "ListNamespaces GetNamespace",
        MethodRule(Action.OPERATE): "DrainWorker DrainWorkers EvictWorker SetQueue",
        MethodRule(Action.ADMIN, Scope.NONE, is_whole=True): "CreateNamespace SetNamespace",
        MethodRule(Action.ADMIN, Scope.NONE): "CreateApiKey ListApiKeys GetApiKey RevokeApiKey",
        MethodRule(Action.ADMIN, Scope.OPTIONAL): "ListAuditRecords Diagnose",
    },
    # Every role may read.
    "grpc.reflection.v1alpha.ServerReflection": {
        MethodRule(Action.READ, Scope.NONE): "ServerReflectionInfo",
    },
}
RULES: Final[dict[str, MethodRule]] = {
    f"/{service}/{name}": rule
    for service, rules in _RULES.items()
    for rule, names in rules.items()
    for name in names.split()
}
# Exact names. Of the last two the task token is the key.
OPEN_METHODS: Final = frozenset(
    (
        "/grpc.health.v1.Health/Check",
        "/grpc.health.v1.Health/Watch",
        "/tenure.v1.WorkflowService/HealthCheck",
        "/tenure.v1.TaskService/CompleteByToken",
        "/tenure.v1.TaskService/HeartbeatByToken",
    ),
)
