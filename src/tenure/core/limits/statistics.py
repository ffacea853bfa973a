"""Statistics: how long they are kept, in which steps, and how many lines they tell apart."""

from typing import Final

from tenure.core.limits.unit import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS

# A step in memory, and for how long each server has those of its own: 360 steps.
STATISTICS_STEP_MS: Final = 10 * SECOND_MS
STATISTICS_MEMORY_MS: Final = 1 * HOUR_MS
# Older numbers are rows of one minute, for as long as history; a week of one queue is 10,080 rows.
STATISTICS_ROW_MS: Final = 1 * MINUTE_MS
STATISTICS_KEPT_MS: Final = 7 * DAY_MS
STATISTICS_ROWS_MAX: Final = 10_080
# Tasks of one step that are counted one by one; of more, every eighth batch counts for eight. At
# full speed this costs a thousandth of a task.
STATISTICS_WHOLE_MAX: Final = 2_000
STATISTICS_SAMPLED: Final = 8
# Queues that one step tells apart, and types of a queue; the others are added up as `other`.
STATISTICS_QUEUES_MAX: Final = 1_000
STATISTICS_TYPES_MAX: Final = 50
# What a chart can show.
STATISTICS_POINTS_MAX: Final = 300
STATISTICS_SERIES_MAX: Final = 20
