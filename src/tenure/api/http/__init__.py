"""HTTP/JSON: tasks, workers and queues for curl, browsers and all languages without gRPC.

One table of operations (``table.py``) is the source of the routes, of ``/openapi.json`` and of
``/docs``, so they always agree. A request is read strictly (``reading.py``, ``strict_json.py``),
becomes one command or one query, and the views of its noun write its answer. The edge (``app.py``)
handles what every request needs: its id, its deadline, its log line, its error, and that its work
is dropped when the client disconnects.

Only counters outlive a request here, so a server that dies loses nothing.
"""
