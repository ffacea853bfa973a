"""The command line: ``tenure``.

A thin user of the public gRPC API. What it shows comes from ``client.py``, which speaks gRPC on one
side and hands out plain records on the other; commands choose, ``output.py`` writes. ``server.py``
only starts the server, and ``db.py`` looks at a store on its own, so that it also helps when no
server runs.

Everything that takes long to load (gRPC, rich, the server) is loaded by the command that needs it,
so that ``tenure --help`` and the completion of the shell answer at once.

No state is kept between two calls. A command that fails says what happened, why, and what to do
next, and ends with the exit code of the one table in ``exit_code.py``.
"""
