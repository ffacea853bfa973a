"""Bodies that are plain functions: the calls of an async body, each of which blocks its thread.

``body_thread`` runs a body on a thread of its own, and is the coroutine of that body for its run;
``context`` is what user code sees, ``step`` the handles of calls that run beside each other,
``results`` the results of a map. Everything is done by the async ``WorkflowContext``, so calls get
the same keys and leave the same journal: nothing here records, delivers or re-runs.

Rule: one side works at a time. The thread waits while the run acts for it, and the run is not
quiescent before the thread waits. What the run has is touched on the user's loop only.

Failure: a body that was put aside is unwound by ``Suspended``. Nobody waits for its thread, so a
body that catches it keeps a thread, and blocks nobody.
"""
