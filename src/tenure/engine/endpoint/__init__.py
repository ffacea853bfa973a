"""Endpoints: commands of operators, and the driver that pushes envelopes.

``command``, ``check``, ``needs``, ``handler`` and ``spec`` are the commands. ``poster`` is the
seam to the network; ``endpoint_driver`` has the seat of one endpoint: what is handed out to it
becomes one POST each, and every result is a command. Nothing is kept here that rows do not have: a
new owner ends what the former one had not delivered.
"""
