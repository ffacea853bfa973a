"""Schedules that fire: how often, how many at once, and what is kept of it."""

from typing import Final

from tenure.core.limits.unit import DAY_MS, HOUR_MS, MIB, MINUTE_MS, SECOND_MS

# How often schedules are looked at without an alarm, rows of one transaction, and fires of one
# round; settings and options of the server replace them.
SCHEDULER_INTERVAL_MS: Final = 5 * SECOND_MS
SCHEDULER_INTERVAL_MS_MIN: Final = 100
SCHEDULER_INTERVAL_MS_MAX: Final = 1 * HOUR_MS
SCHEDULER_BATCH_SIZE: Final = 100
SCHEDULER_BATCH_SIZE_MAX: Final = 1_000
SCHEDULER_FIRES_PER_ROUND: Final = 1_000
SCHEDULER_FIRES_PER_ROUND_MAX: Final = 10_000
# Of one look at a schedule: so many fires, and for each so long until the next look, which is
# 20 fires per second. Other schedules come in between.
FIRES_PER_LOOK_MAX: Final = 10
FIRE_PACE_MS: Final = 50
# Inputs of the tasks of one round, after which the rest waits for the next one.
FIRED_BYTES_MAX: Final = 16 * MIB
FIRE_TRANSACTIONS_MAX: Final = 20
# After this time a transaction leaves the rest to the next one: the lane serves others in between.
FIRE_ROUND_MS_MAX: Final = 40
# Missed ticks that fire. The newest one fires in any case if it is only this late: a server that
# was busy or restarted has not missed it.
MAX_CATCHUP: Final = 100
MAX_CATCHUP_MAX: Final = 1_000
LATE_TICK_MS: Final = 1 * MINUTE_MS
CATCHUP_WINDOW_MS_MAX: Final = 3_660 * DAY_MS
JITTER_MS_MAX: Final = 1 * DAY_MS
PAUSE_AFTER_FAILURES_MAX: Final = 1_000_000
BACKFILL_TICKS_MAX: Final = 1_000
BACKFILL_BYTES_MAX: Final = 64 * MIB
# Fires in the range of a backfill, which are read to tell which ticks have fired.
BACKFILL_SEEN_MAX: Final = 10_000
# Fires beyond the mark of a schedule that are read before it fires: those of a backfill, or of an
# earlier schedule with the same id.
FIRES_AHEAD_MAX: Final = 2_000
SCHEDULES_MAX: Final = 100_000
# A schedule that waits for the end of a task looks at it this often: an effect can get lost.
OVERLAP_LOOK_MS: Final = 5 * SECOND_MS
# A schedule of a disabled namespace is looked at this often; enabling one wakes them at once.
DISABLED_LOOK_MS: Final = 10 * MINUTE_MS
WOKEN_SCHEDULES_MAX: Final = 500
# Fires whose tasks have ended: settled by one command, looked through by one sweep, remembered
# until they are settled. What is forgotten is found by the sweep.
SETTLED_FIRES_MAX: Final = 500
SWEPT_FIRES_MAX: Final = 2_000
ENDED_FIRES_MAX: Final = 10_000
# From when on doctor counts a schedule as late. It speaks of failures from the third in a row on,
# which is the condition of an index.
SCHEDULE_LATE_MS: Final = 1 * MINUTE_MS
SCHEDULE_NOTE_BYTES_MAX: Final = 1_024
SCHEDULE_ERROR_BYTES_MAX: Final = 1_024
