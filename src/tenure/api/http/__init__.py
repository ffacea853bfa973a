"""HTTP/JSON: tasks, workers and queues for curl, browsers and every language without gRPC.

One table of operations (``table.py``) is the source of the routes, of ``/openapi.json`` and of
``/docs``, so none of them can say something that another does not. A request is read strictly
(``reading.py``, ``strict_json.py``), becomes one command or one query, and its answer is written by
the views of its noun. The edge (``app.py``) owns what belongs to every request: its id, its
deadline, its log line, the error that it ends with, and that its work is dropped when the client is
gone.

Nothing here outlives its request but counters, so a server that dies loses nothing.
"""
