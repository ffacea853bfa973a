"""The operations: each noun has a file, or a room, with its bodies, parameters and views.

Each has its ``OPERATIONS``, and ``http/table.py`` joins them. A new noun is one line there.
"""
