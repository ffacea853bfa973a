"""Schedules: rules that start tasks and runs at planned instants.

``record`` says what is stored of a schedule and of its fires, ``rule`` which event is accepted in
which state, ``decide`` what fires now, what is skipped and why. A rule becomes instants in ``cron``
and ``ticks``. Nothing here does I/O or reads a clock.
"""
