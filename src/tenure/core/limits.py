"""Every limit and every default, with its unit in the name and its reason beside it.

Durations are milliseconds. `MAX` or `MIN` in a name limits a request or the work that is done at
once; other names are defaults or fixed sizes. Settings may replace defaults, not formats.
"""

from typing import Final

_SECOND_MS: Final = 1_000
_MINUTE_MS: Final = 60 * _SECOND_MS
_HOUR_MS: Final = 60 * _MINUTE_MS
_DAY_MS: Final = 24 * _HOUR_MS
_KIB: Final = 1024
_MIB: Final = 1024 * _KIB

# Sizes of user input.

# A database row is not made for files; above this, users store the data and send a reference.
PAYLOAD_BYTES_MAX: Final = 2 * _MIB
# One payload as base64 (2.7 MiB) with the rest of its request; also gRPC's own default.
REQUEST_BYTES_MAX: Final = 4 * _MIB
# Fits an index entry of both databases and a file name.
NAME_LENGTH_MAX: Final = 255
# Labels are for finding things; more would be data, which belongs in the input.
LABELS_MAX: Final = 64
LABEL_BYTES_MAX: Final = 256
# Short free text, such as an idempotency key: fits an index entry of both databases.
TEXT_BYTES_MAX: Final = 1 * _KIB
# Shown in lists and logs; in a longer message the beginning is hard to find.
ERROR_MESSAGE_BYTES_MAX: Final = 16 * _KIB
# About a thousand frames, as deep as Python's recursion limit.
STACK_TRACE_BYTES_MAX: Final = 64 * _KIB
# Holds a position of 750 bytes: two names and an id. It is part of a URL.
PAGE_TOKEN_LENGTH_MAX: Final = 1024

# Ranges of numbers.

# 0 is first and 9 is last; each level costs the claim an index probe.
PRIORITY_MIN: Final = 0
PRIORITY_MAX: Final = 9
PRIORITY_DEFAULT: Final = 5
# A 32-bit integer column and proto field.
ATTEMPT_MAX: Final = 2**31 - 1
# Ten years, each counted as a leap year. A longer duration is probably a wrong unit.
DURATION_MS_MAX: Final = 10 * 366 * _DAY_MS
# 9999-12-31T23:59:59.999Z, the last instant that RFC 3339 and Python can write.
INSTANT_MS_MAX: Final = 253_402_300_799_999
# Every useful value is below 10; the limit keeps the arithmetic in range.
BACKOFF_COEFFICIENT_MAX: Final = 1_000.0
# Users with more types should use a category. The list is stored with each task.
NON_RETRYABLE_TYPES_MAX: Final = 100

# Batches and queues: the limits of one transaction or one answer.

# Beyond 500 commands a batch gains no throughput and only adds latency.
WORK_BATCH_MAX: Final = 500
# Payloads that one transaction writes, well before its deadline: PostgreSQL took 6 s for 200 MiB.
WORK_BATCH_BYTES_MAX: Final = 16 * _MIB
# Some seconds of work for a lane; a full queue answers 429 before it accepts anything.
LANE_QUEUE_MAX: Final = 10_000
# Inputs, details and outputs that one batch hands out at most; the rest is in the next batch. It is
# as much as one session takes: each byte is in memory four times while it is read and sent.
BATCH_BYTES_MAX: Final = 16 * _MIB
# Bytes that a session, or a stream of results, may have queued but not written yet.
STREAM_BYTES_MAX: Final = 16 * _MIB
# Answers to polls stay below gRPC's own message limit; one task always fits.
POLL_BYTES_MAX: Final = 3 * _MIB
# Pages of journals beside them; whoever needs more asks for it.
POLL_PAGE_BYTES_MAX: Final = 512 * _KIB
# A claim reads up to WORK_BATCH_MAX rows of each type. Larger inputs are read only when it is known
# that they are handed out. The SQL of the claim contains this number.
CLAIM_INPUT_BYTES_MAX: Final = 16 * _KIB
# Payloads in commands that wait for a batch. Beyond this, new work is refused; beyond twice as
# much, reports too. Some seconds of work with the largest payloads.
LANE_BYTES_MAX: Final = 64 * _MIB
# Offers of one queue among which a batch looks for the largest free share, if fewer could take all:
# each that may be served is a row to lock. The others come first in the next batches.
OFFERS_COMPARED_MAX: Final = 64
# All or nothing in one transaction, so it must stay short.
BULK_ENQUEUE_MAX: Final = 1_000
# Attempts of a dead worker that one transaction puts back; the next one continues.
RELEASE_BATCH_MAX: Final = 500
# Timers judged in one transaction, so that many of them leave room for commands.
DUE_BATCH_MAX: Final = 500
# Rows that SQLite deletes at once; its only writer is blocked meanwhile.
RETENTION_BATCH_MAX: Final = 500
# Rows in the cache of a lane; about 1 KiB each, and as much for an input, so 100 MiB at worst.
CACHE_ROWS_MAX: Final = 50_000
# A larger input is not cached with its row.
CACHE_INPUT_BYTES_MAX: Final = 1 * _KIB
# A row with larger heartbeat details is not cached.
CACHE_DETAILS_BYTES_MAX: Final = 4 * _KIB
# What fits on a screen, and the most that one list answer costs.
PAGE_SIZE_DEFAULT: Final = 20
PAGE_SIZE_MAX: Final = 100
# Lines of waiting tasks that one read of all queues uses: an index probe each.
LINES_SEEN_MAX: Final = 1_000
# Workers that one round of the check for deaf ones reads; the next round continues after them.
DEAF_WATCHED_MAX: Final = 1_000
# A worker cannot become deaf in less than two heartbeat intervals.
DEAF_WATCH_MS: Final = 3 * _SECOND_MS
# An exact total beyond this is not needed; counting every row of a large table takes seconds.
COUNTED_MAX: Final = 10_000
# Rows that one page of a list reads, some milliseconds; a page that finds too few rows says where
# to continue.
LISTED_SEEN_MAX: Final = 10_000
# Tasks that are counted for one page of queues, and queues between two checks of that number: some
# ten milliseconds. Then the page ends, and says where to continue.
QUEUE_ROWS_MAX: Final = 50_000
QUEUES_COUNTED_AT_ONCE: Final = 5
# Tasks of one queue that are counted for metrics: a tenth of a second. A gauge that stays at this
# number is enough to see the problem.
DEPTH_COUNTED_MAX: Final = 1_000_000
# Runs that are counted for metrics; their states are in their rows, not in an index.
RUNS_COUNTED_MAX: Final = 100_000
# Tasks that one read of a sample counts, if there are several queues, and queues between two checks
# of that number.
SAMPLE_ROWS_MAX: Final = 100_000
SAMPLE_QUEUES_AT_ONCE: Final = 20
# Tasks ahead of a task that an explanation counts, and items of each list that it names.
AHEAD_COUNTED_MAX: Final = 1_000
EXPLAINED_MAX: Final = 10
# So many tasks that a run waits for are explained, and one of each run among them, to this depth.
EXPLAINED_CHILDREN_MAX: Final = 5
EXPLAINED_DEPTH_MAX: Final = 10
# Workers that ended last; an explanation searches them for one of a queue.
ENDED_SEEN_MAX: Final = 1_000
# Valid names that are recognised without a regular expression; about 1 MiB at worst.
NAMES_REMEMBERED_MAX: Final = 4_096
# The same for the ids of workers, which come with every heartbeat, poll and report.
WORKER_IDS_REMEMBERED_MAX: Final = 16_384
# Distinct task settings whose decoded form is kept; a deployment has one or two per type.
SPECS_REMEMBERED_MAX: Final = 1_024
# The size of one of them on the wire, before it is checked; valid ones have a few hundred bytes.
SPEC_BYTES_REMEMBERED_MAX: Final = 4_096

# Workers.

# Each type of an offer is one probe of the claim.
TYPES_PER_WORKER_MAX: Final = 1_000
WORKER_SLOTS_DEFAULT: Final = 100
# When a worker is lost, all its tasks are put back: 20 release batches.
WORKER_SLOTS_MAX: Final = 10_000
# Queues of one worker process: each has its own stream and lease.
WORKER_QUEUES_MAX: Final = 50
# How long a server assumes that a worker belongs to the API key of its last call; a worker that
# polls calls with each heartbeat.
WORKER_KEY_KEPT_MS: Final = 30 * _SECOND_MS
# Workers whose API keys a server caches, about 1 KiB each; enough for all workers at one server.
WORKER_KEYS_KEPT_MAX: Final = 10_000
# A held set cannot be larger than the slots.
HELD_SET_MAX: Final = WORKER_SLOTS_MAX
# Below this, one lost packet costs the lease; above it, a dead worker keeps its tasks too long.
LEASE_MS_MIN: Final = 10 * _SECOND_MS
LEASE_MS_MAX: Final = 10 * _MINUTE_MS
# Three heartbeats per lease: two may be lost.
SESSION_LEASE_MS: Final = 15 * _SECOND_MS
POLL_LEASE_MS: Final = 30 * _SECOND_MS
SERVED_LEASE_MS: Final = 60 * _SECOND_MS
# Failures in a row, besides an ended lease, before a served worker counts as unreachable.
SERVED_FAILURES_MAX: Final = 3
# Time to reconnect after a socket closed without goodbye, before the lease is ended early.
SUSPECT_GRACE_MS: Final = 3 * _SECOND_MS
# Below this, a live worker has no time to reconnect; above it, its lease ends sooner anyway.
SUSPECT_GRACE_MS_MIN: Final = 100
SUSPECT_GRACE_MS_MAX: Final = 15 * _SECOND_MS
# The server releases exclusive work this much later than its worker stops it by its own clock.
EXCLUSIVE_MARGIN_MS: Final = 1 * _SECOND_MS
# A process with exclusive work that ignores the stop is killed within this time.
EXCLUSIVE_KILL_MS: Final = 500
# The clocks of a worker and of the store differ by at most one part in this number.
CLOCK_DRIFT_PARTS: Final = 100
# When more sessions than both of these end at once, the network failed, not the workers.
MASS_CLOSE_SESSIONS_MIN: Final = 10
MASS_CLOSE_SHARE: Final = 0.1
# An event loop that lags longer than a heartbeat may be late is blocked by user code.
LOOP_LAG_BLOCKED_MS: Final = 1 * _SECOND_MS
# Most tasks end within it; the rest is handed back without counting as a failure.
DRAIN_DEADLINE_MS: Final = 5 * _MINUTE_MS
# Shorter than the idle timeout of common proxies.
LONG_POLL_MS: Final = 60 * _SECOND_MS
# Long enough to examine a crash of the previous day.
OFFLINE_KEPT_MS: Final = 24 * _HOUR_MS

# Tasks and attempts.

# Four session heartbeats: a confirmation that has not arrived by then will not arrive.
DELIVERY_TIMEOUT_MS: Final = 20 * _SECOND_MS
DELIVERY_TIMEOUT_MAX_MS: Final = 120 * _SECOND_MS
# Time for clean-up after the first answer or push that carried the cancel signal.
CANCEL_GRACE_MS: Final = 30 * _SECOND_MS
# Lost workers and lost tasks are not the task's fault, but they cannot continue for ever.
INTERRUPTIONS_MAX: Final = 100
# From this many losses in a row a task is suspected of crashing its workers.
LOSSES_BEFORE_GUARD: Final = 2
# Doubles with each loss of a suspect: time for a worker to restart, and a result within seconds.
GUARD_BACKOFF_MIN_MS: Final = 1 * _SECOND_MS
GUARD_BACKOFF_MAX_MS: Final = 16 * _SECOND_MS
# The fifth counted loss of a suspect without others is evidence that it crashes its worker.
POISON_LOSSES_MAX: Final = 5
# A loss counts only if chance is unlikely: at the rate of losses in the window, the other workers
# of the queue would have been lost less than this often in the time that the suspect was held.
CONTROL_WINDOW_MS: Final = 60 * _SECOND_MS
CONTROL_DEATHS_MAX: Final = 0.1
# From this many losses in a row without other suspects, a suspect explains the loss of its worker,
# and this loss is not counted as chance. So several such tasks cannot hide each other.
LOSSES_THAT_EXPLAIN: Final = 3
# Workers that ended last, among which those of a queue are counted; and live ones of a queue.
CONTROL_SEEN_MAX: Final = 1_000
# Suspects that one claim reads: more than one group of them, and their inputs are loaded.
SUSPECTS_CLAIMED_MAX: Final = 100
# Unconfirmed hand-outs in a row, before the task waits and prefers another worker.
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
# Pages that are read at once: after a reconnect a worker asks for the tail of each run it holds.
JOURNAL_REQUESTS_MAX: Final = 500
# Signals that nobody has taken, and that a run names when it begins anew.
KEPT_SIGNALS_MAX: Final = 50_000
# Entries that one report may have, and reports of one command: a frame has at most 1 MiB.
STEP_ENTRIES_MAX: Final = 1_000
# Children: of one report, open ones of a run, items of a map, runs above a run, and how many are
# closed by one transaction.
SPAWN_CHILDREN_MAX: Final = 1_000
OPEN_CHILDREN_MAX: Final = 20_000
GROUP_ITEMS_MAX: Final = 100_000
RUN_DEPTH_MAX: Final = 100
CLOSED_CHILDREN_MAX: Final = 500
EXTERNAL_ID_BYTES_MAX: Final = 255
# Open children of one page.
OPEN_PAGE_MAX: Final = 1_000
# Scope, name and ordinal of a call, and a few bytes more of the timer of a step that is tried
# again; where in the source it is; and what waits for a signal.
STEP_KEY_BYTES_MAX: Final = 512
WAKE_KEY_BYTES_MAX: Final = STEP_KEY_BYTES_MAX + 16
STEP_SITE_BYTES_MAX: Final = 512
SIGNAL_BYTES_MAX: Final = 256 * _KIB
# A failed step that is tried again within this time keeps its slot; a later one is worth a re-run.
STEP_WAIT_HERE_MS: Final = 5 * _SECOND_MS
# Calls for steps of one run that somebody else overtook, before the caller has to try again.
STEP_CALL_TURNS: Final = 20
# What a run publishes of itself: it is written with the row, and read by whoever looks at the run.
RUN_STATE_BYTES_MAX: Final = 64 * _KIB
# Signals that come with the start of a run.
START_SIGNALS_MAX: Final = 100
# What is shown of what a run waits for.
WAITS_SHOWN_MAX: Final = 20
WAIT_TEXT_BYTES_MAX: Final = 512
# Runs that wait and stay in the memory of their worker; one takes some tens of KiB.
WARM_RUNS: Final = 1_000
WARM_RUNS_MAX: Final = 100_000
# So many of them keep the thread of a plain body; the others run again from their journals.
WARM_THREADS: Final = 100
# Waiting runs of which a server knows the queue: the batch that wakes one hands it out. About 300
# bytes each.
WAITING_RUNS_MAX: Final = 20_000
# A run whose code does not fit its journal is tried again, twice as late each time.
PARK_MIN_MS: Final = 1 * _MINUTE_MS
PARK_MAX_MS: Final = 1 * _HOUR_MS
# A maximum interval of 0 means this many initial intervals.
RETRY_INTERVALS_MAX: Final = 100
# An enqueue whose id was created at most this long ago (or ahead: clocks differ) is not looked up:
# most enqueues arrive within milliseconds, and synchronised clocks differ by less.
ENQUEUE_YOUNG_MS: Final = 1 * _SECOND_MS
# How wrong the estimate of the store's time may be that is used before the time is read.
YOUNG_MARGIN_MS: Final = 250
# For this long after it was read the store's time is known well enough for writes: two synchronised
# clocks drift apart by less than a millisecond.
STORE_TIME_KEPT_MS: Final = 10 * _SECOND_MS
# After a claim that found more than one task, claims are batches for this long: there is work.
CROWDED_MS: Final = 1 * _SECOND_MS
# The only task of a line is cached with its input, if that is not larger than this.
SOLE_BYTES_MAX: Final = 16 * 1024
# Workers that a server caches for single writes; enough for all workers at one server.
RECEIVERS_KEPT_MAX: Final = 10_000
# A task that was not looked up is stored within this time after the decision, or decided again.
ENQUEUE_STORED_MS: Final = 500
# A marked enqueue whose task is unknown is accepted once the first request can only be looked up:
# it is not recent, it was stored in time, plus half a second for a clock that was set back.
ENQUEUE_DECIDED_MS: Final = ENQUEUE_YOUNG_MS + ENQUEUE_STORED_MS + 500
# Ids from further ahead come from a wrong clock; a marked enqueue does not wait for them.
ENQUEUE_AHEAD_MS: Final = 10 * _SECOND_MS
# After the store's clock was set back, enqueues are looked up until it has caught up, but not for
# longer: no request stays in a socket for a minute while its client repeats it.
CLOCK_SET_BACK_MS_MAX: Final = 1 * _MINUTE_MS
# A week of history answers most questions; PostgreSQL drops it by the day.
HISTORY_KEPT_MS: Final = 7 * _DAY_MS
# No client should retry for longer than a day.
KEY_KEPT_MS: Final = 24 * _HOUR_MS
# The task is completed from outside: the approval of a person may take weeks.
COMPLETION_TOKEN_MS: Final = 30 * _DAY_MS
# A namespace of two names, two ids and some numbers, as base64.
TASK_TOKEN_LENGTH_MAX: Final = 1024

# Keys and the audit log.

# Every server caches all live keys, about 1 KiB each.
LIVE_KEYS_MAX: Final = 10_000
# A key with more namespaces should be a key for all of them.
KEY_NAMESPACES_MAX: Final = 100
# The precision of the last use of a key; each update is one write.
KEY_USED_MS: Final = 60 * _SECOND_MS
# The expiry of a key is checked again after this: clocks may be changed.
KEY_EXPIRY_LOOK_MS: Final = 60 * _SECOND_MS
# A quarter of a year: the usual period of an audit.
AUDIT_KEPT_MS: Final = 90 * _DAY_MS
# One line of a table.
AUDIT_DETAIL_BYTES_MAX: Final = 1 * _KIB

# Servers and background services.

# A server touches its row each second; after thirty misses it is gone, not slow.
STALE_SERVER_MS: Final = 30 * _SECOND_MS
# When most workers of a silent server have connected elsewhere, this much more than their lease is
# enough for the others: they could have connected too.
RETURN_ELSEWHERE_MS: Final = 5 * _SECOND_MS
# A loop that stalled longer may have delayed reports, so its server must not judge.
SIGHT_STALL_MS: Final = 1 * _SECOND_MS
# How late a claim or timer may be when every hint was lost.
FALLBACK_POLL_MS: Final = 1 * _SECOND_MS
# A list or a lookup that takes longer is stopped, so that it never holds a connection for long.
READ_SECONDS_MAX: Final = 10.0
# How long a statement waits for SQLite's lock; here only checkpoints of readers ever hold it.
SQLITE_BUSY_MS: Final = 5 * _SECOND_MS
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
LOCK_WAIT_MS: Final = 1 * _SECOND_MS
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
JUDGE_MS: Final = 1 * _SECOND_MS
RETENTION_MS: Final = 60 * _SECOND_MS
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
RESULTS_WANTED_MS: Final = 5 * _SECOND_MS
WANT_RESULTS_MS: Final = 1 * _SECOND_MS
# How long hints are kept for a subscriber that reconnects; a browser does so within seconds.
EVENTS_KEPT_MS: Final = 60 * _SECOND_MS
# About 30 MiB while there are subscribers, and five seconds at full speed.
EVENTS_KEPT_MAX: Final = 100_000
# Hints of one kind in one message to the other servers; of more, only the kind is sent.
EVENTS_TOLD_MAX: Final = 100
# A subscriber that gets a reset reads whole lists: this far apart while hints may be missing.
EVENTS_RESET_MS: Final = 5 * _SECOND_MS
# By then every other server knows that there are subscribers here.
EVENTS_JOIN_MS: Final = 250
# The number of an event fits in 64 bits.
EVENT_NUMBER_DIGITS_MAX: Final = 18
# Partitions of history are created for this many days ahead.
DAY_MS: Final = _DAY_MS
DAYS_AHEAD: Final = 2
# Depths are not read during a scrape. They take at most a hundredth of the time, so that 100,000
# runs that sleep cost next to nothing.
SAMPLE_MS: Final = 5 * _SECOND_MS
SAMPLE_BUDGET: Final = 100
# Each label set is a time series in Prometheus; more queues are added up as `other`.
METRIC_QUEUES_MAX: Final = 100
METRIC_METHODS_MAX: Final = 500
METRIC_TYPES_MAX: Final = 100
# A crash loop of all workers must not delay work; heartbeats have a lane of their own.
REGISTRATIONS_PER_S: Final = 500
# No rate: only the operator knows the share of a namespace; overload is refused by waiting time.
ENQUEUES_PER_S: Final = 0
# Ten screens of twenty people that refresh each second; readers share few connections.
LISTS_PER_S: Final = 200
# A worker sends a heartbeat every few seconds, and at once after a mismatch or a new session. More
# are refused before they reach the heartbeat lane, so that no other worker loses its lease.
BEATS_PER_S: Final = 10
BEATS_BURST_S: Final = 5
# Namespaces or workers whose rates are stored, about 200 bytes each.
BUCKETS_MAX: Final = 20_000
# Per namespace, so that others have room; about 60 KiB for a session or a poll.
SESSIONS_MAX: Final = 20_000
POLLS_MAX: Final = 10_000
WAITS_MAX: Final = 1_000
# A refused caller tries again after some time: sessions and polls last long.
CROWD_RETRY_MS: Final = 5 * _SECOND_MS
# Streams of one gRPC connection, which delay the others. A worker or a client has one, and calls.
CONNECTION_STREAMS_MAX: Final = 256
# Bytes of a stream that gRPC buffers before they are read; larger messages take another round trip.
STREAM_WINDOW_BYTES: Final = 32 * _KIB
# Calls that gRPC has not delivered yet, because the loop is late; gRPC refuses more by itself.
PENDING_CALLS_MAX: Final = 1_000
# The time for a message or a body to arrive: 4 MiB over 4.2 Mbit/s. A late loop ends it in 10 s.
MESSAGE_MS: Final = 8 * _SECOND_MS
# Messages of callers without a key that are read at a time, and calls that wait for that. With the
# windows of these and of pending calls that is 61 MiB. A complete message is read in 1 ms.
STRANGER_MESSAGES_MAX: Final = 5
STRANGER_CALLS_MAX: Final = 320
# While others wait, one of them has this long: 4 MiB over 134 Mbit/s.
STRANGER_MESSAGE_MS: Final = 250
# One client holds at most this many times as many places as are free: the first half of them, the
# next one half of the rest. Ten such clients fill 1,000 places.
CLIENT_SHARE: Final = 1
# Addresses whose network was computed; about 200 bytes each.
ADDRESSES_REMEMBERED_MAX: Final = 4_096

# Overload: when new work is refused. A wait that a user just does not notice.
OVERLOAD_WAIT_MS: Final = 100
# Requests with new work that are open at a time. The limit grows by a twentieth while they take
# less than half of that wait, and shrinks by a tenth when they take longer. It starts with a
# usual burst at the start of an hour, and an idle server is back there within three seconds.
NEW_WORK_OPEN_START: Final = 400
ROOM_GROWS: Final = 1.05
ROOM_SHRINKS: Final = 0.9
# The rest of HTTP_REQUESTS_MAX is for reports.
NEW_WORK_OPEN_MAX: Final = 800
# With fewer requests something else delays the server, and refusing does not help.
NEW_WORK_OPEN_MIN: Final = 32
# When work has waited longer than that, one of this many is accepted; above twice the wait one of
# its square; and none when it takes four times as long.
OVERLOAD_ADMITTED_OF: Final = 4
# This many open gRPC calls are read in turns: after each 30 ms reading pauses until no call has
# arrived for 3 ms, at most for 100 ms. Other calls arrive meanwhile. On PostgreSQL at three times
# the capacity they waited for 2 s before they were refused; now they wait for 30 ms.
CROWD_MIN: Final = 16
READING_MS: Final = 30
READING_PAUSE_MS: Final = 100
QUIET_NAP_MS: Final = 1
QUIET_NAPS: Final = 3
# How often the lag of the loop and the wait in gRPC are measured: 0.125 % of a core.
OVERLOAD_TICK_MS: Final = 50
# Time for the load to decrease.
OVERLOAD_RETRY_MS: Final = 1 * _SECOND_MS
# One line for all calls that were refused since the last one.
OVERLOAD_LOG_MS: Final = 1 * _SECOND_MS
# The time that a stopping server gives open requests and streams, below the usual grace of 10 s.
SHUTDOWN_MS: Final = 8 * _SECOND_MS
# A call is answered within this time; a caller that waits longer calls again.
CALL_MS: Final = 30 * _SECOND_MS
# A frame stays below gRPC's own message limit, with room for the rest of the frame.
FRAME_BYTES: Final = 1 * _MIB
# A message that nobody waits for may wait this long to be written with another one: the answer to
# an enqueue whose result is wanted, and acknowledgements, as long as they are few.
LULL_MS: Final = 10
LULL_ACKS_MAX: Final = 16
# Reports of one session that wait for their commit; beyond this, its frames are not read.
SESSION_REPORTS_MAX: Final = 20_000
# A session whose worker reads nothing for this long is closed; then its lease decides.
SLOW_READER_MS: Final = 30 * _SECOND_MS
# Ids that one WatchTasks stream may wait for at a time.
WATCHED_MAX: Final = 10_000
# Enqueues that one such stream may have open; more of them wait to be read.
STREAM_ENQUEUES_MAX: Final = 16

# Calls without a valid key: of each address one is logged within this time. This many addresses are
# distinguished, and the others count as one: at most 101 lines a second are written.
REFUSAL_LOG_MS: Final = 1 * _SECOND_MS
REFUSAL_ADDRESSES_MAX: Final = 100

# How often a server checks whether it has file descriptors left, and how many successful checks in
# a row mean that it has again: near the limit the result changes often.
DESCRIPTOR_LOOK_MS: Final = 1 * _SECOND_MS
DESCRIPTOR_LOOKS: Final = 3

# The HTTP edge.

# Bodies in memory at once; more clients get 429 before theirs are read.
HTTP_REQUESTS_MAX: Final = 1_000
# Load balancers and scrapers have places of their own: they are answered under full load, too.
HTTP_PROBES_MAX: Final = 100
# A waiting request costs a few KiB, a stream also a read each WATCH_READ_MS.
HTTP_WAITS_MAX: Final = 2_000
HTTP_STREAMS_MAX: Final = 200
# Per key, and per address at a server without keys: the screens of a team, and a quarter of all, so
# that no single client can use all of them.
CALLER_STREAMS_MAX: Final = 50
# How old the progress that a stream shows may be.
WATCH_READ_MS: Final = 500
# Shorter than the idle timeout of common proxies; it also detects that a client is gone.
STREAM_PING_MS: Final = 15 * _SECOND_MS
# Hints are written together: a write costs more than the hints in it, and nobody is in a hurry.
EVENT_GATHER_MS: Final = 20
# Hints in one write, about 250 KiB; the next write waits until the subscriber has read them.
EVENT_WRITE_MAX: Final = 1_000
# How long a subscriber waits before it reconnects.
EVENT_RETRY_MS: Final = 1 * _SECOND_MS
# The id of a server and a number, with some spare room.
EVENT_ID_LENGTH_MAX: Final = 128
# Request line and headers; usually a few hundred bytes, most of it a page token in the URL.
HTTP_HEAD_BYTES_MAX: Final = 8 * _KIB
# A client on a slow line sends its head in one packet; a slower one only occupies a socket.
HTTP_HEAD_MS: Final = 10 * _SECOND_MS
# An idle connection is kept for a client's next request, not for an unused pool.
HTTP_IDLE_MS: Final = 30 * _SECOND_MS
# A replaced certificate is found within this time; new connections check it themselves.
TLS_LOOK_MS: Final = 1 * _SECOND_MS
# Time to order another certificate, and how often the expiry is logged.
TLS_EXPIRY_NEAR_MS: Final = 30 * _DAY_MS
TLS_REMIND_MS: Final = 1 * _DAY_MS
# The time for a client's handshake, as for the head of a request.
TLS_HANDSHAKE_MS: Final = 10 * _SECOND_MS
# A certificate with its chain has 10 KiB, the authorities of an operating system 250.
TLS_FILE_BYTES_MAX: Final = 1 * _MIB
# Deeper JSON is not real data, and can exceed the stack of its readers.
JSON_DEPTH_MAX: Final = 100
# A load balancer asks about once a second, and must not wait for a store that is not available.
READY_MS_MAX: Final = 900
# After a full disk: half of the largest payload must fit before the server reports that it is
# ready, and how often that is tried.
SPACE_PROBE_BYTES: Final = 1 * _MIB
SPACE_PROBE_MS: Final = 1 * _SECOND_MS

# The doctor: the limits for a warning and for a problem.

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
DISK_WARNING_BYTES: Final = 1024 * _MIB
DISK_PROBLEM_BYTES: Final = 128 * _MIB
# SQLite starts to write its log back at 4 MiB; far beyond, a reader prevents it.
WAL_WARNING_BYTES: Final = 1024 * _MIB
# Leases are judged and timers handled each second; a server that is not sighted may need longer.
STUCK_MS: Final = 1 * _MINUTE_MS
# Redeployed workers are back by then.
WAITING_PROBLEM_MS: Final = 1 * _MINUTE_MS
# A person at a prompt waits for at most ten seconds.
DIAGNOSIS_MS_MAX: Final = 8 * _SECOND_MS
# Findings of one kind, and rows that one check reads.
FINDINGS_MAX: Final = 20
DIAGNOSED_ROWS_MAX: Final = 10_000
# Of the oldest runs; of one type; 100,000 children of an ended run live on for 105 s.
DIAGNOSED_JOURNALS_MAX: Final = 5_000
PARKED_READ_MAX: Final = 20
CLOSING_PROBLEM_MS: Final = 2 * _MINUTE_MS
# Rows that `db check` has in memory at a time: 80 MiB if each has the largest input and output.
SCANNED_ROWS_MAX: Final = 20
# Damaged rows that it names; of more it shows only the number.
SCANNED_DAMAGES_MAX: Final = 100
# How long the structure of a SQLite file is checked before a server starts: enough for a cached
# file of 1 GiB, and the start is not delayed longer for a larger one.
SQLITE_CHECK_MS_MAX: Final = 2 * _SECOND_MS
