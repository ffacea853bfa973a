"""What one transaction or one answer may hold, and what servers remember between them."""

from typing import Final

from tenure.core.limits.unit import KIB, MIB, SECOND_MS

# Beyond 500 commands a batch gains no throughput and only adds latency.
WORK_BATCH_MAX: Final = 500
# Payloads that one transaction writes, well before its deadline: PostgreSQL took 6 s for 200 MiB.
WORK_BATCH_BYTES_MAX: Final = 16 * MIB
# Some seconds of work for a lane; a full queue answers 429 before it accepts anything.
LANE_QUEUE_MAX: Final = 10_000
# Inputs, details and outputs that one batch hands out at most; the rest is in the next batch. It is
# as much as one session takes: each byte is in memory four times while it is read and sent.
BATCH_BYTES_MAX: Final = 16 * MIB
# Bytes that a session, or a stream of results, may have queued but not written yet.
STREAM_BYTES_MAX: Final = 16 * MIB
# Answers to polls stay below gRPC's own message limit; one task always fits.
POLL_BYTES_MAX: Final = 3 * MIB
# Pages of journals beside them; whoever needs more asks for it.
POLL_PAGE_BYTES_MAX: Final = 512 * KIB
# A claim reads up to WORK_BATCH_MAX rows of each type. Larger inputs are read only when it is known
# that they are handed out. The SQL of the claim contains this number.
CLAIM_INPUT_BYTES_MAX: Final = 16 * KIB
# Payloads in commands that wait for a batch. Beyond this, new work is refused; beyond twice as
# much, reports too. Some seconds of work with the largest payloads.
LANE_BYTES_MAX: Final = 64 * MIB
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
CACHE_INPUT_BYTES_MAX: Final = 1 * KIB
# A row with larger heartbeat details is not cached.
CACHE_DETAILS_BYTES_MAX: Final = 4 * KIB
# What fits on a screen, and the most that one list answer costs.
PAGE_SIZE_DEFAULT: Final = 20
PAGE_SIZE_MAX: Final = 100
# Lines of waiting tasks that one read of all queues uses: an index probe each.
LINES_SEEN_MAX: Final = 1_000
# Workers that one round of the check for deaf ones reads; the next round continues after them.
DEAF_WATCHED_MAX: Final = 1_000
# A worker cannot become deaf in less than two heartbeat intervals.
DEAF_WATCH_MS: Final = 3 * SECOND_MS
# An exact total beyond this is not needed; counting every row of a large table takes seconds.
COUNTED_MAX: Final = 10_000
# Rows that one page of a list reads, some milliseconds; a page that finds too few rows says where
# to continue.
LISTED_SEEN_MAX: Final = 10_000
# Live tasks of a queue that are counted when it is shown; of more, the last sample has the numbers.
QUEUE_LOOK_MAX: Final = 1_000
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
# Held tasks that a rehearsal of an act decides about, one release batch.
REHEARSED_MAX: Final = 500
# Tasks that a search loads at once to look into them, and how often for one page: a tenth of a
# second. A read that went past many rows counts as half of these.
SEARCHED_AT_ONCE: Final = 500
SEARCHES_MAX: Final = 10
