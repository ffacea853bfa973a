"""How servers on one database notify each other: hints, and loops that read.

A hint may be lost: every loop here also reads at an interval. Nothing here decides or writes.
"""
