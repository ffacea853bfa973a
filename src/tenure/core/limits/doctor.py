"""The doctor: the limits for a warning and for a problem."""

from typing import Final

from tenure.core.limits.service import SIGHT_STALL_MS
from tenure.core.limits.task import ENQUEUE_AHEAD_MS, ENQUEUE_YOUNG_MS
from tenure.core.limits.unit import MIB, MINUTE_MS, SECOND_MS

# Up to the first an enqueue is not looked up; from the second on its id comes from a wrong clock.
CLOCK_WARNING_MS: Final = ENQUEUE_YOUNG_MS
CLOCK_PROBLEM_MS: Final = ENQUEUE_AHEAD_MS
# A server that commits less often than each second is not sighted.
LATENCY_WARNING_MS: Final = 250
LATENCY_PROBLEM_MS: Final = SIGHT_STALL_MS
# Servers, tools and backups need connections in addition to those of a quiet day.
CONNECTIONS_WARNING_SHARE: Final = 0.8
CONNECTIONS_PROBLEM_SHARE: Final = 0.95
# The oldest version that supports the SQL of the statements.
POSTGRES_VERSION_MIN: Final = 13
# Some minutes of full speed, and some seconds.
DISK_WARNING_BYTES: Final = 1024 * MIB
DISK_PROBLEM_BYTES: Final = 128 * MIB
# SQLite starts to write its log back at 4 MiB; far beyond, a reader prevents it.
WAL_WARNING_BYTES: Final = 1024 * MIB
# Leases are judged and timers handled each second; a server that is not sighted may need longer.
STUCK_MS: Final = 1 * MINUTE_MS
# Redeployed workers are back by then.
WAITING_PROBLEM_MS: Final = 1 * MINUTE_MS
# A person at a prompt waits for at most ten seconds.
DIAGNOSIS_MS_MAX: Final = 8 * SECOND_MS
# Findings of one kind, and rows that one check reads.
FINDINGS_MAX: Final = 20
DIAGNOSED_ROWS_MAX: Final = 10_000
# Of the oldest runs; of one type; 100,000 children of an ended run live on for 105 s.
DIAGNOSED_JOURNALS_MAX: Final = 5_000
PARKED_READ_MAX: Final = 20
CLOSING_PROBLEM_MS: Final = 2 * MINUTE_MS
# Rows that `db check` has in memory at a time: 80 MiB if each has the largest input and output.
SCANNED_ROWS_MAX: Final = 20
# Damaged rows that it names; of more it shows only the number.
SCANNED_DAMAGES_MAX: Final = 100
# How long the structure of a SQLite file is checked before a server starts: enough for a cached
# file of 1 GiB, and the start is not delayed longer for a larger one.
SQLITE_CHECK_MS_MAX: Final = 2 * SECOND_MS
# What an overview lists at most; a queue without workers is shown sooner than a slow one.
ATTENTION_MAX: Final = 20
ATTENTION_WAIT_MS: Final = 10 * SECOND_MS
# So many failures in a minute, and so large a share of what ended.
ATTENTION_FAILED_MIN: Final = 10
ATTENTION_FAILED_SHARE: Final = 0.1
# Workers in one picture of a fleet, and groups of them.
FLEET_MAX: Final = 10_000
FLEET_GROUPS_MAX: Final = 100
# How long callers share a picture.
FLEET_SHARED_MS: Final = 1 * SECOND_MS
