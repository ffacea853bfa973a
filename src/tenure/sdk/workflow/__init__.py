"""Workflows: plain ``async def`` functions that survive the process they run in.

A body is a function of its input and its journal. ``run`` delivers what was recorded one entry at
a time, in recorded order, each when the body is quiescent, live as well as on a re-run; so both
see the same. ``loop`` is the event loop that a body runs on, ``scope`` gives each call its key,
``journal`` knows what was recorded, ``context`` is what user code sees. Nothing here sends or reads
a clock by itself: a run asks its port, which the worker implements.

A run belongs to the thread of the user's event loop. What does not fit the journal parks the run;
a body never takes the value of another call.
"""
