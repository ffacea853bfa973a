"""Seats: which server drives a worker that does not call by itself.

A worker whose server calls it (mode ``served``), or whose tasks are pushed to a URL, is driven
from one place. ``record`` has the row, ``share`` how many seats a server may have, ``kill`` what a
worker is told to stop. The seat belongs to the worker's row: it is made with it, and closed when
the worker goes offline.

Taking a seat locks the worker and raises its ``session_no``. That number is the fence: a former
owner can hand out nothing, because hand-outs compare it under the worker's lock, and its calls are
refused by the worker. What a driver has to send is derived from rows when it takes the seat, and
remembered after that; when a server dies nothing is lost but that memory.
"""
