"""The other side of the wire: workers, clients and faults that speak the raw protocol.

Nothing here imports Tenure but the code that is generated from ``proto/``. So these programs are
also the proof that a worker can be written in any language that has gRPC.
"""
