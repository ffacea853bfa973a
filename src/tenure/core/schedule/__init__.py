"""Schedules: when they fire.

``field`` and ``cron`` read a rule and step from match to match on a local clock that knows no zone.
``zone`` says how far the local clock of a zone is from UTC, and when this changes. ``ticks`` puts
both together: the instants of a rule or of an interval. ``preview`` shows the next ones to people.

All is a function of its arguments and of the installed time zone data (package ``tzdata``). What is
cached changes the cost of a call, never its result. What cannot be read raises `InvalidArgument`.
"""
