"""The worker: registered, leased, drained; runs activities and reports what became of them.

The connection has a thread of its own with an event loop of its own, which also owns the held
attempts and every timer. Runners execute user code elsewhere and report through one protocol. An
attempt is held until its end was acknowledged, through lost connections and servers alike.
"""
