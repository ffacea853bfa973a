"""The statements by what they mean: records in, records out. Nothing is decided here.

One file per table or per kind of look; the names of statements stay inside. What batches load and
save is a ``row_set``, and ``lock_order`` lists all of them. ``codec`` stands between rows and
records, ``damaged_row`` reads what is not as it was written.
"""
