"""The worker: it runs activities and reports their results.

The connection has a thread of its own with an event loop of its own, which also owns the held
attempts and every timer. Runners execute user code elsewhere and report through one protocol. An
attempt is held until its end was acknowledged, through lost connections and servers alike.
"""
