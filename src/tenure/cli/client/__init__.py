"""The way to a server for all commands: calls, event streams, waiting, and errors for people."""
