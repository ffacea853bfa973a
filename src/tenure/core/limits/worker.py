"""Workers: their leases, slots and ends."""

from typing import Final

from tenure.core.limits.unit import HOUR_MS, MINUTE_MS, SECOND_MS

# Each type of an offer is one probe of the claim.
TYPES_PER_WORKER_MAX: Final = 1_000
WORKER_SLOTS_DEFAULT: Final = 100
# When a worker is lost, all its tasks are put back: 20 release batches.
WORKER_SLOTS_MAX: Final = 10_000
# Queues of one worker process: each has its own stream and lease.
WORKER_QUEUES_MAX: Final = 50
# How long a server assumes that a worker belongs to the API key of its last call; a worker that
# polls calls with each heartbeat.
WORKER_KEY_KEPT_MS: Final = 30 * SECOND_MS
# Workers whose API keys a server caches, about 1 KiB each; enough for all workers at one server.
WORKER_KEYS_KEPT_MAX: Final = 10_000
# A held set cannot be larger than the slots.
HELD_SET_MAX: Final = WORKER_SLOTS_MAX
# Below this, one lost packet costs the lease; above it, a dead worker keeps its tasks too long.
LEASE_MS_MIN: Final = 10 * SECOND_MS
LEASE_MS_MAX: Final = 10 * MINUTE_MS
# Three heartbeats per lease: two may be lost.
SESSION_LEASE_MS: Final = 15 * SECOND_MS
POLL_LEASE_MS: Final = 30 * SECOND_MS
SERVED_LEASE_MS: Final = 60 * SECOND_MS
# Failures in a row, besides an ended lease, before a served worker counts as unreachable.
SERVED_FAILURES_MAX: Final = 3
# Time to reconnect after a socket closed without goodbye, before the lease is ended early.
SUSPECT_GRACE_MS: Final = 3 * SECOND_MS
# Below this, a live worker has no time to reconnect; above it, its lease ends sooner anyway.
SUSPECT_GRACE_MS_MIN: Final = 100
SUSPECT_GRACE_MS_MAX: Final = 15 * SECOND_MS
# The server releases exclusive work this much later than its worker stops it by its own clock.
EXCLUSIVE_MARGIN_MS: Final = 1 * SECOND_MS
# A process with exclusive work that ignores the stop is killed within this time.
EXCLUSIVE_KILL_MS: Final = 500
# The clocks of a worker and of the store differ by at most one part in this number.
CLOCK_DRIFT_PARTS: Final = 100
# When more sessions than both of these end at once, the network failed, not the workers.
MASS_CLOSE_SESSIONS_MIN: Final = 10
MASS_CLOSE_SHARE: Final = 0.1
# An event loop that lags longer than a heartbeat may be late is blocked by user code.
LOOP_LAG_BLOCKED_MS: Final = 1 * SECOND_MS
# Most tasks end within it; the rest is handed back without counting as a failure.
DRAIN_DEADLINE_MS: Final = 5 * MINUTE_MS
# Shorter than the idle timeout of common proxies.
LONG_POLL_MS: Final = 60 * SECOND_MS
# Long enough to examine a crash of the previous day.
OFFLINE_KEPT_MS: Final = 24 * HOUR_MS
# Heartbeats of one worker that a server remembers, a quarter of an hour of a session, and the
# workers of which it remembers them: 2 KiB each.
BEATS_KEPT: Final = 180
BEATS_WORKERS_MAX: Final = 10_000
# Live attempts of each worker that a list counts; a single worker is counted to the end.
HELD_LISTED_MAX: Final = 1_000
# Workers that a check of many reads at once, how often it reads more, and how many workers or
# attempts it names that are in the way.
STOP_CHECKED_MAX: Final = 10_000
STOP_READS_MAX: Final = 10
STOP_BLOCKERS_MAX: Final = 100
# How often a check that waits looks again; a slow look only takes a twentieth of the time.
STOP_LOOK_MS: Final = 500
STOP_LOOK_BUDGET: Final = 20
# Workers or tasks that are asked for by their ids at once.
LISTED_IDS_MAX: Final = 100
