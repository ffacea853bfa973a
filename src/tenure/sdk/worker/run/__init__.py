"""Runs of workflows that a worker holds, on the thread of the user's event loop.

``host`` starts, keeps and ends them, ``held_run`` is the port of one run, ``local_step`` runs its
steps, ``warm_runs`` keeps those that wait, ``unwinding`` watches the threads of plain bodies that
were put aside, ``server_clock`` knows the time of the server, ``wire`` speaks the protocol. The
connection has only what is to be sent (``connection/run_outbox.py``): both meet in
 ``worker/executor_protocol.py``.

A run that is lost is put aside without a report. What a run has not carried out when its worker
ends is carried out by the next one.
"""
