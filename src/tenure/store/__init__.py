"""Loads and saves rows; one folder per database.

The store decides nothing: it knows tables, locks and fences, and hands frozen records up. SQL
lives in ``.sql`` files, with the same statement names, parameters and columns for each database.
State belongs to the database; what is kept here is connections.

A transaction is a function: ``result = await store.transaction(body)`` with ``async def body(tx)``
that awaits nothing but ``tx``. A body may run twice, so it changes nothing outside itself. On
failure nothing of it is kept, and the error says whether repeating helps (``failure``).
"""
