"""Tenure beside other task queues, on this machine and in one run: ``make bench ONLY=peers``.

Each candidate runs in an environment of its own (``make bench-peers``), set up as its documentation
recommends. An adapter in that environment enqueues, waits and counts (``adapter.py``, one module
per candidate in ``adapters``), told what to do by the runner over JSON lines (``agent.py``). The
runner measures all candidates alike (``measure.py``): it never imports a candidate.

A candidate that fails is reported as failed and never stops the run. Everything is bounded in
count and in time.
"""
