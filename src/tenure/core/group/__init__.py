"""Groups: one call of a run that makes many tasks and hears of all of them by one entry.

``record`` says what is stored of one, ``decide`` how it grows, how its items end and when it has
ended itself. Its items are tasks, with the group as their parent; their ends stand in a journal of
the group, at the position of the item + 1. Nothing here does I/O.
"""
