"""Schedules under faults: many schedulers on one database, and operators who change schedules.

A world of its own, because a clock that jumps by hours is no world for leases.
"""
