"""The simulation: engines, workers and clients in one process, on simulated time, under faults.

Rule: everything that happens follows from the seed. Clocks, ids, delays and faults are drawn from
it, so the seed that fails once fails again: `python -m tests.sim --seed N --trace`.

State: a `World` owns its loop, its database in memory and everything that lives in it.

Failure: the checker compares what is in the database after each commit, and what was acknowledged
to whom, with the invariants of the design; the first that does not hold ends the run.
"""
