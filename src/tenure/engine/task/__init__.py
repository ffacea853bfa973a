"""The commands for tasks: each becomes events that the core decides.

A new command has its type in ``command``, its functions in ``check``, ``needs`` and ``handler``,
and one entry in ``spec``. Nothing outside this room has to know about it.
"""
