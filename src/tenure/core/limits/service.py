"""Servers, stores and background services."""

from typing import Final

from tenure.core.limits.unit import SECOND_MS

# A server touches its row each second; after thirty misses it is gone, not slow.
STALE_SERVER_MS: Final = 30 * SECOND_MS
# When most workers of a silent server have connected elsewhere, this much more than their lease is
# enough for the others: they could have connected too.
RETURN_ELSEWHERE_MS: Final = 5 * SECOND_MS
# A loop that stalled longer may have delayed reports, so its server must not judge.
SIGHT_STALL_MS: Final = 1 * SECOND_MS
# How late a claim or timer may be when every hint was lost.
FALLBACK_POLL_MS: Final = 1 * SECOND_MS
# A list or a lookup that takes longer is stopped, so that it never holds a connection for long.
READ_SECONDS_MAX: Final = 10.0
# How long a statement waits for SQLite's lock; here only checkpoints of readers ever hold it.
SQLITE_BUSY_MS: Final = 5 * SECOND_MS
# apsw keeps prepared statements in a ring: each call moves its own one place on and removes the one
# there. A batch makes up to 500 calls of one statement, and the others should stay prepared.
SQLITE_STATEMENTS_MAX: Final = 1_000
# A transaction of a lane is one bounded batch. One that takes longer waits for a dead connection or
# a stopped backend. Its callers get an answer before their own timeout.
LANE_SECONDS_MAX: Final = 5.0
# Clean-up drops whole days, and nobody waits for it.
SERVICE_SECONDS_MAX: Final = 30.0
# How long a statement of a lane waits for a row that another transaction has locked. A batch holds
# its rows for milliseconds; a longer lock comes from a stopped transaction, and only the commands
# that need the row shall wait.
LOCK_WAIT_MS: Final = 1 * SECOND_MS
# The parts of a batch that found such a row wait only this long, and all of them together as long
# as a batch may take: then the rest of it is refused and may be repeated.
PART_LOCK_WAIT_MS: Final = 50
CONNECT_SECONDS_MAX: Final = 5.0
# PostgreSQL's names have 63 bytes, and the name of a channel is `tenure_` and this name.
SCHEMA_NAME_BYTES_MAX: Final = 56
# Once one host of several has answered, the others have this long to show a higher timeline.
OTHER_HOSTS_SECONDS_MAX: Final = 1.0
# Lists and lookups share few connections, so that they never delay the lanes.
READ_POOL_SIZE: Final = 4
# Lists and counts at the same time; the other connections are for lookups, which never wait for
# them: a result that somebody waits for is a lookup.
SCANS_MAX: Final = 2
# A server that cannot commit a heartbeat for SIGHT_STALL_MS is not sighted: it probes more often.
SIGHT_PROBE_MS: Final = 400
# How often leases are scanned, and retention searches for old rows.
JUDGE_MS: Final = 1 * SECOND_MS
RETENTION_MS: Final = 60 * SECOND_MS
# Without our own vacuum the live table grows to 125 MB in ten seconds at full speed.
VACUUM_EVERY_TASKS: Final = 25_000
# Beyond this share of a full lane new work is refused, so that reports still fit.
NEW_WORK_SHARE_MAX: Final = 0.8
# Leases that may have ended are cheap to read; those that are not judged must not fill a round.
JUDGED_BATCH_MAX: Final = 5_000
# The time between two scans from the head of a line is a hundred times that of the last scan.
FULL_CLAIM_BUDGET: Final = 100
# Without hints such scans are the only way to find work: a tenth of the time.
UNTOLD_CLAIM_BUDGET: Final = 10
# Of the interval of the fallback poll, which varies by a tenth: each may scan from the head.
FULL_CLAIM_PACE: Final = 0.85
# Hints for other replicas are combined: inside the transactions they would wait for each other.
NOTIFY_MS: Final = 20
# PostgreSQL refuses a hint of 8,000 bytes; one of each kind takes at most five of these.
NOTIFY_BYTES_MAX: Final = 4_000
NOTIFY_KIND_BYTES_MAX: Final = 20_000
# Behind a pooler LISTEN is not possible: then news of other replicas may be this late.
NEWS_POLL_MS: Final = 500
# When the store is slow, reads for waiting callers are this far apart, however many wait.
NEWS_READ_MS: Final = 50
# A server that starts to wait may have missed what happened before the others knew of the wait.
NEWS_FIRST_MS: Final = 100
# Ids in one read for waiting callers; finished rows come with their payloads, so fewer of them.
WATCH_IDS_MAX: Final = 1_000
WATCH_ROWS_MAX: Final = 100
# A server that waits for results says so each second; the others assume it for a few of them.
RESULTS_WANTED_MS: Final = 5 * SECOND_MS
WANT_RESULTS_MS: Final = 1 * SECOND_MS
# How long hints are kept for a subscriber that reconnects; a browser does so within seconds.
EVENTS_KEPT_MS: Final = 60 * SECOND_MS
# About 30 MiB while there are subscribers, and five seconds at full speed.
EVENTS_KEPT_MAX: Final = 100_000
# Hints of one kind in one message to the other servers; of more, only the kind is sent.
EVENTS_TOLD_MAX: Final = 100
# A subscriber that gets a reset reads whole lists: this far apart while hints may be missing.
EVENTS_RESET_MS: Final = 5 * SECOND_MS
# By then every other server knows that there are subscribers here.
EVENTS_JOIN_MS: Final = 250
# The number of an event fits in 64 bits.
EVENT_NUMBER_DIGITS_MAX: Final = 18
# Partitions of history are created for this many days ahead.
DAYS_AHEAD: Final = 2
# Depths are not read during a scrape. They take at most a hundredth of the time, so that 100,000
# runs that sleep cost next to nothing.
SAMPLE_MS: Final = 5 * SECOND_MS
SAMPLE_BUDGET: Final = 100
# Each label set is a time series in Prometheus; more queues are added up as `other`.
METRIC_QUEUES_MAX: Final = 100
METRIC_METHODS_MAX: Final = 500
METRIC_TYPES_MAX: Final = 100
