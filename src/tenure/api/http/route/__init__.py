"""The operations, one file per noun; the table of all of them is ``http/table.py``."""
