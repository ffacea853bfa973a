"""Schedules: rules that start tasks and runs at planned instants.

``field`` and ``cron`` read a rule and step from match to match on a local clock that knows no zone.
``zone`` says how far the local clock of a zone is from UTC, and when this changes. ``ticks`` puts
both together: the instants of a rule or of an interval. ``preview`` shows the next ones to people.

``record`` says what is stored of a schedule and of its fires, ``timing`` which ticks it has,
``check`` what its content may be, ``plan`` what it will fire. ``rule`` says which event is accepted
in which state, ``decide`` what follows of it, and ``look`` what fires now, what is skipped and why.

All is a function of its arguments and of the installed time zone data (package ``tzdata``). What is
cached changes the cost of a call, never its result. What cannot be read raises `InvalidArgument`.
"""
