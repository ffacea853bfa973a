"""The SDK: client, worker and activities.

It imports nothing of the server, only the wire messages, the errors and the core.
User code and the connection run in different threads. A worker whose event loop is blocked, or
whose threads are busy, keeps its lease.

A task belongs to its worker from its delivery until its end was acknowledged; whatever fails in
between is sent again. Everything public can be imported from ``tenure``.
"""

# Before anything loads gRPC.
from tenure.sdk.transport import fork_guard as _fork_guard  # noqa: F401
