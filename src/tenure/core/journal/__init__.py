"""The journal of a run: the ordered record of what happened in it, append-only.

``entry`` says what an entry is and what it may hold, ``numbering`` which position and which own
number the next one gets, ``room`` how many a journal takes. Nothing here does I/O.
"""
