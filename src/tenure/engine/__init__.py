"""Takes commands, runs them in batches, and runs the background services.

The only layer that opens transactions. An edge calls ``engine.submit(command)`` and awaits the
answer; a lane takes everything that waits and runs it as one transaction. Rules about states are
the core's; wire formats are the edge's. Memory holds only what can be had again from the store:
offers that wait, rows that were written last, low-water marks.

A failed batch is run again, in halves, or answered ``unavailable``; repeating is safe for every
command. Effects come after the commit and may come twice.
"""
