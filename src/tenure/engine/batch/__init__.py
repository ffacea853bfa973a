"""The batch: one transaction for all waiting commands.

``runner`` runs a batch until it is committed or lost; ``run`` has its phases: the specs of the
commands name the rows they need, the row sets of the store load and save them, and a
``working_set`` holds what is decided. ``follow_up`` tells runs of the ends of their children.
``split`` divides a batch that waits for a locked row. ``memory`` holds what saves statements:
``single_write``, ``row_cache``, ``store_time``. The only room that opens transactions for work.
"""
