"""What happened to tasks per queue and type: counted per batch, in steps of ten seconds.

Each server counts what it commits, and keeps the steps of the last hour in memory. Nothing is
decided by these numbers.
"""
