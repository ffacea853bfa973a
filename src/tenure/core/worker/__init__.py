"""The worker machine: one incarnation of a worker, its lease, and when it is judged.

``decide`` has the status and its events, ``lease`` until when a worker counts as alive, ``judge``
when it is taken offline, ``judge_readiness`` which server may do so, ``health`` how a worker
appears. No other code changes the status of a worker.
"""
