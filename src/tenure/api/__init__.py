"""The edges: gRPC and HTTP.

They translate in, submit one command to the engine or run one query, and translate out. They have
no state that another server needs and no rule about states. A failure is answered with an error of
``tenure.errors``; nothing that was accepted depends on an edge.
"""

# Before anything else loads gRPC.
from tenure import transport as _transport  # noqa: F401
