"""The batch: one transaction for everything that waits.

``runner`` runs a batch until it is committed or lost; ``run`` goes through its phases: the specs
of the commands say which rows they need, the row sets of the store load and save them, and what is
decided stands in a ``working_set``. ``split`` cuts a batch that met a row which somebody keeps.
What spares statements is remembered in ``memory``: ``single_write``, ``row_cache``,
``store_time``. The only room that opens transactions for work.
"""
