"""The statements by meaning: records in, records out. Nothing is decided here.

One file per table or per kind of read; the names of statements stay inside. What batches load and
save is a ``row_set``, and ``lock_order`` lists all of them. ``codec`` converts between rows and
records, ``damaged_row`` reads damaged rows.
"""
