"""What is expected of every route: who may call it, about what, and a request that is good."""

from __future__ import annotations

from typing import Any, Final

from tests.security.row import ADMINS, READERS, SUBMITTERS, Row, Where

_HERE: Final = {"namespace": "$namespace"}


def _at(path: str, body: Any = None, **query: Any) -> dict[str, Any]:
    """Return the template of a request in a namespace."""
    return {"path": path, "query": {**_HERE, **query}, "body": body}


def _plain(path: str, body: Any = None, **query: Any) -> dict[str, Any]:
    return {"path": path, "query": query, "body": body}


def _callback(verb: str, body: Any) -> Row:
    """Return what is expected of keys: none of them opens what a task token opens."""
    return Row(
        "", _plain(f"/v1/tasks/$held/{verb}", body), Where.TASK_TOKEN, answer="invalid_token"
    )


_NEW: Final = {
    "taskId": "$new_task",
    "type": "mail",
    "queue": "$queue",
    "startToCloseMs": 600_000,
    "idempotencyKey": "$new_idempotency",
}
_PENDING: Final = "/v1/tasks/$pending"
_CALLBACK: Final = {"attempt": 1}
_WORKER: Final = "/v1/workers/$worker"
_QUEUE: Final = "/v1/queues/$queue"
_RUN: Final = "/v1/runs/$run"
_SCHEDULE: Final = "/v1/schedules/$schedule"
_CONTENT: Final = {
    "every": "1m",
    "target": {"type": "mail", "queue": "$queue", "startToCloseMs": 600_000},
}
_PERIOD: Final = {"from": "1970-01-01T00:00:00.001Z", "to": "1970-01-01T00:00:01Z"}
_ENDPOINT: Final = "/v1/endpoints/$endpoint"
_NEW_ENDPOINT: Final = {
    "name": "$new_name",
    "queue": "$queue",
    "types": ["push"],
    "url": "https://hook.example/tasks",
}

ROUTES: Final[dict[str, Row]] = {
    "POST /v1/tasks": Row(SUBMITTERS, _at("/v1/tasks", _NEW), is_change=True),
    "POST /v1/tasks:batch": Row(
        SUBMITTERS, _at("/v1/tasks:batch", {"tasks": [_NEW]}), is_change=True
    ),
    "GET /v1/tasks": Row(
        READERS,
        _at(
            "/v1/tasks",
            queue="$queue",
            id="$held",
            workerId="$worker",
            pageSize=1,
            pageToken="$task_cursor",
        ),
    ),
    "GET /v1/tasks/{taskId}": Row(READERS, _at(_PENDING)),
    "GET /v1/tasks/{taskId}/attempts": Row(READERS, _at("/v1/tasks/$held/attempts")),
    "GET /v1/tasks/{taskId}/explain": Row(READERS, _at(f"{_PENDING}/explain")),
    "GET /v1/tasks/{taskId}/watch": Row(READERS, _at("/v1/tasks/$finished/watch")),
    "POST /v1/tasks/{taskId}/cancel": Row(SUBMITTERS, _at(f"{_PENDING}/cancel"), is_change=True),
    "POST /v1/tasks/{taskId}/pause": Row(SUBMITTERS, _at(f"{_PENDING}/pause"), is_change=True),
    "POST /v1/tasks/{taskId}/resume": Row(
        SUBMITTERS, _at("/v1/tasks/$paused/resume"), is_change=True
    ),
    "POST /v1/tasks/{taskId}/retry": Row(
        SUBMITTERS, _at("/v1/tasks/$finished/retry", {"newTaskId": "$new_task"}), is_change=True
    ),
    "POST /v1/tasks/{taskId}/terminate": Row(
        SUBMITTERS, _at(f"{_PENDING}/terminate"), is_change=True
    ),
    "POST /v1/tasks/{taskId}/complete": Row(
        SUBMITTERS,
        _at("/v1/tasks/$held/complete", {"outcome": "SUCCEEDED", "attempt": 1}),
        is_change=True,
    ),
    "POST /v1/runs": Row(
        SUBMITTERS,
        _at(
            "/v1/runs",
            {
                "runId": "$new_task",
                "type": "order",
                "queue": "$queue",
                "idempotencyKey": "$new_idempotency",
            },
        ),
        is_change=True,
    ),
    "GET /v1/runs": Row(
        READERS, _at("/v1/runs", queue="$queue", pageSize=1, pageToken="$run_cursor")
    ),
    "GET /v1/runs/{runId}": Row(READERS, _at(_RUN)),
    "GET /v1/runs/{runId}/journal": Row(READERS, _at(f"{_RUN}/journal")),
    "GET /v1/runs/{runId}/steps": Row(
        READERS, _at("/v1/runs/$stepped_run/steps", pageSize=1, pageToken="$step_cursor")
    ),
    "GET /v1/runs/{runId}/explain": Row(READERS, _at(f"{_RUN}/explain")),
    "POST /v1/runs/{runId}/signal/{signal}": Row(
        SUBMITTERS, _at(f"{_RUN}/signal/go", {"ok": True}), is_change=True
    ),
    "POST /v1/runs/{runId}/cancel": Row(SUBMITTERS, _at(f"{_RUN}/cancel"), is_change=True),
    "POST /v1/runs/{runId}/resume": Row(
        SUBMITTERS, _at("/v1/runs/$paused_run/resume"), is_change=True
    ),
    "POST /v1/runs/{runId}/retry": Row(
        SUBMITTERS, _at("/v1/runs/$finished_run/retry", {"newRunId": "$new_task"}), is_change=True
    ),
    "POST /v1/runs/{runId}/terminate": Row(SUBMITTERS, _at(f"{_RUN}/terminate"), is_change=True),
    "GET /v1/schedules": Row(
        READERS, _at("/v1/schedules", pageSize=1, pageToken="$schedule_cursor")
    ),
    "POST /v1/schedules": Row(
        SUBMITTERS,
        _at("/v1/schedules", {"scheduleId": "$new_schedule", **_CONTENT}),
        is_change=True,
    ),
    "POST /v1/schedules:preview": Row(READERS, _at("/v1/schedules:preview", {"rule": "0 2 * * *"})),
    "GET /v1/schedules/{scheduleId}": Row(READERS, _at(_SCHEDULE)),
    "PUT /v1/schedules/{scheduleId}": Row(
        SUBMITTERS, _at("/v1/schedules/$new_schedule", _CONTENT), is_change=True
    ),
    "DELETE /v1/schedules/{scheduleId}": Row(SUBMITTERS, _at(_SCHEDULE), is_change=True),
    "POST /v1/schedules/{scheduleId}/pause": Row(
        SUBMITTERS, _at(f"{_SCHEDULE}/pause"), is_change=True
    ),
    "POST /v1/schedules/{scheduleId}/resume": Row(
        SUBMITTERS, _at("/v1/schedules/$paused_schedule/resume"), is_change=True
    ),
    "POST /v1/schedules/{scheduleId}/trigger": Row(
        SUBMITTERS, _at(f"{_SCHEDULE}/trigger", {"triggerId": "again"}), is_change=True
    ),
    "POST /v1/schedules/{scheduleId}/backfill": Row(
        SUBMITTERS, _at(f"{_SCHEDULE}/backfill", _PERIOD), is_change=True
    ),
    "GET /v1/schedules/{scheduleId}/next": Row(READERS, _at(f"{_SCHEDULE}/next")),
    "GET /v1/schedules/{scheduleId}/fires": Row(
        READERS, _at(f"{_SCHEDULE}/fires", pageSize=1, pageToken="$fire_cursor")
    ),
    "GET /v1/workers": Row(
        READERS,
        _at("/v1/workers", queue="$queue", id="$worker", pageSize=1, pageToken="$worker_cursor"),
    ),
    "GET /v1/workers/{workerId}": Row(READERS, _at(_WORKER)),
    "GET /v1/workers/{workerId}/held": Row(READERS, _at(f"{_WORKER}/held")),
    "GET /v1/workers/{workerId}/events": Row(READERS, _at(f"{_WORKER}/events")),
    "GET /v1/workers/{workerId}/beats": Row(READERS, _at(f"{_WORKER}/beats")),
    "GET /v1/workers/{workerId}/stop-check": Row(READERS, _at(f"{_WORKER}/stop-check")),
    "GET /v1/workers:stop-check": Row(READERS, _at("/v1/workers:stop-check", version="1")),
    "POST /v1/workers/{workerId}/drain": Row(ADMINS, _at(f"{_WORKER}/drain"), is_change=True),
    "POST /v1/workers/{workerId}/evict": Row(ADMINS, _at(f"{_WORKER}/evict"), is_change=True),
    "POST /v1/workers:drain": Row(
        ADMINS, _at("/v1/workers:drain", {"labels": {"zone": "none"}}), is_change=True
    ),
    "GET /v1/workers:fleet": Row(READERS, _at("/v1/workers:fleet")),
    "GET /v1/server": Row(READERS, _plain("/v1/server"), Where.NOWHERE),
    "GET /v1/stats": Row(READERS, _at("/v1/stats", queue="$queue")),
    "GET /v1/overview": Row(READERS, _at("/v1/overview")),
    "GET /v1/queues": Row(READERS, _at("/v1/queues", pageSize=1, pageToken="$queue_cursor")),
    "GET /v1/queues/{queue}": Row(READERS, _at(_QUEUE)),
    "PUT /v1/queues/{queue}": Row(ADMINS, _at(_QUEUE, {"paused": True}), is_change=True),
    "POST /v1/queues/{queue}/pause": Row(ADMINS, _at(f"{_QUEUE}/pause"), is_change=True),
    "POST /v1/queues/{queue}/resume": Row(ADMINS, _at(f"{_QUEUE}/resume"), is_change=True),
    "GET /v1/namespaces": Row(READERS, _plain("/v1/namespaces"), Where.OWN),
    "POST /v1/namespaces": Row(
        ADMINS,
        _plain("/v1/namespaces", {"name": "$namespace"}),
        Where.WHOLE,
        answer="already_exists",
    ),
    "GET /v1/namespaces/{tenant}/{workspace}": Row(READERS, _plain("/v1/namespaces/$namespace")),
    "POST /v1/namespaces/{tenant}/{workspace}/disable": Row(
        # That it works is tested elsewhere: here the others still need the namespace.
        ADMINS,
        _plain("/v1/namespaces/$namespace/disable", {"no": 1}),
        Where.WHOLE,
        answer="invalid_argument",
    ),
    "POST /v1/namespaces/{tenant}/{workspace}/enable": Row(
        ADMINS, _plain("/v1/namespaces/$namespace/enable"), Where.WHOLE
    ),
    "GET /v1/api-keys": Row(ADMINS, _plain("/v1/api-keys"), Where.OWN),
    "POST /v1/api-keys": Row(
        ADMINS,
        _plain("/v1/api-keys", {"name": "new", "role": "viewer", "namespaces": ["$namespace"]}),
        is_change=True,
    ),
    "GET /v1/api-keys/{keyId}": Row(ADMINS, _plain("/v1/api-keys/$key")),
    "DELETE /v1/api-keys/{keyId}": Row(ADMINS, _plain("/v1/api-keys/$key"), is_change=True),
    "GET /v1/endpoints": Row(
        READERS, _at("/v1/endpoints", pageSize=1, pageToken="$endpoint_cursor")
    ),
    "POST /v1/endpoints": Row(ADMINS, _at("/v1/endpoints", _NEW_ENDPOINT), is_change=True),
    "GET /v1/endpoints/{endpoint}": Row(READERS, _at(_ENDPOINT)),
    "PUT /v1/endpoints/{endpoint}": Row(ADMINS, _at(_ENDPOINT, {"concurrency": 2}), is_change=True),
    "DELETE /v1/endpoints/{endpoint}": Row(ADMINS, _at(_ENDPOINT), is_change=True),
    "POST /v1/endpoints/{endpoint}/pause": Row(ADMINS, _at(f"{_ENDPOINT}/pause"), is_change=True),
    "POST /v1/endpoints/{endpoint}/resume": Row(ADMINS, _at(f"{_ENDPOINT}/resume"), is_change=True),
    "POST /v1/endpoints/{endpoint}/test": Row(ADMINS, _at(f"{_ENDPOINT}/test")),
    "POST /v1/endpoints/{endpoint}/rotate-secret": Row(
        ADMINS, _at(f"{_ENDPOINT}/rotate-secret"), is_change=True
    ),
    "POST /v1/token-keys": Row(ADMINS, _plain("/v1/token-keys"), Where.WHOLE),
    "GET /v1/audit": Row(ADMINS, _at("/v1/audit", actor="$key")),
    "GET /v1/events": Row(READERS, _at("/v1/events", queue="$queue", digest=250, id="$pending")),
    "GET /v1/diagnosis": Row(ADMINS, _at("/v1/diagnosis")),
    "GET /healthz": Row(READERS, _plain("/healthz"), Where.OPEN),
    "GET /readyz": Row(READERS, _plain("/readyz"), Where.OPEN),
    "GET /metrics": Row(READERS, _plain("/metrics"), Where.WHOLE),
    "GET /openapi.json": Row(READERS, _plain("/openapi.json"), Where.NOWHERE),
    "GET /docs": Row(READERS, _plain("/docs"), Where.NOWHERE),
    "POST /v1/tasks/{taskId}/started": _callback("started", {**_CALLBACK, "workerId": "w"}),
    "POST /v1/tasks/{taskId}/heartbeat": _callback("heartbeat", _CALLBACK),
    "POST /v1/tasks/{taskId}/completed": _callback(
        "completed", {**_CALLBACK, "outcome": "SUCCEEDED"}
    ),
}

ID_FIELDS: Final = frozenset(
    {
        "namespace",
        "namespaces",
        "WorkerListQuery.id",
        "TaskListQuery.id",
        "TaskListQuery.workerId",
        "EventQuery.id",
        "taskId",
        "newTaskId",
        "newRunId",
        "runId",
        "scheduleId",
        "queue",
        "pageToken",
        "idempotencyKey",
        "actor",
        "NamespaceBody.name",
        "NewEndpointBody.name",
    }
)
PLAIN_FIELDS: Final = frozenset(
    {
        "errorType",
        "failureReason",
        "createdAfter",
        "createdBefore",
        "idPrefix",
        "by",
        "FleetQuery.at",
        "from",
        "to",
        "type",
        "inputBase64",
        "outputBase64",
        "encoding",
        "outputEncoding",
        "runAt",
        "createdFrom",
        "createdTo",
        # What a sender calls its signal, within one run.
        "SignalBody.name",
        "payloadBase64",
        "signalId",
        "sender",
        # What a user calls a run, within one namespace.
        "externalId",
        "fromStep",
        # A call of one run, and a place in the list of what it has open.
        "groupKey",
        "openAfter",
        "stepId",
        "onLive",
        # What a process behind an endpoint says of itself; the token names its attempt.
        # Where an endpoint is, and what it takes.
        "url",
        "types",
        "headers",
        "StartedBody.workerId",
        "HeartbeatBody.workerId",
        "CompletedBody.workerId",
        "startedAt",
        "heartbeatAt",
        "completedAt",
        "message",
        "metrics",
        "cancelledDuringPhase",
        "onFinished",
        "nonRetryableErrorTypes",
        "labels",
        "resources",
        "reason",
        "stackTrace",
        "category",
        "outcome",
        "state",
        "status",
        "health",
        "version",
        "label",
        "wait",
        "kind",
        "action",
        "role",
        "ApiKeyBody.name",
        # When something fires, and what is said of it.
        "rule",
        "every",
        "offset",
        "zone",
        "startsAt",
        "endsAt",
        "overlap",
        "note",
        "mode",
        "after",
        # What a caller calls its trigger, within one schedule.
        "triggerId",
        # A place in the line of all hints of a server: whoever goes on from it hears its own.
        "lastEventId",
    }
)
LATER_FIELDS: Final = frozenset(
    {
        # Their cursors belong to the caller and not to a namespace: a test of its own has them.
        "PageQuery.pageToken",
        "AuditQuery.pageToken",
    }
)
