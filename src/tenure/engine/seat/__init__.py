"""Seats: the workers that this server drives, each by one asyncio task.

``command``, ``check``, ``needs``, ``handler`` and ``spec`` are the commands: taking a seat, and
the full set of an answer. ``seats`` owns the drivers in one task group and takes and gives back
seats; ``call`` is what a driver and its worker say to each other, and the seam to the network
(``Caller``); ``served_content`` is what the next call carries, ``served_answer`` applies an answer,
``served_driver`` is the loop, ``places`` limits the calls at a time, ``call_tally`` counts them.

A driver remembers what it derived from rows when it took the seat, and what it was told since: to
run are the attempts that were handed to its worker and are in no answer yet; to kill are those that
are being cancelled, and those that an answer reports and that are not live. So a failed call leaves
nothing to put back, and a new owner of the seat derives the same.
"""
