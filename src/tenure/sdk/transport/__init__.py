"""The connection to a server: channels, TLS, keys, deadlines and typed errors.

A process that was forked from one which used gRPC speaks through a ``relay``.
"""
