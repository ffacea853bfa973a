"""The worker machine: one incarnation of a worker, its lease, and when it is judged.

``decide`` has the status and its events, ``lease`` until when a worker counts as alive,
``judge_readiness`` which server may judge that, ``health`` how a worker seems to be. Nobody else
changes the status of a worker.
"""
