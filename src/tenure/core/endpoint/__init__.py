"""Endpoints: URLs that tasks of a queue are pushed to, each beside a worker of mode ``callback``.

``record`` is what is stored, ``verdict`` what the answer to a POST means, ``hold`` when an endpoint
that fails gets nothing, ``signature`` how envelopes are signed, ``check`` what is refused. The task
row is the only state of a delivery.
"""
