"""Takes commands, runs them in batches, and runs the background services.

The only layer that opens transactions. An edge calls ``engine.submit(command)`` and awaits the
answer; a lane takes all waiting commands and runs them as one transaction. Rules about states are
in the core, wire formats in the edges. Memory holds only what can be read again from the store:
waiting offers, rows that were written last, low-water marks.

A failed batch runs again, in halves, or is answered ``unavailable``; repeating is safe for every
command. Effects happen after the commit and may happen twice.
"""
