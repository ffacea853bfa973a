"""The way to a server: channels, TLS, keys, deadlines and typed errors; nothing about tasks.

A process that was forked from one which used gRPC speaks through a ``relay``.
"""
