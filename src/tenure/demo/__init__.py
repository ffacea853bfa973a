"""The demo of ``make run``: a real server and two worker processes; one of them is killed.

Every part is a process of its own that uses the public protocol. It runs on an embedded store in
a temporary folder, which is removed at the end.
"""
