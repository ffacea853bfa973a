"""Streams that stay open: the session of a worker, and the stream of a client."""
