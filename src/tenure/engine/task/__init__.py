"""What can be asked about tasks: each command becomes events that the core decides.

A new command has its type in ``command``, its functions in ``check``, ``needs`` and ``handler``,
and one entry in ``spec``. Nothing outside this room has to know it.
"""
