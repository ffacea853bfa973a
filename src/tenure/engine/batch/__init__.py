"""The batch: one transaction for everything that waits.

``row_needs`` says which rows the commands need, the row sets of the store load and save them, and
``run`` goes through the phases on a ``working_set``; ``split`` runs a batch in parts that met a row
which somebody keeps. What spares statements stands beside it: ``single_write``, ``row_cache``,
``store_time``. The only room that opens transactions for work.
"""
