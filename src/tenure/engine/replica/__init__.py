"""What servers on one database learn from each other: hints that wake, and loops that look.

A hint may be lost: every loop here also looks by itself. Nothing here decides or writes.
"""
