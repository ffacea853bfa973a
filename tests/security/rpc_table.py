"""What is expected of every RPC: who may call it, about what, and a request that is good.

It is written down here a second time and by hand: a method that is missing fails the tests, and so
does one whose permission is changed on one side only.
"""

from __future__ import annotations

from typing import Any, Final

from tests.security.row import ADMINS, READERS, SUBMITTERS, WORKERS, Row, Where

_HERE: Final = {"namespaceId": "$namespace"}
_TASK: Final = {**_HERE, "taskId": "$pending"}
_HELD: Final = {"taskId": "$held", "attempt": 1}
_STEPS: Final = {**_HELD, "firstNo": 1, "entries": [{"kind": "ENTRY_KIND_STEP", "key": "charge"}]}
_ERROR: Final = {"message": "no", "category": "ERROR_CATEGORY_USER_CODE"}
_DONE: Final = {"kind": "FINISH_KIND_SUCCEEDED", "output": "MQ=="}
_NEW: Final = {
    "taskId": "$new_task",
    "type": "mail",
    "taskQueue": "$queue",
    "options": {"startToCloseMs": "600000"},
    "idempotencyKey": "$new_idempotency",
}
_SPAWN: Final = {**_HELD, "number": 1, "children": [{"key": "mail", "task": _NEW}]}
_CHILD_CANCEL: Final = {**_HELD, "number": 2, "childIds": ["$pending"]}
_WORKER: Final = {**_HERE, "workerId": "$worker"}
_RUN: Final = {**_HERE, "runId": "$run"}
_HELD_RUN: Final = {**_HERE, "runId": "$held_run", "workerId": "$worker", "attempt": 1}
_STEP: Final = {**_HELD_RUN, "stepId": "charge"}

_WORKFLOWS: Final[dict[str, Row]] = {
    "StartWorkflow": Row(
        SUBMITTERS,
        {
            **_HERE,
            "workflowType": "order",
            "taskQueue": "$queue",
            "runId": "$new_task",
            "idempotencyKey": "$new_idempotency",
        },
        is_change=True,
    ),
    "GetWorkflowRun": Row(READERS, _RUN),
    "ListWorkflowRuns": Row(
        READERS, {**_HERE, "taskQueue": "$queue", "pageSize": 1, "pageToken": "$run_cursor"}
    ),
    "CancelWorkflowRun": Row(SUBMITTERS, _RUN, is_change=True),
    "SignalWorkflowRun": Row(SUBMITTERS, {**_RUN, "signal": {"name": "go"}}, is_change=True),
    "ResumeWorkflowRun": Row(SUBMITTERS, {**_HERE, "runId": "$paused_run"}, is_change=True),
    "TerminateWorkflowRun": Row(SUBMITTERS, _RUN, is_change=True),
    "GetJournal": Row(READERS, _RUN),
    "ExplainWorkflowRun": Row(READERS, _RUN),
    "RetryWorkflowRun": Row(
        SUBMITTERS, {**_HERE, "runId": "$finished_run", "newRunId": "$new_task"}, is_change=True
    ),
    "GetStepAttempt": Row(READERS, {**_HERE, "stepAttemptId": "$step_attempt"}),
    "ListStepAttempts": Row(
        READERS, {**_HERE, "runId": "$stepped_run", "pageSize": 1, "pageToken": "$step_cursor"}
    ),
    "RegisterWorker": Row(
        WORKERS,
        {
            **_HERE,
            "taskQueue": "$queue",
            "workflowTypes": ["mail"],
            "instanceKey": "$new_instance",
            "name": "$new_name",
            "address": "",
        },
        is_change=True,
    ),
    "WorkerHeartbeat": Row(
        WORKERS,
        {
            **_WORKER,
            "boundActivities": [_HELD],
            "unboundActivities": [_HELD],
            "heldActivities": {"items": [_HELD]},
        },
        is_change=True,
    ),
    "DeregisterWorker": Row(WORKERS, _WORKER, is_change=True),
    "ListWorkers": Row(
        READERS, {**_HERE, "taskQueue": "$queue", "pageSize": 1, "pageToken": "$worker_cursor"}
    ),
    "GetWorker": Row(READERS, _WORKER),
    "PollActivity": Row(
        WORKERS,
        {
            **_WORKER,
            "taskQueue": "$queue",
            "supportedWorkflowTypes": ["mail"],
            "maxTasks": 1,
            "wait": "0s",
        },
        is_change=True,
    ),
    "BeginStep": Row(WORKERS, _STEP, is_change=True),
    "CompleteStep": Row(WORKERS, {**_STEP, "output": "MQ=="}, is_change=True),
    "FailStep": Row(WORKERS, {**_STEP, "error": _ERROR}, is_change=True),
    "CompleteWorkflow": Row(WORKERS, {**_HELD_RUN, "output": "MQ=="}, is_change=True),
    "FailWorkflow": Row(WORKERS, {**_HELD_RUN, "error": _ERROR}, is_change=True),
    "ScheduleSleep": Row(WORKERS, {**_STEP, "duration": "60s"}, is_change=True),
    "HealthCheck": Row(READERS, {}, Where.OPEN),
}

_TASKS: Final[dict[str, Row]] = {
    "EnqueueTasks": Row(SUBMITTERS, {**_HERE, "tasks": [_NEW]}, is_change=True),
    "GetTask": Row(READERS, _TASK),
    "ListTasks": Row(
        READERS, {**_HERE, "taskQueue": "$queue", "pageSize": 1, "pageToken": "$task_cursor"}
    ),
    "ListAttempts": Row(READERS, {**_HERE, "taskId": "$held"}),
    "CancelTask": Row(SUBMITTERS, _TASK, is_change=True),
    "PauseTask": Row(SUBMITTERS, _TASK, is_change=True),
    "ResumeTask": Row(SUBMITTERS, {**_HERE, "taskId": "$paused"}, is_change=True),
    "TerminateTask": Row(SUBMITTERS, _TASK, is_change=True),
    "RetryTask": Row(
        SUBMITTERS, {**_HERE, "taskId": "$finished", "newTaskId": "$new_task"}, is_change=True
    ),
    "ExplainTask": Row(READERS, _TASK),
    # Readers open it; whether one of them may enqueue is told in the answer to the enqueue.
    "WatchTasks": Row(
        READERS,
        [
            {
                **_HERE,
                "add": ["$finished"],
                "remove": ["$pending"],
                "enqueues": [{"number": "1", "request": {**_HERE, "tasks": [_NEW]}}],
            }
        ],
        is_change=True,
    ),
    "StartTasks": Row(WORKERS, {**_WORKER, "items": [_HELD]}, is_change=True),
    "HeartbeatTasks": Row(
        WORKERS, {**_WORKER, "items": [{**_HELD, "progressPercent": 7}]}, is_change=True
    ),
    "FinishTasks": Row(WORKERS, {**_WORKER, "items": [{**_HELD, **_DONE}]}, is_change=True),
    "ReportRuns": Row(
        WORKERS,
        {
            **_WORKER,
            "steps": [_STEPS],
            "journal": [_HELD],
            "spawns": [_SPAWN],
            "childCancels": [_CHILD_CANCEL],
        },
        is_change=True,
    ),
    "CreateTaskToken": Row(WORKERS, {**_WORKER, "item": _HELD}),
    "CompleteByToken": Row(
        READERS, {"taskToken": "$task_token", **_DONE}, Where.OPEN, is_change=True
    ),
    "CompleteById": Row(
        SUBMITTERS, {**_HERE, "taskId": "$held", "attempt": 1, **_DONE}, is_change=True
    ),
    "HeartbeatByToken": Row(
        READERS, {"taskToken": "$task_token", "progressPercent": 7}, Where.OPEN, is_change=True
    ),
    "HeartbeatById": Row(
        SUBMITTERS, {**_HERE, "taskId": "$held", "progressPercent": 7}, is_change=True
    ),
}

_SESSIONS: Final[dict[str, Row]] = {
    "Open": Row(
        WORKERS,
        [
            {
                "hello": {
                    **_HERE,
                    "workerId": "$session_worker",
                    "sessionNo": 1,
                    "window": 1,
                    "held": [_HELD],
                }
            },
            {
                "started": [_HELD],
                "taskBeats": [_HELD],
                "steps": [_STEPS],
                "journal": [_HELD],
                "spawns": [_SPAWN],
                "childCancels": [_CHILD_CANCEL],
                "finished": [{**_HELD, "kind": "FINISH_KIND_FAILED", "error": _ERROR}],
                "beat": {
                    "token": "1",
                    "bound": [_HELD],
                    "unbound": [_HELD],
                    "held": {"items": [_HELD]},
                },
            },
        ],
        is_change=True,
    )
}

_ADMIN: Final[dict[str, Row]] = {
    "DrainWorker": Row(ADMINS, _WORKER, is_change=True),
    "DrainWorkers": Row(ADMINS, {**_HERE, "labels": {"zone": "none"}}, is_change=True),
    "EvictWorker": Row(ADMINS, _WORKER, is_change=True),
    "ListQueues": Row(READERS, {**_HERE, "pageSize": 1, "pageToken": "$queue_cursor"}),
    "GetQueue": Row(READERS, {**_HERE, "name": "$queue"}),
    "SetQueue": Row(ADMINS, {**_HERE, "name": "$queue", "isPaused": True}, is_change=True),
    "CreateNamespace": Row(ADMINS, {"name": "$namespace"}, Where.WHOLE, answer="already_exists"),
    "ListNamespaces": Row(READERS, {}, Where.OWN),
    "GetNamespace": Row(READERS, {"name": "$namespace"}),
    # As it is already: the others still need the namespace.
    "SetNamespace": Row(ADMINS, {"name": "$namespace", "isDisabled": False}, Where.WHOLE),
    "CreateApiKey": Row(
        ADMINS, {"name": "new", "role": "ROLE_VIEWER", "namespaces": ["$namespace"]}, is_change=True
    ),
    "ListApiKeys": Row(ADMINS, {}, Where.OWN),
    "GetApiKey": Row(ADMINS, {"keyId": "$key"}),
    "RevokeApiKey": Row(ADMINS, {"keyId": "$key"}, is_change=True),
    "ListEndpoints": Row(READERS, {**_HERE, "pageSize": 1, "pageToken": "$endpoint_cursor"}),
    "CreateEndpoint": Row(
        ADMINS,
        {
            **_HERE,
            "name": "$new_name",
            "taskQueue": "$queue",
            "options": {"url": "https://hook.example/tasks", "types": ["push"]},
        },
        is_change=True,
    ),
    "GetEndpoint": Row(READERS, {**_HERE, "name": "$endpoint"}),
    "SetEndpoint": Row(
        ADMINS, {**_HERE, "name": "$endpoint", "options": {"concurrency": 2}}, is_change=True
    ),
    "PauseEndpoint": Row(ADMINS, {**_HERE, "name": "$endpoint", "isPaused": True}, is_change=True),
    "TestEndpoint": Row(ADMINS, {**_HERE, "name": "$endpoint"}),
    "RotateEndpointSecret": Row(ADMINS, {**_HERE, "name": "$endpoint"}, is_change=True),
    "DeleteEndpoint": Row(ADMINS, {**_HERE, "name": "$endpoint"}, is_change=True),
    "RotateTokenKey": Row(ADMINS, {}, Where.WHOLE),
    "ListAuditRecords": Row(ADMINS, {**_HERE, "actor": "$key"}),
    "Diagnose": Row(ADMINS, _HERE),
}

RPCS: Final[dict[str, Row]] = {
    f"/tenure.v1.{service}/{name}": row
    for service, rows in (
        ("WorkflowService", _WORKFLOWS),
        ("TaskService", _TASKS),
        ("SessionService", _SESSIONS),
        ("AdminService", _ADMIN),
    )
    for name, row in rows.items()
}

# -- Which fields of requests bear an id, by their names in JSON

ID_FIELDS: Final = frozenset(
    {
        "namespaceId",
        "namespaces",
        "taskId",
        "newTaskId",
        "newRunId",
        "runId",
        "childIds",
        "stepAttemptId",
        "workerId",
        "instanceKey",
        "keyId",
        "actor",
        "pageToken",
        "taskToken",
        "taskQueue",
        "idempotencyKey",
        "add",
        "remove",
        "GetQueueRequest.name",
        "SetQueueRequest.name",
        "CreateNamespaceRequest.name",
        "GetNamespaceRequest.name",
        "SetNamespaceRequest.name",
        "RegisterWorkerRequest.name",
        *(f"{verb}EndpointRequest.name" for verb in ("Create", "Get", "Set", "Pause", "Test")),
        "RotateEndpointSecretRequest.name",
        "DeleteEndpointRequest.name",
    }
)
PLAIN_FIELDS: Final = frozenset(
    {
        "RegisterWorkerRequest.address",
        "type",
        "workflowType",
        "workflowTypes",
        "supportedWorkflowTypes",
        "nonRetryableErrorTypes",
        "encoding",
        "outputEncoding",
        "nextEncoding",
        "reason",
        "stopReason",
        "message",
        "stackTrace",
        "version",
        "hostname",
        "filterStatus",
        "action",
        "labels",
        "resources",
        "CreateApiKeyRequest.name",
        # What a run says of its calls, and of those that it waits for.
        "NewEntry.key",
        "NewEntry.site",
        "wakeKey",
        "Wait.kind",
        "Wait.key",
        "Wait.detail",
        "Wait.site",
        "fromStep",
        "stepId",
        # What a user calls a run, within one namespace.
        "externalId",
        "externalIdPrefix",
        # Where an endpoint is, and what it takes.
        "url",
        "types",
        "headers",
        "onLive",
        "onFinished",
        # A call of one run, and a place in the list of what it has open.
        "groupKey",
        "openAfter",
        "NewChild.key",
        # What a sender calls its signal, within one run.
        "NewSignal.name",
        "signalId",
        "sender",
        # A number that counts the heartbeats of one worker.
        "token",
    }
)
# Their cursors belong to the caller and not to a namespace: a test of its own has them.
LATER_FIELDS: Final = frozenset(
    {
        "ListNamespacesRequest.pageToken",
        "ListApiKeysRequest.pageToken",
        "ListAuditRecordsRequest.pageToken",
    }
)

Template = dict[str, Any]
