"""Loads and saves rows; one folder per database.

The store decides nothing: it knows tables, locks and fences, and returns frozen records. SQL is in
``.sql`` files, with the same statement names, parameters and columns for each database. State
belongs to the database; the store itself keeps only connections.

A transaction is a function: ``result = await store.transaction(body)`` with ``async def body(tx)``
that awaits nothing but ``tx``. A body may run twice, so it changes nothing outside itself. After a
failure nothing of it is stored, and the error says whether repeating helps (``failure``).
"""
