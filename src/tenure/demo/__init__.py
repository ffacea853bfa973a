"""The demo of ``make run``: a real server, two worker processes, and one of them killed.

Every part is a process of its own that speaks the public protocol. It runs on an embedded store in
a temporary folder, which is removed at its end.
"""
