"""The worker's connection, in a thread of its own: user code cannot cost the lease.

``connection`` owns the thread, ``incarnation`` is one registered worker with its
``worker_heartbeat`` and what it holds (``held_attempts``). Execution and connection meet only in
``worker/executor_protocol.py``.
"""
