"""Re-runs recorded journals against code, without executing anything.

``rerun`` runs the body of one run up to the end of its journal and says how it fits. ``shape``
finds runs of which one stands for all, ``checker`` reads and re-runs them, ``summary`` counts what
was found. ``journal_file`` is the format of exported journals, ``trace`` shows one as a timeline.
The command line and the test kit use them.

Rule: no step, no child, no signal and no report ever leaves a body that is checked here.

State: each re-run has a thread of its own, and nothing of it remains.

Failure: a body that raises or does not come to rest is a finding, never an error of the check.
"""
