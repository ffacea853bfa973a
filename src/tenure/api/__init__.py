"""The edges: gRPC and HTTP.

They translate in, submit one command to the engine or ask one query, and translate out. They hold
no state that another server needs and no rule about states. A failure is answered with the error
of the one table in ``tenure.errors``; nothing that was accepted depends on an edge staying alive.
"""

# Before anything else loads gRPC.
from tenure import transport as _transport  # noqa: F401
