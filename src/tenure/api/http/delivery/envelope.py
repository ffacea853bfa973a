"""The ``TaskEnvelope`` of the worker contract, as JSON."""

from __future__ import annotations

import base64
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from tenure.api.http.edge.strict_json import is_json
from tenure.api.http.route.task.body import JSON_ENCODING
from tenure.api.http.view import instant
from tenure.core.access.task_token import Claims
from tenure.core.task import callback_token
from tenure.core.task.deadline import attempt_ends_at_ms, heartbeat_timeout_ms
from tenure.core.task.record import Task

_ASSET: Final = "assetId"
_KEY: Final = "taskKey"
_TRACE: Final = "traceparent"


class TaskEnvelope(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What an endpoint gets; the first group of fields is that of the contract."""

    task_id: str
    run_id: str
    asset_id: str | None
    task_key: str
    tenant_id: str
    workspace_id: str
    attempt: int
    resources: dict[str, str]
    enqueued_at: str
    deadline: str | None
    callback_base_url: str
    task_token: str
    token_expires_at: str
    heartbeat_interval_ms: int
    heartbeat_timeout_ms: int
    cancel_grace_period_ms: int
    type: str
    queue: str
    labels: dict[str, str]
    failure_count: int
    input: Raw | UnsetType = UNSET
    input_base64: str | UnsetType = UNSET
    encoding: str | UnsetType = UNSET
    idempotency_key: str | UnsetType = UNSET
    heartbeat_details: Raw | UnsetType = UNSET
    heartbeat_details_base64: str | UnsetType = UNSET
    traceparent: str | UnsetType = UNSET


def envelope(task: Task, *, claims: Claims, token: str, base_url: str) -> bytes:
    """Return the envelope of the present attempt of a task, with its token."""
    spec, labels = task.spec, task.labels or {}
    tenant, _, workspace = task.namespace.partition("/")
    ends_at_ms = attempt_ends_at_ms(task)
    timeout_ms = heartbeat_timeout_ms(spec, task.progress)
    made = TaskEnvelope(
        task_id=task.id,
        run_id=claims.run_id,
        asset_id=labels.get(_ASSET),
        task_key=labels.get(_KEY, task.type),
        tenant_id=tenant,
        workspace_id=workspace,
        attempt=task.attempt,
        resources=spec.resources,
        enqueued_at=instant(task.created_at_ms),
        deadline=instant(ends_at_ms) if ends_at_ms else None,
        callback_base_url=base_url,
        task_token=token,
        token_expires_at=instant(claims.expires_at_ms),
        heartbeat_interval_ms=callback_token.interval_ms(task, claims.issued_at_ms),
        heartbeat_timeout_ms=timeout_ms or callback_token.times(task).heartbeat_timeout_ms,
        cancel_grace_period_ms=spec.cancel_grace_ms,
        type=task.type,
        queue=task.queue,
        labels=labels,
        failure_count=task.progress.failure_count,
        idempotency_key=spec.idempotency_key or UNSET,
        traceparent=labels.get(_TRACE, UNSET),
        **_payload("input", task.input, spec.encoding),
        **_payload("heartbeat_details", task.progress.details, spec.encoding),
    )
    if isinstance(made.input_base64, str):
        made = msgspec.structs.replace(made, encoding=spec.encoding)
    return msgspec.json.encode(made)


def ping(endpoint_id: str, name: str, at_ms: int) -> bytes:
    """Return a message without a task, with which an endpoint is tried."""
    return msgspec.json.encode(
        {"type": "tenure.ping", "endpointId": endpoint_id, "endpoint": name, "at": instant(at_ms)}
    )


def _payload(name: str, data: bytes | None, encoding: str) -> dict[str, Any]:
    if data is None:
        return {}
    if encoding == JSON_ENCODING and is_json(data):
        return {name: Raw(data)}
    return {f"{name}_base64": base64.b64encode(data).decode()}
