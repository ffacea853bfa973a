"""The SDK: what a Python team touches. Client, worker and activities.

It imports nothing of the server: of Tenure only the wire messages, the errors and the pure core.
User code and the connection live in different threads and exchange batches, so that neither a
blocked event loop nor a busy thread costs a worker its lease.

A task belongs to its worker from its delivery until its end was acknowledged; whatever fails in
between is sent again. Everything public can be imported from ``tenure``.
"""

# Before anything loads gRPC.
from tenure.sdk.transport import fork_guard as _fork_guard  # noqa: F401
