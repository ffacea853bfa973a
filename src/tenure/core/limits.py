"""Every limit and every default, with its unit in the name and its reason beside it.

Durations are milliseconds. `MAX` or `MIN` in a name bounds what others ask for, or what we do at
once; what has neither is a default or a fixed size. Settings may replace defaults, not formats.
"""

from typing import Final

_SECOND_MS: Final = 1_000
_MINUTE_MS: Final = 60 * _SECOND_MS
_HOUR_MS: Final = 60 * _MINUTE_MS
_DAY_MS: Final = 24 * _HOUR_MS
_KIB: Final = 1024
_MIB: Final = 1024 * _KIB

# Sizes of what users send.

# A database row is no place for files; above this, users store the data and send a reference.
PAYLOAD_BYTES_MAX: Final = 2 * _MIB
# One payload as base64 (2.7 MiB) with everything around it, and gRPC's own default.
REQUEST_BYTES_MAX: Final = 4 * _MIB
# Fits an index entry of both databases and a file name.
NAME_LENGTH_MAX: Final = 255
# Labels are for finding things; more would be data and belongs into the input.
LABELS_MAX: Final = 64
LABEL_BYTES_MAX: Final = 256
# Short free text, such as an idempotency key: fits an index entry of both databases.
TEXT_BYTES_MAX: Final = 1 * _KIB
# Shown in lists and logs; a longer message hides its beginning.
ERROR_MESSAGE_BYTES_MAX: Final = 16 * _KIB
# About a thousand frames, as deep as Python's recursion limit.
STACK_TRACE_BYTES_MAX: Final = 64 * _KIB
# Holds a position of 750 bytes: two names and an id. It travels in a URL.
PAGE_TOKEN_LENGTH_MAX: Final = 1024

# Ranges of numbers.

# 0 is first and 9 is last; each level costs the claim an index probe.
PRIORITY_MIN: Final = 0
PRIORITY_MAX: Final = 9
PRIORITY_DEFAULT: Final = 5
# A 32-bit integer column and proto field.
ATTEMPT_MAX: Final = 2**31 - 1
# Ten years, each counted as a leap year. Longer is a mistake of units, and refused.
DURATION_MS_MAX: Final = 10 * 366 * _DAY_MS
# 9999-12-31T23:59:59.999Z, the last instant that RFC 3339 and Python can write.
INSTANT_MS_MAX: Final = 253_402_300_799_999
# Every sensible growth is below 10; the bound keeps the arithmetic in range.
BACKOFF_COEFFICIENT_MAX: Final = 1_000.0
# A longer list is a category, not a list. It is stored with each task.
NON_RETRYABLE_TYPES_MAX: Final = 100

# Batches and queues: what one transaction or one answer may hold.

# Beyond 500 commands a batch gains no throughput and only adds latency.
WORK_BATCH_MAX: Final = 500
# Payloads that one transaction writes; PostgreSQL took 6 s for 200 MiB of them. So a batch of large
# ones ends long before its deadline, and what follows does not wait for it.
WORK_BATCH_BYTES_MAX: Final = 16 * _MIB
# Some seconds of work for a lane; a full queue answers 429 before it accepts.
LANE_QUEUE_MAX: Final = 10_000
# Inputs, details and outputs that one batch hands out at most; the rest waits for the next batch.
BATCH_BYTES_MAX: Final = 64 * _MIB
# What a session, or a stream of results, may have before it that is not written yet.
STREAM_BYTES_MAX: Final = 16 * _MIB
# Answers to polls stay below gRPC's own limit for a message; one task always passes.
POLL_BYTES_MAX: Final = 3 * _MIB
# A claim looks at up to WORK_BATCH_MAX rows of each type. Larger inputs are read once it is known
# that they are handed out. The SQL of the claim has this number.
CLAIM_INPUT_BYTES_MAX: Final = 16 * _KIB
# Payloads in commands that wait for a batch; beyond, new work is refused, and at twice as much
# reports too. Some seconds of work with the largest payloads.
LANE_BYTES_MAX: Final = 64 * _MIB
# All or nothing in one transaction, so it must stay short.
BULK_ENQUEUE_MAX: Final = 1_000
# Attempts of a dead worker that one transaction puts back; the rest follows in the next.
RELEASE_BATCH_MAX: Final = 500
# Timers judged in one transaction, so that a flood of them leaves room for commands.
DUE_BATCH_MAX: Final = 500
# Rows that SQLite deletes at once while it blocks its only writer.
RETENTION_BATCH_MAX: Final = 500
# Rows that a lane remembers; about 1 KiB each, and as much for an input, so 100 MiB at worst.
CACHE_ROWS_MAX: Final = 50_000
# A larger input is not remembered with its row.
CACHE_INPUT_BYTES_MAX: Final = 1 * _KIB
# A row with larger heartbeat details is not remembered.
CACHE_DETAILS_BYTES_MAX: Final = 4 * _KIB
# What fits a screen, and what one list answer costs at most.
PAGE_SIZE_DEFAULT: Final = 20
PAGE_SIZE_MAX: Final = 100
# Lines of waiting tasks that one look at all queues goes through: an index probe each.
LINES_SEEN_MAX: Final = 1_000
# Workers that one round of the watch for deaf ones looks at; the next round goes on behind them.
DEAF_WATCHED_MAX: Final = 1_000
# Nobody changes from well to deaf in less than two heartbeat intervals.
DEAF_WATCH_MS: Final = 3 * _SECOND_MS
# Nobody needs an exact total beyond; counting every row of a large table takes seconds.
COUNTED_MAX: Final = 10_000
# Rows that one page of a list looks at, some milliseconds; a page that finds less than it may have
# says where to go on.
LISTED_SEEN_MAX: Final = 10_000
# Tasks that are counted for one page of queues, and queues between two looks at that number: some
# ten milliseconds. The page ends then, and says where to go on.
QUEUE_ROWS_MAX: Final = 50_000
QUEUES_COUNTED_AT_ONCE: Final = 5
# Tasks of one queue that are counted for metrics: a tenth of a second. A gauge that stands still
# there says enough.
DEPTH_COUNTED_MAX: Final = 1_000_000
# Tasks that one read of a sample counts, if there are several queues, and queues between two looks
# at that number.
SAMPLE_ROWS_MAX: Final = 100_000
SAMPLE_QUEUES_AT_ONCE: Final = 20
# Tasks that an explanation counts before one, and of what it names the first few.
AHEAD_COUNTED_MAX: Final = 1_000
EXPLAINED_MAX: Final = 10
# Workers that ended last, among which an explanation looks for one of a queue.
ENDED_SEEN_MAX: Final = 1_000
# Good names that are recognised without a regular expression; about 1 MiB at worst.
NAMES_REMEMBERED_MAX: Final = 4_096
# The same for the ids of workers, each of which comes with every heartbeat, poll and report.
WORKER_IDS_REMEMBERED_MAX: Final = 16_384
# Distinct task settings whose decoded form is kept; a deployment has one or two per type.
SPECS_REMEMBERED_MAX: Final = 1_024
# Of one of them on the wire, before anybody has looked at it; good ones have a few hundred.
SPEC_BYTES_REMEMBERED_MAX: Final = 4_096

# Workers.

# Each type of an offer is one probe of the claim.
TYPES_PER_WORKER_MAX: Final = 1_000
WORKER_SLOTS_DEFAULT: Final = 100
# A worker's death puts all its tasks back: 20 release batches.
WORKER_SLOTS_MAX: Final = 10_000
# For so long a server believes that a worker belongs to the API key that it was seen with last; a
# worker that polls is seen with each heartbeat.
WORKER_KEY_KEPT_MS: Final = 30 * _SECOND_MS
# Workers whose API keys a server remembers, about 1 KiB each; a fleet at one server.
WORKER_KEYS_KEPT_MAX: Final = 10_000
# A held set cannot be larger than the slots.
HELD_SET_MAX: Final = WORKER_SLOTS_MAX
# Below, one lost packet costs the lease; above, a dead worker keeps its tasks too long.
LEASE_MS_MIN: Final = 10 * _SECOND_MS
LEASE_MS_MAX: Final = 10 * _MINUTE_MS
# Three heartbeats per lease: two may be lost.
SESSION_LEASE_MS: Final = 15 * _SECOND_MS
POLL_LEASE_MS: Final = 30 * _SECOND_MS
SERVED_LEASE_MS: Final = 60 * _SECOND_MS
# Real failures in a row, besides a lapsed lease, before a served worker is unreachable.
SERVED_FAILURES_MAX: Final = 3
# Time to reconnect after a socket closed without goodbye, before the lease is cut.
SUSPECT_GRACE_MS: Final = 3 * _SECOND_MS
# Below, a worker that is alive has no time to come back; above, its lease is over sooner.
SUSPECT_GRACE_MS_MIN: Final = 100
SUSPECT_GRACE_MS_MAX: Final = 15 * _SECOND_MS
# Exclusive work is given away so much later than its worker stops it by its own clock.
EXCLUSIVE_MARGIN_MS: Final = 1 * _SECOND_MS
# Exclusive work in a process that is told to stop and does not is killed within it.
EXCLUSIVE_KILL_MS: Final = 500
# The clocks of a worker and of the store differ by no more than one part in so many.
CLOCK_DRIFT_PARTS: Final = 100
# When more sessions than both of these end at once, the network failed, not the workers.
MASS_CLOSE_SESSIONS_MIN: Final = 10
MASS_CLOSE_SHARE: Final = 0.1
# An event loop that lags longer than a heartbeat may be late is blocked by somebody's code.
LOOP_LAG_BLOCKED_MS: Final = 1 * _SECOND_MS
# Most tasks end within it; what is left is handed back uncharged.
DRAIN_DEADLINE_MS: Final = 5 * _MINUTE_MS
# Shorter than the idle timeout of common proxies.
LONG_POLL_MS: Final = 60 * _SECOND_MS
# Long enough to look at yesterday's crash.
OFFLINE_KEPT_MS: Final = 24 * _HOUR_MS

# Tasks and attempts.

# Four session heartbeats: a confirmation that has not come by then will not come.
DELIVERY_TIMEOUT_MS: Final = 20 * _SECOND_MS
DELIVERY_TIMEOUT_MAX_MS: Final = 120 * _SECOND_MS
# Time for clean-up after the first answer or push that carried the cancel signal.
CANCEL_GRACE_MS: Final = 30 * _SECOND_MS
# Lost workers and lost tasks are not the task's fault, but they cannot go on for ever.
INTERRUPTIONS_MAX: Final = 100
# From this many losses in a row a task is suspected of crashing its workers.
LOSSES_BEFORE_GUARD: Final = 2
# Doubles with each loss of a suspect: time for a worker to restart, a few seconds to the verdict.
GUARD_BACKOFF_MIN_MS: Final = 1 * _SECOND_MS
GUARD_BACKOFF_MAX_MS: Final = 16 * _SECOND_MS
# The fifth counted loss of a suspect without others is evidence that it crashes its worker.
POISON_LOSSES_MAX: Final = 5
# A loss counts only if it is unlikely by chance: the other workers of the queue, as they died in
# the window, would have died less than this often in the time for which the suspect was held.
CONTROL_WINDOW_MS: Final = 60 * _SECOND_MS
CONTROL_DEATHS_MAX: Final = 0.1
# From this many losses without other suspects in a row a suspect explains the death of its worker,
# which is then no sign of a storm: several such tasks are told from workers that die by chance.
LOSSES_THAT_EXPLAIN: Final = 3
# Workers that ended last, among which those of a queue are counted; and live ones of a queue.
CONTROL_SEEN_MAX: Final = 1_000
# Suspects that one claim looks at: more than one group of them, and their inputs are loaded.
SUSPECTS_CLAIMED_MAX: Final = 100
# Hand-outs in a row that nobody confirmed, before the task waits and prefers another worker.
UNDELIVERED_BEFORE_BACKOFF: Final = 3
UNDELIVERED_BACKOFF_MIN_MS: Final = 1 * _SECOND_MS
UNDELIVERED_BACKOFF_MAX_MS: Final = 60 * _SECOND_MS
# Entries and bytes of one journal: from when on it is worth a warning, and from when on its run is
# parked. A re-run reads them all, 50,000 in about half a second. The server's own entries may be as
# many again.
JOURNAL_ENTRIES_WARNING: Final = 10_000
JOURNAL_BYTES_WARNING: Final = 16 * _MIB
JOURNAL_ENTRIES_MAX: Final = 50_000
JOURNAL_BYTES_MAX: Final = 64 * _MIB
# A full journal has room when its run begins anew, which is up to its code.
JOURNAL_RETRY_MS: Final = 1 * _MINUTE_MS
# What is handed out with a run; whoever needs more asks for it.
JOURNAL_PAGE_ENTRIES_MAX: Final = 1_000
JOURNAL_PAGE_BYTES_MAX: Final = 256 * _KIB
# Entries that one report may have, and reports of one command: a frame has at most 1 MiB.
STEP_ENTRIES_MAX: Final = 1_000
# Scope, name and ordinal of a call; where in the source it is; and what waits for a signal.
STEP_KEY_BYTES_MAX: Final = 512
STEP_SITE_BYTES_MAX: Final = 512
SIGNAL_BYTES_MAX: Final = 256 * _KIB
# Signals that come with the start of a run.
START_SIGNALS_MAX: Final = 100
# What is shown of what a run waits for.
WAITS_SHOWN_MAX: Final = 20
WAIT_TEXT_BYTES_MAX: Final = 512
# A run whose code does not fit its journal is tried again, twice as late each time.
PARK_MIN_MS: Final = 1 * _MINUTE_MS
PARK_MAX_MS: Final = 1 * _HOUR_MS
# A maximum interval of 0 means this many initial intervals.
RETRY_INTERVALS_MAX: Final = 100
# An enqueue whose id was made this long ago or less (or ahead: clocks differ) is not looked up:
# the common case arrives within milliseconds, and clocks that are kept differ by less.
ENQUEUE_YOUNG_MS: Final = 1 * _SECOND_MS
# How far the guess of the store's time may be off with which that is decided before it is read.
YOUNG_MARGIN_MS: Final = 250
# For so long after it was read the store's time is known well enough to write by it: two clocks
# that are kept drift apart by less than a millisecond.
STORE_TIME_KEPT_MS: Final = 10 * _SECOND_MS
# After a claim that found more than one task, claims are batches for so long: there is work.
CROWDED_MS: Final = 1 * _SECOND_MS
# A task that stands alone in its line is remembered with its input, if that is no larger.
SOLE_BYTES_MAX: Final = 16 * 1024
# Workers that a server remembers to hand them work by one statement; a fleet at one server.
RECEIVERS_KEPT_MAX: Final = 10_000
# What was not looked up is stored within this time after it was decided, or decided again.
ENQUEUE_STORED_MS: Final = 500
# A marked enqueue whose task is unknown is accepted once the first request could only be looked up:
# it is not young, it was stored in time, and half a second for a clock that was set back.
ENQUEUE_DECIDED_MS: Final = ENQUEUE_YOUNG_MS + ENQUEUE_STORED_MS + 500
# Ids from further ahead are of a clock that is wrong; a marked enqueue does not wait for them.
ENQUEUE_AHEAD_MS: Final = 10 * _SECOND_MS
# After the store's clock was set back, enqueues are looked up until it has caught up, but not for
# longer: nothing stays in a socket for a minute while its client asks again.
CLOCK_SET_BACK_MS_MAX: Final = 1 * _MINUTE_MS
# A week of history answers most questions; PostgreSQL drops it by the day.
HISTORY_KEPT_MS: Final = 7 * _DAY_MS
# A client that retries for longer than a day has lost its reason to.
KEY_KEPT_MS: Final = 24 * _HOUR_MS
# Somebody outside completes the task: a person's approval may take weeks.
COMPLETION_TOKEN_MS: Final = 30 * _DAY_MS
# A namespace of two names, two ids and some numbers, as base64.
TASK_TOKEN_LENGTH_MAX: Final = 1024

# Keys and the audit log.

# Every server remembers all live keys, about 1 KiB each.
LIVE_KEYS_MAX: Final = 10_000
# Whoever needs more wants a key for all of them.
KEY_NAMESPACES_MAX: Final = 100
# How exact the last use of a key is; each round of it is one write.
KEY_USED_MS: Final = 60 * _SECOND_MS
# The instant of a key's expiry is looked at again after this: clocks may be set.
KEY_EXPIRY_LOOK_MS: Final = 60 * _SECOND_MS
# A quarter of a year: what an audit usually asks for.
AUDIT_KEPT_MS: Final = 90 * _DAY_MS
# One line of a table.
AUDIT_DETAIL_BYTES_MAX: Final = 1 * _KIB

# Servers and background services.

# A server touches its row each second; after thirty misses it is gone, not slow.
STALE_SERVER_MS: Final = 30 * _SECOND_MS
# When most workers of a silent server have come back elsewhere, so much more than their lease is
# enough for the others: they could have done so too.
RETURN_ELSEWHERE_MS: Final = 5 * _SECOND_MS
# A loop that stalled longer may have kept reports waiting, so it must not judge.
SIGHT_STALL_MS: Final = 1 * _SECOND_MS
# How late a claim or timer may be when every hint was lost.
FALLBACK_POLL_MS: Final = 1 * _SECOND_MS
# A list or a lookup that takes longer is given up, so that it never holds a connection for long.
READ_SECONDS_MAX: Final = 10.0
# How long a statement waits for SQLite's lock; only readers' checkpoints ever hold it here.
SQLITE_BUSY_MS: Final = 5 * _SECOND_MS
# apsw keeps prepared statements in a ring: each call moves its own one place on and pushes out what
# stands there. A batch makes up to 500 calls of one statement, and the others should survive it.
SQLITE_STATEMENTS_MAX: Final = 1_000
# A transaction of a lane is one bounded batch; one that takes longer hangs on a connection that is
# dead or a backend that stands still. Its callers hear of it before they give up themselves.
LANE_SECONDS_MAX: Final = 5.0
# Clean-up is no lane: it drops whole days, and nobody waits for it.
SERVICE_SECONDS_MAX: Final = 30.0
# How long a statement of a lane waits for a row that another transaction has. A batch keeps its
# rows for milliseconds; who keeps one longer stands still, and only those that want it shall wait.
LOCK_WAIT_MS: Final = 1 * _SECOND_MS
# The parts of a batch that met such a row wait only so long, and all of them together as long as
# a batch may take: then the rest of it is told to come again.
PART_LOCK_WAIT_MS: Final = 50
CONNECT_SECONDS_MAX: Final = 5.0
# PostgreSQL's names have 63 bytes, and `tenure_` comes before this one in the name of a channel.
SCHEMA_NAME_BYTES_MAX: Final = 56
# Once one host of several has answered, the others have this long to show a higher timeline.
OTHER_HOSTS_SECONDS_MAX: Final = 1.0
# Lists and lookups share few connections, so that they never crowd out the lanes.
READ_POOL_SIZE: Final = 4
# Lists and counts at the same time; the other connections are for lookups, which never wait for
# them: the result that somebody waits for is one.
SCANS_MAX: Final = 2
# A server that could not commit a heartbeat for SIGHT_STALL_MS is blind, so it probes more often.
SIGHT_PROBE_MS: Final = 400
# How often leases are scanned, and retention looks for what is old.
JUDGE_MS: Final = 1 * _SECOND_MS
RETENTION_MS: Final = 60 * _SECOND_MS
# The live table grows to 125 MB in ten seconds at full speed when autovacuum is left to itself.
VACUUM_EVERY_TASKS: Final = 25_000
# Beyond this share of a full lane new work is refused, so that reports still find room.
NEW_WORK_SHARE_MAX: Final = 0.8
# Leases that seem to be over are cheap to look at; those that are spared must not fill a round.
JUDGED_BATCH_MAX: Final = 5_000
# Between two scans from the very head of a line a hundred times the time of the last one passes.
FULL_CLAIM_BUDGET: Final = 100
# Where nobody can tell of work such scans are the only way to find it: a tenth of the time.
UNTOLD_CLAIM_BUDGET: Final = 10
# Of the pace of the fallback poll, which is spread by a tenth: so each poll may scan from the head.
FULL_CLAIM_PACE: Final = 0.85
# Hints for other replicas are sent together: inside the transactions they would queue up.
NOTIFY_MS: Final = 20
# PostgreSQL refuses a hint of 8,000 bytes; one of each kind takes at most five of these.
NOTIFY_BYTES_MAX: Final = 4_000
NOTIFY_KIND_BYTES_MAX: Final = 20_000
# Behind a pooler nobody can listen: this is how late news of other replicas may be then.
NEWS_POLL_MS: Final = 500
# Reads of what is waited for are this far apart when the store is slow, however many wait.
NEWS_READ_MS: Final = 50
# A server that begins to wait may have missed what happened before it was known to wait.
NEWS_FIRST_MS: Final = 100
# Ids in one read of what is waited for; finished rows come with their payloads, so fewer of them.
WATCH_IDS_MAX: Final = 1_000
WATCH_ROWS_MAX: Final = 100
# A server that waits for results says so each second; it is believed for a few of them.
RESULTS_WANTED_MS: Final = 5 * _SECOND_MS
WANT_RESULTS_MS: Final = 1 * _SECOND_MS
# How long hints are kept for a subscriber that comes back; a browser does within seconds.
EVENTS_KEPT_MS: Final = 60 * _SECOND_MS
# About 30 MiB while somebody listens, and five seconds at full speed.
EVENTS_KEPT_MAX: Final = 100_000
# Hints of one kind in one message to the other servers; of more only the kind is told.
EVENTS_TOLD_MAX: Final = 100
# Whoever gets a reset reads whole lists: this far apart when hints of other servers are missed.
EVENTS_RESET_MS: Final = 5 * _SECOND_MS
# By then every other server knows that somebody listens here.
EVENTS_JOIN_MS: Final = 250
# The number of an event fits 64 bits.
EVENT_NUMBER_DIGITS_MAX: Final = 18
# Partitions of history are made for this many days to come.
DAY_MS: Final = _DAY_MS
DAYS_AHEAD: Final = 2
# Depths are read apart from any scrape; a read that takes long comes so much less often that it
# takes a twentieth of the time at the most.
SAMPLE_MS: Final = 5 * _SECOND_MS
SAMPLE_BUDGET: Final = 20
# Each label set is a time series for whoever scrapes; what is beyond is summed up as `other`.
METRIC_QUEUES_MAX: Final = 100
METRIC_METHODS_MAX: Final = 500
# A crash loop of a whole fleet must not crowd out work; heartbeats have a lane of their own.
REGISTRATIONS_PER_S: Final = 500
# No rate: how much is too much for one of several namespaces only the operator can say, and what
# is too much for the server is refused by how long it waits.
ENQUEUES_PER_S: Final = 0
# Ten screens of twenty people that are refreshed each second; readers share few connections.
LISTS_PER_S: Final = 200
# A worker beats each few seconds, and at once after a mismatch or a new session. A flood beyond is
# refused before it reaches the lane of heartbeats, and costs nobody else a lease.
BEATS_PER_S: Final = 10
BEATS_BURST_S: Final = 5
# Namespaces or workers whose rates are remembered, about 200 bytes each.
BUCKETS_MAX: Final = 20_000
# Of one namespace, so that it leaves room for others; about 60 KiB for a session or a poll.
SESSIONS_MAX: Final = 20_000
POLLS_MAX: Final = 10_000
WAITS_MAX: Final = 1_000
# Whoever finds no place asks again after some time: places are kept for long.
CROWD_RETRY_MS: Final = 5 * _SECOND_MS
# Streams that one connection to gRPC may have open; its client keeps the others back. A worker has
# one and some calls, a client one and its calls.
CONNECTION_STREAMS_MAX: Final = 256
# What gRPC takes in of a stream before somebody reads it; its own default is 4 MiB, and grows. The
# sender of a larger message waits for one more round trip.
STREAM_WINDOW_BYTES: Final = 32 * _KIB
# Calls that gRPC has not handed over yet, because the loop is late; it refuses more by itself.
PENDING_CALLS_MAX: Final = 1_000
# What a message or a body may take to arrive: 4 MiB over 4.2 Mbit/s. A late loop ends it in 10 s.
MESSAGE_MS: Final = 8 * _SECOND_MS
# Messages of callers without a key that are read at a time, and calls that wait for that. With the
# windows of these and of pending calls that is 61 MiB. A message that is there is read in 1 ms.
STRANGER_MESSAGES_MAX: Final = 5
STRANGER_CALLS_MAX: Final = 320
# While others wait, one of them has this long: 4 MiB over 134 Mbit/s.
STRANGER_MESSAGE_MS: Final = 250
# One client holds at most so many times as many places as are free: alone half of them, the next
# one half of what is left. Ten greedy ones fill 1,000 places.
CLIENT_SHARE: Final = 1
# Addresses whose network was worked out; about 200 bytes each.
ADDRESSES_REMEMBERED_MAX: Final = 4_096

# Overload: when new work is refused. A wait that a user just does not notice.
OVERLOAD_WAIT_MS: Final = 100
# Requests with new work that are open at a time. The room for them grows by a twentieth while they
# take less than half of that wait, and shrinks by a tenth when they take longer. It starts with
# what comes at the full hour, and an idle server is back there within three seconds.
NEW_WORK_OPEN_START: Final = 400
ROOM_GROWS: Final = 1.05
ROOM_SHRINKS: Final = 0.9
# The rest of HTTP_REQUESTS_MAX is for reports.
NEW_WORK_OPEN_MAX: Final = 800
# Fewer are no crowd: then something else holds the server up, and refusing does not help.
NEW_WORK_OPEN_MIN: Final = 32
# When work has waited longer than that, one of so many is let in; above twice the wait one of its
# square; and none when it takes four times as long.
OVERLOAD_ADMITTED_OF: Final = 4
# So many open calls over gRPC are read in turns: after each 30 ms reading pauses until no call has
# come for 3 ms, at most for 100 ms. Others come in meanwhile; on PostgreSQL at three times the
# capacity they waited for 2 s before they were refused, now for 30 ms.
CROWD_MIN: Final = 16
READING_MS: Final = 30
READING_PAUSE_MS: Final = 100
QUIET_NAP_MS: Final = 1
QUIET_NAPS: Final = 3
# How often the lag of the loop and the wait at gRPC are measured: an eighth of a core's percent.
OVERLOAD_TICK_MS: Final = 50
# Time for a crowd to thin out.
OVERLOAD_RETRY_MS: Final = 1 * _SECOND_MS
# One line for all that was refused since the last one.
OVERLOAD_LOG_MS: Final = 1 * _SECOND_MS
# What a stopping server gives open requests and streams, below the usual grace of 10 s.
SHUTDOWN_MS: Final = 8 * _SECOND_MS
# A call is answered within this; who waits longer asks again.
CALL_MS: Final = 30 * _SECOND_MS
# A frame stays below gRPC's own limit for a message, with room for what is around the payloads.
FRAME_BYTES: Final = 1 * _MIB
# What nobody waits for may wait that long for something to be written with: the answer to an
# enqueue whose result is wanted, and acknowledgements, as long as they are few.
LULL_MS: Final = 10
LULL_ACKS_MAX: Final = 16
# Reports of one session that wait for their commit; beyond, its frames are no longer read.
SESSION_REPORTS_MAX: Final = 20_000
# A worker that reads nothing for so long is closed; its lease decides what becomes of it.
SLOW_READER_MS: Final = 30 * _SECOND_MS
# Ids that one WatchTasks stream may wait for at a time.
WATCHED_MAX: Final = 10_000
# Enqueues that one such stream may have open; more of them wait to be read.
STREAM_ENQUEUES_MAX: Final = 16

# Calls without a good key: of one address one is logged within that time. So many addresses are
# told apart in it, and the others count as one: a flood from everywhere writes 101 lines a second.
REFUSAL_LOG_MS: Final = 1 * _SECOND_MS
REFUSAL_ADDRESSES_MAX: Final = 100

# How often a server looks whether it has descriptors left, and how many good looks in a row mean
# that it has again: at the edge of the limit they come and go.
DESCRIPTOR_LOOK_MS: Final = 1 * _SECOND_MS
DESCRIPTOR_LOOKS: Final = 3

# The HTTP edge.

# Bodies in memory at once; more clients get 429 before theirs are read.
HTTP_REQUESTS_MAX: Final = 1_000
# Load balancers and scrapers have places of their own: they are answered in a full house, too.
HTTP_PROBES_MAX: Final = 100
# A waiting request costs a few KiB, a stream besides a read each WATCH_READ_MS.
HTTP_WAITS_MAX: Final = 2_000
HTTP_STREAMS_MAX: Final = 200
# Of one key, and of one address at a server without keys: the screens of a team, and a quarter of
# all, so that nobody alone keeps the others out.
CALLER_STREAMS_MAX: Final = 50
# How old the progress that a stream shows may be.
WATCH_READ_MS: Final = 500
# Shorter than the idle timeout of common proxies; it also finds out that a client is gone.
STREAM_PING_MS: Final = 15 * _SECOND_MS
# Hints are written together: each write costs more than the hints in it, and nobody sees faster.
EVENT_GATHER_MS: Final = 20
# Hints in one write, about 250 KiB; then the subscriber has to have taken them.
EVENT_WRITE_MAX: Final = 1_000
# How long a subscriber that was cut off waits before it comes back.
EVENT_RETRY_MS: Final = 1 * _SECOND_MS
# The id of a server and a number, with room.
EVENT_ID_LENGTH_MAX: Final = 128
# Request line and headers; ours are a few hundred bytes, a page token in the URL is the longest.
HTTP_HEAD_BYTES_MAX: Final = 8 * _KIB
# A client on a bad line sends its head in one packet; who takes longer keeps a socket for nothing.
HTTP_HEAD_MS: Final = 10 * _SECOND_MS
# An idle connection is kept for a client's next request, not for a pool that forgot it.
HTTP_IDLE_MS: Final = 30 * _SECOND_MS
# A replaced certificate is found by then; connections look for themselves.
TLS_LOOK_MS: Final = 1 * _SECOND_MS
# Time to order another certificate, and how often its end is recalled.
TLS_EXPIRY_NEAR_MS: Final = 30 * _DAY_MS
TLS_REMIND_MS: Final = 1 * _DAY_MS
# What a client may take for its handshake, as for the head of a request.
TLS_HANDSHAKE_MS: Final = 10 * _SECOND_MS
# A certificate with its chain has 10 KiB, the authorities of an operating system 250.
TLS_FILE_BYTES_MAX: Final = 1 * _MIB
# Deeper JSON is no data, and costs every reader its stack.
JSON_DEPTH_MAX: Final = 100
# A load balancer asks each second or so, and must not wait for a store that is away.
READY_MS_MAX: Final = 900
# After a full disk: half of the largest payload must find room before the server says that it can
# work; and how often that is tried.
SPACE_PROBE_BYTES: Final = 1 * _MIB
SPACE_PROBE_MS: Final = 1 * _SECOND_MS

# The doctor: from when on something is worth a warning, and from when on it is a problem.

# Up to here an enqueue is not looked up, and from there on its id is of a clock that is wrong.
CLOCK_WARNING_MS: Final = ENQUEUE_YOUNG_MS
CLOCK_PROBLEM_MS: Final = ENQUEUE_AHEAD_MS
# A server that commits less often than each second is blind.
LATENCY_WARNING_MS: Final = 250
LATENCY_PROBLEM_MS: Final = SIGHT_STALL_MS
# Servers, tools and backups come on top of what is in use on a quiet day.
CONNECTIONS_WARNING_SHARE: Final = 0.8
CONNECTIONS_PROBLEM_SHARE: Final = 0.95
# The oldest whose SQL the statements use.
POSTGRES_VERSION_MIN: Final = 13
# Some minutes of full speed, and some seconds.
DISK_WARNING_BYTES: Final = 1024 * _MIB
DISK_PROBLEM_BYTES: Final = 128 * _MIB
# SQLite begins to write its log back at 4 MiB; far beyond, a reader keeps it from doing so.
WAL_WARNING_BYTES: Final = 1024 * _MIB
# Leases are judged and timers looked at each second; a blind server may take some of them.
STUCK_MS: Final = 1 * _MINUTE_MS
# Workers that are deployed anew are back by then.
WAITING_PROBLEM_MS: Final = 1 * _MINUTE_MS
# Whoever asks at a prompt gives up after ten seconds.
DIAGNOSIS_MS_MAX: Final = 8 * _SECOND_MS
# Lines of one kind, and rows that one check reads.
FINDINGS_MAX: Final = 20
DIAGNOSED_ROWS_MAX: Final = 10_000
# Rows that `db check` has in memory at a time: 80 MiB if each has the largest input and output.
SCANNED_ROWS_MAX: Final = 20
# Damaged rows that it names; of more there is only the number.
SCANNED_DAMAGES_MAX: Final = 100
# How long the structure of a SQLite file is looked at before a server starts: a warm file of 1 GiB
# is done by then, and nobody waits longer for a large one.
SQLITE_CHECK_MS_MAX: Final = 2 * _SECOND_MS
