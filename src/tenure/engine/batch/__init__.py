"""The batch: one transaction for everything that waits.

``runner`` runs a batch until it is committed or lost. ``row_needs`` is what the commands need,
``load`` reads and locks it, ``run`` goes through the phases on a ``working_set`` and saves it;
``split`` cuts a batch that met a row which somebody keeps. What spares statements is remembered in
``memory``: ``single_write``, ``row_cache``, ``store_time``. The only room that opens transactions
for work.
"""
