"""Tenure: durable tasks and workflows, with workers you can trust.

Everything public of the SDK is here. It is loaded when it is first asked for: ``import tenure``
alone costs nothing, and a client never loads the server.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tenure.errors import TenureError
    from tenure.sdk.activity.context import Info, Stopped, StopReason
    from tenure.sdk.activity.decorator import activity
    from tenure.sdk.activity.definition import Activity, Call
    from tenure.sdk.activity.option import RetryPolicy
    from tenure.sdk.client import Client, Completion, Handle, TaskInfo
    from tenure.sdk.failure import (
        ApplicationError,
        CancelTimedOut,
        RemoteError,
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
    from tenure.sdk.sync_client import SyncClient, SyncCompletion, SyncHandle
    from tenure.sdk.transport.tls import TLS
    from tenure.sdk.worker.worker import Worker

__version__ = "0.1.0"

_HOME = {
    "TLS": "tenure.sdk.transport.tls",
    "Activity": "tenure.sdk.activity.definition",
    "ApplicationError": "tenure.sdk.failure",
    "Call": "tenure.sdk.activity.definition",
    "CancelTimedOut": "tenure.sdk.failure",
    "Client": "tenure.sdk.client",
    "Codec": "tenure.sdk.payload",
    "Completion": "tenure.sdk.client",
    "Handle": "tenure.sdk.client",
    "Info": "tenure.sdk.activity.context",
    "Payload": "tenure.sdk.payload",
    "PayloadError": "tenure.sdk.payload",
    "RemoteError": "tenure.sdk.failure",
    "RetryPolicy": "tenure.sdk.activity.option",
    "StopReason": "tenure.sdk.activity.context",
    "Stopped": "tenure.sdk.activity.context",
    "SyncClient": "tenure.sdk.sync_client",
    "SyncCompletion": "tenure.sdk.sync_client",
    "SyncHandle": "tenure.sdk.sync_client",
    "TaskCancelled": "tenure.sdk.failure",
    "TaskFailed": "tenure.sdk.failure",
    "TaskInfo": "tenure.sdk.client",
    "TaskPoisoned": "tenure.sdk.failure",
    "TaskTerminated": "tenure.sdk.failure",
    "TaskTimedOut": "tenure.sdk.failure",
    "TenureError": "tenure.errors",
    "Worker": "tenure.sdk.worker.worker",
    "WorkerEvicted": "tenure.sdk.failure",
    "WorkerSuperseded": "tenure.sdk.failure",
    "WorkersLost": "tenure.sdk.failure",
    "activity": "tenure.sdk.activity.decorator",
}

__all__ = [
    "TLS",
    "Activity",
    "ApplicationError",
    "Call",
    "CancelTimedOut",
    "Client",
    "Codec",
    "Completion",
    "Handle",
    "Info",
    "Payload",
    "PayloadError",
    "RemoteError",
    "RetryPolicy",
    "StopReason",
    "Stopped",
    "SyncClient",
    "SyncCompletion",
    "SyncHandle",
    "TaskCancelled",
    "TaskFailed",
    "TaskInfo",
    "TaskPoisoned",
    "TaskTerminated",
    "TaskTimedOut",
    "TenureError",
    "Worker",
    "WorkerEvicted",
    "WorkerSuperseded",
    "WorkersLost",
    "activity",
]


# Not for a type checker, which would take any name for a public one.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Load a public name from where it lives."""
        home = _HOME.get(name)
        if home is None:
            raise AttributeError(f"module 'tenure' has no attribute {name!r}")
        value = getattr(import_module(home), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """Name what can be asked for."""
    return sorted(set(globals()) | set(_HOME))
